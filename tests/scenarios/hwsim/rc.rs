// SPDX-License-Identifier: GPL-2.0

//! Reliable connections: the kernel's own `ib_ipoib` in connected mode.

use super::fields::Fields;
use super::{EXCLUSIVE, hca, ipoib_up};
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use serde_json::Value;
use std::time::Duration;

/// Puts the interfaces of both hosts into connected mode.
pub(super) fn connect(bed: &Bed) -> Result<()> {
    for host in &bed.hosts {
        host.ok("echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu 65520")?;
        ensure!(host.ok("cat /sys/class/net/ib0/mode")?.trim() == "connected");
    }
    Ok(())
}

/// Connections of an HCA that are ready to send.
pub(super) fn connections(host: &Host, hca: &str) -> Result<usize> {
    let text = host.ok(&format!("rdma res show qp link {hca} type RC"))?;
    Ok(text
        .lines()
        .filter(|line| line.contains("state RTS"))
        .count())
}

/// Streams both ways, and what they carry arrives as it was sent.
fn streams(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    for options in ["", "-R", "-P 4", "--bidir"] {
        let end: Value = iperf3(bed, &b.ip4(), options)?;
        let bytes = end.pointer("/sum_received/bytes").and_then(Value::as_f64);
        ensure!(bytes.is_some_and(|bytes| bytes > 1e6), "{options}: {end}");
    }
    transfer(a, b, &b.ip4(), 32)?;
    transfer(b, a, &a.ip6(), 32)
}

scenario! {
    /// Connected mode passes packets of all sizes up to 65520 bytes whole, in packets of the path MTU.
    #[on(lockdep, races)]
    fn ib_ipoib_in_connected_mode(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "pair")?;
        connect(&bed)?;
        let (a, b) = bed.pair()?;
        for (from, to) in [(a, b), (b, a)] {
            for size in [0, 1, 2000, 2016, 2017, 4092, 4093, 9000, 65479, 65492] {
                from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -M do -s {size} {}", to.ip4()))?;
            }
            from.ok(&format!("ping -6 -q -c 2 -i 0.05 -W 5 -s 60000 {}", to.ip6()))?;
            ensure!(connections(from, &hca(from))? >= 1, "no connection");
        }
        let counters = format!("perfquery -C {} -P 1 -x", hca(a));
        let before = Fields::of(a, &counters)?;
        let flood = a.ok(&format!("ping -q -c 100 -i 0.005 -W 5 -s 60000 {}", b.ip4()))?;
        ensure!(flood.contains(" 0% packet loss"), "{flood}");
        let after = Fields::of(a, &counters)?;
        for (key, least) in [("PortXmitPkts", 100 * 15), ("PortXmitData", 100 * 15_000)] {
            let more = after.number(key)? - before.number(key)?;
            ensure!(more >= least, "{key}: {more}");
        }
        streams(&bed)?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Connected mode by way of a switch.
    #[on(lockdep, races)]
    fn connections_through_a_switch(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "star 2")?;
        connect(&bed)?;
        let (a, b) = bed.pair()?;
        for size in [0, 4093, 65492] {
            a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -M do -s {size} {}", b.ip4()))?;
        }
        ensure!(connections(a, &hca(a))? >= 1, "no connection");
        streams(&bed)?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Connections end and begin again as interfaces change their mode under traffic.
    #[on(lockdep, both, races)]
    fn connections_come_and_go(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "pair")?;
        let (a, b) = bed.pair()?;
        // A raw socket gets the flood's replies, too, and has no room left for the one that a ping waits for. A socket
        // for pings gets its own only.
        a.ok("echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range")?;
        let flood = a.spawn(&format!("ping -f -q -s 20000 {}", b.ip4()))?;
        for _ in 0..5 {
            connect(&bed)?;
            a.ok(&format!("ping -q -c 3 -i 0.05 -W 10 -s 30000 {}", b.ip4()))?;
            for host in [a, b] {
                host.ok("echo datagram >/sys/class/net/ib0/mode")?;
            }
            let again = format!("ping -q -c 1 -W 1 -s 30000 {}", b.ip4());
            a.wait_until(&again, Duration::from_secs(20))?;
        }
        connect(&bed)?;
        a.wait_until(&format!("ping -q -c 1 -W 1 -s 30000 {}", b.ip4()), Duration::from_secs(20))?;
        flood.stop()?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// The fabric goes under interfaces that have had connections, and comes again.
    ///
    /// ib_ipoib destroys its CQs before the QPs of connections that are ending when its device goes, which the
    /// kernel warns of: it gets the time to end them.
    #[on(lockdep, races)]
    fn removal_takes_connections_along(bed) {
        let bed = bed.leaks().one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        for _ in 0..2 {
            let manager = ipoib_up(&bed, "pair")?;
            connect(&bed)?;
            let pings = [
                a.spawn(&format!("ping -f -q -s 60000 {}", b.ip4()))?,
                b.spawn(&format!("ping -f -q -s 60000 {}", a.ip4()))?,
            ];
            std::thread::sleep(a.scaled(Duration::from_millis(500)));
            for ping in pings {
                ping.stop()?;
            }
            for host in [a, b] {
                host.ok("ip link set ib0 down")?;
            }
            std::thread::sleep(a.scaled(Duration::from_secs(1)));
            outside.run_for("ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
            manager.kill()?;
        }
        bed.finish()
    }
}
