// SPDX-License-Identifier: GPL-2.0

//! RoCE as it differs from InfiniBand: a network device and its IPv6 below, which others use and
//! change as well.

use crate::capture::Capture;
use crate::inspect::directory;
use crate::multicast::{COUNT, SENDER, receive};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

/// How often the group that ends in `end` is joined on `eth0`.
fn memberships(host: &Host, end: &str) -> Result<u32> {
    let text = host.ok("cat /proc/net/igmp6")?;
    let mut count = 0;
    for line in text.lines() {
        let mut fields = line.split_whitespace().skip(1);
        let of = (fields.next(), fields.next());
        if matches!(of, (Some("eth0"), Some(group)) if group.ends_with(end)) {
            let users = fields.next().with_context(|| line.to_owned())?;
            count += users.parse::<u32>()?;
        }
    }
    Ok(count)
}

const NEW_IPV6: &str = include_str!("../guest/roce/new_ipv6.py");

scenario! {
    /// Each interface on a port is a member of its groups on its own, also if the port's network device gets another
    /// IPv6 side, which knows nothing of members: whoever joins there again first stays a member.
    fn interfaces_on_a_port_keep_their_own_memberships(bed) {
        const BROADCAST: &str = "ffffffff";
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok("ip link add link eth0 name ib1 up type ipoib_rs")?;
        let carriers = "[ $(cat /sys/class/net/ib[01]/carrier | tr -d '\n') = 11 ]";
        let limit = Duration::from_secs(20);
        a.wait_until(carriers, limit)?;
        ensure!(memberships(a, BROADCAST)? == 2);
        for _ in 0..5 {
            a.python(NEW_IPV6, &[])?.ok()?;
            // All work items have seen it then.
            a.ok("sleep 2")?;
            a.wait_until(carriers, limit)?;
            let users = memberships(a, BROADCAST)?;
            ensure!(users == 2, "{users} members: {}", a.ok("cat /proc/net/igmp6")?);
        }
        a.ok("ip link set ib1 down")?;
        ensure!(memberships(a, BROADCAST)? == 1);
        a.ok("ip neigh flush dev ib0")?;
        b.ok(&format!("ip neigh flush dev ib0 && ping -c 2 -i 0.3 -W 5 {}", a.ip4()))?;
        a.ok("ip link del ib0 && ip link del ib1")?;
        ensure!(memberships(a, BROADCAST)? == 0);
        bed.finish()
    }
}

scenario! {
    /// An RDMA device may get another name while it is asked for the old one.
    fn the_rdma_device_is_renamed_under_ethtool(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        let name = host.rxe();
        let device = directory(host, "ib0")? + "/device";
        let asking = host.repeat(&format!("ethtool -i ib0 >/dev/null && cat {device} >/dev/null || exit 1"))?;
        for _ in 0..10 {
            host.ok(&format!(
                "set -e
                 rdma dev set {name} name a-much-longer-name-than-before
                 ethtool -i ib0 | grep -qx 'bus-info: a-much-longer-name-than-before'
                 rdma dev set a-much-longer-name-than-before name x
                 grep -qx 'x 0' {device}
                 rdma dev set x name {name}
                 ethtool -i ib0 | grep -qx 'bus-info: {name}'"
            ))?;
        }
        asking.stop().context("a question went unanswered")?;
        bed.finish()
    }
}

scenario! {
    /// Soft-RoCE verifies no checksums: nothing says it does, and nobody can switch that on.
    fn soft_roce_has_no_checksums_to_offer(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        let feature = "ethtool -k ib0 | grep -qx 'rx-checksumming: off \\[fixed\\]'";
        host.ok(feature)?;
        host.ok("ip link set ib0 type ipoib_rs mode connected")?;
        host.ok(feature)?;
        bed.finish()
    }
}

scenario! {
    /// All packets of an interface are of the class that it was given: multicast, datagrams and connections.
    fn packets_have_the_interfaces_traffic_class(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for mode in ["datagram", "connected"] {
            for host in [a, b] {
                host.ok(&format!("ip link set ib0 type ipoib_rs mode {mode}"))?;
            }
            for class in [106, 0] {
                // A connection has the class of whoever asks for it.
                for host in [a, b] {
                    host.ok(&format!("sysctl -w net.ipoib.ib0.traffic_class={class}"))?;
                }
                for host in [a, b] {
                    host.wait_until("[ $(cat /sys/class/net/ib0/carrier) = 1 ]", Duration::from_secs(20))?;
                }
                let capture = Capture::start(b)?;
                a.ok("ip neigh flush dev ib0")?;
                a.wait_until(&format!("ping -c 3 -i 0.3 -W 2 {}", b.ip4()), Duration::from_secs(20))?;
                if mode == "connected" {
                    let connected = "ethtool -S ib0 | grep -q 'rc_tx_frames: [1-9]'";
                    let ping = format!("ping -c 1 -W 1 {} && {connected}", b.ip4());
                    a.wait_until(&ping, Duration::from_secs(20))?;
                }
                let address = crate::wire::hardware_address(a)?;
                let gid = Ipv6Addr::from(<[u8; 16]>::try_from(&address[4..])?);
                let peer = crate::wire::hardware_address(b)?;
                let peer = Ipv6Addr::from(<[u8; 16]>::try_from(&peer[4..])?);
                let (datagrams, sends) = capture.stop_with_sends()?;
                let of_a: Vec<u8> = datagrams
                    .iter()
                    .filter(|d| d.source == gid && d.source_qpn != 1)
                    .map(|d| d.traffic_class)
                    .chain(sends.iter().filter(|s| s.destination == peer).map(|s| s.traffic_class))
                    .collect();
                ensure!(of_a.len() > 3 && of_a.iter().all(|c| *c == class), "{mode} {class}: {of_a:?}");
            }
        }
        for value in ["traffic_class=256", "service_level=8", "traffic_class=-1"] {
            a.run(&format!("sysctl -w net.ipoib.ib0.{value}"))?.refused()?;
        }
        bed.finish()
    }
}

/// The UDP source ports of queue pairs, each of which keeps its own.
fn source_ports(packets: impl Iterator<Item = (u32, u16)>) -> Result<BTreeMap<u32, u16>> {
    let mut ports = BTreeMap::new();
    for (qpn, port) in packets {
        let first = *ports.entry(qpn).or_insert(port);
        ensure!(
            first == port && port >= 0xc000,
            "queue pair {qpn:#x}: {first:#x} and {port:#x}"
        );
    }
    Ok(ports)
}

scenario! {
    /// Switches choose one of several paths by the UDP source port. Two interfaces on a port have different ones; what
    /// has to stay in order, all that one of them sends, has one.
    fn queue_pairs_have_udp_source_ports_of_their_own(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok(&format!(
                "ip link add link eth0 name ib1 type ipoib_rs
                 ip addr add 10.2.0.{}/24 dev ib1 && ip link set ib1 up",
                host.number()
            ))?;
        }
        let addresses = [b.ip4(), "10.2.0.2".to_owned()];
        for address in &addresses {
            a.wait_until(&format!("ping -q -c 1 -W 1 {address}"), Duration::from_secs(15))?;
        }
        let address = crate::wire::hardware_address(a)?;
        let gid = Ipv6Addr::from(<[u8; 16]>::try_from(&address[4..])?);
        let capture = Capture::start(b)?;
        for address in &addresses {
            a.ok(&format!("ping -q -c 20 -i 0.02 -W 5 -s 2000 {address}"))?;
        }
        let datagrams = capture.stop()?;
        let sent = datagrams.iter().filter(|d| d.source == gid && d.source_qpn > 1);
        let ports = source_ports(sent.map(|d| (d.source_qpn, d.source_port)))?;
        let distinct: BTreeSet<&u16> = ports.values().collect();
        ensure!(ports.len() == 2 && distinct.len() == 2, "{ports:x?}");
        bed.finish()
    }
}

/// Waits until `ib0` of both hosts has a carrier.
fn both_have_carriers(bed: &Bed) -> Result<()> {
    for host in &bed.hosts {
        host.wait_until(
            "[ $(cat /sys/class/net/ib0/carrier) = 1 ]",
            Duration::from_secs(10),
        )
        .with_context(|| {
            format!(
                "host {}: {}",
                host.number(),
                host.ok("ip -s link").unwrap_or_default()
            )
        })?;
    }
    Ok(())
}

scenario! {
    /// The Ethernet below goes down and up as fast as can be, at one end or at both: the carriers come back each time,
    /// though the RDMA core does not tell of each.
    #[on(uml, timed)]
    fn links_flap(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        bed.loses_ethernet();
        let outside = a.outside();
        for round in 0..12 {
            let ends = ["h0", "h1", "h0 h1"][round % 3];
            outside.ok(&format!(
                "for i in $(seq 50); do
                     for end in {ends}; do ip -n $end link set eth0 down; done
                     for end in {ends}; do ip -n $end link set eth0 up; done
                 done"
            ))?;
            both_have_carriers(&bed).with_context(|| format!("round {round}: {ends}"))?;
        }
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        bed.finish()
    }
}

scenario! {
    /// A port that only sends to a group is no member of it; one that listens is.
    fn senders_are_no_members(bed) {
        // 239.9.8.7 by RFC 4391, section 4.
        const GROUP: &str = "0f090807";
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let receiver = receive(b, "239.9.8.7")?;
        ensure!(memberships(b, GROUP)? == 1, "{}", b.ok("cat /proc/net/igmp6")?);
        a.python(SENDER, &["239.9.8.7", COUNT, "32"])?.ok()?;
        let output = receiver.wait(b.scaled(Duration::from_secs(15)))?;
        ensure!(output.stdout.contains("received 100"), "{}", output.describe());
        ensure!(memberships(a, GROUP)? == 0, "{}", a.ok("cat /proc/net/igmp6")?);
        bed.finish()
    }
}
