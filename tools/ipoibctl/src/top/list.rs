// SPDX-License-Identifier: GPL-2.0

//! The peers of all interfaces, one for each link-layer address, and their order.

use super::meter::{Meter, Quantity, Rates};
use crate::facts::{Facts, Interface, Neighbour, address, column};
use clap::ValueEnum;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;

/// A peer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Peer {
    pub(super) interface: String,
    /// IP addresses of its neighbour entries, those of IPv4 first.
    pub(super) ips: Vec<IpAddr>,
    /// Link-layer address, "" and 0 if nobody has answered.
    pub(super) gid: String,
    pub(super) qpn: u32,
    /// States; "" without a neighbour entry, and where debugfs cannot be read.
    pub(super) neighbour: String,
    pub(super) path: String,
    pub(super) connection: String,
    /// Messages that may be sent on the connection, and frames that wait for it.
    pub(super) may_send: String,
    pub(super) waiting: String,
    pub(super) rates: Rates,
}

/// Identity of a peer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    interface: String,
    gid: String,
    qpn: u32,
    ip: Option<IpAddr>,
}

impl Peer {
    /// Its identity.
    pub(super) fn key(&self) -> Key {
        Key {
            interface: self.interface.clone(),
            gid: self.gid.clone(),
            qpn: self.qpn,
            ip: self.ips.first().copied().filter(|_| self.gid.is_empty()),
        }
    }

    /// Its first IP address, or its GID.
    pub(super) fn name(&self) -> String {
        match self.ips.first() {
            Some(ip) => ip.to_string(),
            None => self.gid.clone(),
        }
    }

    /// The state that matters most: what keeps frames from it, or how they travel.
    pub(super) fn state(&self) -> &str {
        let lost = matches!(self.neighbour.as_str(), "failed" | "incomplete");
        match (self.path.as_str(), self.connection.as_str()) {
            _ if lost => &self.neighbour,
            (state @ ("failed" | "resolving"), _) => state,
            (_, "up") => "connected",
            (_, state) if !state.is_empty() => state,
            ("ready" | "old" | "stale", _) => "datagram",
            _ if self.neighbour.is_empty() => &self.path,
            _ => &self.neighbour,
        }
    }

    /// Returns true if nothing reaches it.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state(), "failed" | "incomplete")
    }

    fn rate(&self, quantity: Quantity) -> f64 {
        self.rates[quantity as usize].unwrap_or(-1.0)
    }

    fn traffic(&self) -> f64 {
        self.rate(Quantity::RxFrames) + self.rate(Quantity::TxFrames)
    }
}

/// A column that peers are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Peer,
    Link,
    State,
    RxFrames,
    RxBits,
    TxFrames,
    TxBits,
    Late,
    Traffic,
}

impl Sort {
    pub(super) const ALL: [Sort; 9] = [
        Sort::Peer,
        Sort::Link,
        Sort::State,
        Sort::RxFrames,
        Sort::RxBits,
        Sort::TxFrames,
        Sort::TxBits,
        Sort::Late,
        Sort::Traffic,
    ];

    /// Its words in the menu.
    pub(super) fn words(self) -> &'static str {
        match self {
            Sort::Peer => "address",
            Sort::Link => "interface",
            Sort::State => "state",
            Sort::RxFrames => "frames received",
            Sort::RxBits => "bits received",
            Sort::TxFrames => "frames sent",
            Sort::TxBits => "bits sent",
            Sort::Late => "frames delivered late",
            Sort::Traffic => "frames both ways",
        }
    }

    /// Compares by this column: the largest numbers come first, and words and addresses in their order.
    fn compare(self, a: &Peer, b: &Peer) -> Ordering {
        let by = |quantity| b.rate(quantity).total_cmp(&a.rate(quantity));
        match self {
            Sort::Peer => Ordering::Equal,
            Sort::Link => a.interface.cmp(&b.interface),
            Sort::State => a.state().cmp(b.state()),
            Sort::RxFrames => by(Quantity::RxFrames),
            Sort::RxBits => by(Quantity::RxBits),
            Sort::TxFrames => by(Quantity::TxFrames),
            Sort::TxBits => by(Quantity::TxBits),
            Sort::Late => by(Quantity::Late),
            Sort::Traffic => b.traffic().total_cmp(&a.traffic()),
        }
    }
}

/// Sorts peers; those that are equal by their addresses.
pub(super) fn sort(peers: &mut [&Peer], by: Sort, inverted: bool) {
    peers.sort_by(|a, b| {
        let order = by.compare(a, b);
        let order = if by == Sort::Peer { tie(a, b) } else { order };
        let order = if inverted { order.reverse() } else { order };
        order.then_with(|| tie(a, b))
    });
}

fn tie(a: &Peer, b: &Peer) -> Ordering {
    let key = |peer: &'_ Peer| (peer.ips.is_empty(), peer.ips.first().copied());
    key(a)
        .cmp(&key(b))
        .then_with(|| a.gid.cmp(&b.gid))
        .then_with(|| a.qpn.cmp(&b.qpn))
        .then_with(|| a.interface.cmp(&b.interface))
}

/// All peers: neighbours, and what else has a path or a connection.
pub(super) fn peers(facts: &Facts, meter: &Meter) -> Vec<Peer> {
    let interfaces = facts.interfaces.iter();
    interfaces.flat_map(|i| peers_of(i, meter)).collect()
}

fn peers_of(interface: &Interface, meter: &Meter) -> Vec<Peer> {
    let mut list = Vec::new();
    let mut known: HashMap<(&str, u32), usize> = HashMap::new();
    for neighbour in &interface.neighbours {
        if neighbour.gid.is_empty() {
            list.push(from_neighbour(interface, neighbour));
            continue;
        }
        let new = || from_neighbour(interface, neighbour);
        let at = place(&mut known, &mut list, (&neighbour.gid, neighbour.qpn), new);
        let peer = &mut list[at];
        if !peer.ips.contains(&neighbour.ip) {
            peer.ips.push(neighbour.ip);
            peer.ips.sort();
            // An address that answers is worth more than one that does not.
            if peer.is_lost() {
                peer.neighbour.clone_from(&neighbour.state);
            }
        }
    }
    for table in ["paths", "connections"] {
        for row in interface.table(table) {
            let (gid, qpn) = address(row);
            let new = || Peer {
                interface: interface.name.clone(),
                gid: gid.to_owned(),
                qpn,
                ..Peer::default()
            };
            let at = place(&mut known, &mut list, (gid, qpn), new);
            let peer = &mut list[at];
            let state = column(row, "state");
            if table == "paths" {
                peer.path = state.to_owned();
            } else if peer.connection.is_empty() || state == "up" {
                peer.connection = state.to_owned();
                peer.may_send = column(row, "may_send").to_owned();
                peer.waiting = column(row, "waiting").to_owned();
            }
        }
    }
    for peer in &mut list {
        peer.rates = meter.peer(&peer.interface, &peer.gid, peer.qpn).rates;
    }
    list
}

/// Index of the peer with a link-layer address, which is added if it is new.
fn place<'a>(
    known: &mut HashMap<(&'a str, u32), usize>,
    list: &mut Vec<Peer>,
    address: (&'a str, u32),
    new: impl FnOnce() -> Peer,
) -> usize {
    *known.entry(address).or_insert_with(|| {
        list.push(new());
        list.len() - 1
    })
}

fn from_neighbour(interface: &Interface, neighbour: &Neighbour) -> Peer {
    Peer {
        interface: interface.name.clone(),
        ips: vec![neighbour.ip],
        gid: neighbour.gid.clone(),
        qpn: neighbour.qpn,
        neighbour: neighbour.state.clone(),
        ..Peer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healthy::healthy;
    use crate::table::Row;

    fn neighbour(ip: &str, state: &str, gid: &str, qpn: u32) -> Neighbour {
        Neighbour {
            ip: ip.parse().expect("an address"),
            state: state.into(),
            flags: 0x80,
            gid: gid.into(),
            qpn,
        }
    }

    #[test]
    fn a_peer_has_one_line_however_many_addresses_it_has() {
        let mut facts = healthy(true);
        facts.interfaces[0].neighbours = vec![
            neighbour("fe80::2", "failed", "fe80::2", 0x12),
            neighbour("10.1.0.2", "reachable", "fe80::2", 0x12),
            neighbour("10.1.0.3", "incomplete", "", 0),
            neighbour("10.1.0.4", "incomplete", "", 0),
        ];
        let paths = facts.interfaces[0].tables.get_mut("paths").expect("paths");
        paths.push(Row::of(&[
            ("gid", "fe80::9"),
            ("qpn", "0x000019"),
            ("state", "failed"),
        ]));
        let found = peers(&facts, &Meter::default());
        let lines: Vec<_> = found.iter().map(|p| (p.name(), p.state())).collect();
        assert_eq!(
            lines,
            [
                ("10.1.0.2".to_owned(), "connected"),
                ("10.1.0.3".to_owned(), "incomplete"),
                ("10.1.0.4".to_owned(), "incomplete"),
                ("fe80::9".to_owned(), "failed"),
            ]
        );
        assert_eq!(found[0].ips.len(), 2);
        assert_eq!(found[0].neighbour, "reachable");
        assert!(found[1].key() != found[2].key() && found[1].is_lost());
    }

    #[test]
    fn the_state_is_what_matters_most() {
        let state = |neighbour: &str, path: &str, connection: &str| {
            let peer = Peer {
                neighbour: neighbour.into(),
                path: path.into(),
                connection: connection.into(),
                ..Peer::default()
            };
            peer.state().to_owned()
        };
        assert_eq!(state("failed", "ready", "up"), "failed");
        assert_eq!(state("stale", "resolving", "up"), "resolving");
        assert_eq!(state("stale", "ready", "up"), "connected");
        assert_eq!(state("stale", "ready", "waiting"), "waiting");
        assert_eq!(state("stale", "ready", ""), "datagram");
        assert_eq!(state("stale", "", ""), "stale");
        assert_eq!(state("", "idle", ""), "idle");
    }

    fn with(name: &str, rates: [Option<f64>; 6]) -> Peer {
        Peer {
            interface: format!("ib{}", name.len() % 2),
            ips: vec![name.parse().expect("an address")],
            gid: name.into(),
            neighbour: name.into(),
            rates,
            ..Peer::default()
        }
    }

    fn sorted(peers: &[Peer], by: Sort, inverted: bool) -> Vec<usize> {
        let mut list: Vec<&Peer> = peers.iter().collect();
        sort(&mut list, by, inverted);
        let at = |peer: &Peer| peers.iter().position(|p| p == peer);
        list.into_iter().filter_map(at).collect()
    }

    #[test]
    fn peers_are_sorted_by_each_column() {
        let n = |values: [i32; 6]| values.map(|v| (v >= 0).then_some(f64::from(v)));
        let peers = [
            with("10.1.0.10", n([1, 6, 3, 9, 0, 0])),
            with("fe80::10", n([9, -1, 1, 1, 1, 0])),
            with("10.1.0.9", n([2, 5, -1, -1, 7, 0])),
        ];
        for (by, order) in [
            (Sort::Peer, [2, 0, 1]),
            (Sort::Link, [2, 1, 0]),
            (Sort::State, [0, 2, 1]),
            (Sort::RxFrames, [1, 2, 0]),
            (Sort::RxBits, [0, 2, 1]),
            (Sort::TxFrames, [0, 1, 2]),
            (Sort::TxBits, [0, 1, 2]),
            (Sort::Late, [2, 1, 0]),
            (Sort::Traffic, [1, 0, 2]),
        ] {
            assert_eq!(sorted(&peers, by, false), order, "{by:?}");
        }
        assert_eq!(sorted(&peers, Sort::RxFrames, true), [0, 2, 1]);
        assert_eq!(sorted(&peers, Sort::Peer, true), [1, 0, 2]);
        // Equal ones keep the order of their addresses.
        assert_eq!(sorted(&peers, Sort::Link, true), [0, 2, 1]);
    }
}
