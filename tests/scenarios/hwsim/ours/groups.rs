// SPDX-License-Identifier: GPL-2.0

//! Multicast groups, as the subnet administrator keeps them.

use super::super::ipoib::{SENDER, send_to_group};
use super::super::manager::Manager;
use super::super::{EXCLUSIVE, hca};
use super::{Driver, talk, up};
use crate::multicast::{COUNT, SENDER as MULTICAST, receive, works};
use crate::order::counter;
use crate::ping::lossless;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::collections::BTreeSet;
use std::time::Duration;

/// The packets that an interface has received. Its port gets those of a group that it only sends to, too: opensm leads them
/// to all members.
fn heard(host: &Host) -> Result<u64> {
    let text = host.ok("cat /sys/class/net/ib0/statistics/rx_packets")?;
    Ok(text.trim().parse()?)
}

scenario! {
    /// A host that sends to a group without listening to it is a member that only sends, and hears nothing, neither of others
    /// nor of itself; a host that listens gets each datagram once, whoever sent it.
    #[on(lockdep)]
    fn multicast_by_either_driver(bed) {
        let bed = bed.one_machine().hosts(4).append(EXCLUSIVE).up()?;
        let (ours, c) = ((Driver::Ours, "datagram"), (Driver::C, "datagram"));
        let manager = up(&bed, "star 4", "", &[ours, c, ours, c])?;
        let (senders, listeners) = bed.hosts.split_at(2);
        // The second time, the first one is a member.
        for from in [0, 1, 0] {
            let all = || bed.hosts.iter().map(heard).collect::<Result<Vec<_>>>();
            let before = all()?;
            send_to_group(&senders[from], listeners)?;
            let counts: Vec<u64> = all()?.iter().zip(before).map(|(after, before)| after - before).collect();
            ensure!(counts[0] < 50 && counts[1] < 50 && counts[2] >= 200 && counts[3] >= 200, "{from}: {counts:?}");
        }
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// A sender is known to the administrator as one that only sends (join state 8), and is forgotten with its
    /// interface, as are those that listen (1).
    fn the_administrator_knows_who_sends(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        // Only those who know its key are told of members.
        let members = format!("saquery -C {} -P 1 --smkey 1 MCMR", hca(a));
        b.python(SENDER, &["D", "3"])?.ok()?;
        for (group, state) in [("ffff::f01:203", "0x8"), ("ffff::ffff:ffff", "0x1")] {
            a.wait_until(
                &format!("{members} | grep -A13 '{group}' | grep -q 'JoinState.*{state}$'"),
                Duration::from_secs(10),
            )
            .with_context(|| a.ok(&members).unwrap_or_default())?;
        }
        b.ok("ip link set ib0 down")?;
        a.wait_until(
            &format!("! {members} | grep -q 'ffff::f01:203'"),
            Duration::from_secs(10),
        )?;
        manager.end()?;
        bed.finish()
    }
}

/// Sends 60 datagrams to a group at once.
const BURST: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('10.1.0.2'))
for n in range(60):
    s.sendto(bytes(100), ('239.1.2.3', 4000))
";

scenario! {
    /// A burst to a new group waits until that is joined, however long the administrator takes: as many frames as `ib_ipoib`
    /// keeps.
    fn a_burst_waits_for_its_group(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        a.outside().ok("pkill -STOP -x opensm")?;
        let sent = counter(b, "tx_frames")?;
        b.python(BURST, &[])?.ok()?;
        ensure!(counter(b, "tx_waiting")? >= 60 && counter(b, "tx_drop_queue_full")? == 0, "{}", b.ok("ethtool -S ib0")?);
        a.outside().ok("pkill -CONT -x opensm")?;
        b.wait_until("ethtool -S ib0 | grep -q ' tx_waiting: 0$'", Duration::from_secs(10))?;
        ensure!(counter(b, "tx_frames")? >= sent + 60, "{}", b.ok("ethtool -S ib0")?);
        // It has logged that a system call was interrupted.
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// The broadcast group says the MTU, whatever the ports could: 4092 where the partition says so.
    #[on(lockdep)]
    fn the_broadcast_group_says_the_mtu(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        bed.pair()?.0.outside().ok(
            "echo 'Default=0x7fff, ipoib, mtu=5, rate=7 : ALL=full;' >/tmp/partitions.conf",
        )?;
        let kinds = [(Driver::Ours, "datagram"), (Driver::C, "datagram")];
        let manager = up(&bed, "pair", "-P /tmp/partitions.conf", &kinds)?;
        talk(&bed, [4092; 2])?;
        manager.end()?;
        bed.finish()
    }
}

/// Returns true if multicast of 3000 bytes that nobody may take apart reaches the others from a host.
fn large_multicast(from: &Host) -> Result<bool> {
    let text = from.run("ping -6 -c 3 -i 0.2 -W 2 -M do -s 3000 ff02::1%ib0")?;
    let addresses = text.stdout.lines().filter_map(|line| {
        let (_, rest) = line.split_once("from fe80")?;
        rest.split_once('%').map(|(address, _)| address)
    });
    // The sender answers itself.
    Ok(addresses.collect::<BTreeSet<_>>().len() > 1)
}

scenario! {
    /// The broadcast group grows with another manager: in connected mode, too, multicast is as large as the group then
    /// allows, though the MTU is what it was.
    #[on(lockdep)]
    fn the_broadcast_group_grows(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let partition = |mtu: u8| {
            a.outside().ok(&format!(
                "echo 'Default=0x7fff, ipoib, mtu={mtu}, rate=7 : ALL=full;' >/tmp/partitions.conf"
            ))
        };
        partition(4)?;
        let options = "-P /tmp/partitions.conf";
        let manager = up(&bed, "pair", options, &[(Driver::Ours, "connected"); 2])?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(10))?;
        ensure!(!large_multicast(a)?, "larger than the group allows");
        manager.kill()?;
        partition(5)?;
        let manager = Manager::start(a, &hca(a), options)?;
        manager.wait_for("SUBNET UP", Duration::from_secs(10))?;
        // A request to join that a busy manager drops fails after 3 s, and the driver waits for 1 s, then for 2 s, before the
        // next: time for two of these, and for a last look of 6 s, which is that long if neither is answered.
        a.until(Duration::from_secs(15), || Ok(large_multicast(a)? && large_multicast(b)?))
            .context("the group has not grown")?;
        for host in [a, b] {
            ensure!(host.ok("cat /sys/class/net/ib0/mtu")?.trim() == "65520");
        }
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// With `umcast`, groups that an interface of ib_ipoib on the port has joined are none of user space's: both receive.
    #[on(lockdep)]
    fn umcast_knows_ib_ipoib(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        bed.hosts[0].outside().ok("modprobe ib_ipoib")?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        // Its name is that of a file in debugfs.
        b.ok("ip link set ib0 type ipoib_rs umcast 1 && ip link set ibc0 name ibc1 && ip link set ibc1 up")?;
        b.wait_until("[ $(cat /sys/class/net/ibc1/carrier) = 1 ]", Duration::from_secs(10))?;
        b.ok("ip addr add 239.9.9.9/32 dev ibc1 autojoin && ip -4 maddr show dev ibc1 | grep -q 239.9.9.9")?;
        let joined = "cat /sys/kernel/debug/ipoib/ibc1_mcg | grep -A3 'ff12:401b:ffff:0:0:0:f09:909' | grep -q 'complete: *yes'";
        b.outside().wait_until(joined, Duration::from_secs(10))
            .with_context(|| b.outside().ok("ls /sys/kernel/debug/ipoib; cat /sys/kernel/debug/ipoib/ibc1_mcg").unwrap_or_default())?;
        let receiver = receive(b, "239.9.9.9")?;
        works(a, "239.9.9.9", &[&receiver])?;
        a.python(MULTICAST, &["239.9.9.9", COUNT, "64"])?.ok()?;
        let output = receiver.wait(a.scaled(Duration::from_secs(15)))?;
        ensure!(output.stdout.contains("received 100"), "{}", output.describe());
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// With `umcast`, an interface leaves groups to others who have joined them, but never takes its own membership for
    /// another's: neighbour discovery, which needs a group for each address, goes on.
    #[on(lockdep)]
    fn umcast_leaves_own_groups_alone(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        a.ok("ip addr add fd00:5::1/64 dev ib0 nodad")?;
        b.ok("for n in 1 2 3 4 5 6 7 8; do ip addr add fd00:5::10$n/64 dev ib0 nodad || exit 1; done")?;
        for round in 0..8 {
            let umcast = (round + 1) % 2;
            b.ok(&format!("echo {umcast} >/sys/class/net/ib0/umcast"))?;
            a.ok("ip -6 neigh flush dev ib0")?;
            for n in 1..=8 {
                lossless(a, &format!("-c 1 -W 5 fd00:5::10{n}")).with_context(|| format!("umcast {umcast}, round {round}"))?;
            }
        }
        manager.end()?;
        bed.finish()
    }
}

const STEPS: &str = include_str!("../../../guest/hwsim/groups/steps.py");

scenario! {
    /// Whatever the order in which groups are sent to, joined and left: by one interface, by two of ours on a port, by one of
    /// ours and one of `ib_ipoib`, and by a child and its parent. The manager refuses nothing, and nothing is left over.
    fn groups_are_left_as_they_were_joined(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        // A port is the only one in the groups then: of others, the manager counts more than one.
        let kinds = [(Driver::Ours, "datagram"), (Driver::C, "datagram")];
        let manager = up(&bed, "pair", "", &kinds)?;
        let (a, _) = bed.pair()?;
        a.ok(&format!(
            "set -e
             ip link add name ib1 type ipoib_rs device {}
             ip link add link ib0 name child type ipoib_rs pkey 0xffff
             for name in ib1 child; do ip link set $name up; done
             ip link set ibc0 up",
            hca(a)
        ))?;
        for (number, names) in [&["ib0"][..], &["ib0", "ib1"], &["ib0", "ibc0"], &["ib0", "child"], &["ib0", "ib1", "ibc0"]]
            .into_iter()
            .enumerate()
        {
            for seed in [0, number + 1] {
                let text = [seed.to_string(), "180".to_owned()];
                let arguments: Vec<&str> = text.iter().map(String::as_str).chain(names.iter().copied()).collect();
                a.python(STEPS, &arguments)?.ok()?;
            }
            for name in names {
                a.ok(&format!("ip link set {name} down"))?;
            }
            let groups = format!("saquery -C {} -P 1 -g", hca(a));
            a.wait_until(&format!("text=$({groups}) && ! echo \"$text\" | grep -q 'f07:'"), Duration::from_secs(5))
                .with_context(|| format!("{names:?}: {}", a.ok(&groups).unwrap_or_default()))?;
            for name in ["ib0", "ib1", "ibc0", "child"] {
                a.ok(&format!("ip link set {name} up"))?;
                a.wait_until(&format!("ip -o link show {name} | grep -q LOWER_UP"), Duration::from_secs(10))?;
            }
        }
        manager.end()?;
        bed.finish()
    }
}
