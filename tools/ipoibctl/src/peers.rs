// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl peers`: neighbours, and where one of them is stuck.

use crate::facts::{Facts, Interface, Neighbour, address, column};
use crate::screen::Screen;
use crate::table::Row;
use anyhow::Result;
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;

/// A neighbour with its path, connection and source. A missing one is "none", or "" if debugfs could not be read.
#[derive(Debug, Serialize)]
struct Peer<'a> {
    interface: &'a str,
    ip: IpAddr,
    gid: &'a str,
    qpn: u32,
    neighbour: &'a str,
    path: &'a str,
    connection: &'a str,
    window: &'a str,
    may_send: &'a str,
    tx_frames: &'a str,
    rx_frames: &'a str,
    waiting: &'a str,
    reordered: &'a str,
    late: &'a str,
}

#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    status: u8,
    peers: Vec<Peer<'a>>,
    unread: &'a [String],
}

/// Rows of an interface's tables by the peer that they are about; the first one if there are more.
struct Rows<'a> {
    interface: &'a Interface,
    tables: HashMap<&'static str, HashMap<(&'a str, u32), &'a Row>>,
}

impl<'a> Rows<'a> {
    fn new(interface: &'a Interface) -> Rows<'a> {
        let index = |table| {
            let mut index = HashMap::new();
            for row in interface.table(table) {
                index.entry(address(row)).or_insert(row);
            }
            (table, index)
        };
        Rows {
            interface,
            tables: ["paths", "connections", "sources"].map(index).into(),
        }
    }

    /// A column of the row about a neighbour; `otherwise` if the table has none, "" if it could not be read.
    fn column(
        &self,
        (table, name): (&str, &str),
        neighbour: &Neighbour,
        otherwise: &'a str,
    ) -> &'a str {
        let address = (neighbour.gid.as_str(), neighbour.qpn);
        match self.tables.get(table).and_then(|index| index.get(&address)) {
            Some(row) => column(row, name),
            None if self.interface.tables.is_empty() => "",
            None => otherwise,
        }
    }
}

fn peer<'a>(rows: &Rows<'a>, neighbour: &'a Neighbour) -> Peer<'a> {
    let interface = rows.interface;
    let of = |table, name, otherwise| rows.column((table, name), neighbour, otherwise);
    Peer {
        interface: &interface.name,
        ip: neighbour.ip,
        gid: &neighbour.gid,
        qpn: neighbour.qpn,
        neighbour: &neighbour.state,
        path: of("paths", "state", "none"),
        connection: of("connections", "state", "none"),
        window: of("connections", "window", ""),
        may_send: of("connections", "may_send", ""),
        tx_frames: of("connections", "tx_frames", ""),
        rx_frames: of("connections", "rx_frames", ""),
        waiting: of("connections", "waiting", ""),
        reordered: of("sources", "reordered", ""),
        late: of("sources", "late", ""),
    }
}

impl Peer<'_> {
    /// Returns true if nothing reaches it.
    fn is_lost(&self) -> bool {
        matches!(self.neighbour, "failed" | "incomplete") || self.path == "failed"
    }
}

/// The neighbours of all interfaces; exit status 1 if one is not reached.
pub(crate) fn list(facts: &Facts, json: bool, screen: &mut Screen) -> Result<u8> {
    let interfaces = facts.interfaces.iter();
    let peers: Vec<Peer<'_>> = interfaces
        .flat_map(|interface| {
            let rows = Rows::new(interface);
            let neighbours = interface.neighbours.iter();
            neighbours.map(move |neighbour| peer(&rows, neighbour))
        })
        .collect();
    let status = u8::from(peers.iter().any(Peer::is_lost));
    if json {
        let report = Report {
            version: 1,
            status,
            peers,
            unread: &facts.unread,
        };
        screen.json(&report)?;
        return Ok(status);
    }
    let width = peers
        .iter()
        .map(|peer| peer.ip.to_string().len())
        .max()
        .unwrap_or(0)
        .max(15);
    screen.line(
        "",
        &format!(
            "{:8} {:width$} {:10} {:9} {:10} {:>4} {:>6}",
            "LINK", "PEER", "NEIGHBOUR", "PATH", "CONNECTION", "MAY", "LATE"
        ),
    );
    for peer in &peers {
        let ip = peer.ip.to_string();
        screen.line(
            "",
            &format!(
                "{:8} {ip:width$} {:10} {:9} {:10} {:>4} {:>6}",
                peer.interface,
                peer.neighbour,
                peer.path,
                peer.connection,
                peer.may_send,
                peer.late
            ),
        );
    }
    for unread in &facts.unread {
        screen.line("unread   ", unread);
    }
    Ok(status)
}

/// A stop on the way to a peer.
#[derive(Debug, Serialize)]
struct Stop {
    stop: &'static str,
    ok: bool,
    what: String,
}

#[derive(Serialize)]
struct Way {
    version: u32,
    status: u8,
    peer: IpAddr,
    way: Vec<Stop>,
}

/// The stops up to the one where a peer is stuck.
fn way(facts: &Facts, ip: IpAddr) -> Vec<Stop> {
    let mut stops = Vec::new();
    let mut add = |stop, ok, what: String| {
        stops.push(Stop { stop, ok, what });
        ok
    };
    let of = |i: &'_ Interface| i.neighbours.iter().any(|n| n.ip == ip);
    let Some(interface) = facts.interfaces.iter().find(|i| of(i)) else {
        add("neighbour", false, "no IPoIB interface has such a neighbour: nothing was sent to it lately, or a router is in between".into());
        return stops;
    };
    let name = &interface.name;
    let up = facts.link(name).is_some_and(|link| link.up && link.carrier);
    let state = if up {
        "is up"
    } else {
        "is down or has no carrier"
    };
    if !add("interface", up, format!("{name} {state}")) {
        return stops;
    }
    let Some(neighbour) = interface.neighbours.iter().find(|n| n.ip == ip) else {
        return stops;
    };
    let known = !neighbour.gid.is_empty();
    let asked = if ip.is_ipv4() {
        "ARP"
    } else {
        "neighbour discovery"
    };
    let what = if known {
        format!(
            "{asked} found GID {} QPN {:#08x} ({})",
            neighbour.gid, neighbour.qpn, neighbour.state
        )
    } else {
        format!("{asked} got no answer ({})", neighbour.state)
    };
    if !add("address", known && neighbour.state != "failed", what) || interface.tables.is_empty() {
        return stops;
    }
    let peer = peer(&Rows::new(interface), neighbour);
    let what = match peer.path {
        "none" => "there is no path: nothing was sent to it lately".to_owned(),
        state => format!("the path is {state}"),
    };
    let known = matches!(peer.path, "ready" | "old" | "stale" | "none");
    if !add("path", known, what) || interface.mode != "connected" {
        return stops;
    }
    let what = match peer.connection {
        "up" => format!(
            "the connection is up, and {} messages may be sent",
            peer.may_send
        ),
        "none" => "there is no connection, and frames go as datagrams".to_owned(),
        state => format!(
            "the connection is {state}, frames go as datagrams, and {} wait",
            peer.waiting
        ),
    };
    add("connection", peer.connection != "waiting", what);
    stops
}

/// The way to a peer, up to where it is stuck; exit status 1 then.
pub(crate) fn why(facts: &Facts, ip: IpAddr, json: bool, screen: &mut Screen) -> Result<u8> {
    let way = way(facts, ip);
    let status = u8::from(way.iter().any(|stop| !stop.ok));
    if json {
        screen.json(&Way {
            version: 1,
            status,
            peer: ip,
            way,
        })?;
        return Ok(status);
    }
    for stop in &way {
        let word = if stop.ok { "ok" } else { "stuck" };
        screen.line(&format!("{word:6} {:11} ", stop.stop), &stop.what);
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healthy::healthy;

    fn stuck(change: fn(&mut Facts)) -> Option<&'static str> {
        let mut facts = healthy(true);
        change(&mut facts);
        let way = way(&facts, "10.1.0.2".parse().expect("an address"));
        way.iter().find(|stop| !stop.ok).map(|stop| stop.stop)
    }

    #[test]
    fn where_a_peer_is_stuck() {
        fn failed(facts: &mut Facts, table: &str, state: &str) {
            let rows = facts.interfaces[0].tables.get_mut(table).expect("a table");
            rows[0].set("state", state);
        }
        assert_eq!(stuck(|_| ()), None);
        assert_eq!(
            stuck(|f| f.interfaces[0].neighbours.clear()),
            Some("neighbour")
        );
        assert_eq!(stuck(|f| f.links[1].carrier = false), Some("interface"));
        assert_eq!(
            stuck(|f| f.interfaces[0].neighbours[0].gid.clear()),
            Some("address")
        );
        assert_eq!(
            stuck(|f| f.interfaces[0].neighbours[0].state = "failed".into()),
            Some("address")
        );
        assert_eq!(stuck(|f| failed(f, "paths", "failed")), Some("path"));
        assert_eq!(
            stuck(|f| failed(f, "connections", "waiting")),
            Some("connection")
        );
    }

    #[test]
    fn a_list_has_a_line_for_each() {
        let mut facts = healthy(true);
        let mut screen = Screen::plain(Some(80));
        assert_eq!(list(&facts, false, &mut screen).expect("a list"), 0);
        let text = screen.text();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.contains("10.1.0.2") && text.contains("ready"),
            "{text}"
        );
        facts.interfaces[0].neighbours[0].state = "failed".into();
        let mut screen = Screen::plain(Some(80));
        assert_eq!(list(&facts, true, &mut screen).expect("a list"), 1);
        let json: serde_json::Value = serde_json::from_str(screen.text()).expect("JSON");
        assert_eq!(json["peers"][0]["neighbour"], "failed");
    }
}
