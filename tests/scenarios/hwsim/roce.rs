// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver over two HCAs with Ethernet ports, back to back. The hosts are network namespaces of one
//! machine, whose `eth0` are the network devices of the ports.

use super::fabric::CONFIGFS;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

/// Directory of the fabric.
fn fabric() -> String {
    format!("{CONFIGFS}/roce")
}

/// Name of the HCA of a host.
pub(super) fn name(host: &Host) -> String {
    format!("h{}", host.number())
}

/// A file of the HCA of a host.
pub(super) fn file(host: &Host, name_of_file: &str) -> String {
    format!("{}/hcas/{}/{name_of_file}", fabric(), name(host))
}

/// Writes to a file of the HCA of a host. A text of several lines, `\n` between them, is one write.
pub(super) fn write(host: &Host, name_of_file: &str, text: &str) -> Result<()> {
    host.outside()
        .ok(&format!("printf '{text}' >{}", file(host, name_of_file)))?;
    Ok(())
}

/// Makes the fabric, whose HCAs are off: `make` may still set what they are.
pub(super) fn make(bed: &Bed) -> Result<()> {
    let outside = bed.pair()?.0.outside();
    outside.ok(&format!(
        "set -e
         modprobe ib_hwsim
         mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
         mkdir {0} {0}/hcas/h1 {0}/hcas/h2 {0}/cables/c1
         echo h1/1 h2/1 >{0}/cables/c1/ends",
        fabric()
    ))?;
    for host in &bed.hosts {
        let netns = host.netns().context("a host without a namespace")?;
        outside.ok(&format!(
            "nsenter --net=/run/netns/{netns} sh -c 'echo eth0 >{}'",
            file(host, "netdev")
        ))?;
    }
    Ok(())
}

/// Switches all HCAs on and plugs the cable in.
pub(super) fn live(bed: &Bed) -> Result<()> {
    let outside = bed.pair()?.0.outside();
    outside.ok(&format!("echo 1 >{}/live", fabric()))?;
    Ok(())
}

/// Pulls the cable, or plugs it in.
pub(super) fn plug(bed: &Bed, plugged: bool) -> Result<()> {
    let outside = bed.pair()?.0.outside();
    let plugged = u8::from(plugged);
    outside.ok(&format!("echo {plugged} >{}/cables/c1/plugged", fabric()))?;
    Ok(())
}

/// Gives each host an `ib0` of the driver's that is up, made with `options`.
pub(super) fn interfaces(bed: &Bed, options: &str) -> Result<()> {
    for host in &bed.hosts {
        host.ib_add(options)?;
        host.ib_up()?;
    }
    Ok(())
}

/// Two hosts with an `ib0` each. `set` may set what their HCAs are before they are switched on.
pub(super) fn up(bed: &Bed, options: &str, set: impl FnOnce(&Bed) -> Result<()>) -> Result<()> {
    make(bed)?;
    set(bed)?;
    live(bed)?;
    interfaces(bed, options)
}

/// Waits until a ping passes.
pub(super) fn ping(from: &Host, to: &Host) -> Result<()> {
    from.wait_until(
        &format!("ping -q -c 1 -W 1 {}", to.ip4()),
        Duration::from_secs(30),
    )
}

scenario! {
    /// IPv4 and IPv6 pass, large and small.
    fn roce_ports_ping(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for (from, to) in [(a, b), (b, a)] {
            for size in [56, 4000, 20000] {
                from.ok(&format!(
                    "ping -4 -q -c 3 -i 0.05 -W 5 -s {size} {} && ping -6 -q -c 3 -i 0.05 -W 5 -s {size} {}",
                    to.ip4(),
                    to.ip6()
                ))?;
            }
        }
        bed.finish()
    }
}

/// Waits until the `ib0` of a host has a carrier, or has none.
pub(super) fn carrier(host: &Host, carrier: bool) -> Result<()> {
    let not = if carrier { "" } else { "! " };
    host.wait_until(
        &format!("{not}ip -o link show ib0 | grep -q LOWER_UP"),
        Duration::from_secs(10),
    )
}

scenario! {
    /// A cable that is pulled takes both carriers away, and so does a network device that is down.
    fn a_roce_cable_is_pulled(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        for _ in 0..3 {
            plug(&bed, false)?;
            carrier(a, false)?;
            carrier(b, false)?;
            plug(&bed, true)?;
            carrier(a, true)?;
            carrier(b, true)?;
            ping(a, b)?;
        }
        a.ok("ip link set eth0 down")?;
        carrier(a, false)?;
        carrier(b, false)?;
        a.ok("ip link set eth0 up")?;
        carrier(a, true)?;
        carrier(b, true)?;
        ping(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// What an HCA is gets set before it is switched on.
    fn a_roce_port_has_limits(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| {
            let (a, b) = bed.pair()?;
            write(a, "mtu", "2048")?;
            write(b, "max_send_sge", "4")
        })?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        let mtu = a.ok("cat /sys/class/net/ib0/mtu")?;
        ensure!(mtu.trim() == "2044", "{mtu}");
        bed.finish()
    }
}
