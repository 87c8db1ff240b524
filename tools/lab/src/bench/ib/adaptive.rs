// SPDX-License-Identifier: GPL-2.0

//! Cases `adaptive_*`: one TCP stream through a switch that spreads datagrams over two cables, of which one is longer, so
//! that they overtake each other.
//!
//! Each pair has the fabric's seed of its number. On either lane a rate is one by the guest's clock. Where instructions are
//! counted, `adaptive_cost` is what the stream costs outside the device, which is part of a guest's time and of no real
//! host's. `adaptive_off` and `adaptive_off_cost` are the reference: the same cables without jitter, and one route, so
//! that nothing overtakes.

use super::{Cost, Load, PAGE, Rig, Side};
use crate::bench::Options;
use crate::bench::count::Counter;
use crate::bench::fabric::{name, seconds};
use crate::bench::report::{Costs, Record, Report};
use crate::bench::statistics::Pairs;
use crate::step::say;
use anyhow::{Context, Result, ensure};

/// Two switches with two cables between them.
pub(super) const PARALLEL: &str =
    "modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config
    cd /sys/kernel/config/ib_hwsim && mkdir twin && cd twin
    mkdir hcas/h1 hcas/h2 switches/s1 switches/s2 cables/a cables/b cables/fast cables/slow
    echo h1/1 s1/1 >cables/a/ends && echo h2/1 s2/1 >cables/b/ends
    echo s1/2 s2/2 >cables/fast/ends && echo s1/3 s2/3 >cables/slow/ends
    echo 300 >cables/slow/delay
    echo 1 >live";

/// One stream.
struct Stream {
    /// Mbit/s by the guest's clock.
    goodput: f64,
    /// Segments that TCP had to put in order.
    late: f64,
    /// Mbit per 10^9 instructions outside the device, and where all of them were.
    cost: Option<(f64, Cost)>,
}

/// Streams of ours and of the peer.
#[derive(Default)]
struct Streams {
    goodput: Pairs,
    cost: Pairs,
    costs: [Vec<Costs>; 2],
}

impl Streams {
    fn add(&mut self, ours: &Stream, peer: &Stream) {
        let ratio = ours.goodput / peer.goodput;
        self.goodput.add(ours.goodput, peer.goodput, ratio);
        if let (Some((ours, our_cost)), Some((peer, peer_cost))) = (&ours.cost, &peer.cost) {
            self.cost.add(*ours, *peer, ours / peer);
            self.cost
                .set_share(our_cost.driver as f64 / our_cost.outside() as f64);
            self.costs[0].push(our_cost.per_unit(*ours));
            self.costs[1].push(peer_cost.per_unit(*peer));
        }
    }

    /// Reports the rates by the clock, and the costs if they were counted.
    fn report(self, report: &mut Report, lane: &str, rate: &str, cost: &str) {
        let record =
            |case: &str, unit: &str, pairs: &Pairs| Record::new(PAGE, case, lane, unit, pairs);
        report.results.push(record(rate, "Mbit/s", &self.goodput));
        let [ours, peer] = self.costs.map(|costs| Costs::mean(&costs));
        if let Some(costs) = ours.zip(peer) {
            let unit = "Mbit per 10^9 instructions outside the device";
            let mut record = record(cost, unit, &self.cost);
            record.costs = Some(costs.into());
            report.results.push(record);
        }
    }
}

/// Measures them.
pub(super) fn cases(
    rig: &Rig,
    options: &Options,
    counter: Option<&Counter>,
    report: &mut Report,
) -> Result<()> {
    let lane = name(rig.lane);
    let (mut spread, mut off) = (Streams::default(), Streams::default());
    let (mut without, mut order) = (Pairs::default(), Pairs::default());
    for seed in 1..=options.pairs {
        let stream = |side| {
            fabric(rig, &format!("echo {seed} >seed"))?;
            stream(rig, counter, side)
        };
        let (ours_off, peer_off) = (stream(Side::Ours)?, stream(Side::Peer)?);
        fabric(
            rig,
            "echo 200 >cables/slow/jitter && echo packet >switches/s1/adaptive",
        )?;
        let (ours, peer) = (stream(Side::Ours)?, stream(Side::Peer)?);
        window(rig, 0)?;
        let none = stream(Side::Ours)?;
        window(rig, 32)?;
        fabric(
            rig,
            "echo 0 >cables/slow/jitter && echo off >switches/s1/adaptive",
        )?;
        let overtook = [&ours_off, &peer_off, &peer].map(|stream| stream.late > 0.0);
        ensure!(
            overtook == [false, false, true],
            "{overtook:?}: what overtook"
        );
        say(&format!(
            "{lane} adaptive, seed {seed}: {:.0} Mbit/s and {} out of order; without the window {:.0}, {}; ib_ipoib {:.0}, {}; \
             in order {:.0} and {:.0}",
            ours.goodput,
            ours.late,
            none.goodput,
            none.late,
            peer.goodput,
            peer.late,
            ours_off.goodput,
            peer_off.goodput
        ));
        for (side, stream) in [
            ("ours", &ours),
            ("ib_ipoib", &peer),
            ("ours in order", &ours_off),
        ] {
            if let Some((_, cost)) = &stream.cost {
                say(&format!("{side}: {cost}"));
            }
        }
        spread.add(&ours, &peer);
        off.add(&ours_off, &peer_off);
        without.add(none.goodput, peer.goodput, none.goodput / peer.goodput);
        order.add(ours.late, peer.late, 1.0 - ours.late / peer.late);
    }
    spread.report(report, lane, "adaptive_goodput", "adaptive_cost");
    off.report(report, lane, "adaptive_off", "adaptive_off_cost");
    for (case, unit, pairs) in [
        ("adaptive_no_window", "Mbit/s", &without),
        ("adaptive_order", "segments out of order", &order),
    ] {
        report
            .results
            .push(Record::new(PAGE, case, lane, unit, pairs));
    }
    Ok(())
}

/// Changes the fabric.
fn fabric(rig: &Rig, script: &str) -> Result<()> {
    let outside = rig.bed.pair()?.0.outside();
    outside.ok(&format!("cd /sys/kernel/config/ib_hwsim/twin && {script}"))?;
    Ok(())
}

/// Sets the receiver's window, in frames.
fn window(rig: &Rig, width: u32) -> Result<()> {
    let (_, b) = rig.bed.pair()?;
    b.ok(&format!("sysctl -qw net.ipoib.ib0.reorder_window={width}"))?;
    Ok(())
}

fn stream(rig: &Rig, counter: Option<&Counter>, side: Side) -> Result<Stream> {
    let (_, b) = rig.bed.pair()?;
    let before = out_of_order(rig)?;
    let load = Load::Tcp(1);
    let command = load.command(&side.address(b), 2 * seconds(rig.lane));
    let (text, cost) = match counter {
        Some(counter) => {
            let (text, cost) = rig.count(counter, side, &command, false)?;
            (text, Some(cost))
        }
        None => (rig.run(&command)?, None),
    };
    let (done, seconds) = load.done(&text)?;
    Ok(Stream {
        goodput: done / seconds,
        late: out_of_order(rig)? - before,
        cost: cost.map(|cost| (1e9 * done / cost.outside() as f64, cost)),
    })
}

/// The receiver's `TcpExtTCPOFOQueue`.
fn out_of_order(rig: &Rig) -> Result<f64> {
    let (_, b) = rig.bed.pair()?;
    let text = b.ok("nstat -asz TcpExtTCPOFOQueue | grep TCPOFOQueue")?;
    let value = text.split_whitespace().nth(1).context("TCPOFOQueue")?;
    Ok(value.parse()?)
}
