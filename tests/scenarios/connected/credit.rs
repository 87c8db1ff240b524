// SPDX-License-Identifier: GPL-2.0

//! Receive buffers: a sender never finds a receiver without one, however slow that is, and what waits in
//! them costs no more than it is worth.

use super::{LARGE, connect, connected, story};
use crate::order::{counter, set};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

const FLOOD: &str = include_str!("../../guest/connected/credit/flood.py");

/// Messages that the device has counted as lacking a receive buffer, on either side.
fn not_ready(host: &Host) -> Result<u64> {
    if host.is_infiniband() {
        let rows = host.ok(&format!(
            "tr -s ' ' </run/debug/ib_hwsim/star/h{}/qps",
            host.number()
        ))?;
        let mut rows = rows.lines().map(|row| row.split_whitespace());
        let names: Vec<&str> = rows.next().context("no heading")?.collect();
        let counts = rows.flat_map(|row| names.iter().zip(row));
        let counts = counts.filter(|(name, _)| name.starts_with("rnr_naks_"));
        return counts.map(|(_, count)| Ok(count.parse::<u64>()?)).sum();
    }
    let text = host.ok(&format!("rdma statistic show link {}/1", host.rxe()))?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let counts = ["send_rnr_err", "rcvd_rnr_err"].map(|name| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.parse::<u64>().ok()
    });
    let counts = counts.into_iter().sum::<Option<u64>>();
    counts.with_context(|| text.clone())
}

const HOARD: &str = include_str!("../../guest/connected/credit/hoard.py");

const TRICKLE: &str = include_str!("../../guest/connected/credit/trickle.py");

scenario! {
    /// A socket's buffer is filled by what it holds, and not by receive buffers of which little was used:
    /// whatever the size of the datagrams, at least a quarter of it are their bytes.
    #[on(races, infiniband)]
    fn frames_cost_what_they_are_worth(bed) {
        const BUFFER: u32 = 200_000;
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        for size in [600, 1000, 1500, 2048, 4000, 8000, 9000, 16000, 33000, 60000] {
            let hoard = b.spawn_python(HOARD, &[&size.to_string(), &BUFFER.to_string()])?;
            hoard.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
            let count = 2 * BUFFER / size;
            a.python(TRICKLE, &[&b.ip4(), &size.to_string(), &count.to_string()])?.ok()?;
            let text = hoard.wait(b.scaled(Duration::from_secs(20)))?.ok()?;
            let kept: u32 = text.lines().last().context("no count")?.parse()?;
            ensure!(kept < count, "{size}: the buffer has no limit");
            ensure!(kept * size >= BUFFER / 4, "{kept} of {count} datagrams of {size} bytes fit {BUFFER}");
        }
        bed.finish()
    }
}

/// Loads the driver with buffers for 64 messages in all, so that a window has room for one.
pub(super) fn few_buffers(bed: &Bed) -> Result<()> {
    for host in &bed.hosts {
        // In one kernel, the first one does it for all.
        host.outside().ok("grep -qs ^64$ /tmp/few || { modprobe -r ipoib_rs; modprobe ipoib_rs rc_recv_queue_size=64 && echo 64 >/tmp/few; }")?;
    }
    Ok(())
}

/// Two hosts with few buffers, the second with a receive poll that takes one message at a time.
fn slow(bed: &Bed) -> Result<(&Host, &Host)> {
    few_buffers(bed)?;
    bed.ports()?;
    let (a, b) = bed.pair()?;
    for host in [a, b] {
        host.ib_add("mode connected")?;
        host.ib_up()?;
    }
    set(b, "napi_budget", 1)?;
    connect(a, b)?;
    Ok((a, b))
}

scenario! {
    /// Large frames wait: the queue is stopped before there are too many bytes of them, and none is lost.
    ///
    /// An emulated receiver with all that a debug kernel checks would take so little that it is given up.
    #[on(uml)]
    fn large_frames_that_wait_are_not_lost(bed) {
        let bed = bed.up()?;
        let (a, b) = slow(&bed)?;
        for host in [a, b] {
            host.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
        }
        connect(a, b)?;
        a.python(FLOOD, &[&b.ip4(), "32", "3", "30000"])?.ok()?;
        ensure!(counter(a, "tx_stops")? > 0 && counter(a, "tx_drop_queue_full")? == 0, "{}", story(a));
        bed.finish()
    }
}

scenario! {
    /// Buffers for 64 messages in all, so that a window has room for one, and a receive poll that takes one
    /// at a time: the sender waits for grants. No message finds the receiver without a buffer, and none is
    /// lost on the way; nor is the connection taken for stuck, though it is busy for longer than one may be.
    ///
    /// An emulated receiver with all that a debug kernel checks would take so little that it is given up. One that shares a CPU
    /// with the sender is not slow.
    #[on(uml, parallel, infiniband)]
    fn a_slow_receiver_is_not_overrun(bed) {
        let bed = bed.up()?;
        let (a, b) = slow(&bed)?;
        let before = [counter(a, "rc_tx_frames")?, counter(b, "rc_rx_frames")?];
        let sent: u64 = a.python(FLOOD, &[&b.ip4(), "8", "7", "1000"])?.ok()?.trim().parse()?;
        bed.accounts()?;
        // Grants alone are no frames.
        let frames = || anyhow::Ok([counter(a, "rc_tx_frames")? - before[0], counter(b, "rc_rx_frames")? - before[1]]);
        let all_came = || frames().map(|[out, came]| out == came);
        b.until(Duration::from_secs(10), all_came).with_context(|| format!("{:?}", frames()))?;
        ensure!(frames()?[0] > sent / 2, "{sent} datagrams, {:?} by the connection", frames()?);
        ensure!(counter(a, "rc_credit_stalls")? > 0, "{}", a.ok("ethtool -S ib0")?);
        for host in [a, b] {
            ensure!(not_ready(host)? == 0, "{} times a receiver had no buffer", not_ready(host)?);
            for name in ["rc_failed", "rc_stuck"] {
                let count = counter(host, name)?;
                ensure!(count == 0, "{name} {count} at {}: {}", host.ip4(), host.ok("ethtool -S ib0; rdma statistic")?);
            }
        }
        bed.finish()
    }
}
