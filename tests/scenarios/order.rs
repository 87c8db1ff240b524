// SPDX-License-Identifier: GPL-2.0

//! Numbered frames: who gets numbers, and what the reorder window makes of them.

use crate::capture::{Capture, Datagram};
use crate::connected::connected;
use crate::wire::hardware_address;
use anyhow::{Context, Result, bail, ensure};
use lab::bed::{Bed, Host};
use lab::{forge, scenario};
use serde_json::Value;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// First byte of the address of a host that wants numbers.
const SEQ: u8 = 0x20;
/// Of multicast datagrams.
const MULTICAST_QPN: u32 = 0xff_ffff;

const SENDER: &str = include_str!("../guest/order/sender.py");

const RECEIVER: &str = include_str!("../guest/order/receiver.py");

const RESOLVE: &str = include_str!("../guest/order/resolve.py");

/// A summary of what arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) received: u64,
    pub(crate) inverted: u64,
    twice: u64,
    bad: u64,
    /// A hash of the numbers, in the order in which they came.
    pub(crate) trail: String,
}

/// Sends `count` datagrams from the first host to the second, `pause` seconds apart.
pub(crate) fn send(bed: &Bed, count: u64, pause: f64) -> Result<Seen> {
    let (a, b) = bed.pair()?;
    let receiver = b.spawn_python(RECEIVER, &[])?;
    receiver.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
    let sent = a.python(SENDER, &[&b.ip4(), &count.to_string(), &pause.to_string()])?;
    sent.ok()?;
    let output = receiver.wait(b.scaled(Duration::from_secs(30)))?;
    let line = output
        .stdout
        .lines()
        .last()
        .context("no report")?
        .to_owned();
    let report: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
    let number = |key: &str| report[key].as_u64().with_context(|| line.clone());
    Ok(Seen {
        received: number("received")?,
        inverted: number("inverted")?,
        twice: number("twice")?,
        bad: number("bad")?,
        trail: report["trail"]
            .as_str()
            .with_context(|| line.clone())?
            .to_owned(),
    })
}

/// A counter of `ethtool -S ib0`.
pub(crate) fn counter(host: &Host, name: &str) -> Result<u64> {
    counters(host, [name]).map(|[value]| value)
}

/// Some counters of a host at one time.
pub(crate) fn counters<const N: usize>(host: &Host, names: [&str; N]) -> Result<[u64; N]> {
    values(&host.ok("ethtool -S ib0")?, names)
}

/// Values of counters in what `ethtool -S` has printed.
pub(crate) fn values<const N: usize>(text: &str, names: [&str; N]) -> Result<[u64; N]> {
    let mut values = [0; N];
    for (value, name) in values.iter_mut().zip(names) {
        let mut lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        let found = lines.find(|(key, _)| *key == name);
        let (_, found) = found.with_context(|| format!("no {name} in {text}"))?;
        *value = found.parse().context("a counter")?;
    }
    Ok(values)
}

pub(crate) fn set(host: &Host, name: &str, value: u32) -> Result<()> {
    host.ok(&format!("sysctl -qw net.ipoib.ib0.{name}={value}"))?;
    Ok(())
}

fn nothing_is_numbered(a: &Host, b: &Host) -> Result<()> {
    let capture = Capture::start(b)?;
    a.ok(&format!("ping -q -c 5 -i 0.05 -W 5 {}", b.ip4()))?;
    let plain = capture.stop()?;
    ensure!(
        plain.len() >= 10 && plain.iter().all(|d| d.reserved() == 0),
        "{plain:?}"
    );
    Ok(())
}

scenario! {
    /// Unicast frames between two of ours are numbered one after the other, from 1 to 65535; multicast
    /// never is. With the extensions off, every byte is RFC 4391's again, the address's included.
    fn numbers_are_for_those_who_ask_for_them(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            ensure!(hardware_address(host)?[0] == SEQ);
        }
        let ours: [u8; 16] = hardware_address(a)?[4..].try_into()?;
        let ours = IpAddr::V6(ours.into());
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let capture = Capture::start(b)?;
        a.ok(&format!("ping -q -c 20 -i 0.05 -W 5 {}", b.ip4()))?;
        a.run("ping -q -c 2 -i 0.1 -W 1 -I ib0 224.0.0.1")?;
        let sent: Vec<Datagram> = capture.stop()?.into_iter().filter(|d| d.source == ours).collect();
        let (multicast, unicast): (Vec<&Datagram>, Vec<&Datagram>) =
            sent.iter().partition(|d| d.qpn == MULTICAST_QPN);
        let numbers: Vec<u16> = unicast.iter().map(|d| d.reserved()).collect();
        ensure!(numbers.len() >= 20 && !numbers.contains(&0), "{numbers:?}");
        for pair in numbers.windows(2) {
            let next = pair[0].checked_add(1).unwrap_or(1);
            ensure!(pair[1] == next, "{numbers:?}");
        }
        ensure!(!multicast.is_empty() && multicast.iter().all(|d| d.reserved() == 0), "{multicast:?}");

        for host in [a, b] {
            set(host, "extensions", 0)?;
            ensure!(hardware_address(host)?[0] == 0);
        }
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        nothing_is_numbered(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// One side alone has the extensions: neither numbers anything, and all passes.
    #[on(infiniband)]
    fn one_side_without_them(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        set(b, "extensions", 0)?;
        // Its neighbours hear of it at once.
        a.wait_until(
            &format!("ip neigh show {} | grep -q 'lladdr 00:'", b.ip4()),
            Duration::from_secs(5),
        )?;
        nothing_is_numbered(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// The window puts frames that the wire reorders back in order, and passes each up once;
    /// without the window the stack sees the disorder. Table 2 of the paper has 95 to 100 in 100.
    #[on(both)]
    fn reordering_is_undone(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        // Longer than the wire delays, so that a busy machine does not spoil the figures.
        set(b, "reorder_timeout_us", 100_000)?;
        a.ok("tc qdisc replace dev eth0 root netem limit 10000 delay 5ms reorder 25%")?;
        let mut inverted = [0; 2];
        for (inverted, window) in inverted.iter_mut().zip([0, 32]) {
            set(b, "reorder_window", window)?;
            let seen = send(&bed, 1000, 0.001)?;
            ensure!(seen.received == 1000 && seen.twice == 0 && seen.bad == 0, "window {window}: {seen:?}");
            *inverted = seen.inverted;
        }
        let [without, with] = inverted;
        ensure!(without > 100 && with * 20 <= without, "{without} without the window, {with} with it");
        ensure!(counter(b, "rx_seq_filled")? > 100 && counter(b, "rx_seq_reordered")? > 100);
        ensure!(counter(b, "rx_seq_held")?
            == counter(b, "rx_seq_filled")? + counter(b, "rx_seq_moved")? + counter(b, "rx_seq_timed_out")?);
        bed.finish()
    }
}

scenario! {
    /// A peer's requests for addresses go by UD, and the rest by its connection: both are numbered, and in one window, so that
    /// none waits for the others. On InfiniBand, only a connection says which GID its frames come from.
    #[on(infiniband)]
    fn frames_by_either_way_have_one_window(bed) {
        const TIMES: u64 = 20;
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let read = |host| anyhow::Ok([counter(host, "rx_frames")?, counter(host, "rc_rx_frames")?]);
        let before = [read(a)?, read(b)?];
        a.python(RESOLVE, &[&a.ip4(), &b.ip4(), &TIMES.to_string()])?.ok()?;
        for ((host, peer), before) in [(a, b), (b, a)].into_iter().zip(before) {
            let came = read(host)?.into_iter().zip(before).map(|(now, before)| now - before);
            ensure!(came.clone().all(|count| count >= TIMES), "{:?}", came.collect::<Vec<_>>());
            ensure!(counter(host, "rx_seq_held")? == 0, "{}", host.ok("ethtool -S ib0 | grep seq")?);
            let gid: [u8; 16] = hardware_address(peer)?[4..].try_into()?;
            let sources = host.ok("cat /run/debug/ipoib_rs/ib0*/sources")?;
            ensure!(sources.contains(&format!("\n{} ", Ipv6Addr::from(gid))), "{sources}");
        }
        bed.finish()
    }
}

/// Packets of a host that its `netem` has lost.
fn lost_on_wire(host: &Host) -> Result<u64> {
    let text = host.ok("tc -s -j qdisc show dev eth0")?;
    let report: Value = serde_json::from_str(&text)?;
    report
        .pointer("/0/drops")
        .and_then(Value::as_u64)
        .context(text)
}

scenario! {
    /// Loss, duplication and reordering together: what arrives on the wire arrives above, unharmed.
    fn nothing_is_held_back(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        a.ok("tc qdisc replace dev eth0 root netem limit 10000 delay 3ms reorder 25% duplicate 2%")?;
        let seen = send(&bed, 1000, 0.001)?;
        ensure!(seen.received == 1000 && seen.bad == 0 && seen.twice > 5, "{seen:?}");
        a.ok("tc qdisc replace dev eth0 root netem limit 10000 delay 3ms reorder 25% loss 3%")?;
        let before = lost_on_wire(a)?;
        let seen = send(&bed, 1000, 0.001)?;
        // The wire loses other packets, too.
        let lost = lost_on_wire(a)? - before;
        ensure!((1000 - lost..1000).contains(&seen.received), "{seen:?}, of which the wire has lost {lost}");
        ensure!(seen.bad == 0 && seen.twice == 0, "{seen:?}");
        // To the end of the poll instead of by timer; then not at all.
        for (name, value) in [("reorder_timeout_us", 0), ("reorder_window", 0)] {
            set(b, name, value)?;
            a.ok("tc qdisc replace dev eth0 root netem limit 10000 delay 3ms reorder 25%")?;
            let seen = send(&bed, 500, 0.001)?;
            ensure!(seen.received == 500 && seen.bad == 0 && seen.twice == 0, "{seen:?}");
        }
        bed.finish()
    }
}

pub(crate) const BEHIND_A_GAP: &str = include_str!("../guest/order/behind_a_gap.py");

pub(crate) const ARRIVALS: &str = include_str!("../guest/order/arrivals.py");

scenario! {
    /// A frame behind a gap waits for the timeout, and not for much longer though hardly a poll of a
    /// flood takes all that there is.
    ///
    /// The hosts need one clock.
    #[on(uml)]
    fn a_flood_makes_nothing_wait_for_ever(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        set(b, "reorder_timeout_us", 100_000)?;
        // One frame a poll.
        set(b, "napi_budget", 1)?;
        let receiver = b.spawn_python(ARRIVALS, &[])?;
        receiver.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
        let _server = b.spawn("iperf3 -s")?;
        b.wait_until("ss -Hltn | grep -q :5201", Duration::from_secs(10))?;
        let flood = a.spawn(&format!("iperf3 -c {} -u -b 0 -l 64 -t 100", b.ip4()))?;
        let program = forge::program(a, b, BEHIND_A_GAP)?;
        a.python(&program, &[&a.ip4(), &b.ip4(), "5"])?.ok()?;
        let (frames, polls) = (counter(b, "rx_frames")?, counter(b, "rx_polls")?);
        let output = receiver.wait(b.scaled(Duration::from_secs(30)))?.ok()?;
        flood.stop()?;
        ensure!(frames > 5_000 && polls < 2 * frames, "{frames} frames, {polls} polls");
        let waits = output.lines().last().unwrap_or_default();
        let mut waits: Vec<f64> = waits.split(' ').filter_map(|wait| wait.parse().ok()).collect();
        waits.sort_by(f64::total_cmp);
        // Those after a loss too many are not held. One may meet a host that has no processor for a
        // while; what hangs on the flood takes as long as the flood.
        let (median, longest) = match waits[..] {
            [.., longest] => (waits[waits.len() / 2], longest),
            [] => bail!("no frame behind a gap came through"),
        };
        ensure!(longest > 0.09 && median < 0.4 && longest < 5.0, "{waits:?}");
        bed.finish()
    }
}

const GAPS: &str = include_str!("../guest/order/gaps.py");

scenario! {
    /// An interface that goes down releases the frames that it holds.
    #[on(both, uml)]
    fn nothing_is_held_by_an_interface_that_is_down(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        set(b, "reorder_timeout_us", 100_000)?;
        let forger = a.spawn_python(&forge::program(a, b, GAPS)?, &[&a.ip4(), &b.ip4()])?;
        b.wait_until("ethtool -S ib0 | grep -q 'rx_seq_holding: [1-9]'", Duration::from_secs(10))?;
        b.ok("ip link set ib0 down")?;
        forger.stop()?;
        let (holding, held) = (counter(b, "rx_seq_holding")?, counter(b, "rx_seq_held")?);
        ensure!(holding == 0 && held > 0, "{holding} of {held} frames are held still");
        b.ok("ip link set ib0 up")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(10))?;
        bed.finish()
    }
}
