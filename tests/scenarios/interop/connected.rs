// SPDX-License-Identifier: GPL-2.0

//! Connected mode with the C driver: RFC 4755's connections, both ways.

use super::mixed;
use crate::connected::mtu::large_datagrams;
use crate::connected::{set_mode, story};
use crate::order::counter;
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::bench::peer;
use lab::machine::Lane;
use lab::scenario;
use std::time::Duration;

const LARGE: u32 = 65520;

/// Puts the C driver's interface into a mode.
fn set_peers_mode(host: &Host, mode: &str, mtu: u32) -> Result<()> {
    host.ok(&format!(
        "echo {mode} >/sys/class/net/{if}/mode && ip link set {if} mtu {mtu}",
        if = peer::INTERFACE
    ))?;
    Ok(())
}

/// This driver on the first host, the C driver on the second, both connected.
fn connected(bed: &Bed) -> Result<(&Host, &Host)> {
    let (a, b) = mixed(bed)?;
    set_peers_mode(b, "connected", LARGE)?;
    set_mode(a, "connected")?;
    a.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
    connect(a, b)?;
    Ok((a, b))
}

/// Waits until frames go through a connection in either direction.
fn connect(a: &Host, b: &Host) -> Result<()> {
    a.wait_until(
        &format!(
            "ping -q -c 1 -W 1 -s 10000 {} &&
             ethtool -S ib0 | grep -q ' rc_tx_frames: [1-9]' && ethtool -S ib0 | grep -q ' rc_rx_frames: [1-9]'",
            b.ip4()
        ),
        Duration::from_secs(30),
    )
    .with_context(|| format!("no connection: {}", story(a)))
}

scenario! {
    /// ping at every size, either side first.
    #[on(base)]
    fn ping_passes_both_ways(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        // Frames too large for UD have waited: no path got a smaller MTU meanwhile.
        ensure!(counter(a, "tx_too_big")? == 0, "{}", story(a));
        let before = (counter(a, "rc_tx_frames")?, counter(a, "rc_rx_frames")?);
        for (from, to) in [(a, b), (b, a)] {
            for size in [0, 56, 4064, 4065, 16384, 65472, 65492, 65507] {
                from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()))?;
                from.ok(&format!("ping -6 -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip6()))?;
            }
            from.ok(&format!("ping -q -M do -c 2 -i 0.05 -W 5 -s {} {}", LARGE - 28, to.ip4()))?;
        }
        let (sent, received) = (counter(a, "rc_tx_frames")? - before.0, counter(a, "rc_rx_frames")? - before.1);
        ensure!(sent > 60 && received > 60, "{sent} sent, {received} received");
        bed.finish()
    }
}

scenario! {
    /// Streams in both directions: nearly all goes through connections, nothing of ours that the C driver
    /// does not know, and what arrives is what was sent.
    #[on(base)]
    fn streams_pass_both_ways(bed) {
        let mib = if bed.lane() == Lane::Uml { 64 } else { 8 };
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let before = (counter(a, "rc_tx_bytes")?, counter(a, "rc_rx_bytes")?);
        transfer(a, b, &b.ip4(), mib)?;
        transfer(b, a, &a.ip4(), mib)?;
        let sent = counter(a, "rc_tx_bytes")? - before.0;
        let received = counter(a, "rc_rx_bytes")? - before.1;
        let all = u64::from(mib) << 20;
        ensure!(sent > all && received > all, "{sent} sent, {received} received");
        transfer(a, b, &b.ip6(), 2)?;
        transfer(b, a, &a.ip6(), 2)?;
        for options in ["", "-R", "-u -b 4M -l 30000", "-u -b 4M -l 30000 -R"] {
            let end = iperf3(&bed, &b.ip4(), options)?;
            let bytes = end.pointer("/sum_received/bytes").and_then(serde_json::Value::as_f64);
            ensure!(bytes.is_some_and(|bytes| bytes > 2e5), "{options}: {end}");
        }
        for name in ["rc_tx_large", "rc_rx_large", "rc_tx_partial", "rc_rx_partial"] {
            ensure!(counter(a, name)? == 0, "{name}");
        }
        bed.finish()
    }
}

scenario! {
    /// Small MTUs on one side, or on both.
    #[on(base)]
    fn mtus_need_not_be_equal(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        for (ours, peers) in [(4092, LARGE), (LARGE, 4092), (2044, 2044)] {
            a.ok(&format!("ip link set ib0 mtu {ours}"))?;
            set_peers_mode(b, "connected", peers)?;
            transfer(a, b, &b.ip4(), 2)?;
            transfer(b, a, &a.ip4(), 2)?;
        }
        bed.finish()
    }
}

scenario! {
    /// Ours connected with a large MTU, the C driver in datagram mode at 2044. It takes connections all the
    /// same; where none is asked for, the path's MTU is found, for TCP and UDP.
    #[on(base)]
    fn the_path_to_a_datagram_peer_has_its_mtu(bed) {
        // An IB MTU of 2048.
        let bed = bed.mtu(2200).up()?;
        let (a, b) = mixed(&bed)?;
        ensure!(b.ok(&format!("cat /sys/class/net/{}/mtu", peer::INTERFACE))?.trim() == "2044");
        set_mode(a, "connected")?;
        a.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        transfer(a, b, &b.ip4(), 2)?;
        transfer(b, a, &a.ip4(), 2)?;
        ensure!(counter(a, "rc_tx_frames")? > 0 && counter(a, "rc_rx_frames")? == 0);

        // Its address without the flags: nobody who takes connections.
        let address = b.ok(&format!("cat /sys/class/net/{}/address", peer::INTERFACE))?;
        let plain = format!("00{}", address.trim().get(2..).unwrap_or_default());
        for target in [b.ip4(), b.ip6()] {
            a.ok(&format!("ip neigh replace {target} lladdr {plain} dev ib0 nud permanent"))?;
        }
        let before = counter(a, "rc_tx_frames")?;
        transfer(a, b, &b.ip4(), 2)?;
        transfer(b, a, &a.ip4(), 2)?;
        transfer(a, b, &b.ip6(), 2)?;
        for size in [100, 2016, 2017, 30000, 65507] {
            a.ok(&format!("ping -q -c 5 -i 0.2 -W 5 -s {size} {}", b.ip4()))?;
            b.ok(&format!("ping -q -c 5 -i 0.2 -W 5 -s {size} {}", a.ip4()))?;
        }
        large_datagrams(a, b)?;
        ensure!(counter(a, "rc_tx_frames")? == before && counter(a, "tx_too_big")? > 0,
            "{}", story(a));
        bed.finish()
    }
}

scenario! {
    /// Ours in datagram mode, the C driver connected: it finds the path's MTU.
    #[on(base)]
    fn the_peer_finds_ours_in_datagram_mode(bed) {
        let bed = bed.up()?;
        let (a, b) = mixed(&bed)?;
        set_peers_mode(b, "connected", LARGE)?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        transfer(a, b, &b.ip4(), 2)?;
        transfer(b, a, &a.ip4(), 2)?;
        ensure!(counter(a, "rc_current")? == 0 && counter(a, "rc_rx_frames")? == 0);
        bed.finish()
    }
}

scenario! {
    /// The C driver's module goes and comes back under traffic; it has another QPN then, and there are
    /// connections again.
    #[on(base)]
    fn a_peer_that_comes_back_is_connected(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        a.ok("sysctl -qw net.ipv4.neigh.ib0.base_reachable_time_ms=5000 && ip neigh flush dev ib0")?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let flood = a.spawn(&format!("ping -q -i 0.01 -s 20000 {}", b.ip4()))?;
        b.ok(&format!("modprobe -r {0} && modprobe {0}", peer::MODULE))?;
        set_peers_mode(b, "connected", LARGE)?;
        b.ok(&format!(
            "ip addr add {}/24 dev {if} && ip link set {if} up",
            b.ip4(),
            if = peer::INTERFACE
        ))?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(60))?;
        flood.stop()?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 2)?;
        transfer(b, a, &a.ip4(), 2)?;
        bed.finish()
    }
}
