// SPDX-License-Identifier: GPL-2.0

//! The simulated fabric `ib_hwsim`, in the topologies that `ib-hwsim` makes, with Debian's opensm and diagnostics
//! and the kernel's own IPoIB driver on top; and, over Ethernet ports (`roce*`), this checkout's driver.

mod address_storage;
mod bad;
mod caps;
mod captures;
mod churn;
mod control;
mod device_failures;
mod events;
mod fabric;
mod faults;
mod fields;
mod ipoib;
mod live;
mod mads;
pub(crate) mod manager;
mod managers;
pub(crate) mod manual;
mod observe;
pub(crate) mod ours;
mod own;
mod pair;
mod rc;
mod rds;
pub(crate) mod roce;
mod roce_anew;
mod roce_bursts;
mod roce_connected;
mod roce_devices;
mod roce_frozen;
mod roce_gids;
mod roce_limits;
mod roce_packets;
mod roce_rings;
mod roce_settings;
mod storage;
mod thrown;
mod topologies;
mod trunk;
mod weather;

use anyhow::{Context, Result, ensure};
use fields::Fields;
use lab::bed::{Bed, Host};
use manager::Manager;
use std::time::Duration;

/// Gives each RDMA device to one network namespace, as `rdma system set netns exclusive` does. That has to come
/// before the first namespace is made.
const EXCLUSIVE: &str = "ib_core.netns_mode=0";

/// The HCA that a host has in its network namespace.
fn hca(host: &Host) -> String {
    device(host.number())
}

/// The RDMA device of the HCA with a number from 1: they are switched on in their order.
pub(crate) fn device(number: u8) -> String {
    format!("hwsim{}", number - 1)
}

/// A port as `ibstat` shows it.
#[derive(Debug)]
struct Port {
    node_guid: u64,
    guid: u64,
    lid: u64,
    sm_lid: u64,
    state: String,
    physical_state: String,
}

impl Port {
    fn of(host: &Host, hca: &str) -> Result<Port> {
        let fields = Fields::of(host, &format!("ibstat {hca}"))?;
        ensure!(fields.text("Number of ports")? == "1", "{fields}");
        ensure!(fields.text("Link layer")? == "InfiniBand", "{fields}");
        Ok(Port {
            node_guid: fields.number("Node GUID")?,
            guid: fields.number("Port GUID")?,
            lid: fields.number("Base lid")?,
            sm_lid: fields.number("SM lid")?,
            state: fields.text("State")?.to_owned(),
            physical_state: fields.text("Physical state")?.to_owned(),
        })
    }
}

/// Makes a fabric of a topology, which begins with its name.
pub(crate) fn make(host: &Host, topology: &str) -> Result<()> {
    host.ok(&format!("ib-hwsim {topology}"))?;
    Ok(())
}

/// Waits until the port of an HCA is Active.
pub(crate) fn active(host: &Host, hca: &str) -> Result<()> {
    host.wait_until(
        &format!("ibstat {hca} 1 | grep -q '^State: Active'"),
        Duration::from_secs(15),
    )
}

/// Loads `ib_ipoib`, makes a fabric of a topology, gives each host an HCA, and brings `ib0` up on all; opensm,
/// which runs on the first.
fn ipoib_up(bed: &Bed, topology: &str) -> Result<Manager> {
    ipoib_up_with(bed, topology, "")
}

/// Does the same with options for opensm.
fn ipoib_up_with(bed: &Bed, topology: &str, options: &str) -> Result<Manager> {
    ipoib_up_made(bed, options, |outside| make(outside, topology))
}

/// Does the same with a fabric, or several, that `make` makes on the machine.
fn ipoib_up_made(
    bed: &Bed,
    options: &str,
    make: impl FnOnce(&Host) -> Result<()>,
) -> Result<Manager> {
    let outside = bed.hosts.first().context("no host")?.outside();
    // In this order, its interfaces have to go and come again as the HCAs move.
    outside.ok("modprobe ib_ipoib")?;
    make(&outside)?;
    let manager = inhabit(bed, options)?;
    for host in &bed.hosts {
        host.ib_up()?;
    }
    Ok(manager)
}

/// Gives each host an HCA, and waits until its port is Active; opensm, which runs on the first.
fn inhabit(bed: &Bed, options: &str) -> Result<Manager> {
    let first = bed.hosts.first().context("no host")?;
    let outside = first.outside();
    let mode = outside.ok("rdma system show")?;
    ensure!(mode.contains("netns exclusive"), "{mode}");
    for host in &bed.hosts {
        let netns = host.netns().context("a host without a namespace")?;
        outside.ok(&format!("rdma dev set {} netns {netns}", hca(host)))?;
    }
    let manager = Manager::start(first, &hca(first), options)?;
    for host in &bed.hosts {
        active(host, &hca(host))?;
    }
    Ok(manager)
}

/// Checks that the counters of a port count the queries for them, have seen no error, and can be reset.
fn counts(host: &Host, from: &str, lid: u64, port: u8) -> Result<()> {
    let query =
        |options: &str| Fields::of(host, &format!("perfquery {from} {options} {lid} {port}"));
    for options in ["", "-x"] {
        let first = query(options)?;
        let second = query(options)?;
        for key in ["PortXmitPkts", "PortRcvPkts", "PortXmitData", "PortRcvData"] {
            ensure!(
                second.number(key)? > first.number(key)?,
                "{key}: {first}{second}"
            );
        }
    }
    let before = query("")?;
    for key in [
        "SymbolErrorCounter",
        "LinkDownedCounter",
        "PortRcvErrors",
        "PortXmitDiscards",
        "VL15Dropped",
    ] {
        ensure!(before.number(key)? == 0, "{before}");
    }
    host.ok(&format!("perfquery {from} -R {lid} {port}"))?;
    let after = query("")?;
    ensure!(
        after.number("PortXmitPkts")? < before.number("PortXmitPkts")?,
        "{before}{after}"
    );
    Ok(())
}
