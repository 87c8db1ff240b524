// SPDX-License-Identifier: GPL-2.0

//! Partitions that come late, move in the table, and go.

use super::super::fabric::CONFIGFS;
use super::super::ipoib::{multicast_in, multicast_ping};
use super::super::manager::Manager;
use super::super::{EXCLUSIVE, Port, hca};
use super::{Driver, MODES, large_packets, set_mode, up};
use crate::order::counter;
use crate::transfer::{Transfer, transfer};
use anyhow::{Context, Result, bail, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
const FILE: &str = "/tmp/partitions.conf";

/// Starts a manager with these partitions besides the default one; none is running.
pub(super) fn start(host: &Host, partitions: &[String]) -> Result<Manager> {
    let text = partitions.join("\n");
    start_with(host, &format!("Default=0x7fff, ipoib : ALL=full;\n{text}"))
}

/// Starts a manager with these partitions; none is running.
fn start_with(host: &Host, partitions: &str) -> Result<Manager> {
    host.outside()
        .ok(&format!("cat >{FILE} <<'END'\n{partitions}\nEND\n"))?;
    Manager::start(host, &hca(host), &format!("-P {FILE}"))
}

/// Checks that `ib0` of each host is in a partition, with its broadcast address, and that all reach each other, the
/// first and the last, which are ours, by multicast as well.
fn all_in(bed: &Bed, pkey: u16) -> Result<()> {
    for host in &bed.hosts {
        let is_in = format!("test $(cat /sys/class/net/ib0/pkey) = {pkey:#06x}");
        host.wait_until(&is_in, LIMIT)
            .with_context(|| format!("host {}", host.number()))?;
        let [high, low] = pkey.to_be_bytes();
        let wanted = format!("00:ff:ff:ff:ff:12:40:1b:{high:02x}:{low:02x}:");
        let text = host.ok("cat /sys/class/net/ib0/broadcast")?;
        ensure!(text.starts_with(&wanted), "{wanted} {text}");
    }
    for from in &bed.hosts {
        for to in bed.hosts.iter().filter(|to| to.number() != from.number()) {
            from.wait_until(&format!("ping -q -c 1 -W 1 {}", to.ip4()), LIMIT)
                .with_context(|| format!("{pkey:#06x} from host {}", from.number()))?;
        }
    }
    if let [first, .., last] = &bed.hosts[..] {
        multicast_in(first, last, pkey)?;
        // The administrator does not answer diagnostics that come from a limited member.
        multicast_ping(last, first)?;
    }
    Ok(())
}

/// Makes a child of a host's `ib0`, which is of a driver, in a partition: `ib0.8001` with the addresses 10.2.0.x and
/// fd00:2::x, `ib0.8002` with 10.3.0.x and fd00:3::x.
pub(super) fn child(host: &Host, driver: Driver, partition: u8) -> Result<()> {
    // In datagram mode, `ib_ipoib` has the stack send to 128 queues of a child that netlink has made and that was in
    // connected mode before. It stops the first only, and overruns the one ring behind them.
    let (queues, kind) = match driver {
        Driver::Ours => ("", "ipoib_rs"),
        Driver::C => ("numtxqueues 1", "ipoib"),
    };
    let (name, net) = (format!("ib0.80{partition:02x}"), partition + 1);
    let number = host.number();
    host.ip(&format!(
        "link add link ib0 name {name} {queues} type {kind} pkey 0x80{partition:02x}
         addr add 10.{net}.0.{number}/24 dev {name}
         addr add fd00:{net}::{number}/64 dev {name} nodad
         link set {name} up"
    ))
}

/// All that two children in the first partition do: both versions of IP, multicast, all sizes, and a stream either way.
fn children_talk(bed: &Bed, modes: [&str; 2]) -> Result<()> {
    let (a, b) = bed.pair()?;
    for (from, to) in [(a, b), (b, a)] {
        let (four, six) = (
            format!("10.2.0.{}", to.number()),
            format!("fd00:2::{}", to.number()),
        );
        for size in [0, 2016, 2017, 40000, 65507] {
            for ping in [format!("ping {four}"), format!("ping -6 {six}")] {
                from.ok(&format!("{ping} -q -c 2 -i 0.05 -W 5 -s {size}"))?;
            }
        }
        from.wait_until(
            "test $(ping -6 -c 2 -i 0.2 -W 2 ff02::1%ib0.8001 | grep -c 'from fe80') -ge 2",
            LIMIT,
        )?;
        transfer(from, to, &four, 1)?;
        transfer(from, to, &six, 1)?;
    }
    large_packets((a, "10.2.0.1"), (b, "10.2.0.2"), modes)?;
    large_packets((a, "fd00:2::1"), (b, "fd00:2::2"), modes)
}

scenario! {
    /// Children of ours and of `ib_ipoib` in one partition, in all combinations of their modes; nothing reaches those of
    /// another partition.
    #[on(lockdep)]
    fn children_of_either_driver(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kinds = [(Driver::Ours, "datagram"), (Driver::C, "datagram")];
        let manager = up(&bed, "pair", "", &kinds)?;
        let (a, b) = bed.pair()?;
        manager.kill()?;
        let manager = start(a, &["Blue=0x0001, ipoib : ALL=full;", "Green=0x0002, ipoib : ALL=full;"].map(str::to_owned))?;
        manager.wait_for("SUBNET UP", LIMIT)?;
        for (host, driver) in [(a, Driver::Ours), (b, Driver::C)] {
            child(host, driver, 1)?;
            host.wait_until("ip -o link show ib0.8001 | grep -q LOWER_UP", LIMIT)?;
        }
        // No interface answers for the address of another one.
        a.ok("set -e
             echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
             ip link add link ib0 name ib0.8002 type ipoib_rs pkey 0x8002
             ip addr add 10.2.0.9/24 dev ib0.8002
             ip link set ib0.8002 up")?;
        for modes in MODES {
            for (host, mode) in [a, b].iter().zip(modes) {
                set_mode(host, "ib0.8001", mode)?;
            }
            a.wait_until("ping -q -c 1 -W 1 10.2.0.2", LIMIT)?;
            children_talk(&bed, modes).with_context(|| format!("ours and theirs: {modes:?}"))?;
        }
        b.run("ping -q -c 2 -i 0.1 -W 1 10.2.0.9")?.refused()?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// A child waits without a carrier for its partition, has it soon after the manager has made it, follows it to
    /// another place in the table, and loses the carrier with it. The parent's stands all the while.
    #[on(lockdep)]
    fn partitions_come_and_go(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let mut manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        let guids = [Port::of(a, &hca(a))?.guid, Port::of(b, &hca(b))?.guid];
        let members = guids.map(|guid| format!("{guid:#018x}=full")).join(", ");
        let blue = format!("Blue=0x0001, ipoib : {members};");
        let green = format!("Green=0x0002, ipoib : {members};");
        for host in [a, b] {
            child(host, Driver::Ours, 1)?;
            let state = host.ok("ip -o link show ib0.8001")?;
            ensure!(!state.contains("LOWER_UP"), "{state}");
        }
        let other = "10.2.0.2";
        for partitions in [vec![blue.clone()], vec![green.clone(), blue], vec![green]] {
            manager.kill()?;
            manager = start(a, &partitions)?;
            manager.wait_for("SUBNET UP", LIMIT)?;
            if partitions.iter().any(|line| line.starts_with("Blue")) {
                a.wait_until(&format!("ping -q -c 1 -W 1 {other}"), LIMIT)?;
                a.ok(&format!("ping -q -c 5 -i 0.05 -W 5 -s 10000 {other}"))?;
            } else {
                for host in [a, b] {
                    host.wait_until("! ip -o link show ib0.8001 | grep -q LOWER_UP", LIMIT)?;
                }
            }
            a.ok(&format!("ping -q -c 3 -i 0.1 -W 5 {}", b.ip4()))?;
        }
        manager.kill()?;
        bed.finish()
    }
}

/// Memberships of both hosts' ports in Blue, one pair after the other: full, limited, or none.
const MEMBERS: [[&str; 2]; 6] = [
    ["limited", "full"],
    ["full", "full"],
    ["full", "limited"],
    ["limited", "limited"],
    ["", ""],
    ["full", "full"],
];

/// Waits until ports are members of Blue as wanted, and checks who reaches whom there: limited members do not see each other.
fn membership_is(bed: &Bed, members: [&str; 2]) -> Result<()> {
    let (a, b) = bed.pair()?;
    for (host, member) in [a, b].iter().zip(members) {
        let table = format!("/sys/class/infiniband/{}/ports/1/pkeys", hca(host));
        let check = match member {
            "full" => format!("grep -qx 0x8001 {table}/*"),
            "limited" => format!("grep -qx 0x0001 {table}/*"),
            _ => format!(
                "! grep -q '0x[08]001' {table}/* && ! ip -o link show ib0.8001 | grep -q LOWER_UP"
            ),
        };
        host.wait_until(&check, LIMIT)?;
    }
    for (from, to) in [(a, b), (b, a)] {
        let ping = format!("ping -q -c 1 -W 1 10.2.0.{}", to.number());
        if members.contains(&"full") {
            from.wait_until(&ping, LIMIT)?;
        } else {
            from.run(&ping)?.refused()?;
        }
    }
    Ok(())
}

/// Checks that `a` answers all pings of `b` in Green; else says what was dropped, and what both ends have counted.
fn green_loses_nothing(a: &Host, b: &Host, peer: Driver) -> Result<()> {
    // After the last request, ping waits for its interval, or for twice the longest round trip if that is longer. On a busy
    // machine, a reply takes more than 0.1 s now and then.
    let ping = "ping -q -c 5 -l 4 -i 1 -W 2 10.3.0.1";
    let lossless = " 0% packet loss";
    if peer == Driver::C {
        // After a reregistration it asks for its paths anew, keeps three frames for each meanwhile, and drops the others.
        return b.wait_until(&format!("{ping} | grep -q '{lossless}'"), LIMIT);
    }
    let mut story = b.ok(&format!("{ping} || true"))?;
    if story.contains(lossless) {
        return Ok(());
    }
    let tallies = "grep 'dropped_.*: [1-9]' /sys/kernel/debug/ib_hwsim/pair/*/port1 || true";
    story.push_str(&a.outside().ok(tallies)?);
    for host in [b, a] {
        let counters = "ethtool -S ib0.8002 | grep -v ': 0$'; ip neigh show dev ib0.8002; nstat -as 'Icmp*Echo*'";
        story.push_str(&host.ok(counters)?);
    }
    bail!("{story}")
}

/// Ports become full members, limited ones and none of Blue under a stream in it, which waits meanwhile. One in Green goes on.
fn memberships_change(bed: &Bed, peer: Driver) -> Result<()> {
    let mut manager = up(
        bed,
        "pair",
        "",
        &[(Driver::Ours, "datagram"), (peer, "datagram")],
    )?;
    let (a, b) = bed.pair()?;
    let guids = [Port::of(a, &hca(a))?.guid, Port::of(b, &hca(b))?.guid];
    let green = "Green=0x0002, ipoib : ALL=full;".to_owned();
    let partitions = |members: [&str; 2]| {
        let list = guids
            .iter()
            .zip(members)
            .filter(|(_, member)| !member.is_empty());
        let list: Vec<String> = list
            .map(|(guid, member)| format!("{guid:#018x}={member}"))
            .collect();
        let blue = (!list.is_empty()).then(|| format!("Blue=0x0001, ipoib : {};", list.join(", ")));
        [Some(green.clone()), blue]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    manager.kill()?;
    manager = start(a, &partitions(["full", "full"]))?;
    for (host, driver) in [(a, Driver::Ours), (b, peer)] {
        child(host, driver, 1)?;
        child(host, driver, 2)?;
    }
    for host in [a, b] {
        // A window of more datagrams than the receive ring has places overruns that on a busy machine, and pings beside the
        // stream are lost.
        host.ok("echo 4096 131072 524288 >/proc/sys/net/ipv4/tcp_rmem")?;
    }
    let lost = || {
        a.ok("cat /sys/class/net/ib0.8002/carrier_down_count /sys/class/net/ib0/carrier_down_count")
    };
    for mode in ["datagram", "connected"] {
        for host in [a, b] {
            set_mode(host, "ib0.8001", mode)?;
            set_mode(host, "ib0.8002", mode)?;
            host.wait_until("ip -o link show ib0.8002 | grep -q LOWER_UP", LIMIT)?;
        }
        membership_is(bed, ["full", "full"])?;
        for ping in [
            "ping -6 -q -c 1 -W 1 fd00:3::1",
            "ping -q -c 1 -W 1 10.3.0.1",
        ] {
            b.wait_until(ping, LIMIT)?;
        }
        let before = lost()?;
        let streams = [
            Transfer::start(a, b, "10.2.0.2", 1, 15)?,
            Transfer::start(b, a, "fd00:3::1", 1, 15)?,
        ];
        for members in MEMBERS {
            manager.kill()?;
            manager = start(a, &partitions(members))?;
            let story = || format!("{mode}: {members:?}");
            membership_is(bed, members).with_context(story)?;
            green_loses_nothing(a, b, peer).with_context(story)?;
        }
        for stream in streams {
            stream.finish().with_context(|| mode)?;
        }
        ensure!(lost()? == before, "a carrier was lost");
    }
    manager.kill()
}

scenario! {
    /// With `ib_ipoib` as the peer.
    #[on(lockdep)]
    fn memberships_change_under_streams(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        memberships_change(&bed, Driver::C)?;
        bed.finish()
    }
}

scenario! {
    /// With ours as the peer.
    #[on(lockdep)]
    fn memberships_of_ours_change_under_streams(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        memberships_change(&bed, Driver::Ours)?;
        bed.finish()
    }
}

scenario! {
    /// Interfaces are in the partition that comes first in the port's table. When the manager puts another one there,
    /// of which a port may be a limited member, they follow, and streams go on. A child stays where it is.
    #[on(lockdep)]
    fn the_first_partition_is_another_one(bed) {
        let bed = bed.one_machine().hosts(3).append(EXCLUSIVE).up()?;
        let (ours, c) = ((Driver::Ours, "connected"), (Driver::C, "datagram"));
        let mut manager = up(&bed, "star 3", "", &[ours, c, ours])?;
        let [a, b, last] = &bed.hosts[..] else {
            bail!("three hosts");
        };
        let mut guids = Vec::new();
        for host in &bed.hosts {
            guids.push(format!("{:#018x}", Port::of(host, &hca(host))?.guid));
        }
        let green = "Green=0x0002, ipoib : ALL=full;";
        let default = |first: &str| format!("Default=0x7fff,{first} ipoib : ALL=full;\n{green}");
        let blue = || {
            let kinds = ["full", "full", "limited"];
            let members: Vec<String> = guids.iter().zip(kinds).map(|(guid, kind)| format!("{guid}={kind}")).collect();
            format!("{}\nBlue=0x0001, indx0, ipoib : {};", default(""), members.join(", "))
        };
        manager.kill()?;
        manager = start_with(a, &default(" indx0,"))?;
        for host in [a, last] {
            host.ok(&format!(
                "ip link add link ib0 name green type ipoib_rs pkey 0x8002
                 ip addr add 10.2.0.{}/24 dev green
                 ip link set green up",
                host.number()
            ))?;
        }
        all_in(&bed, 0xffff)?;
        let streams = [
            Transfer::start(a, b, &b.ip4(), 1, 20)?,
            Transfer::start(b, last, &last.ip4(), 1, 20)?,
            Transfer::start(last, a, &a.ip6(), 1, 20)?,
        ];
        for (partitions, pkey) in [
            (blue(), 0x8001),
            (default(" indx0,"), 0xffff),
        ] {
            manager.kill()?;
            manager = start_with(a, &partitions)?;
            manager.wait_for("SUBNET UP", LIMIT)?;
            all_in(&bed, pkey).with_context(|| partitions.clone())?;
            a.wait_until("ping -q -c 1 -W 1 10.2.0.3", LIMIT)?;
        }
        for stream in streams {
            stream.finish()?;
        }
        ensure!(a.ok("cat /sys/class/net/green/pkey")?.trim() == "0x8002");
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// An HCA does not say which partitions its port is in: an interface goes on, and comes up again, in the one that the
    /// RDMA core knows of.
    #[on(lockdep)]
    fn nobody_says_which_partitions_there_are(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"); 2])?;
        let (a, b) = bed.pair()?;
        let hca = format!("{CONFIGFS}/pair/hcas/h1");
        let outside = a.outside();
        let story = || -> Result<(u64, String)> {
            Ok((counter(a, "restarts")?, a.ok("cat /sys/class/net/ib0/carrier_down_count")?))
        };
        let before = story()?;
        outside.ok(&format!(
            "echo 'query_pkey EIO from 1' >{hca}/faults
             for event in pkey_change sm_change; do echo $event >{hca}/event; done"
        ))?;
        a.ok(&format!("ping -q -c 10 -i 0.1 -W 5 {}", b.ip4()))?;
        let rules = outside.ok(&format!("cat {hca}/faults"))?;
        ensure!(!rules.contains("struck 0"), "nobody has asked: {rules}");
        ensure!(story()? == before, "{before:?} {:?}", story()?);
        a.ok("ip link set ib0 down && ip link set ib0 up")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        outside.ok(&format!("echo clear >{hca}/faults"))?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// An HCA does not say how its port is: an interface goes on as if it were as before, and asks again.
    #[on(lockdep)]
    fn nobody_says_how_a_port_is(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"); 2])?;
        let (a, b) = bed.pair()?;
        let (hca, outside) = (format!("{CONFIGFS}/pair/hcas/h1"), a.outside());
        let downs = || a.ok("cat /sys/class/net/ib0/carrier_down_count");
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        let before = downs()?;
        outside.ok(&format!("echo 'query_port EIO from 1' >{hca}/faults && echo sm_change >{hca}/event"))?;
        a.ok(&format!("ping -q -c 10 -i 0.1 -W 5 {}", b.ip4()))?;
        let rules = outside.ok(&format!("cat {hca}/faults"))?;
        ensure!(!rules.contains("struck 0"), "nobody has asked: {rules}");
        ensure!(downs()? == before, "{before} {}", downs()?);
        // The RDMA core asks, too, before it tells of an event: of this one it does not.
        let cable = format!("{CONFIGFS}/pair/cables/c1/plugged");
        outside.ok(&format!("echo 0 >{cable}; sleep 0.5; echo clear >{hca}/faults"))?;
        a.wait_until("[ $(cat /sys/class/net/ib0/carrier) = 0 ]", LIMIT)?;
        outside.ok(&format!("echo 1 >{cable}"))?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        manager.end()?;
        bed.finish()
    }
}
