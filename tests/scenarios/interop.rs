// SPDX-License-Identifier: GPL-2.0

//! The kernel's own C driver as a peer: same wire, both ways.
//!
//! A copy of `ib_ipoib`, patched to run over RoCE (`tools/lab/bench-peer`), is on the second host.

mod coexist;
mod connected;

use crate::capture::Capture;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::bench::peer;
use lab::scenario;
use serde_json::Value;
use std::time::Duration;

/// This driver on the first host, the C driver on the second; the addresses are as ever.
pub(crate) fn mixed(bed: &Bed) -> Result<(&Host, &Host)> {
    let (a, b) = bed.pair()?;
    ethernet_has_addresses(bed)?;
    bed.rxe()?;
    a.ib_add("")?;
    a.ib_up()?;
    c_driver_up(
        b,
        &[format!("{}/24", b.ip4()), format!("{}/64 nodad", b.ip6())],
    )?;
    Ok((a, b))
}

/// Waits for the link-local addresses of Ethernet: sending from one that is not there yet ends the C driver's QP.
fn ethernet_has_addresses(bed: &Bed) -> Result<()> {
    bed.hosts.iter().try_for_each(|host| {
        host.wait_until(
            "ip -6 route show table local dev eth0 | grep -q ^local",
            Duration::from_secs(10),
        )
    })
}

/// Loads the C driver on a host, and sets its interface up with `addresses`.
fn c_driver_up(host: &Host, addresses: &[String]) -> Result<()> {
    host.ok(&format!("modprobe {}", peer::MODULE))?;
    for address in addresses {
        host.ok(&format!("ip addr add {address} dev {}", peer::INTERFACE))?;
    }
    host.ok(&format!("ip link set {} up", peer::INTERFACE))?;
    host.wait_until(
        &format!("ip -o link show {} | grep -q LOWER_UP", peer::INTERFACE),
        Duration::from_secs(10),
    )
}

/// The link-layer address that `host` has of `target`.
pub(crate) fn neighbour(host: &Host, target: &str, device: &str) -> Result<String> {
    let text = host.ok(&format!("ip neigh show to {target} dev {device}"))?;
    let mut words = text.split_whitespace();
    words
        .find(|word| *word == "lladdr")
        .and_then(|_| words.next())
        .map(str::to_owned)
        .with_context(|| format!("{target} is unknown: {text}"))
}

scenario! {
    /// ARP, neighbour discovery and ping at all sizes, either side first; each side knows the other's
    /// address, and every datagram of either has a clear reserved field (RFC 4391 §6).
    #[on(base)]
    fn ping_passes_both_ways(bed) {
        let bed = bed.up()?;
        let (a, b) = mixed(&bed)?;
        let capture = Capture::start(b)?;
        for (from, to) in [(a, b), (b, a)] {
            for size in [0, 56, 4064, 4065, 65507] {
                from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()))?;
                from.ok(&format!("ping -6 -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip6()))?;
            }
        }
        let datagrams = capture.stop()?;
        ensure!(datagrams.len() > 40, "{} datagrams", datagrams.len());
        ensure!(datagrams.iter().all(|d| d.reserved() == 0), "a reserved field is set");
        for (host, device, other, theirs) in [
            (a, "ib0", b, peer::INTERFACE),
            (b, peer::INTERFACE, a, "ib0"),
        ] {
            let address = other.ok(&format!("cat /sys/class/net/{theirs}/address"))?;
            for target in [other.ip4(), other.ip6()] {
                ensure!(neighbour(host, &target, device)? == address.trim());
            }
        }
        bed.finish()
    }
}

scenario! {
    /// TCP in both directions, and UDP.
    #[on(base)]
    fn iperf3_passes_both_ways(bed) {
        let bed = bed.up()?;
        let (a, b) = mixed(&bed)?;
        for options in ["", "-R", "-u -b 4M -l 1400", "-u -b 4M -l 1400 -R"] {
            let server = b.spawn("iperf3 -s -1 --forceflush")?;
            server.wait_for("Server listening", b.scaled(Duration::from_secs(10)))?;
            let client = a.run_for(
                &format!("iperf3 -J -t 2 {options} -c {}", b.ip4()),
                Duration::from_secs(20),
            )?;
            let report: Value = serde_json::from_str(&client.stdout).with_context(|| client.describe())?;
            let bytes = report.pointer("/end/sum_received/bytes").and_then(Value::as_f64);
            ensure!(bytes.is_some_and(|bytes| bytes > 5e5), "{options}: {}", report["end"]);
            server.wait(b.scaled(Duration::from_secs(10)))?.ok()?;
        }
        bed.finish()
    }
}

scenario! {
    /// The C driver's interface goes and comes back with another QPN: found again by its new address.
    #[on(base)]
    fn a_peer_that_comes_back_is_found(bed) {
        let bed = bed.up()?;
        let (a, b) = mixed(&bed)?;
        a.ok("sysctl -qw net.ipv4.neigh.ib0.base_reachable_time_ms=5000 && ip neigh flush dev ib0")?;
        a.ok(&format!("ping -q -c 2 -i 0.2 -W 5 {}", b.ip4()))?;
        let before = neighbour(a, &b.ip4(), "ib0")?;
        b.ok(&format!("modprobe -r {0} && modprobe {0}", peer::MODULE))?;
        b.ok(&format!(
            "ip addr add {}/24 dev {if} && ip link set {if} up",
            b.ip4(),
            if = peer::INTERFACE
        ))?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(60))?;
        let after = neighbour(a, &b.ip4(), "ib0")?;
        ensure!(before != after, "still {after}");
        bed.finish()
    }
}
