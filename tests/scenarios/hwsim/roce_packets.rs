// SPDX-License-Identifier: GPL-2.0

//! Packets of this checkout's driver over Ethernet ports, as the HCA has captured them: labels, levels and addresses.

use super::hca;
use super::roce::{carrier, file, has_gid, ping, readdress, second_interface, up};
use crate::capture::{Capture, Datagram, RcSend};
use crate::connected::{connect, set_mode};
use crate::order::set;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Begins to capture at the HCA of a host.
fn capture(host: &Host) -> Result<Capture> {
    let faults = file(host, "faults");
    let directory = faults.trim_end_matches("/faults");
    Capture::of_hca(host, directory.to_owned())
}

/// The number of a queue pair, and the GID that it has, or a group's.
type End = (u32, IpAddr);

/// The end that a host's interface is, as its address says.
fn end(host: &Host, interface: &str) -> Result<End> {
    let text = host.ok(&format!("tr -d : </sys/class/net/{interface}/address"))?;
    let address = u128::from_str_radix(text.trim().get(8..).context("no GID")?, 16)?;
    let number = u32::from_str_radix(text.get(2..8).context("no number")?, 16)?;
    Ok((number, Ipv6Addr::from(address).into()))
}

/// Flow labels of datagrams, by the two ends that they are between.
type Labels = BTreeMap<(End, End), BTreeSet<u32>>;

fn labels(datagrams: &[Datagram]) -> Labels {
    let mut labels = Labels::new();
    for datagram in datagrams {
        let from = (datagram.source_qpn, datagram.source);
        let to = (datagram.qpn, datagram.destination);
        let pair = labels.entry((from, to)).or_default();
        pair.insert(datagram.flow_label);
    }
    labels
}

scenario! {
    /// Adapters make UDP source ports of flow labels, by which switches choose paths: all datagrams from one interface to
    /// another have one label, which stays, and each pair has another one in each direction, as have groups.
    #[on(lockdep, races)]
    fn flow_labels_tell_peers_apart(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        second_interface(b)?;
        a.ok("ip addr add 10.2.0.1/24 dev ib0")?;
        let talk = || -> Result<Labels> {
            let capture = capture(a)?;
            a.ok("ip neigh flush dev ib0")?;
            for address in ["10.2.0.2", &b.ip4()] {
                a.wait_until(&format!("ping -q -c 3 -i 0.05 -W 1 -s 4000 {address}"), Duration::from_secs(20))?;
            }
            Ok(labels(&capture.stop()?))
        };
        let first = talk()?;
        let (ours, peers) = (end(a, "ib0")?, [end(b, "ib0")?, end(b, "ib1")?]);
        let mut seen = BTreeSet::new();
        for pair in peers.iter().flat_map(|peer| [(ours, *peer), (*peer, ours)]) {
            let labels = first.get(&pair).with_context(|| format!("no {pair:x?} in {first:x?}"))?;
            ensure!(labels.len() == 1 && !labels.contains(&0), "{pair:x?}: {first:x?}");
            seen.extend(labels);
        }
        ensure!(seen.len() == 4, "{first:x?}");
        let is_group = |to: &End| to.0 == 0xff_ffff;
        let to_groups: Vec<_> = first.iter().filter(|((from, to), _)| *from == ours && is_group(to)).collect();
        ensure!(!to_groups.is_empty(), "no request for an address: {first:x?}");
        for (pair, labels) in to_groups {
            ensure!(labels.len() == 1 && !labels.contains(&0) && labels.is_disjoint(&seen), "{pair:x?}: {first:x?}");
        }
        // The queue pair is the same when the interface comes up again.
        a.ok("ip link set ib0 down && ip link set ib0 up")?;
        carrier(a, true)?;
        let second = talk()?;
        for peer in peers {
            ensure!(first.get(&(ours, peer)) == second.get(&(ours, peer)), "{first:x?} and {second:x?}");
        }
        bed.finish()
    }
}

/// Levels of what a host sends meanwhile: of datagrams but for the CM's, and of messages on connections.
fn levels(from: &Host, to: &Host) -> Result<[BTreeSet<u8>; 2]> {
    let capture = capture(from)?;
    from.wait_until("ip neigh flush dev ib0", Duration::from_secs(10))?;
    from.ok(&format!("ping -q -c 3 -i 0.1 -W 5 {}", to.ip4()))?;
    let (datagrams, sends) = capture.stop_with_sends()?;
    let ((_, own), (_, peer)) = (end(from, "ib0")?, end(to, "ib0")?);
    let is_ours = |d: &&Datagram| d.source == own && d.source_qpn > 1;
    let goes_there = |s: &&RcSend| s.destination == peer;
    Ok([
        datagrams
            .iter()
            .filter(is_ours)
            .map(|d| d.service_level)
            .collect(),
        sends
            .iter()
            .filter(goes_there)
            .map(|s| s.service_level)
            .collect(),
    ])
}

scenario! {
    /// All packets of an interface have its service level: multicast, datagrams, and connections that it has asked for.
    #[on(lockdep, races)]
    fn packets_have_the_interfaces_service_level(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for level in [5, 0, 7] {
            for host in [a, b] {
                set_mode(host, "datagram")?;
                // A connection has the level of whoever asks for it.
                set(host, "service_level", level)?;
            }
            ping(a, b)?;
            let level = BTreeSet::from([u8::try_from(level)?]);
            let [datagrams, sends] = levels(a, b)?;
            ensure!(datagrams == level && sends.is_empty(), "{datagrams:?} and {sends:?} at {level:?}");
            for host in [a, b] {
                set_mode(host, "connected")?;
            }
            connect(a, b)?;
            let [datagrams, sends] = levels(a, b)?;
            ensure!(datagrams == level && sends == level, "{datagrams:?} and {sends:?} at {level:?}");
        }
        bed.finish()
    }
}

scenario! {
    /// Network devices on top of a port's own have GIDs of the port, in whatever namespace they are: an interface sends
    /// from none of them, not even while the port's own device has another address, and so the port no GID of it.
    #[on(lockdep, races)]
    fn gids_of_devices_above_are_passed_over(bed) {
        let bed = bed.one_machine().up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        outside.ok("ip netns add other")?;
        // The one that is elsewhere has the name and the number of the port's own.
        a.ok("set -e
            ip link add link eth0 name above address 02:00:00:00:00:98 type macvlan mode bridge
            ip link set above up
            ip addr add fd77::98/64 dev above nodad
            number=$(cat /sys/class/net/eth0/ifindex)
            ip link add link eth0 name eth0 index $number address 02:00:00:00:00:99 netns other type macvlan mode bridge")?;
        outside.ok("ip -n other link set eth0 up && ip -n other addr add fd77::99/64 dev eth0 nodad")?;
        up(&bed, "", |_| Ok(()))?;
        let gids = format!("cat /sys/class/infiniband/{}/ports/1/gids/*", hca(a));
        for end in ["fe80.*:0098", "fd77.*:0098", "fe80.*:0099", "fd77.*:0099"] {
            a.wait_until(&format!("{gids} | grep -q {end}$"), Duration::from_secs(10))?;
        }
        let capture = capture(a)?;
        let mut own = BTreeSet::from([end(a, "ib0")?.1]);
        ping(a, b)?;
        for last in [0x55, 0x56] {
            // The new address' own GID has no place in the table before the old one's is free.
            readdress(a, last)?;
            has_gid(a, "ib0", last)?;
            own.insert(end(a, "ib0")?.1);
            carrier(a, true)?;
            ping(a, b)?;
        }
        let peer = end(b, "ib0")?.1;
        let sources: BTreeSet<IpAddr> = capture.stop()?.iter().map(|d| d.source).filter(|gid| *gid != peer).collect();
        ensure!(own.len() == 3 && sources == own, "{sources:?} are not {own:?}");
        bed.finish()
    }
}
