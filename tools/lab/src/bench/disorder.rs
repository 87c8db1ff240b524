// SPDX-License-Identifier: GPL-2.0

//! Page `disorder`: what the reorder window is worth on a wire that reorders and loses, and what it
//! costs on one that does not; and the sweep of the delayed ACK.
//!
//! The sender's Ethernet is given a netem qdisc. What the stack above sees is read from its own
//! counters: segments that TCP had to queue out of order (`TcpExtTCPOFOQueue`), and datagrams that
//! iperf3 received out of order.

use super::Options;
use super::case::{iperf3_received, netperf};
use super::plot::{Line, Plot};
use super::report::{Record, Report};
use super::rig::{Rig, Side};
use super::statistics::Pairs;
use crate::requests;
use crate::step::say;
use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde_json::Value;
use std::time::Duration;

/// Half of the frames overtake the others, which are delayed: at full load by about a dozen
/// frames, less than the default window.
const REORDER: &str = "delay 500us reorder 50%";
/// Some are delayed by more: a few of them by more than the window's width.
const REORDER_MORE: &str = "delay 700us reorder 50%";
/// As the first, with losses.
const REORDER_AND_LOSS: &str = "delay 500us reorder 50% loss 0.5%";
/// Losses, and nothing else.
const LOSS: &str = "delay 500us loss 0.5%";
/// A stream under losses is measured for so many times as long, since it has its ups and downs.
const LONG: u32 = 4;
/// Forged sources over all pairs, and how many a second: the forger's work is done by the same
/// processor, and is to be no more than a few percent of it.
const FORGED: u32 = 100_000;
const FORGED_RATE: u32 = 4_000;
/// Sources that the receiver has memory for.
const SOURCES: u64 = 2_048;
/// The widths that are swept.
const WINDOWS: [u32; 5] = [0, 8, 32, 80, 128];
/// Offered loads in Mbit/s; 0 is as much as goes.
const LOADS: [u32; 3] = [50, 200, 0];
/// The delayed ACK's least delays that are swept, in microseconds.
const DELAYS: [u32; 7] = [2_000, 3_000, 5_000, 8_000, 10_000, 20_000, 40_000];
/// The default.
const WINDOW: u32 = 32;

/// Measures the page.
pub(super) fn page(rig: &Rig, options: &Options, report: &mut Report) -> Result<()> {
    rig.receiver("sysctl -qw net.ipv4.tcp_no_metrics_save=1")?;
    rig.client("sysctl -qw net.ipv4.tcp_no_metrics_save=1")?;
    bars(rig, options, report)?;
    if options.includes("windows") {
        sweep_windows(rig, report)?;
    }
    if options.includes("delack") {
        sweep_delays(rig, report)?;
    }
    Ok(())
}

/// One TCP stream: what arrived in Mbit/s, and how many segments TCP had to put in order.
fn tcp(rig: &Rig, side: Side, load: u32) -> Result<(f64, f64)> {
    tcp_for(rig, side, load, 1)
}

/// One stream, for `times` as long.
fn tcp_for(rig: &Rig, side: Side, load: u32, times: u32) -> Result<(f64, f64)> {
    let before = out_of_order(rig)?;
    let (to, seconds) = (rig.address(side)?, rig.seconds() * times);
    let limit = if load > 0 {
        format!("-b {load}M")
    } else {
        String::new()
    };
    let text = rig.client(&format!("iperf3 -c {to} -t {seconds} {limit} -J"))?;
    Ok((iperf3_received(&text)?, out_of_order(rig)? - before))
}

/// The receiver's `TcpExtTCPOFOQueue`.
fn out_of_order(rig: &Rig) -> Result<f64> {
    let text = rig.receiver("grep ^TcpExt /proc/net/netstat")?;
    let (names, values) = text.trim().split_once('\n').context("two lines")?;
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = both
        .find(|(name, _)| *name == "TCPOFOQueue")
        .context("TCPOFOQueue")?;
    Ok(value.parse()?)
}

/// UDP at `load` Mbit/s: how many datagrams arrived after a later one.
fn udp(rig: &Rig, side: Side, load: u32) -> Result<f64> {
    let (to, seconds) = (rig.address(side)?, rig.seconds());
    let text = rig.client(&format!(
        "iperf3 -c {to} -u -b {load}M -l 1400 -t {seconds} -J --get-server-output"
    ))?;
    let report: Value = serde_json::from_str(&text).context("iperf3's report")?;
    let server = report["server_output_text"]
        .as_str()
        .with_context(|| text.clone())?;
    let pattern = Regex::new(r"(\d+) datagrams received out-of-order").context("a pattern")?;
    let counts = pattern
        .captures_iter(server)
        .filter_map(|c| c[1].parse::<f64>().ok());
    // The last line sums up; there is none where nothing was out of order.
    Ok(counts.last().unwrap_or(0.0))
}

/// 99 in 100 round trips of one byte are no longer than this, in microseconds.
fn p99(rig: &Rig, side: Side) -> Result<f64> {
    let (to, seconds) = (rig.address(side)?, rig.seconds());
    let text = rig.client(&format!(
        "netperf -P 0 -H {to} -t TCP_RR -l {seconds} -- -r 1,1 -k P99_LATENCY"
    ))?;
    netperf(&text, "P99_LATENCY")
}

/// The share of `before` that is not in `after`.
fn removed(before: f64, after: f64) -> Result<f64> {
    ensure!(before > 0.0, "nothing was out of order without the window");
    Ok(1.0 - after / before)
}

/// One measurement of a case: ours, what it is compared with, and what comes of it.
type Measure<'a> = &'a dyn Fn() -> Result<(f64, f64, f64)>;

/// Throughput of one stream over a wire, with the window and with the C driver.
fn goodput(rig: &Rig, netem: &str) -> Result<(f64, f64, f64)> {
    rig.netem(netem)?;
    rig.window(WINDOW)?;
    let ours = tcp(rig, Side::Ours, 0)?.0;
    let peer = tcp(rig, Side::Peer, 0)?.0;
    Ok((ours, peer, ours / peer))
}

/// The cases that have a bar.
fn bars(rig: &Rig, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.pairs;
    let cases: [(&str, &str, Measure<'_>); 9] = [
        ("reorders", "out of order, W=32 and W=0", &|| {
            rig.netem(REORDER)?;
            let mut with = (0.0, 0.0);
            let mut without = (0.0, 0.0);
            for (window, result) in [(WINDOW, &mut with), (0, &mut without)] {
                rig.window(window)?;
                *result = (tcp(rig, Side::Ours, 0)?.1, udp(rig, Side::Ours, 50)?);
            }
            let share = removed(without.0, with.0)?.min(removed(without.1, with.1)?);
            Ok((with.0 + with.1, without.0 + without.1, share))
        }),
        ("reorders_light", "out of order, W=32 and W=0", &|| {
            rig.netem(REORDER)?;
            rig.window(WINDOW)?;
            let with = tcp(rig, Side::Ours, LOADS[0])?.1;
            rig.window(0)?;
            let without = tcp(rig, Side::Ours, LOADS[0])?.1;
            Ok((with, without, removed(without, with)?))
        }),
        // Why there is a timer: what is held could be let go at the end of each poll instead.
        (
            "poll_end",
            "out of order, until the end of the poll and W=0",
            &|| {
                rig.netem(REORDER)?;
                rig.window(WINDOW)?;
                rig.receiver("sysctl -qw net.ipoib.ib0.reorder_timeout_us=0")?;
                let with = tcp(rig, Side::Ours, LOADS[1])?.1;
                rig.receiver("sysctl -qw net.ipoib.ib0.reorder_timeout_us=5000")?;
                rig.window(0)?;
                let without = tcp(rig, Side::Ours, LOADS[1])?.1;
                Ok((with, without, removed(without, with)?))
            },
        ),
        ("loss_w32_vs_w80", "Mbit, W=32 and W=80", &|| {
            rig.netem(REORDER_AND_LOSS)?;
            rig.window(WINDOW)?;
            let narrow = tcp_for(rig, Side::Ours, 0, LONG)?.0;
            rig.window(80)?;
            let wide = tcp_for(rig, Side::Ours, 0, LONG)?.0;
            Ok((narrow, wide, narrow / wide))
        }),
        ("reorder_goodput", "Mbit", &|| goodput(rig, REORDER_MORE)),
        ("reorder_goodput_500us", "Mbit", &|| goodput(rig, REORDER)),
        ("loss_only", "Mbit, W=32 and W=0", &|| {
            rig.netem(LOSS)?;
            rig.window(WINDOW)?;
            let with = (tcp_for(rig, Side::Ours, 0, LONG)?.0, p99(rig, Side::Ours)?);
            rig.window(0)?;
            let without = (tcp_for(rig, Side::Ours, 0, LONG)?.0, p99(rig, Side::Ours)?);
            say(&format!(
                "p99: {} us with the window, {} us without",
                with.1, without.1
            ));
            Ok((
                with.0,
                without.0,
                (with.0 / without.0).min(without.1 / with.1),
            ))
        }),
        ("window_cost", "Mbit, W=32 and W=0", &|| {
            rig.netem("")?;
            rig.window(WINDOW)?;
            let with = tcp(rig, Side::Ours, 0)?.0;
            rig.window(0)?;
            let without = tcp(rig, Side::Ours, 0)?.0;
            Ok((with, without, with / without))
        }),
        (
            "forged_sources",
            "Mbit, during the flood and before",
            &|| {
                rig.netem("")?;
                rig.window(WINDOW)?;
                let forged = FORGED.div_ceil(count);
                let times = (forged / FORGED_RATE / rig.seconds())
                    .saturating_sub(1)
                    .max(1);
                let before = tcp_for(rig, Side::Ours, 0, times)?.0;
                let evicted = rig.counter("rx_seq_evicted")?;
                let flood = rig.flood(forged, FORGED_RATE)?;
                let during = tcp_for(rig, Side::Ours, 0, times)?.0;
                ensure!(
                    !flood.peek()?.stdout.contains("done"),
                    "the flood was over before the measurement"
                );
                flood.wait(Duration::from_secs(120))?.ok()?;
                let evicted = rig.counter("rx_seq_evicted")? - evicted;
                ensure!(
                    evicted + SOURCES >= u64::from(forged),
                    "{evicted} of {forged} got through"
                );
                let sources = rig.counter("rx_seq_sources")?;
                ensure!(sources <= SOURCES, "{sources} sources");
                Ok((during, before, during / before))
            },
        ),
    ];
    for (name, unit, measure) in cases.into_iter().filter(|case| options.includes(case.0)) {
        let mut pairs = Pairs::default();
        for n in 1..=count {
            let (ours, other, ratio) = measure().with_context(|| name.to_owned())?;
            say(&format!(
                "{} {name} {n}/{count}: {ours:.0}, {other:.0}: {ratio:.3}",
                rig.lane_name()
            ));
            pairs.add(ours, other, ratio);
        }
        report
            .results
            .push(Record::new("disorder", name, rig.lane_name(), unit, &pairs));
    }
    rig.netem("")?;
    rig.window(WINDOW)
}

/// Goodput and disorder over the width of the window, at each load, with and without losses.
fn sweep_windows(rig: &Rig, report: &mut Report) -> Result<()> {
    for (name, netem) in [("reorder", REORDER), ("reorder_and_loss", REORDER_AND_LOSS)] {
        rig.netem(netem)?;
        let (mut goodput, mut disorder) = (Vec::new(), Vec::new());
        for load in LOADS {
            let label = if load > 0 {
                format!("{load} Mbit/s offered")
            } else {
                "full load".to_owned()
            };
            let peer = tcp(rig, Side::Peer, load)?;
            let mut points = Vec::new();
            for window in WINDOWS {
                rig.window(window)?;
                let ours = tcp(rig, Side::Ours, load)?;
                let mut pair = Pairs::default();
                pair.add(ours.0, peer.0, ours.0 / peer.0);
                let case = format!(
                    "{name}_w{window}_{}",
                    if load > 0 {
                        load.to_string()
                    } else {
                        "full".to_owned()
                    }
                );
                say(&format!(
                    "{case}: {:.0} Mbit, {} out of order; C driver {:.0}, {}",
                    ours.0, ours.1, peer.0, peer.1
                ));
                report.results.push(Record::new(
                    "disorder",
                    &case,
                    rig.lane_name(),
                    "Mbit",
                    &pair,
                ));
                points.push((f64::from(window), ours));
            }
            goodput.push(Line::new(
                &format!("ours, {label}"),
                points.iter().map(|(x, y)| (*x, y.0)).collect(),
            ));
            goodput.push(Line::flat(
                &format!("C driver, {label}"),
                0.0,
                128.0,
                peer.0,
            ));
            disorder.push(Line::new(
                &format!("ours, {label}"),
                points.iter().map(|(x, y)| (*x, y.1)).collect(),
            ));
            disorder.push(Line::flat(
                &format!("C driver, {label}"),
                0.0,
                128.0,
                peer.1,
            ));
        }
        let plot = |what: &str, y: &str, lines| Plot {
            page: "disorder".into(),
            lane: rig.lane_name().into(),
            name: format!("{name}_{what}"),
            title: format!("TCP, one stream, netem {netem}"),
            x: "width of the window".into(),
            y: y.into(),
            log: false,
            lines,
        };
        report.plots.extend([
            plot("goodput", "Mbit per 10^9 instructions", goodput),
            plot("disorder", "segments out of order", disorder),
        ]);
    }
    rig.netem("")?;
    rig.window(WINDOW)
}

/// One measurement of a rate.
type Rate<'a> = &'a dyn Fn() -> Result<f64>;

/// Gain from a delayed ACK's least delay: to a bulk stream, and to requests in two writes.
fn sweep_delays(rig: &Rig, report: &mut Report) -> Result<()> {
    let to = rig.address(Side::Ours)?;
    let seconds = rig.seconds();
    let _answers = rig.serve_python(requests::ANSWERS, requests::PORT)?;
    let bulk = || tcp(rig, Side::Ours, 0).map(|(goodput, _)| goodput);
    let answered = || {
        let text = rig.python(requests::REQUESTS, &[&to, &seconds.to_string()])?;
        Ok(text.trim().parse()?)
    };
    let cases: [(&str, &str, Rate<'_>); 2] =
        [("bulk", "Mbit", &bulk), ("requests", "requests", &answered)];
    let mut lines = Vec::new();
    for (name, unit, measure) in cases {
        let mut points = Vec::new();
        for delay in DELAYS {
            rig.receiver(&format!("sysctl -qw net.ipv4.tcp_delack_min_us={delay}"))?;
            points.push((f64::from(delay) / 1000.0, measure()?));
        }
        let default = points.last().context("a default")?.1;
        let best = points
            .iter()
            .copied()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .context("a best")?;
        say(&format!(
            "delayed ACK, {name}: best at {} ms: {:.1} {unit}; {default:.1} by default",
            best.0, best.1
        ));
        let mut pair = Pairs::default();
        pair.add(best.1, default, best.1 / default);
        let case = format!("delack_{name}_{}ms", best.0);
        let unit = format!("{unit}, best and at 40 ms");
        report.results.push(Record::new(
            "disorder",
            &case,
            rig.lane_name(),
            &unit,
            &pair,
        ));
        lines.push(Line::new(
            name,
            points.into_iter().map(|(x, y)| (x, y / best.1)).collect(),
        ));
    }
    rig.receiver("sysctl -qw net.ipv4.tcp_delack_min_us=40000")?;
    report.plots.push(Plot {
        page: "disorder".into(),
        lane: rig.lane_name().into(),
        name: "delack".into(),
        title: "Delayed ACK".into(),
        x: "tcp_delack_min_us, ms".into(),
        y: "rate over the best".into(),
        log: false,
        lines,
    });
    Ok(())
}
