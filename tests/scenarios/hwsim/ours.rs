// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver on InfiniBand ports: between hosts that are network namespaces with an HCA each, opensm on
//! the first, and the kernel's own `ib_ipoib` as the peer, or another one of ours.

mod groups;
mod managers;
mod partitions;

use super::ipoib::multicast;
use super::manager::Manager;
use super::{EXCLUSIVE, inhabit, make};
use crate::interop::neighbour;
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use serde_json::Value;
use std::time::Duration;

/// Who drives `ib0` of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Driver {
    Ours,
    C,
}

/// A host's driver, and its mode.
pub(super) type Kind = (Driver, &'static str);

/// Makes a fabric of a topology, gives each host an HCA and an `ib0` of its kind, which is up; `options` are opensm's.
pub(super) fn up(bed: &Bed, topology: &str, options: &str, kinds: &[Kind]) -> Result<Manager> {
    let outside = bed.hosts.first().context("no host")?.outside();
    outside.ok("modprobe ib_ipoib")?;
    outside.ok("modprobe ipoib_rs")?;
    make(&outside, topology)?;
    let manager = inhabit(bed, options)?;
    for (host, (driver, mode)) in bed.hosts.iter().zip(kinds) {
        if *driver == Driver::Ours {
            add(host, &format!("mode {mode}"))?;
        } else {
            host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
        }
        host.ib_up()?;
        if *mode == "connected" {
            host.ok("ip link set ib0 mtu 65520")?;
        }
    }
    Ok(manager)
}

/// Makes `ib0` of ours on the HCA of a host. Where `ib_ipoib` has made one, that goes on under another name.
pub(super) fn add(host: &Host, options: &str) -> Result<()> {
    host.ok("! test -e /sys/class/net/ib0 || ip link set ib0 name ibc0")?;
    host.ok(&format!(
        "ip link add link ibc0 name ib0 type ipoib_rs {options}"
    ))?;
    Ok(())
}

/// All sizes of packets either way, large ones in fragments, and each knows the other by its address.
pub(super) fn pings(a: &Host, b: &Host, mtu: u32) -> Result<()> {
    for (from, to) in [(a, b), (b, a)] {
        ensure!(from.ok("cat /sys/class/net/ib0/mtu")?.trim() == mtu.to_string());
        let whole = mtu - 28;
        for size in [0, 56, whole, whole + 1, 65507] {
            from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()))?;
            from.ok(&format!(
                "ping -6 -q -c 2 -i 0.05 -W 5 -s {size} {}",
                to.ip6()
            ))?;
        }
        let address = to.ok("cat /sys/class/net/ib0/address")?;
        for target in [to.ip4(), to.ip6()] {
            // The flags tell apart what one knows of the other from what it says of itself.
            let known = neighbour(from, &target, "ib0")?;
            ensure!(known == address.trim(), "{known} for {address}");
        }
    }
    Ok(())
}

/// Streams either way, and a transfer that arrives as it was sent.
fn streams(bed: &Bed, a: &Host, b: &Host) -> Result<()> {
    for options in ["", "-R"] {
        let end: Value = iperf3(bed, &b.ip4(), options)?;
        let bytes = end
            .pointer("/sum_received/bytes")
            .and_then(Value::as_f64);
        ensure!(bytes.is_some_and(|bytes| bytes > 1e5), "{options}: {end}");
    }
    transfer(a, b, &b.ip4(), 8)?;
    transfer(b, a, &a.ip6(), 8)
}

/// All that two hosts do, by whatever drivers.
fn talk(bed: &Bed, a: &Host, b: &Host, mtu: u32) -> Result<()> {
    pings(a, b, mtu)?;
    let flood = a.ok(&format!("ping -q -c 200 -i 0.005 -W 5 {}", b.ip4()))?;
    ensure!(flood.contains(" 0% packet loss"), "{flood}");
    multicast(a, b)?;
    multicast(b, a)?;
    streams(bed, a, b)
}

scenario! {
    /// Ours and `ib_ipoib` in datagram mode: ARP, neighbour discovery, multicast, all sizes, streams. `ib_ipoib` has
    /// an interface on the same port, too.
    #[on(lockdep)]
    fn ours_and_ib_ipoib(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"), (Driver::C, "datagram")])?;
        let (a, b) = bed.pair()?;
        talk(&bed, a, b, 2044)?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Ours on both sides in datagram mode.
    #[on(lockdep)]
    fn ours_and_ours(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"), (Driver::Ours, "datagram")])?;
        let (a, b) = bed.pair()?;
        talk(&bed, a, b, 2044)?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Connected mode on one side or both, ours with `ib_ipoib` and with ours. Who is in datagram mode hears of its
    /// path's MTU.
    #[on(lockdep)]
    fn modes_of_both_sides(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (datagram, connected) = ("datagram", "connected");
        let manager = up(&bed, "pair", "", &[(Driver::Ours, connected), (Driver::C, connected)])?;
        let (a, b) = bed.pair()?;
        talk(&bed, a, b, 65520)?;
        for (ours, theirs) in [(datagram, connected), (connected, datagram), (datagram, datagram)] {
            for (host, mode) in [(a, ours), (b, theirs)] {
                host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
                let mtu = if mode == connected { 65520 } else { 2044 };
                host.ok(&format!("ip link set ib0 mtu {mtu}"))?;
            }
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(10))?;
            for (from, to) in [(a, b), (b, a)] {
                for size in [56, 2000, 2017, 30000] {
                    from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()))
                        .with_context(|| format!("{ours} with {theirs}, {size} bytes from {}", from.number()))?;
                }
            }
            streams(&bed, a, b)?;
        }
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Ours on both sides in connected mode, all sizes.
    #[on(lockdep)]
    fn ours_and_ours_connected(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "connected");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        talk(&bed, a, b, 65520)?;
        manager.end()?;
        bed.finish()
    }
}
