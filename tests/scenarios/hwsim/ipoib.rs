// SPDX-License-Identifier: GPL-2.0

//! The kernel's own IPoIB driver, `ib_ipoib`, between hosts that are network namespaces with an HCA each.

use super::fields::Fields;
use super::{EXCLUSIVE, Port, hca, ipoib_up};
use crate::interop::neighbour;
use crate::multicast::reaches;
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use regex::Regex;
use serde_json::Value;
use std::time::Duration;

scenario! {
    /// `ib_ipoib` between two namespaces: ARP, neighbour discovery, multicast, all sizes of packets, and
    /// streams both ways that arrive as they were sent.
    #[on(lockdep)]
    fn ib_ipoib_passes_packets(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "pair")?;
        let (a, b) = bed.pair()?;
        let own_counters = format!("perfquery -C {} -P 1", hca(a));
        let sent = Fields::of(a, &own_counters)?.number("PortXmitPkts")?;
        for (from, to) in [(a, b), (b, a)] {
            ensure!(from.ok("cat /sys/class/net/ib0/mtu")?.trim() == "2044");
            for size in [0, 56, 2016, 2017, 65507] {
                from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()))?;
                from.ok(&format!("ping -6 -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip6()))?;
            }
            from.ok(&format!("ping -q -c 1 -W 5 -M do -s 2016 {}", to.ip4()))?;
            from.run(&format!("ping -q -c 1 -W 1 -M do -s 2017 {}", to.ip4()))?.refused()?;
            let guid = Port::of(to, &hca(to))?.guid.to_be_bytes().map(|b| format!("{b:02x}")).join(":");
            let address = to.ok("cat /sys/class/net/ib0/address")?;
            ensure!(address.trim().ends_with(&guid), "{address} without {guid}");
            for target in [to.ip4(), to.ip6()] {
                ensure!(neighbour(from, &target, "ib0")? == address.trim());
            }
        }
        let flood = a.ok(&format!("ping -q -c 200 -i 0.005 -W 5 {}", b.ip4()))?;
        ensure!(flood.contains(" 0% packet loss"), "{flood}");
        let more = Fields::of(a, &own_counters)?.number("PortXmitPkts")? - sent;
        ensure!(more >= 200, "{more} packets counted");
        multicast(a, b)?;

        for options in ["", "-R"] {
            let end: Value = iperf3(&bed, &b.ip4(), options)?;
            let bytes = end.pointer("/sum_received/bytes").and_then(Value::as_f64);
            ensure!(bytes.is_some_and(|bytes| bytes > 1e5), "{options}: {end}");
        }
        transfer(a, b, &b.ip4(), 8)?;
        transfer(b, a, &a.ip6(), 8)?;
        manager.end()?;
        bed.finish()
    }
}

/// A multicast ping is answered, and the SA knows the groups that IPoIB needs (RFC 4391, section 4).
pub(super) fn multicast(a: &Host, b: &Host) -> Result<()> {
    multicast_in(a, b, 0xffff)
}

/// A multicast ping is answered.
pub(super) fn multicast_ping(a: &Host, b: &Host) -> Result<()> {
    let address = b.ok("ip -6 -o addr show dev ib0 scope link")?;
    let address = Regex::new("fe80::[0-9a-f:]+")?
        .find(&address)
        .with_context(|| format!("no link-local address: {address}"))?
        .as_str()
        .to_owned();
    a.wait_until(
        &format!("ping -6 -c 2 -i 0.2 -W 2 ff02::1%ib0 | grep -q 'from {address}'"),
        Duration::from_secs(10),
    )
    .with_context(|| {
        let facts = "ip maddr show dev ib0; ip -6 neigh show dev ib0
             grep Icmp6 /proc/net/dev_snmp6/ib0 | grep -v ' 0$'";
        format!(
            "from host {}: {}; {address}: {}",
            a.number(),
            a.ok(facts).unwrap_or_default(),
            b.ok(facts).unwrap_or_default()
        )
    })
}

/// Does what [`multicast`] does where `ib0` is in a partition.
pub(super) fn multicast_in(a: &Host, b: &Host, pkey: u16) -> Result<()> {
    multicast_ping(a, b)?;
    let groups = Fields::of(a, &format!("saquery -C {} -P 1 -g", hca(a)))?;
    for (signature, group) in [("401b", "ffff:ffff"), ("401b", "1"), ("601b", "1")] {
        let mgid = format!("ff12:{signature}:{pkey:x}::{group}");
        ensure!(
            groups.texts("MGID").contains(&mgid.as_str()),
            "no {mgid} in {groups}"
        );
    }
    Ok(())
}

scenario! {
    /// The fabric is removed under all that uses it, and made again.
    #[on(lockdep)]
    fn removal_takes_everything_along(bed) {
        let bed = bed.leaks().one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let manager = ipoib_up(&bed, "pair")?;
        let pings = [
            a.spawn(&format!("ping -f -q {}", b.ip4()))?,
            b.spawn(&format!("ping -f -q {}", a.ip6()))?,
        ];
        std::thread::sleep(a.scaled(Duration::from_millis(500)));
        // Where opensm's HCA goes first, the other's requests to leave its multicast groups time out.
        outside.run_for("ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        for host in [a, b] {
            host.run("ip link show ib0")?.refused()?;
            host.run("rdma dev | grep hwsim")?.refused()?;
        }
        outside.run("ls /dev/infiniband | grep -E 'umad|issm'")?.refused()?;
        for ping in pings {
            ping.stop()?;
        }
        // Without its port it knows no end.
        manager.kill()?;

        let manager = ipoib_up(&bed, "pair")?;
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        transfer(b, a, &a.ip4(), 1)?;
        manager.kill()?;
        outside.run_for("ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}

const COUNTER: &str = include_str!("../../guest/hwsim/ipoib/counter.py");

pub(super) const SENDER: &str = include_str!("../../guest/hwsim/ipoib/sender.py");

/// Has one host send to a group that others have joined: each gets what is sent after something has come, once.
pub(super) fn send_to_group(from: &Host, to: &[Host]) -> Result<()> {
    let tasks = to
        .iter()
        .map(|host| host.spawn_python(COUNTER, &[]))
        .collect::<Result<Vec<_>>>()?;
    let limit = from.scaled(Duration::from_secs(15));
    for task in &tasks {
        task.wait_for("joined", limit)?;
    }
    reaches(from, &tasks, || from.python(SENDER, &["W", "10"]))?;
    from.python(SENDER, &["D", "200"])?.ok()?;
    from.python(SENDER, &["E", "3"])?.ok()?;
    for task in &tasks {
        let text = task.wait(limit)?.ok()?;
        ensure!(text.contains("received 200 200"), "{text}");
    }
    Ok(())
}

scenario! {
    /// On a switch, every host reaches every other. What is sent to a group comes to each of its members
    /// once, and not to a host that has not joined.
    #[on(lockdep)]
    fn a_star_of_hosts(bed) {
        let bed = bed.one_machine().hosts(5).append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "star 5")?;
        for from in &bed.hosts {
            for to in bed.hosts.iter().filter(|to| to.number() != from.number()) {
                from.ok(&format!("ping -q -c 1 -W 5 {} && ping -6 -q -c 1 -W 5 {}", to.ip4(), to.ip6()))?;
            }
        }
        let [sender, members @ .., outsider] = &bed.hosts[..] else {
            anyhow::bail!("too few hosts");
        };
        let received = |host: &Host| -> Result<u64> {
            Ok(host.ok("cat /sys/class/net/ib0/statistics/rx_packets")?.trim().parse()?)
        };
        let before = received(outsider)?;
        send_to_group(sender, members)?;
        let strays = received(outsider)? - before;
        ensure!(strays < 100, "{strays} packets came to a host that is no member");
        manager.end()?;
        bed.finish()
    }
}
