// SPDX-License-Identifier: GPL-2.0

//! Connected mode: RC connections between peers that have them, UD for everything else.

mod answers;
mod credit;
mod extended;
pub(crate) mod forged;
mod hostile;
mod lanes;
pub(crate) mod life;
pub(crate) mod mtu;
pub(crate) mod senders;
mod stuck;

use crate::capture::{Capture, Datagram};
use crate::inspect::{directory, table};
use crate::order::counter;
use crate::ping::sizes;
use crate::streams::iperf3;
use crate::transfer::transfer;
use crate::wire::hardware_address;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Builder, Host};
use lab::machine::{Kernel, Lane};
use lab::scenario;
use std::time::Duration;

/// The largest MTU in connected mode.
const LARGE: u32 = 65520;
/// First byte of the address of a host that takes connections (RFC 4755, section 3.1).
const RC: u8 = 0x80;
/// IPoIB's type of IPv4.
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Sets a host's mode as its users may.
pub(crate) fn set_mode(host: &Host, mode: &str) -> Result<()> {
    host.ok(&format!("ip link set ib0 type ipoib_rs mode {mode}"))?;
    Ok(())
}

/// An `ib0` in connected mode at the largest MTU on every host.
pub(crate) fn up(bed: &Bed) -> Result<()> {
    bed.ports()?;
    for host in &bed.hosts {
        host.ib_add("mode connected")?;
        host.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
        host.ib_up()?;
    }
    Ok(())
}

/// Two hosts that have a connection to each other.
pub(crate) fn connected(bed: &Bed) -> Result<(&Host, &Host)> {
    up(bed)?;
    let (a, b) = bed.pair()?;
    connect(a, b)?;
    Ok((a, b))
}

/// Counters and connections of a host, for messages.
pub(crate) fn story(host: &Host) -> String {
    let script = "ethtool -S ib0 | grep -v ': 0$'; cat /run/debug/ipoib_rs/ib0*/connections";
    let connections = host.run(script).map(|output| output.describe());
    connections.unwrap_or_else(|e| format!("{e:#}"))
}

/// Has two hosts make connections, one each way, and waits until both have both.
pub(crate) fn connect(a: &Host, b: &Host) -> Result<()> {
    let both = "[ $(ethtool -S ib0 | sed -n 's/^ *rc_current: //p') -ge 2 ]";
    a.wait_until(
        &format!("ping -q -c 1 -W 1 {} && {both}", b.ip4()),
        Duration::from_secs(20),
    )
    .and_then(|()| b.wait_until(both, Duration::from_secs(10)))
    .with_context(|| format!("no connection: {}{}", story(a), story(b)))
}

/// A test, in the shell, of how many connections a host sends by.
pub(crate) fn sends_by(host: &Host, test: &str) -> Result<String> {
    let table = format!("{}/connections", directory(host, "ib0")?);
    Ok(format!("[ $(grep -c ' up ' {table}) {test} ]"))
}

/// `full` on the base kernel of the uml lane, an eighth of it where all is slow.
fn amount(bed: &Builder, full: u32) -> u32 {
    match (bed.lane(), bed.kernel()) {
        (Lane::Uml, Kernel::Base) => full,
        _ => full.div_ceil(8),
    }
}

/// RC queue pairs of the driver on a host's port.
fn queue_pairs(host: &Host) -> Result<usize> {
    let text = host.ok(&format!(
        "rdma resource show qp link {}/1",
        host.rdma_device()
    ))?;
    let ours = text
        .lines()
        .filter(|line| line.contains("type RC") && line.contains("comm [ipoib_rs]"));
    Ok(ours.count())
}

scenario! {
    /// The mode is set by netlink and by sysfs, while down and while up, and told by both. Connected mode
    /// keeps the MTU and allows a larger one; datagram mode ends that. The address says who takes
    /// connections.
    #[on(races, infiniband)]
    fn the_mode_is_set_and_told(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ports()?;
        let host = &bed.hosts[0];
        let is = |mode: &str, mtu: u32| -> Result<()> {
            let text = host.ok("ip -d link show ib0")?;
            ensure!(text.contains(&format!("mode {mode} ")), "not {mode}: {text}");
            ensure!(text.contains(&format!("mtu {mtu} ")), "not {mtu}: {text}");
            ensure!(host.ok("cat /sys/class/net/ib0/mode")? == format!("{mode}\n"));
            let flag = hardware_address(host)?[0] & RC;
            ensure!((flag == RC) == (mode == "connected"), "{mode}: {flag:#x}");
            Ok(())
        };
        host.ib_add("mode connected")?;
        is("connected", 4092)?;
        host.ok("ip link del ib0")?;
        host.ib_add("")?;
        for state in ["down", "up"] {
            host.ok(&format!("ip link set ib0 {state}"))?;
            is("datagram", 4092)?;
            host.run(&format!("ip link set ib0 mtu {LARGE}"))?.refused()?;
            host.ok("echo connected >/sys/class/net/ib0/mode")?;
            is("connected", 4092)?;
            host.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
            is("connected", LARGE)?;
            let text = host.run(&format!("ip link set ib0 mtu {}", LARGE + 1))?.refused()?;
            ensure!(text.contains("mtu"), "no reason given: {text}");
            // Once more changes nothing.
            set_mode(host, "connected")?;
            is("connected", LARGE)?;
            set_mode(host, "datagram")?;
            is("datagram", 4092)?;
            set_mode(host, "connected")?;
            is("connected", 4092)?;
            host.ok("echo datagram >/sys/class/net/ib0/mode")?;
        }
        is("datagram", 4092)?;
        bed.finish()
    }
}

const MODE_BY_NUMBER: &str = include_str!("../guest/connected/mode_by_number.py");

scenario! {
    /// An unknown mode is refused, by netlink in words, and changes nothing.
    #[on(races, infiniband)]
    fn what_is_no_mode_is_refused(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ports()?;
        let host = &bed.hosts[0];
        host.ib_add("")?;
        for mode in ["datagram", "connected"] {
            set_mode(host, mode)?;
            for number in ["2", "7", "65535"] {
                let text = host.python(MODE_BY_NUMBER, &[number])?.ok()?;
                let (error, words) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
                // EINVAL
                ensure!(error == "22" && !words.is_empty(), "mode {number}: {text}");
            }
            for word in ["nonsense", "connectedd", "Datagram", "1", ""] {
                let refused = host
                    .run(&format!("echo '{word}' >/sys/class/net/ib0/mode"))?
                    .refused()?;
                ensure!(refused.contains("nvalid argument") || refused.contains("I/O error"), "{word}: {refused}");
            }
            ensure!(host.ok("cat /sys/class/net/ib0/mode")?.trim() == mode);
        }
        let text = host.python(MODE_BY_NUMBER, &["0"])?.ok()?;
        ensure!(text.starts_with("0"), "{text}");
        ensure!(host.ok("cat /sys/class/net/ib0/mode")?.trim() == "datagram");
        bed.finish()
    }
}

/// Payload sizes: none, around the MTU of datagrams, a power of two, and around the largest MTU.
const SIZES: [u32; 10] = [0, 56, 4063, 4064, 4065, 16384, 65472, 65491, 65492, 65507];

scenario! {
    /// IPv4 and IPv6 pass in both directions at every size, nothing lost; a frame as large as the MTU
    /// passes whole.
    #[on(both, races, infiniband)]
    fn every_size_passes(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        for (from, to) in [(a, b), (b, a)] {
            from.run_for(&sizes(&SIZES, &[to.ip4(), to.ip6()]), Duration::from_secs(60))?.ok()?;
            from.ok(&format!("ping -M do -c 1 -W 5 -s {} {}", LARGE - 28, to.ip4()))?;
            from.ok(&format!("ping -6 -M do -c 1 -W 5 -s {} {}", LARGE - 48, to.ip6()))?;
            from.run(&format!("ping -M do -c 1 -W 5 -s {} {}", LARGE - 27, to.ip4()))?.refused()?;
        }
        for host in [a, b] {
            ensure!(counter(host, "rc_tx_frames")? > 60 && counter(host, "rc_rx_frames")? > 60,
                "{}", story(host));
        }
        bed.finish()
    }
}

scenario! {
    /// The first frame does not wait for a connection. Then unicast goes through that, and ARP and
    /// multicast by UD still (RFC 4755, section 2.1).
    #[on(races, infiniband)]
    fn unicast_goes_by_connection_and_arp_by_datagram(bed) {
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        ensure!(counter(a, "rc_fallback")? > 0, "{}", story(a));
        connect(a, b)?;
        let before = (counter(a, "rc_tx_frames")?, counter(b, "rc_rx_frames")?);
        let capture = Capture::start(b)?;
        a.ok("ip neigh flush dev ib0; ip -6 neigh flush dev ib0")?;
        for address in [b.ip4(), b.ip6()] {
            a.ok(&format!("ping -q -c 20 -i 0.05 -W 5 {address}"))?;
        }
        a.run("ping -q -c 3 -i 0.1 -W 1 -I ib0 224.0.0.1")?;
        let datagrams = capture.stop()?;
        let sent = counter(a, "rc_tx_frames")? - before.0;
        let received = counter(b, "rc_rx_frames")? - before.1;
        ensure!(sent >= 40 && received >= 40, "{sent} sent, {received} received");
        // QPN 0xffffff is multicast's. Answers are unicast, and go by UD, too (RFC 4755, section 2.1); behind
        // the wire header and that of IPv6 stands the type of a neighbour advertisement.
        let (multicast, unicast): (Vec<_>, Vec<_>) = datagrams.iter().partition(|d| d.qpn == 0xff_ffff);
        for (what, datagrams) in [("requests", multicast), ("answers", unicast.clone())] {
            ensure!(datagrams.iter().any(|d| d.ether_type() == ARP), "no ARP {what}: {datagrams:?}");
        }
        let resolves = |d: &Datagram| match d.ether_type() {
            ARP => true,
            IPV6 => d.payload.get(4 + 6) == Some(&58) && matches!(d.payload.get(4 + 40), Some(133..=137)),
            _ => false,
        };
        ensure!(unicast.iter().any(|d| d.payload.get(4 + 40) == Some(&136)), "no advertisement: {unicast:?}");
        ensure!(unicast.iter().all(|d| resolves(d)), "by UD: {unicast:?}");
        ensure!(datagrams.iter().any(|d| d.ether_type() == IPV4), "no multicast in {datagrams:?}");
        bed.finish()
    }
}

scenario! {
    /// TCP in both directions, over IPv4 and IPv6, goes through connections, nearly all of it; what
    /// arrives is what was sent, and all by the same connection each way.
    #[on(both, races, infiniband)]
    fn streams_go_by_connection(bed) {
        let mib = amount(&bed, 64);
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let ended = |host| Ok::<_, anyhow::Error>(counter(host, "rc_failed")? + counter(host, "rc_stuck")?);
        // The first request may have come before the other host listened.
        let before = [ended(a)?, ended(b)?];
        for (from, to) in [(a, b), (b, a)] {
            for target in [to.ip4(), to.ip6()] {
                let before = counter(from, "rc_tx_bytes")?;
                transfer(from, to, &target, mib)?;
                let through = counter(from, "rc_tx_bytes")? - before;
                ensure!(through > u64::from(mib) << 20, "{through} bytes to {target}");
            }
        }
        for options in ["", "-R", "--bidir", "-P 4", "-u -b 4M -l 30000"] {
            let end = iperf3(&bed, &b.ip4(), options)?;
            let bytes = end.pointer("/sum_received/bytes").and_then(serde_json::Value::as_f64);
            ensure!(bytes.is_some_and(|bytes| bytes > 2e5), "{options}: {end}");
        }
        for (host, before) in [a, b].into_iter().zip(before) {
            ensure!(ended(host)? == before && counter(host, "rc_connected")? == 2, "{}", story(host));
        }
        bed.finish()
    }
}

scenario! {
    /// The tables tell of the connections, one each way: who, in what state, what each has carried.
    #[on(races, infiniband)]
    fn connections_are_told(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        transfer(a, b, &b.ip4(), 1)?;
        let connections = table(a, &format!("{}/connections", directory(a, "ib0")?))?;
        let states: Vec<&str> = connections.iter().map(|row| &*row["state"]).collect();
        ensure!(states == ["up", "receiving"], "{connections:?}");
        let carried = |at: usize, what: &str| connections[at][what].parse::<u64>();
        ensure!(carried(0, "tx_bytes")? > 1 << 20 && carried(0, "rx_frames")? == 0, "{connections:?}");
        ensure!(carried(1, "rx_frames")? > 0 && carried(1, "tx_bytes")? == 0, "{connections:?}");
        ensure!(queue_pairs(a)? == 2 && queue_pairs(b)? == 2, "{}", a.ok("rdma resource show qp")?);
        for host in [a, b] {
            ensure!(counter(host, "rc_connected")? >= 2 && counter(host, "rc_current")? == 2, "{}", story(host));
        }
        for host in [a, b] {
            host.ok("ip link set ib0 down")?;
            let left = table(host, &format!("{}/connections", directory(host, "ib0")?))?;
            ensure!(left.is_empty() && counter(host, "rc_current")? == 0, "{}", story(host));
        }
        bed.finish()
    }
}
