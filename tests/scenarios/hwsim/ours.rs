// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver on InfiniBand ports: between hosts that are network namespaces with an HCA each, opensm on
//! the first, and the kernel's own `ib_ipoib` as the peer, or another one of ours.

mod bond;
mod detour;
mod groups;
mod guids;
pub(crate) mod hijack;
mod managers;
mod many;
mod neighbours;
mod offload;
mod one_port;
mod parity;
mod partitions;
mod paths;
mod place;
mod properties;
pub(crate) mod rdmacm;
mod refused;
mod room;
mod segments;
mod senders;
mod settings;
mod unsent;
mod weather;

use super::caps::make_pair;
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

/// The driver of `ib0` of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Driver {
    Ours,
    C,
}

/// A host's driver, and its mode.
pub(super) type Kind = (Driver, &'static str);

/// The modes of ours and of `ib_ipoib`: all there are, one after the other, of which the next differs in one side's.
const MODES: [[&str; 2]; 4] = [
    ["connected", "connected"],
    ["connected", "datagram"],
    ["datagram", "datagram"],
    ["datagram", "connected"],
];

const LIMIT: Duration = Duration::from_secs(10);

/// Makes a fabric of a topology, gives each host an HCA and an `ib0` of its kind, which is up; `options` are opensm's.
pub(super) fn up(bed: &Bed, topology: &str, options: &str, kinds: &[Kind]) -> Result<Manager> {
    up_made(bed, options, kinds, |outside| make(outside, topology))
}

/// Does the same with a pair whose HCAs have these attributes.
fn up_with(bed: &Bed, attributes: &[(&str, &str)], kinds: &[Kind]) -> Result<Manager> {
    up_made(bed, "", kinds, |outside| make_pair(outside, attributes))
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

/// Sets the mode of an interface, and the largest MTU that goes with it: that.
fn set_mode(host: &Host, interface: &str, mode: &str) -> Result<u32> {
    let mtu = if mode == "connected" { 65520 } else { 2044 };
    // A child of `ib_ipoib` that netlink has made has no file.
    host.ok(&format!(
        "set -e
         file=/sys/class/net/{interface}/mode
         if [ -e $file ]; then echo {mode} >$file; else ip link set {interface} type ipoib mode {mode}; fi
         ip link set {interface} mtu {mtu}"
    ))?;
    Ok(mtu)
}

/// All sizes of packets either way, large ones in fragments, and each knows the other by its address. Each host has an
/// MTU of its own, and sends packets of that size whole, as far as the peer takes them.
pub(super) fn pings(ends: [(&Host, u32); 2]) -> Result<()> {
    let [a, b] = ends;
    for ((from, mtu), (to, _)) in [(a, b), (b, a)] {
        ensure!(from.ok("cat /sys/class/net/ib0/mtu")?.trim() == mtu.to_string());
        for (ping, target, headers) in [("ping", to.ip4(), 28), ("ping -6", to.ip6(), 48)] {
            let whole = mtu - headers;
            for size in [0, 56, whole, whole + 1, 65507] {
                from.ok(&format!("{ping} -q -c 2 -i 0.05 -W 5 -s {size} {target}"))?;
            }
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

/// A packet that is larger than a datagram and that nobody may take apart passes, or else its sender hears of the path's
/// MTU.
fn large_packet(from: &Host, target: &str, passes: bool) -> Result<()> {
    let ping = format!("ping -c 2 -i 0.2 -W 1 -M do -s 60000 {target}");
    if passes {
        // It may have to wait for a connection.
        return from.wait_until(&ping, LIMIT);
    }
    from.run(&ping)?.refused()?;
    let route = from.ok(&format!("ip route get {target}"))?;
    ensure!(route.contains("mtu 2044"), "{route}");
    Ok(())
}

/// Large packets from whoever is in connected mode: `ib_ipoib` is ready for connections in either mode, ours only then.
fn large_packets(ours: (&Host, &str), theirs: (&Host, &str), modes: [&str; 2]) -> Result<()> {
    let [here, there] = modes.map(|mode| mode == "connected");
    if here {
        large_packet(ours.0, theirs.1, true)?;
    }
    if there {
        large_packet(theirs.0, ours.1, here)?;
    }
    Ok(())
}

/// All that two hosts do, by whatever drivers, each with its MTU.
fn talk(bed: &Bed, mtus: [u32; 2]) -> Result<()> {
    let (a, b) = bed.pair()?;
    pings([(a, mtus[0]), (b, mtus[1])])?;
    let flood = a.ok(&format!("ping -q -c 200 -i 0.005 -W 5 {}", b.ip4()))?;
    ensure!(flood.contains(" 0% packet loss"), "{flood}");
    multicast(a, b)?;
    multicast(b, a)?;
    streams(bed, a, b)
}

scenario! {
    /// Ours on both sides in datagram mode.
    #[on(lockdep)]
    fn ours_and_ours(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"), (Driver::Ours, "datagram")])?;
        talk(&bed, [2044; 2])?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Ours and `ib_ipoib` in all combinations of their modes: ARP, neighbour discovery, multicast, all sizes, streams; who
    /// sends more than the other takes hears of the path's MTU.
    #[on(lockdep)]
    fn modes_of_both_sides(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"), (Driver::C, "datagram")])?;
        let (a, b) = bed.pair()?;
        for modes in MODES {
            let mtus = [set_mode(a, "ib0", modes[0])?, set_mode(b, "ib0", modes[1])?];
            let all = || -> Result<()> {
                a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
                talk(&bed, mtus)?;
                large_packets((a, &a.ip4()), (b, &b.ip4()), modes)?;
                large_packets((a, &a.ip6()), (b, &b.ip6()), modes)
            };
            all().with_context(|| format!("ours and theirs: {modes:?}"))?;
        }
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// In each combination of modes, a gibibyte arrives as it was sent: half of it from ours to `ib_ipoib` by one version of
    /// IP, half of it back by the other one. On the debug kernel, it is 8 MiB.
    #[on(both)]
    fn a_gibibyte_arrives(bed) {
        let mib = if bed.kernel().is_checked() { 4 } else { 512 };
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"), (Driver::C, "datagram")])?;
        let (a, b) = bed.pair()?;
        for (number, modes) in MODES.iter().enumerate() {
            set_mode(a, "ib0", modes[0])?;
            set_mode(b, "ib0", modes[1])?;
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
            let [there, back] = if number % 2 == 0 { [b.ip4(), a.ip6()] } else { [b.ip6(), a.ip4()] };
            for (from, to, target) in [(a, b, there), (b, a, back)] {
                let begin = Instant::now();
                transfer(from, to, &target, mib).with_context(|| format!("{modes:?}, to {target}"))?;
                println!("{modes:?}: {mib} MiB to {target} in {:.1} s", begin.elapsed().as_secs_f32());
            }
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
        talk(&bed, [65520; 2])?;
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
        outside.ok(&format!("cd {CONFIGFS}/twin && echo 100 >cables/slow/delay && echo packet >switches/s1/adaptive"))?;
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
