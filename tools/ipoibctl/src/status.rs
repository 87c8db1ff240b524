// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl status`: all interfaces on one screen.

use crate::drops;
use crate::facts::{Facts, Interface, Link, column};
use crate::rules::{self, Finding, Severity};
use crate::screen::Screen;
use crate::table::Row;
use serde::Serialize;
use std::collections::BTreeMap;

/// Output of `--json`.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    version: u32,
    status: u8,
    interfaces: Vec<One<'a>>,
    findings: &'a [Finding],
    unread: &'a [String],
}

#[derive(Serialize)]
struct One<'a> {
    name: &'a str,
    driver: &'static str,
    up: bool,
    carrier: bool,
    mode: &'a str,
    mtu: u32,
    pkey: u16,
    gid: &'a str,
    qpn: u32,
    parent: Option<&'a str>,
    port: Option<&'a crate::facts::Port>,
    /// State of the broadcast group, if debugfs shows it.
    broadcast: Option<&'a str>,
    /// Numbers of neighbours, paths, groups and connections by state.
    neighbours: BTreeMap<&'a str, usize>,
    paths: BTreeMap<&'a str, usize>,
    groups: BTreeMap<&'a str, usize>,
    connections: BTreeMap<&'a str, usize>,
    counters: &'a BTreeMap<String, u64>,
}

/// Name of an interface's driver.
pub(crate) fn driver(interface: &Interface) -> &'static str {
    if interface.ours {
        "ipoib_rs"
    } else {
        "ib_ipoib"
    }
}

fn states(rows: &[Row]) -> BTreeMap<&str, usize> {
    count(rows.iter().map(|row| column(row, "state")))
}

fn count<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// All interfaces as JSON.
pub(crate) fn json<'a>(facts: &'a Facts, found: &'a [Finding]) -> Report<'a> {
    let nothing = Link::default();
    let one = |interface: &'a Interface| {
        let link = facts.link(&interface.name).unwrap_or(&nothing);
        One {
            name: &interface.name,
            driver: driver(interface),
            up: link.up,
            carrier: link.carrier,
            mode: &interface.mode,
            mtu: link.mtu,
            pkey: interface.pkey,
            gid: &interface.gid,
            qpn: interface.qpn,
            parent: interface.parent.as_deref(),
            port: facts.port_of(interface),
            broadcast: interface.broadcast(),
            neighbours: count(interface.neighbours.iter().map(|n| n.state.as_str())),
            paths: states(interface.table("paths")),
            groups: states(interface.table("groups")),
            connections: states(interface.table("connections")),
            counters: &interface.counters,
        }
    };
    Report {
        version: 1,
        status: rules::status(found),
        interfaces: facts.interfaces.iter().map(one).collect(),
        findings: found,
        unread: &facts.unread,
    }
}

/// "3 ready, 1 failed".
fn words(counts: &BTreeMap<&str, usize>) -> String {
    let words: Vec<String> = counts
        .iter()
        .map(|(state, n)| format!("{n} {state}"))
        .collect();
    if words.is_empty() {
        "none".into()
    } else {
        words.join(", ")
    }
}

fn show_port(facts: &Facts, interface: &Interface, screen: &mut Screen) {
    let Some(port) = facts.port_of(interface) else {
        screen.line("  port         ", "not visible from here");
        return;
    };
    let mut text = format!("{} port {}, {}", port.device, port.number, port.state);
    if port.is_roce() {
        let netdev = port.netdev().unwrap_or("no interface");
        text += &format!(", RoCE on {netdev}");
    } else {
        text += &format!(", InfiniBand, LID {}, SM at LID {}", port.lid, port.sm_lid);
    }
    screen.line("  port         ", &format!("{text}, {}", port.rate));
}

fn show_counters(interface: &Interface, screen: &mut Screen) {
    let counter = |name: &str| interface.counter(name);
    let (received, sent) = (
        counter("rx_frames") + counter("rc_rx_frames"),
        counter("tx_frames") + counter("rc_tx_frames"),
    );
    screen.line(
        "  frames       ",
        &format!("{received} received, {sent} sent"),
    );
    let order = format!(
        "{} in order, {} reordered, {} late, {} timed out",
        counter("rx_seq_in_order"),
        counter("rx_seq_reordered"),
        counter("rx_seq_late"),
        counter("rx_seq_timed_out"),
    );
    screen.line("  order        ", &order);
    let mut head = "  drops        ";
    for (name, value, reason) in drops::of(interface) {
        screen.line(head, &format!("{value} {name}: {reason}"));
        head = "               ";
    }
    if head.contains("drops") {
        screen.line(head, "none");
    }
}

fn show_interface(facts: &Facts, interface: &Interface, link: &Link, screen: &mut Screen) {
    let mut text = vec![driver(interface).to_owned()];
    text.push(match (link.up, link.carrier) {
        (false, _) => "down".into(),
        (true, false) => "up without a carrier".into(),
        (true, true) => "up".into(),
    });
    text.push(interface.mode.clone());
    text.push(format!("MTU {}", link.mtu));
    text.push(format!("P_Key {:#06x}", interface.pkey));
    text.extend(
        interface
            .parent
            .as_ref()
            .map(|parent| format!("child of {parent}")),
    );
    screen.line(&format!("{:14} ", interface.name), &text.join(", "));
    let addresses = link
        .addresses
        .iter()
        .map(|a| format!("{}/{}", a.ip, a.prefix));
    let addresses: Vec<String> = addresses.collect();
    if !addresses.is_empty() {
        screen.line("  addresses    ", &addresses.join(" "));
    }
    show_port(facts, interface, screen);
    let states_of = |table: &str| words(&states(interface.table(table)));
    if !interface.tables.is_empty() {
        let state = interface.broadcast().unwrap_or("absent");
        let groups = interface.table("groups").len();
        screen.line(
            "  broadcast    ",
            &format!("{state}; multicast groups: {groups}"),
        );
    }
    let neighbours = words(&count(
        interface.neighbours.iter().map(|n| n.state.as_str()),
    ));
    screen.line("  neighbours   ", &neighbours);
    if !interface.tables.is_empty() {
        screen.line("  paths        ", &states_of("paths"));
        if interface.mode == "connected" {
            screen.line("  connections  ", &states_of("connections"));
        }
    }
    if interface.ours {
        show_counters(interface, screen);
    }
}

/// All interfaces, then what is wrong; hints are for `doctor`.
pub(crate) fn show(facts: &Facts, found: &[Finding], screen: &mut Screen) {
    for interface in &facts.interfaces {
        if let Some(link) = facts.link(&interface.name) {
            show_interface(facts, interface, link, screen);
            screen.line("", "");
        }
    }
    let hints = found
        .iter()
        .filter(|f| f.severity == Severity::Hint)
        .count();
    for finding in found.iter().filter(|f| f.severity != Severity::Hint) {
        screen.finding(finding);
    }
    if hints == found.len() && !facts.interfaces.is_empty() {
        screen.line("", "All is well.");
    }
    if hints > 0 {
        screen.line(
            "",
            &format!("Hints about speed and taste: {hints}, see ipoibctl doctor."),
        );
    }
    for unread in &facts.unread {
        screen.line("unread   ", unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healthy::healthy;

    fn screen(facts: &Facts, width: usize) -> String {
        let mut screen = Screen::plain(Some(width));
        show(facts, &rules::judge(facts), &mut screen);
        let text = screen.text().to_owned();
        for line in text.lines().filter(|line| !line.contains('#')) {
            assert!(line.chars().count() <= width, "{line:?}");
        }
        text
    }

    /// A host with a loss and a peer that does not answer.
    fn worse(roce: bool) -> Facts {
        let mut facts = healthy(roce);
        facts.interfaces[0].neighbours[0].state = "failed".into();
        facts.interfaces[0]
            .counters
            .insert("tx_drop_no_path".into(), 3);
        facts.interfaces[0].gso = false;
        facts
    }

    #[test]
    fn screens_are_as_in_the_files() {
        for (name, expected, roce, bad, width) in [
            (
                "well-roce-80",
                include_str!("../tests/well-roce-80.txt"),
                true,
                false,
                80,
            ),
            (
                "well-infiniband-200",
                include_str!("../tests/well-infiniband-200.txt"),
                false,
                false,
                200,
            ),
            (
                "worse-roce-80",
                include_str!("../tests/worse-roce-80.txt"),
                true,
                true,
                80,
            ),
            (
                "worse-roce-200",
                include_str!("../tests/worse-roce-200.txt"),
                true,
                true,
                200,
            ),
        ] {
            let facts = if bad { worse(roce) } else { healthy(roce) };
            let text = screen(&facts, width);
            // The licence is in the first line of the file.
            let expected = expected.split_once('\n').map_or("", |(_, rest)| rest);
            assert_eq!(text, expected, "{name}:\n{text}");
            assert!(text.lines().count() <= 24, "{name}");
        }
    }

    #[test]
    fn json_has_what_the_screen_has() {
        let facts = worse(false);
        let found = rules::judge(&facts);
        let json = serde_json::to_value(json(&facts, &found)).expect("JSON");
        let ib0 = &json["interfaces"][0];
        assert_eq!(json["status"], 1);
        assert_eq!(
            (&ib0["name"], &ib0["driver"]),
            (&"ib0".into(), &"ipoib_rs".into())
        );
        assert_eq!(ib0["port"]["sm_lid"], 1);
        assert_eq!(ib0["broadcast"], "joined");
        assert_eq!(ib0["neighbours"]["failed"], 1);
        assert_eq!(ib0["counters"]["tx_drop_no_path"], 3);
    }
}
