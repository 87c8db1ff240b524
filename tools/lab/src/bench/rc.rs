// SPDX-License-Identifier: GPL-2.0

//! Page `rc`: connected mode against the C driver's, and what it is worth beside datagrams.

use super::Options;
use super::case::{Case, iperf3_received};
use super::count::Counter;
use super::plot::{Line, Plot};
use super::report::{Record, Report};
use super::rig::{Mode, Rig, Side};
use super::statistics::Pairs;
use crate::bed::{Builder, LINK_MTU};
use crate::step::say;
use anyhow::{Context, Result, bail, ensure};

/// The largest MTU of a connection.
const LARGE: u32 = 65520;
/// MTU of most Ethernets: an IB MTU of 1024 goes over it.
const SMALL_ETHERNET: u32 = 1500;
/// Flows of the case with many of them.
const FLOWS: u32 = 64;
/// MTUs that are swept.
const MTUS: [u32; 6] = [2044, 4092, 8188, 16380, 32764, LARGE];

/// One TCP stream over ours in one mode, and over the C driver in its.
struct Stream {
    name: &'static str,
    /// The MTU of the Ethernet.
    ethernet: u32,
    ours: Mode,
    /// The setting `large_frames` of ours.
    large: u32,
    peer: Mode,
}

/// Those on one Ethernet are beside each other: each of them wants machines of its own.
const STREAMS: [Stream; 6] = [
    Stream {
        name: "tcp_65520",
        ethernet: LINK_MTU,
        ours: Mode::Connected(LARGE),
        large: 1,
        peer: Mode::Connected(LARGE),
    },
    Stream {
        name: "tcp_4092_vs_peer_65520",
        ethernet: LINK_MTU,
        ours: Mode::Connected(4092),
        large: 1,
        peer: Mode::Connected(LARGE),
    },
    Stream {
        name: "tcp_4092_vs_peer_4092",
        ethernet: LINK_MTU,
        ours: Mode::Connected(4092),
        large: 1,
        peer: Mode::Connected(4092),
    },
    Stream {
        name: "plain_4092",
        ethernet: LINK_MTU,
        ours: Mode::Connected(4092),
        large: 0,
        peer: Mode::Connected(4092),
    },
    Stream {
        name: "plain_8188",
        ethernet: LINK_MTU,
        ours: Mode::Connected(8188),
        large: 0,
        peer: Mode::Connected(8188),
    },
    Stream {
        name: "tcp_1020_large",
        ethernet: SMALL_ETHERNET,
        ours: Mode::Connected(1020),
        large: 1,
        peer: Mode::Datagram,
    },
];

/// Measures the page.
pub(super) fn page(
    bed: &Builder,
    options: &Options,
    counter: Option<&Counter>,
    report: &mut Report,
) -> Result<()> {
    for ethernet in [LINK_MTU, SMALL_ETHERNET] {
        let streams = || {
            STREAMS
                .iter()
                .filter(|s| s.ethernet == ethernet && options.includes(s.name))
        };
        let others = ethernet == LINK_MTU && OTHERS.iter().any(|name| options.includes(name));
        if streams().next().is_none() && !others {
            continue;
        }
        let rig = Rig::up(bed, options.itself, ethernet)?;
        report.kernel = rig.release()?;
        for stream in streams() {
            rig.large_frames(stream.large)?;
            let mut pairs = pairs(&rig, options, stream.name, &|| {
                let ours = tcp(&rig, Side::Ours, stream.ours)?;
                let peer = tcp(&rig, Side::Peer, stream.peer)?;
                Ok((ours, peer, ours / peer))
            })?;
            note_case(&rig, counter, Case::Tcp1, &mut pairs)?;
            rig.large_frames(1)?;
            record(&rig, report, stream.name, &Case::Tcp1.unit(&rig), &pairs);
        }
        if others {
            other_cases(&rig, options, counter, report)?;
        }
        rig.finish()?;
    }
    Ok(())
}

/// The cases beside the streams.
const OTHERS: [&str; 5] = ["text_share", "flows_64", "rr_vs_ud", "connect_ms", "mtus"];

fn other_cases(
    rig: &Rig,
    options: &Options,
    counter: Option<&Counter>,
    report: &mut Report,
) -> Result<()> {
    if let Some(counter) = counter {
        let connected = |side| rig.mode(side, Mode::Connected(LARGE));
        super::text_share(rig, counter, "rc", options, report, &connected)?;
    }
    // The rest is about this driver alone.
    if options.itself {
        return Ok(());
    }
    let unit = Case::Tcp1.unit(rig);
    if options.includes("flows_64") {
        let mut pairs = pairs(rig, options, "flows_64", &|| {
            let many = flows(rig, Side::Ours, FLOWS)?;
            few_connections(rig)?;
            let one = flows(rig, Side::Ours, 1)?;
            // The cost of many flows in the stack is not the driver's doing.
            let other = flows(rig, Side::Peer, FLOWS)? / flows(rig, Side::Peer, 1)?;
            say(&format!("C driver, {FLOWS} flows and 1: {other:.3}"));
            Ok((many, one, many / one))
        })?;
        let many = streams(rig, Side::Ours, FLOWS, rig.seconds())?;
        super::note_share(rig, counter, &many, &mut pairs)?;
        let unit = format!("{unit}, {FLOWS} flows and 1");
        record(rig, report, "flows_64", &unit, &pairs);
    }
    if options.includes("rr_vs_ud") {
        let unit = format!("{}, connected and not", Case::TcpRr.unit(rig));
        let mut pairs = pairs(rig, options, "rr_vs_ud", &|| {
            rig.mode(Side::Ours, Mode::Connected(LARGE))?;
            let connected = Case::TcpRr.measure(rig, Side::Ours)?;
            rig.mode(Side::Ours, Mode::Datagram)?;
            let datagram = Case::TcpRr.measure(rig, Side::Ours)?;
            Ok((connected, datagram, connected / datagram))
        })?;
        rig.mode(Side::Ours, Mode::Connected(LARGE))?;
        note_case(rig, counter, Case::TcpRr, &mut pairs)?;
        record(rig, report, "rr_vs_ud", &unit, &pairs);
    }
    if options.includes("connect_ms") {
        let unit = "ms until it is used; C driver: until an answer";
        let pairs = pairs(rig, options, "connect_ms", &|| {
            let ours = connect(rig, Side::Ours)?;
            let peer = connect(rig, Side::Peer)?.answered;
            let used = ours.used.context("no frame went through it")?;
            ensure!(
                ours.answered <= used && ours.datagrams > 0,
                "answered after {} ms, used after {used} ms, {} datagrams until then: the first frame has waited",
                ours.answered,
                ours.datagrams
            );
            say(&format!(
                "first answer: ours {:.2} ms, C driver {peer:.2} ms",
                ours.answered
            ));
            Ok((used, peer, peer / used))
        })?;
        record(rig, report, "connect_ms", unit, &pairs);
    }
    if options.includes("mtus") {
        sweep_mtus(rig, counter, report)?;
    }
    rig.mode(Side::Ours, Mode::Connected(LARGE))
}

/// One measurement of a case: ours, what it is compared with, and what comes of it.
type Measure<'a> = &'a dyn Fn() -> Result<(f64, f64, f64)>;

fn pairs(rig: &Rig, options: &Options, name: &str, measure: Measure<'_>) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    for n in 1..=options.pairs {
        let (ours, other, ratio) = measure().with_context(|| name.to_owned())?;
        say(&format!(
            "{} {name} {n}/{}: {ours:.1}, {other:.1}: {ratio:.3}",
            rig.lane_name(),
            options.pairs
        ));
        pairs.add(ours, other, ratio);
    }
    Ok(pairs)
}

fn note_case(rig: &Rig, counter: Option<&Counter>, case: Case, pairs: &mut Pairs) -> Result<()> {
    super::note_share(rig, counter, &case.script(rig, Side::Ours)?, pairs)
}

fn record(rig: &Rig, report: &mut Report, name: &str, unit: &str, pairs: &Pairs) {
    let record = Record::new("rc", name, rig.lane_name(), unit, pairs);
    report.results.push(record);
}

/// One TCP stream, which must have gone the way that the mode says.
fn tcp(rig: &Rig, side: Side, mode: Mode) -> Result<f64> {
    rig.mode(side, mode)?;
    let before = sent(rig, side)?;
    let rate = Case::Tcp1.measure(rig, side)?;
    by_connection(rig, side, mode, before, rate, rig.seconds())?;
    Ok(rate)
}

/// Bytes that the first host has sent through connections; nothing is known of the C driver's.
fn sent(rig: &Rig, side: Side) -> Result<Option<u64>> {
    if !rig.counts(side) {
        return Ok(None);
    }
    rig.senders_counter("rc_tx_bytes").map(Some)
}

/// Most of what arrived, `rate` Mbit/s for so many seconds, went through connections, if these are wanted.
fn by_connection(
    rig: &Rig,
    side: Side,
    mode: Mode,
    before: Option<u64>,
    rate: f64,
    seconds: u32,
) -> Result<()> {
    let (Some(before), Some(after)) = (before, sent(rig, side)?) else {
        return Ok(());
    };
    let through = (after - before) as f64;
    let all = rate * 1e6 / 8.0 * f64::from(seconds);
    ensure!(
        mode == Mode::Datagram || through > 0.9 * all,
        "{side}, {mode}: {through:.0} bytes of {all:.0} went through connections"
    );
    Ok(())
}

/// A client of so many TCP flows at once.
fn streams(rig: &Rig, side: Side, count: u32, seconds: u32) -> Result<String> {
    let to = rig.address(side)?;
    Ok(format!("iperf3 -c {to} -O 1 -t {seconds} -P {count} -J"))
}

/// So many TCP flows at once, in Mbit, once they are under way: many of them fill many sockets' buffers
/// first, with what does not arrive before the end of a short run.
fn flows(rig: &Rig, side: Side, count: u32) -> Result<f64> {
    let mode = Mode::Connected(LARGE);
    rig.mode(side, mode)?;
    let before = sent(rig, side)?;
    let seconds = 4 * rig.seconds();
    let text = rig.client(&streams(rig, side, count, seconds)?)?;
    let rate = iperf3_received(&text).with_context(|| text.clone())?;
    by_connection(rig, side, mode, before, rate, seconds)?;
    Ok(rate)
}

/// No more connections to a peer, and from it, than there may be.
fn few_connections(rig: &Rig) -> Result<()> {
    let allowed = rig.client("cat /proc/sys/net/ipoib/ib0/rc_max_qps")?;
    let allowed: usize = allowed.trim().parse().context("rc_max_qps")?;
    let pairs = rig.senders_connections(Side::Ours)?;
    ensure!(
        (1..=2 * allowed).contains(&pairs),
        "{pairs} queue pairs, {allowed} allowed each way"
    );
    Ok(())
}

/// How a connection began, in milliseconds from the first frame on.
struct Connect {
    /// The first frame was answered.
    answered: f64,
    /// A frame went through the connection; unknown where there are no counters.
    used: Option<f64>,
    /// So many went by UD until then, though there was to be a connection.
    datagrams: u64,
}

const CONNECT: &str = include_str!("../../../../tests/guest/bench/rc/connect.py");

fn connect(rig: &Rig, side: Side) -> Result<Connect> {
    rig.forget(side, LARGE)?;
    let counts = rig.counts(side).to_string();
    let text = rig.python(
        CONNECT,
        &[&rig.address(side)?, rig.interface(side), &counts],
    )?;
    let values: Vec<&str> = text.split_whitespace().collect();
    let [answered, used, datagrams] = values[..] else {
        bail!("no three values: {text}");
    };
    Ok(Connect {
        answered: answered.parse()?,
        used: used.parse().ok(),
        datagrams: datagrams.parse()?,
    })
}

/// Goodput over the MTU: ours with large frames and without, and the C driver's.
fn sweep_mtus(rig: &Rig, counter: Option<&Counter>, report: &mut Report) -> Result<()> {
    let (mut large, mut small, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for mtu in MTUS {
        let mode = Mode::Connected(mtu);
        let peer = tcp(rig, Side::Peer, mode)?;
        peers.push((f64::from(mtu), peer));
        for (setting, name, points) in [(1, "large", &mut large), (0, "plain", &mut small)] {
            rig.large_frames(setting)?;
            let ours = tcp(rig, Side::Ours, mode)?;
            let mut pair = Pairs::default();
            pair.add(ours, peer, ours / peer);
            note_case(rig, counter, Case::Tcp1, &mut pair)?;
            let case = format!("mtu_{mtu}_{name}");
            say(&format!("{case}: {ours:.0}; C driver {peer:.0}"));
            record(rig, report, &case, &Case::Tcp1.unit(rig), &pair);
            points.push((f64::from(mtu), ours));
        }
    }
    rig.large_frames(1)?;
    report.plots.push(Plot {
        page: "rc".into(),
        lane: rig.lane_name().into(),
        name: "connected_mtu".into(),
        title: "Connected mode: TCP, one stream".into(),
        x: "MTU".into(),
        y: Case::Tcp1.unit(rig),
        log: false,
        lines: vec![
            Line::new("ours", large),
            Line::new("ours, large_frames=0", small),
            Line::new("C driver", peers),
        ],
    });
    Ok(())
}
