// SPDX-License-Identifier: GPL-2.0

//! Screens, from recorded states.

use super::*;
use crate::facts::{Neighbour, Port};
use crate::large::{self, MANY, host};
use crate::table::rows;
use input::Key;
use ratatui::Terminal;
use ratatui::backend::{CrosstermBackend, TestBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::{TerminalOptions, Viewport};

const BLOCKS: Theme = Theme::new(false, true);
const PLAIN: Theme = Theme::new(false, false);

/// A host with 30 peers and an interface of ib_ipoib, after so many steps of traffic. One peer does not answer.
fn recorded(steps: u64) -> Facts {
    let mut facts = host(30, steps);
    facts.interfaces[0].neighbours[3].state = "failed".into();
    let lonely = Neighbour {
        ip: "10.1.0.77".parse().expect("an address"),
        state: "incomplete".into(),
        flags: 0,
        gid: String::new(),
        qpn: 0,
    };
    facts.interfaces[0].neighbours.push(lonely);
    let mut other = facts.interfaces[0].clone();
    other.name = "ib1".into();
    other.ours = false;
    other.mode = "datagram".into();
    other.device = "dev1".into();
    other.tables.clear();
    other.neighbours.truncate(1);
    let far = &mut other.neighbours[0];
    far.ip = "2001:db8::7:1234".parse().expect("an address");
    other.counters = [
        "rx_packets",
        "rx_bytes",
        "tx_packets",
        "tx_bytes",
        "rx_dropped",
    ]
    .map(|name| (name.to_owned(), 300 * steps * (steps % 5)))
    .into();
    facts.interfaces.push(other);
    let mut link = facts.links[1].clone();
    link.name = "ib1".into();
    link.index = 9;
    link.addresses.clear();
    link.mtu = 2044;
    facts.links.push(link);
    let port = Port {
        device: "dev1".into(),
        ..facts.ports[0].clone()
    };
    facts.ports.push(port);
    facts
}

/// The state after 16 readings, two seconds apart.
fn state_of(facts: impl Fn(u64) -> Facts) -> State {
    let mut state = State::new(facts(1), Duration::ZERO);
    for n in 1..16 {
        state.facts = facts(n + 1);
        state.update(Duration::from_secs(2 * n));
    }
    state
}

fn drawn(state: &State, view: &mut View, theme: &Theme, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let screen = terminal.draw(|frame| draw::screen(frame, state, view, theme));
    screen.expect("a screen").buffer.clone()
}

fn text(buffer: &Buffer) -> String {
    let lines = buffer.content.chunks(usize::from(buffer.area.width));
    let mut text = String::new();
    for line in lines {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn pressed(view: &mut View, state: &State, keys: &[Key]) {
    for key in keys {
        view.press(*key, &state.peers);
    }
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

/// Compares a screen with a file, in whose first line the licence is.
fn compare(name: &str, file: &str, screen: &Buffer) {
    let expected = file.split_once('\n').map_or("", |(_, rest)| rest);
    let text = text(screen);
    assert_eq!(text, expected, "{name}:\n{text}");
}

#[test]
fn screens_are_as_in_the_files() {
    let state = state_of(recorded);
    let view = || View::new(Sort::Traffic, "");
    let small = (80, 24);
    let file = include_str!("../../tests/top-80x24.txt");
    compare("80x24", file, &drawn(&state, &mut view(), &BLOCKS, small));
    let file = include_str!("../../tests/top-200x60.txt");
    compare(
        "200x60",
        file,
        &drawn(&state, &mut view(), &BLOCKS, (200, 60)),
    );

    let mut menu = view();
    pressed(&mut menu, &state, &[Key::Function(6), Key::Up]);
    let file = include_str!("../../tests/top-menu-80x24.txt");
    compare("menu", file, &drawn(&state, &mut menu, &PLAIN, small));

    let mut help = view();
    pressed(&mut help, &state, &[Key::Char('h')]);
    let file = include_str!("../../tests/top-help-80x24.txt");
    compare("help", file, &drawn(&state, &mut help, &BLOCKS, small));

    let mut found = View::new(Sort::Peer, "1.0.1");
    pressed(&mut found, &state, &[Key::Char('/')]);
    pressed(&mut found, &state, &typed("fe80::2:c903:b"));
    let file = include_str!("../../tests/top-search-80x24.txt");
    compare("search", file, &drawn(&state, &mut found, &BLOCKS, small));

    let mut stuck = view();
    stuck.show_way(way(&state, "10.1.0.5".parse().ok()).expect("a way"));
    let file = include_str!("../../tests/top-way-80x24.txt");
    compare("way", file, &drawn(&state, &mut stuck, &BLOCKS, small));
}

#[test]
fn a_host_without_interfaces_has_a_screen() {
    let mut facts = host(0, 0);
    facts.interfaces.clear();
    let state = State::new(facts, Duration::ZERO);
    let mut view = View::new(Sort::Traffic, "");
    let text = text(&drawn(&state, &mut view, &BLOCKS, (80, 24)));
    assert!(
        text.starts_with("ipoibctl top: 0 interfaces, 0 peers,"),
        "{text}"
    );
    assert!(text.contains("F10Quit"), "{text}");
}

#[test]
fn many_interfaces_leave_room_for_peers() {
    let many = |steps: u64| {
        let mut facts = recorded(steps);
        for n in 2..40_u64 {
            let mut other = facts.interfaces[1].clone();
            other.name = format!("ib{n}");
            other.counters.insert("rx_packets".into(), n * steps);
            facts.interfaces.push(other);
        }
        facts
    };
    let state = state_of(many);
    let mut view = View::new(Sort::Traffic, "");
    let text = text(&drawn(&state, &mut view, &BLOCKS, (80, 24)));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[8].starts_with("and 35 more"), "{text}");
    assert!(lines[10].starts_with("PEER"), "{text}");
    assert!(lines[11].starts_with("10.1.0.2"), "{text}");
}

/// Whatever the size is, and whatever is in front.
#[test]
fn no_size_is_too_small() {
    let state = state_of(recorded);
    let fronts: [&[Key]; 6] = [
        &[],
        &[Key::End],
        &[Key::Function(1)],
        &[Key::Function(4), Key::Char('f')],
        &[Key::Function(3), Key::Char('1')],
        &[Key::Function(6)],
    ];
    for keys in fronts {
        let mut view = View::new(Sort::Traffic, "");
        pressed(&mut view, &state, keys);
        for size in [
            (1, 1),
            (2, 30),
            (30, 2),
            (10, 3),
            (79, 9),
            (119, 10),
            (120, 5),
            (400, 100),
        ] {
            drawn(&state, &mut view, &BLOCKS, size);
        }
    }
}

#[test]
fn without_colours_there_are_other_signs() {
    let state = state_of(recorded);
    let mut view = View::new(Sort::Traffic, "");
    pressed(&mut view, &state, &[Key::Down]);
    let plain = drawn(&state, &mut view, &BLOCKS, (80, 24));
    let is_plain =
        |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
    assert!(plain.content.iter().all(is_plain));
    // The title, four interfaces' lines and a heading are above the selected peer.
    for x in 0..80 {
        assert!(plain[(x, 7)].modifier.contains(Modifier::REVERSED), "{x}");
        assert!(!plain[(x, 8)].modifier.contains(Modifier::REVERSED), "{x}");
    }
    let coloured = drawn(&state, &mut view, &Theme::new(true, true), (80, 24));
    assert!(!coloured.content.iter().all(is_plain));
    assert_eq!(text(&plain), text(&coloured));
    // With plain characters, nothing else is on the screen.
    let ascii = text(&drawn(&state, &mut view, &PLAIN, (80, 24)));
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn a_name_does_not_control_the_terminal() {
    let evil = |steps: u64| {
        let mut facts = recorded(steps);
        facts.interfaces[0].name = "i\x1b[2J".into();
        facts.links[1].name = "i\x1b[2J".into();
        facts
    };
    let state = state_of(evil);
    let mut view = View::new(Sort::Traffic, "");
    let buffer = drawn(&state, &mut view, &BLOCKS, (80, 24));
    let is_control = |cell: &ratatui::buffer::Cell| cell.symbol().contains(char::is_control);
    assert!(!buffer.content.iter().any(is_control));
}

#[test]
fn json_has_rates_by_name() {
    let state = state_of(recorded);
    let report = report(&state, &View::new(Sort::Traffic, "ib0"));
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!((&json["version"], &json["status"]), (&1.into(), &1.into()));
    assert_eq!(json["seconds"], 2.0);
    let [ib0, ib1] = [&json["interfaces"][0], &json["interfaces"][1]];
    assert_eq!(
        (&ib0["driver"], &ib1["driver"]),
        (&"ipoib_rs".into(), &"ib_ipoib".into())
    );
    assert_eq!(ib0["rates"]["tx_frames"], 30_200.0);
    assert!(ib1["rates"]["late"].is_null());
    // Those of the other interface do not pass the filter.
    assert_eq!(json["peers"].as_array().map(Vec::len), Some(31));
    let first = &json["peers"][0];
    assert_eq!(
        (&first["ips"][0], &first["path"]),
        (&"10.1.0.2".into(), &"ready".into())
    );
    assert_eq!(
        first["rates"].as_object().map(serde_json::Map::len),
        Some(6)
    );
}

#[test]
fn rates_are_short() {
    for (rate, text) in [
        (None, "-"),
        (Some(0.0), "0"),
        (Some(0.04), "0"),
        (Some(0.5), "0.5"),
        (Some(9.94), "9.9"),
        (Some(9.96), "10"),
        (Some(999.4), "999"),
        (Some(999.6), "1k"),
        (Some(1234.0), "1.2k"),
        (Some(45_678.0), "46k"),
        (Some(1.2e10), "12G"),
        (Some(f64::MAX), "huge"),
    ] {
        assert_eq!(draw::short(rate), text, "{rate:?}");
    }
}

/// A reading and its screen every 2 s may take 1 % of a CPU; without the optimiser, five times as much. What the kernel
/// takes to answer is not in here.
#[test]
fn many_peers_take_little_time() {
    let texts = [1, 2].map(|steps| large::tables(MANY, steps));
    let mut state = State::new(host(MANY, 1), Duration::ZERO);
    let mut view = View::new(Sort::Traffic, "");
    let options = TerminalOptions {
        viewport: Viewport::Fixed(Rect::new(0, 0, 200, 60)),
    };
    let backend = CrosstermBackend::new(Vec::new());
    let mut terminal = Terminal::with_options(backend, options).expect("a terminal");
    let mut n = 0;
    let mut read = || {
        n += 1;
        for (name, text) in &texts[n % 2] {
            let tables = &mut state.facts.interfaces[0].tables;
            tables.insert((*name).to_owned(), rows(text));
        }
        state.update(Duration::from_secs(2 * n as u64));
        let screen =
            |frame: &mut ratatui::Frame<'_>| draw::screen(frame, &state, &mut view, &BLOCKS);
        terminal.draw(screen).expect("a screen");
    };
    // Sparklines are full then.
    (0..120).for_each(|_| read());
    let took = large::least_of(read);
    println!("top: {took:?}");
    let limit = if cfg!(debug_assertions) { 75 } else { 15 };
    assert!(took < Duration::from_millis(limit), "{took:?}");
}
