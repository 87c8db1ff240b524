// SPDX-License-Identifier: GPL-2.0

//! Rates, from two readings of counters.

use crate::drops;
use crate::facts::{Facts, Interface, address, column};
use crate::table::Row;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Rates that are remembered, for sparklines.
const HISTORY: usize = 120;

/// Something that is counted, and shown as a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    RxFrames,
    RxBits,
    TxFrames,
    TxBits,
    Late,
    Drops,
}

impl Quantity {
    pub(super) const ALL: [Quantity; 6] = [
        Quantity::RxFrames,
        Quantity::RxBits,
        Quantity::TxFrames,
        Quantity::TxBits,
        Quantity::Late,
        Quantity::Drops,
    ];

    /// Its name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Quantity::RxFrames => "rx_frames",
            Quantity::RxBits => "rx_bits",
            Quantity::TxFrames => "tx_frames",
            Quantity::TxBits => "tx_bits",
            Quantity::Late => "late",
            Quantity::Drops => "drops",
        }
    }
}

/// Counters by [`Quantity`]; none where the driver does not count.
type Counts = [Option<u64>; Quantity::ALL.len()];
/// Rates per second by [`Quantity`]; none where nothing is counted, and before the second reading.
pub(super) type Rates = [Option<f64>; Quantity::ALL.len()];

/// Rates now, and those of before, the last one last.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Track {
    pub(super) rates: Rates,
    pub(super) rx: VecDeque<f64>,
    pub(super) tx: VecDeque<f64>,
}

impl Track {
    /// Goes on with new rates. `rx` and `tx` are those to remember.
    fn push(&mut self, rates: Rates, rx: Quantity, tx: Quantity) {
        for (history, quantity) in [(&mut self.rx, rx), (&mut self.tx, tx)] {
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(rates[quantity as usize].unwrap_or(0.0));
        }
        self.rates = rates;
    }
}

/// A peer's name to the meter: interface, GID, QPN.
type PeerKey = (String, String, u32);
/// A connection or source: table, row's number and state, and the peer.
type FlowKey = (PeerKey, &'static str, String);

/// Counters of the last reading, and rates.
#[derive(Debug, Default)]
pub(super) struct Meter {
    at: Option<Duration>,
    elapsed: Duration,
    counts: HashMap<String, Counts>,
    /// Interfaces whose tables could be read.
    known: HashSet<String>,
    flows: HashMap<FlowKey, Counts>,
    interfaces: HashMap<String, Track>,
    peers: HashMap<PeerKey, Track>,
    nothing: Track,
}

impl Meter {
    /// Takes a reading of `at`, a time since any point. There are rates from the second one on.
    pub(super) fn read(&mut self, facts: &Facts, at: Duration) {
        let elapsed = self.at.map(|before| at.saturating_sub(before));
        self.at = Some(at);
        self.elapsed = elapsed.unwrap_or_default();
        self.read_interfaces(facts, elapsed);
        self.read_flows(facts, elapsed);
    }

    /// The time between the last two readings.
    pub(super) fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64()
    }

    /// An interface.
    pub(super) fn interface(&self, name: &str) -> &Track {
        self.interfaces.get(name).unwrap_or(&self.nothing)
    }

    /// A peer.
    pub(super) fn peer(&self, interface: &str, gid: &str, qpn: u32) -> &Track {
        let key = (interface.to_owned(), gid.to_owned(), qpn);
        self.peers.get(&key).unwrap_or(&self.nothing)
    }

    fn read_interfaces(&mut self, facts: &Facts, elapsed: Option<Duration>) {
        let mut before = std::mem::take(&mut self.interfaces);
        let old = std::mem::take(&mut self.counts);
        for interface in &facts.interfaces {
            let counts = counts(interface);
            let mut track = before.remove(&interface.name).unwrap_or_default();
            if let (Some(old), Some(elapsed)) = (old.get(&interface.name), elapsed) {
                let rates = rates(&difference(old, &counts), elapsed);
                track.push(rates, Quantity::RxBits, Quantity::TxBits);
            }
            self.interfaces.insert(interface.name.clone(), track);
            self.counts.insert(interface.name.clone(), counts);
        }
    }

    fn read_flows(&mut self, facts: &Facts, elapsed: Option<Duration>) {
        let old = std::mem::take(&mut self.flows);
        let readable = facts.interfaces.iter().filter(|i| !i.tables.is_empty());
        let readable = readable.map(|i| i.name.clone()).collect();
        let known = std::mem::replace(&mut self.known, readable);
        let mut now: HashMap<PeerKey, Counts> = HashMap::new();
        for interface in &facts.interfaces {
            let name = &interface.name;
            // A row is new if the table was read before, and it was not in there.
            let known = known.contains(name);
            for (table, of) in [
                ("connections", connection as fn(&Row) -> Counts),
                ("sources", source),
            ] {
                for row in interface.table(table) {
                    let (gid, qpn) = address(row);
                    let peer = (name.clone(), gid.to_owned(), qpn);
                    let which = format!("{} {}", column(row, "number"), kind(row));
                    let key = (peer.clone(), table, which);
                    let counts = of(row);
                    let more = match old.get(&key) {
                        Some(old) => difference(old, &counts),
                        None if known => counts,
                        None => counts.map(|count| count.map(|_| 0)),
                    };
                    let sum = now.entry(peer).or_default();
                    for (sum, more) in sum.iter_mut().zip(more) {
                        *sum = add(*sum, more);
                    }
                    self.flows.insert(key, counts);
                }
            }
        }
        let mut before = std::mem::take(&mut self.peers);
        for (key, more) in now {
            let mut track = before.remove(&key).unwrap_or_default();
            if let Some(elapsed) = elapsed {
                let rates = rates(&more, elapsed);
                track.push(rates, Quantity::RxFrames, Quantity::TxFrames);
            }
            self.peers.insert(key, track);
        }
    }
}

/// A connection's row that is about receiving only counts by itself.
fn kind(row: &Row) -> &str {
    match column(row, "state") {
        kind @ "receiving" => kind,
        _ => "",
    }
}

/// Sum of what is counted.
fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (one, other) => one.or(other),
    }
}

fn bits(bytes: Option<u64>) -> Option<u64> {
    bytes.map(|bytes| bytes.saturating_mul(8))
}

/// Counters of an interface, of either driver.
fn counts(interface: &Interface) -> Counts {
    let counter = |name: &str| interface.counters.get(name).copied();
    let both = |one: &str, other: &str| add(counter(one), counter(other));
    if !interface.ours {
        return [
            counter("rx_packets"),
            bits(counter("rx_bytes")),
            counter("tx_packets"),
            bits(counter("tx_bytes")),
            None,
            both("rx_dropped", "tx_dropped"),
        ];
    }
    let drops = drops::of(interface).map(|(_, value, _)| value).sum();
    [
        both("rx_frames", "rc_rx_frames"),
        bits(both("rx_bytes", "rc_rx_bytes")),
        both("tx_frames", "rc_tx_frames"),
        bits(both("tx_bytes", "rc_tx_bytes")),
        counter("rx_seq_late"),
        Some(drops).filter(|_| !interface.counters.is_empty()),
    ]
}

fn number(row: &Row, name: &str) -> Option<u64> {
    column(row, name).parse().ok()
}

fn connection(row: &Row) -> Counts {
    [
        number(row, "rx_frames"),
        bits(number(row, "rx_bytes")),
        number(row, "tx_frames"),
        bits(number(row, "tx_bytes")),
        None,
        None,
    ]
}

/// Numbered datagrams of a source: all that came, and those passed up too late.
fn source(row: &Row) -> Counts {
    let came = add(number(row, "in_order"), number(row, "reordered"));
    [came, None, None, None, number(row, "late"), None]
}

/// Growth of each counter. One that is lower than before has begun anew.
fn difference(before: &Counts, now: &Counts) -> Counts {
    let mut more = *now;
    for (now, before) in more.iter_mut().zip(before) {
        if let (Some(now), Some(before)) = (now, before) {
            *now = now.checked_sub(*before).unwrap_or(*now);
        }
    }
    more
}

fn rates(more: &Counts, elapsed: Duration) -> Rates {
    // Two readings at once are no reason to divide by zero.
    let seconds = elapsed.as_secs_f64().max(1e-3);
    more.map(|more| more.map(|more| more as f64 / seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healthy::healthy;

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn rate(track: &Track, quantity: Quantity) -> Option<f64> {
        track.rates[quantity as usize]
    }

    #[test]
    fn an_interface_has_rates_from_the_second_reading_on() {
        let mut facts = healthy(true);
        let mut meter = Meter::default();
        meter.read(&facts, second(1));
        assert_eq!(meter.interface("ib0").rates, Rates::default());
        let counters = &mut facts.interfaces[0].counters;
        for (name, value) in [
            ("rx_frames", 5300),
            ("rx_bytes", 1000),
            ("rc_rx_bytes", 500),
            ("tx_drop_no_path", 6),
            ("rx_drop_own_multicast", 6),
            ("rx_seq_late", 0),
        ] {
            counters.insert(name.into(), value);
        }
        meter.read(&facts, second(4));
        let track = meter.interface("ib0");
        assert_eq!(rate(track, Quantity::RxFrames), Some(100.0));
        assert_eq!(rate(track, Quantity::RxBits), Some(4000.0));
        assert_eq!(rate(track, Quantity::TxFrames), Some(0.0));
        assert_eq!(rate(track, Quantity::TxBits), None);
        assert_eq!(rate(track, Quantity::Drops), Some(2.0));
        assert_eq!(track.rx, [4000.0]);
        assert_eq!(meter.seconds(), 3.0);
    }

    #[test]
    fn counters_of_ib_ipoib_are_those_of_any_interface() {
        let mut facts = healthy(false);
        facts.interfaces[0].ours = false;
        let names = ["rx_packets", "rx_bytes", "tx_packets", "tx_dropped"];
        facts.interfaces[0].counters = names.map(|name| (name.to_owned(), 10)).into();
        let mut meter = Meter::default();
        meter.read(&facts, second(0));
        for value in facts.interfaces[0].counters.values_mut() {
            *value += 2;
        }
        meter.read(&facts, second(2));
        let rates = meter.interface("ib0").rates;
        assert_eq!(
            rates,
            [Some(1.0), Some(8.0), Some(1.0), None, None, Some(1.0)]
        );
    }

    #[test]
    fn a_counter_that_begins_anew_is_no_jump() {
        let mut facts = healthy(true);
        let mut meter = Meter::default();
        meter.read(&facts, second(0));
        facts.interfaces[0].counters.insert("rx_frames".into(), 40);
        meter.read(&facts, second(4));
        assert_eq!(rate(meter.interface("ib0"), Quantity::RxFrames), Some(10.0));
    }

    fn connection_of(state: &str, frames: &str) -> Row {
        let columns = ["rx_frames", "rx_bytes", "tx_frames", "tx_bytes"];
        let mut found = Row::of(&[("gid", "fe80::2"), ("qpn", "0x000012"), ("number", "0")]);
        found.set("state", state);
        for name in columns {
            found.set(name, frames);
        }
        found
    }

    fn peer(meter: &Meter) -> &Track {
        meter.peer("ib0", "fe80::2", 0x12)
    }

    #[test]
    fn a_peer_has_the_rates_of_its_connections_and_datagrams() {
        let mut facts = healthy(true);
        let tables = &mut facts.interfaces[0].tables;
        tables.insert("connections".into(), vec![connection_of("requested", "0")]);
        let mut meter = Meter::default();
        meter.read(&facts, second(0));
        assert_eq!(peer(&meter).rates, Rates::default());

        let rows = vec![connection_of("up", "100"), connection_of("receiving", "20")];
        facts.interfaces[0]
            .tables
            .insert("connections".into(), rows);
        let sources = facts.interfaces[0]
            .tables
            .get_mut("sources")
            .expect("sources");
        for (name, value) in [("in_order", "50"), ("reordered", "10"), ("late", "5")] {
            sources[0].set(name, value);
        }
        meter.read(&facts, second(10));
        // Of the source, nothing was known before.
        assert_eq!(rate(peer(&meter), Quantity::RxFrames), Some(18.0));
        assert_eq!(rate(peer(&meter), Quantity::TxBits), Some(96.0));
        assert_eq!(rate(peer(&meter), Quantity::Late), Some(0.5));
        assert_eq!(rate(peer(&meter), Quantity::Drops), None);

        // One of two connections has ended.
        let rows = vec![connection_of("up", "110")];
        facts.interfaces[0]
            .tables
            .insert("connections".into(), rows);
        meter.read(&facts, second(20));
        assert_eq!(rate(peer(&meter), Quantity::RxFrames), Some(1.0));
        assert_eq!(peer(&meter).rx, [18.0, 1.0]);
    }

    #[test]
    fn tables_that_appear_are_no_jump() {
        let mut facts = healthy(true);
        let tables = std::mem::take(&mut facts.interfaces[0].tables);
        let mut meter = Meter::default();
        meter.read(&facts, second(0));
        facts.interfaces[0].tables = tables;
        let rows = vec![connection_of("up", "100")];
        facts.interfaces[0]
            .tables
            .insert("connections".into(), rows);
        meter.read(&facts, second(1));
        assert_eq!(rate(peer(&meter), Quantity::RxFrames), Some(0.0));
        // A peer that is gone is forgotten.
        facts.interfaces[0].tables.clear();
        meter.read(&facts, second(2));
        assert!(meter.peers.is_empty() && meter.flows.is_empty());
    }

    #[test]
    fn the_past_has_an_end() {
        let facts = healthy(true);
        let mut meter = Meter::default();
        for n in 0..=HISTORY as u64 + 5 {
            meter.read(&facts, second(n));
        }
        assert_eq!(meter.interface("ib0").rx.len(), HISTORY);
    }
}
