// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver on InfiniBand ports: between hosts that are network namespaces with an HCA each, opensm on
//! the first, and the kernel's own `ib_ipoib` as the peer, or another one of ours.

mod bond;
mod groups;
mod hijack;
mod managers;
mod many;
mod neighbours;
mod offload;
mod partitions;
mod paths;
mod properties;
mod rdmacm;
mod senders;
mod settings;
mod weather;

use super::fabric::CONFIGFS;
use super::ipoib::multicast;
use super::manager::Manager;
use super::weather::PARALLEL;
use super::{EXCLUSIVE, hca, inhabit, make};
use crate::interop::neighbour;
use crate::order::counter;
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use serde_json::Value;
use std::time::{Duration, Instant};

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
    up_made(bed, options, kinds, |outside| make(outside, topology))
}

/// Does the same with a fabric that `make` makes on the machine.
fn up_made(
    bed: &Bed,
    options: &str,
    kinds: &[Kind],
    make: impl FnOnce(&Host) -> Result<()>,
) -> Result<Manager> {
    let outside = bed.hosts.first().context("no host")?.outside();
    outside.ok("modprobe ipoib_rs")?;
    if kinds.iter().any(|(driver, _)| *driver == Driver::C) {
        outside.ok("modprobe ib_ipoib")?;
    }
    make(&outside)?;
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
fn add(host: &Host, options: &str) -> Result<()> {
    host.ok("! test -e /sys/class/net/ib0 || ip link set ib0 name ibc0")?;
    host.ok(&format!(
        "ip link add name ib0 type ipoib_rs device {} {options}",
        hca(host)
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
        let bytes = end.pointer("/sum_received/bytes").and_then(Value::as_f64);
        ensure!(bytes.is_some_and(|bytes| bytes > 1e5), "{options}: {end}");
    }
    transfer(a, b, &b.ip4(), 2)?;
    transfer(b, a, &a.ip6(), 2)
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
    /// A gibibyte from ours to `ib_ipoib` in connected mode, and back in datagram mode, arrives as it was sent; 4 MiB on
    /// the debug kernel.
    fn a_gibibyte_arrives(bed) {
        let mib = if bed.kernel().is_checked() { 4 } else { 1024 };
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "connected"), (Driver::C, "connected")])?;
        let (a, b) = bed.pair()?;
        for (from, to) in [(a, b), (b, a)] {
            let begin = Instant::now();
            transfer(from, to, &to.ip4(), mib)?;
            println!("{mib} MiB from host {} in {:.1} s", from.number(), begin.elapsed().as_secs_f32());
            b.ok("echo datagram >/sys/class/net/ib0/mode && ip link set ib0 mtu 2044")?;
            b.wait_until(&format!("ping -q -c 1 -W 1 {}", a.ip4()), Duration::from_secs(10))?;
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

scenario! {
    /// Parallel cables of different length, and a switch that spreads datagrams over both: what overtakes is put in order
    /// again, though packets have no GRH that says who sent them.
    #[on(lockdep)]
    fn datagrams_are_put_in_order(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up_made(&bed, "", &[kind, kind], |outside| {
            outside.ok("modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config")?;
            outside.ok(PARALLEL)?;
            Ok(())
        })?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 10 {}", b.ip4()))?;
        let outside = a.outside();
        outside.ok(&format!("cd {CONFIGFS}/twin && echo 300 >cables/slow/delay && echo packet >switches/s1/adaptive"))?;
        transfer(a, b, &b.ip4(), 4)?;
        let held = counter(b, "rx_seq_held")?;
        let (reordered, late) = (counter(b, "rx_seq_reordered")?, counter(b, "rx_seq_late")?);
        ensure!(held > 50 && reordered > 50 && 2 * late < reordered, "{}", b.ok("ethtool -S ib0")?);
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// The fabric is removed under interfaces that send, and made again.
    #[on(lockdep)]
    fn removal_takes_ours_along(bed) {
        let bed = bed.leaks().one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let kinds = [(Driver::Ours, "datagram"), (Driver::Ours, "connected")];
        for _ in 0..2 {
            let manager = up(&bed, "pair", "", &kinds)?;
            let pings = [
                a.spawn(&format!("ping -f -q {}", b.ip4()))?,
                b.spawn(&format!("ping -f -q {}", a.ip6()))?,
                b.spawn("ping -f -q 10.1.0.77")?,
            ];
            std::thread::sleep(a.scaled(Duration::from_millis(500)));
            outside.run_for("ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
            for host in [a, b] {
                host.run("ip link show ib0")?.refused()?;
            }
            for ping in pings {
                ping.stop()?;
            }
            manager.kill()?;
        }
        outside.ok("modprobe -r ipoib_rs")?;
        bed.finish()
    }
}
