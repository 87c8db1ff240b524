// SPDX-License-Identifier: GPL-2.0

//! Checks of what the program reads: whatever that is, there is an answer which can be relied on. The fuzz targets in
//! `tests/fuzz` use them.

pub use crate::capture::checks::{growing, packets};
pub use crate::filter::checks::filter;
pub use crate::netlink::checks::datagram;
pub use crate::tune::checks::{line, record};

use crate::facts::{Facts, Interface, Port};
use crate::healthy::healthy;
use crate::screen::Screen;
use crate::table::rows;
use crate::{doctor, gather, peers, rules, status};
use serde::Serialize;

/// The tables of debugfs that texts can be for.
const TABLES: [&str; 5] = ["sources", "paths", "groups", "connections", "device"];

/// Checks that a host whose files have these texts is judged, and shown. Each comes with the number of the file.
pub fn texts(roce: bool, texts: &[(u8, &str)]) {
    let mut facts = healthy(roce);
    for (file, text) in texts {
        put(&mut facts, usize::from(*file), text);
    }
    let found = rules::judge(&facts);
    let code = rules::status(&found);
    assert!(code <= 2 && (code == 0) == found.iter().all(|f| f.severity == rules::Severity::Hint));
    shown(|screen| status::show(&facts, &found, screen));
    shown(|screen| doctor::show(&facts, &found, screen));
    shown(|screen| drop(peers::list(&facts, false, screen)));
    printed(&status::json(&facts, &found));
    printed(&doctor::json(&facts, &found));
    for neighbour in &facts.interfaces[0].neighbours {
        shown(|screen| drop(peers::why(&facts, neighbour.ip, false, screen)));
    }
}

/// Makes a text the contents of a file.
fn put(facts: &mut Facts, file: usize, text: &str) {
    let sysctls = facts.sysctls.len();
    let Some(file) = file.checked_sub(sysctls) else {
        let value = facts.sysctls.values_mut().nth(file);
        value.into_iter().for_each(|value| *value = text.to_owned());
        return;
    };
    let Some(file) = file.checked_sub(TABLES.len()) else {
        let table = TABLES[file].to_owned();
        facts.interfaces[0].tables.insert(table, rows(text));
        return;
    };
    let (port, interface) = (&mut facts.ports[0], &mut facts.interfaces[0]);
    let Some(file) = file.checked_sub(8) else {
        put_port(port, file, text);
        return;
    };
    match file {
        0..=7 => put_interface(interface, file, text),
        8 => facts.module.modprobe = text.lines().map(str::to_owned).collect(),
        9 => facts.links[0].qdisc = text.to_owned(),
        10 => facts.links[1].kind = text.to_owned(),
        11 => facts.filter.nft = text.to_owned(),
        12 => facts.filter.iptables = text.to_owned(),
        _ => facts.filter.ip6tables = text.to_owned(),
    }
}

fn put_port(port: &mut Port, file: usize, text: &str) {
    let number = gather::number(text).unwrap_or(0);
    match file {
        0 => port.state = gather::word(Some(text.to_owned())),
        1 => port.physical = gather::word(Some(text.to_owned())),
        2 => port.rate = text.to_owned(),
        3 => port.link_layer = text.to_owned(),
        4 => port.lid = number,
        5 => port.sm_lid = number,
        6 => port.gids[0].gid = text.to_owned(),
        _ => port.gids[0].netdev = text.to_owned(),
    }
}

fn put_interface(interface: &mut Interface, file: usize, text: &str) {
    let neighbour = &mut interface.neighbours[0];
    match file {
        0 => interface.mode = text.to_owned(),
        1 => interface.pkey = gather::number(text).map_or(0, |key| key as u16),
        2 => interface.parent = Some(text.to_owned()),
        3 => neighbour.state = text.to_owned(),
        4 => neighbour.gid = text.to_owned(),
        5 => interface.gid = text.to_owned(),
        6 => interface.name = text.to_owned(),
        _ => {
            let words = text.lines().filter_map(|line| line.split_once(' '));
            let counters = words.map(|(name, value)| (name.to_owned(), value.parse().unwrap_or(0)));
            interface.counters.extend(counters);
        }
    }
}

/// Checks that a screen has nothing that a terminal would obey.
fn shown(show: impl FnOnce(&mut Screen)) {
    let mut screen = Screen::plain(Some(80));
    show(&mut screen);
    let text = screen.text();
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    assert!(text.is_empty() || text.ends_with('\n'));
}

/// Checks that a report is JSON.
fn printed(report: &impl Serialize) {
    let text = serde_json::to_string(report).expect("a text");
    serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each file with a text that is none of its own, and with none.
    #[test]
    fn each_file_may_be_strange() {
        let files = healthy(true).sysctls.len() + TABLES.len() + 8 + 8 + 6;
        for file in (0..files).filter_map(|file| u8::try_from(file).ok()) {
            for text in [
                "",
                "\x1b[31m",
                "gid qpn state\n\n0xx x",
                "18446744073709551615 -1",
            ] {
                texts(true, &[(file, text)]);
                texts(false, &[(file, text), (file ^ 1, text)]);
            }
        }
    }
}
