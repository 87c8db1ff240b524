// SPDX-License-Identifier: GPL-2.0

//! A screen: interfaces, then peers, and what is in front of them.

mod front;
mod spark;
mod table;

use super::State;
use super::meter::{Quantity, Rates};
use super::view::{Front, View};
use crate::facts::Interface;
use crate::rules::Severity;
use crate::{screen, status};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;
use spark::spark;
use table::{Cell, Column, Table};

/// Width from which there is room for more columns.
const WIDE: u16 = 120;
/// Interfaces that are shown on a screen of 24 lines, at most.
const FEW: u16 = 6;

/// Borders of windows on a terminal without lines.
const PLAIN_BORDER: border::Set = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// The looks that a terminal can show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    colour: bool,
    /// It has the blocks that sparklines are made of.
    blocks: bool,
}

impl Theme {
    #[cfg(test)]
    pub(super) const fn new(colour: bool, blocks: bool) -> Theme {
        Theme { colour, blocks }
    }

    /// Without colours as the rest of the tool is; with plain characters on a terminal that has no others.
    pub(super) fn of_terminal() -> Theme {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| set(name));
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let console = set("TERM").is_some_and(|term| term == "linux");
        Theme {
            colour: screen::has_colours(),
            blocks: !console && (locale.contains("utf-8") || locale.contains("utf8")),
        }
    }

    fn with(self, plain: Style, coloured: Style) -> Style {
        if self.colour { coloured } else { plain }
    }

    fn head(self) -> Style {
        let plain = Style::new().add_modifier(Modifier::REVERSED);
        self.with(plain, Style::new().fg(Color::Black).bg(Color::Green))
    }

    /// The heading of the column that peers are sorted by.
    fn sorted(self) -> Style {
        let plain = Style::new().add_modifier(Modifier::BOLD);
        self.with(plain, Style::new().fg(Color::Black).bg(Color::Cyan))
    }

    /// A selected line, and the names of keys' functions.
    fn selected(self) -> Style {
        let plain = Style::new().add_modifier(Modifier::REVERSED);
        self.with(plain, Style::new().fg(Color::Black).bg(Color::Cyan))
    }

    fn bad(self) -> Style {
        let plain = Style::new().add_modifier(Modifier::BOLD);
        self.with(plain, Style::new().fg(Color::Red))
    }

    fn doubtful(self) -> Style {
        let plain = Style::new().add_modifier(Modifier::BOLD);
        self.with(plain, Style::new().fg(Color::Yellow))
    }

    fn wave(self) -> Style {
        self.with(Style::new(), Style::new().fg(Color::Green))
    }
}

/// Writes text that is cut at `width`, and at the end of the screen.
fn put(buffer: &mut Buffer, (x, y): (u16, u16), text: &str, width: u16, style: Style) -> u16 {
    let area = buffer.area;
    if x >= area.right() || y >= area.bottom() || width == 0 {
        return x;
    }
    buffer.set_stringn(x, y, text, usize::from(width), style).0
}

/// A rate in at most four characters: `0`, `0.5`, `17`, `999`, `1.2k`, `45k`.
pub(super) fn short(rate: Option<f64>) -> String {
    let Some(mut value) = rate else {
        return "-".to_owned();
    };
    for unit in ["", "k", "M", "G", "T", "P"] {
        if value < 9.95 {
            let text = format!("{value:.1}");
            return match text.strip_suffix(".0") {
                Some(whole) => format!("{whole}{unit}"),
                None => format!("{text}{unit}"),
            };
        }
        if value < 999.5 {
            return format!("{value:.0}{unit}");
        }
        value /= 1000.0;
    }
    "huge".to_owned()
}

fn rate(rates: &Rates, quantity: Quantity) -> String {
    short(rates[quantity as usize])
}

/// A cell with a rate of what should not happen.
fn trouble(rates: &Rates, quantity: Quantity, theme: &Theme) -> Cell {
    let happens = rates[quantity as usize].is_some_and(|rate| rate > 0.0);
    let style = if happens {
        theme.doubtful()
    } else {
        Style::new()
    };
    Cell::styled(rate(rates, quantity), style)
}

/// "1 peer", "2 peers".
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Draws all of the screen.
pub(super) fn screen(frame: &mut Frame<'_>, state: &State, view: &mut View, theme: &Theme) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    title(buffer, state, view);
    finding(buffer, state, theme);
    let below = interfaces(buffer, state, theme);
    let peers = Rect {
        y: below,
        height: area.height.saturating_sub(below + 1),
        ..area
    };
    table::peers(buffer, peers, (state, view), theme);
    let cursor = front::bar(buffer, view, theme);
    front::window(frame, view, theme);
    if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

fn title(buffer: &mut Buffer, state: &State, view: &View) {
    let lost = state.peers.iter().filter(|peer| peer.is_lost()).count();
    let mut text = format!(
        "ipoibctl top: {}, {}",
        count(state.facts.interfaces.len(), "interface"),
        count(state.peers.len(), "peer")
    );
    if lost > 0 {
        text += &format!(" ({lost} lost)");
    }
    text += &format!(", by {}", view.sort().words());
    if view.is_inverted() {
        text += ", inverted";
    }
    if !view.filter().is_empty() {
        text += &format!(", with \"{}\"", view.filter());
    }
    if view.is_paused() {
        text += ", paused";
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    put(buffer, (0, 0), &text, buffer.area.width, bold);
}

/// The worst finding, and how many more there are.
fn finding(buffer: &mut Buffer, state: &State, theme: &Theme) {
    let mut found = state.found.iter().filter(|f| f.severity != Severity::Hint);
    let width = buffer.area.width;
    let Some(first) = found.next() else {
        let (text, style) = match state.facts.unread.first() {
            Some(unread) => (format!("unread: {unread}"), theme.doubtful()),
            None => ("All is well.".to_owned(), Style::new()),
        };
        put(buffer, (0, 1), &text, width, style);
        return;
    };
    let style = match first.severity {
        Severity::Broken => theme.bad(),
        _ => theme.doubtful(),
    };
    let more = match found.count() {
        0 => String::new(),
        more => format!(" (+{more}: ipoibctl status)"),
    };
    let about = match first.subject.as_str() {
        "" => first.what.clone(),
        subject => format!("{subject}: {}", first.what),
    };
    let room = width.saturating_sub(more.len() as u16);
    let end = put(buffer, (0, 1), &about, room, style);
    put(buffer, (end, 1), &more, width, Style::new());
}

/// State of an interface: its mode, if nothing keeps frames from it.
fn state_of(state: &State, interface: &Interface) -> String {
    match state.facts.link(&interface.name) {
        Some(link) if !link.up => "down".to_owned(),
        Some(link) if !link.carrier => "no carrier".to_owned(),
        _ => interface.mode.clone(),
    }
}

fn columns(width: u16) -> Vec<Column> {
    let mut columns = vec![Column::left("LINK", if width < WIDE { 8 } else { 15 })];
    if width >= WIDE {
        columns.push(Column::left("DRIVER", 8));
        columns.push(Column::left("PORT", 20));
        columns.push(Column::right("MTU", 5));
    }
    columns.push(Column::left("STATE", 10));
    if width >= WIDE {
        columns.push(Column::right("PEERS", 5));
    }
    for (frames, bits) in [("RX/s", "RX b/s"), ("TX/s", "TX b/s")] {
        columns.push(Column::right(frames, 5));
        columns.push(Column::right(bits, 6));
        columns.push(Column::rest(&bits[..2]));
    }
    columns.push(Column::right("LATE/s", 6));
    columns.push(Column::right("DROP/s", 6));
    columns
}

/// The cells of an interface, of those columns that there are.
fn cells(state: &State, interface: &Interface, table: &Table, theme: &Theme) -> Vec<Cell> {
    let facts = &state.facts;
    let track = state.meter.interface(&interface.name);
    let link = facts.link(&interface.name);
    let mut cells = vec![Cell::plain(interface.name.clone())];
    let is_wide = table.width() >= WIDE;
    if is_wide {
        let port = facts.port_of(interface);
        let port = port.map(|p| format!("{} {} {}", p.device, p.number, p.state));
        cells.push(Cell::plain(status::driver(interface).to_owned()));
        cells.push(Cell::plain(port.unwrap_or_default()));
        cells.push(Cell::plain(
            link.map_or(String::new(), |l| l.mtu.to_string()),
        ));
    }
    let is_up = link.is_some_and(|link| link.up && link.carrier);
    let style = if is_up { Style::new() } else { theme.bad() };
    cells.push(Cell::styled(state_of(state, interface), style));
    if is_wide {
        let peers = state.peers.iter();
        let own = peers.filter(|peer| peer.interface == interface.name);
        cells.push(Cell::plain(own.count().to_string()));
    }
    for (frames, bits, history) in [
        (Quantity::RxFrames, Quantity::RxBits, &track.rx),
        (Quantity::TxFrames, Quantity::TxBits, &track.tx),
    ] {
        cells.push(Cell::plain(rate(&track.rates, frames)));
        cells.push(Cell::plain(rate(&track.rates, bits)));
        let wave = spark(history.iter().copied(), table.rest(), theme.blocks);
        cells.push(Cell::styled(wave, theme.wave()));
    }
    cells.push(trouble(&track.rates, Quantity::Late, theme));
    cells.push(trouble(&track.rates, Quantity::Drops, theme));
    cells
}

/// The interfaces, the busiest ones if there are many; the line below them.
fn interfaces(buffer: &mut Buffer, state: &State, theme: &Theme) -> u16 {
    const TOP: u16 = 2;
    let area = buffer.area;
    let table = Table::new(columns(area.width), area.width);
    table.head(buffer, TOP, theme, None);
    let room = usize::from(FEW.max(area.height / 4));
    let mut shown: Vec<&Interface> = state.facts.interfaces.iter().collect();
    let busy = |interface: &Interface| {
        let rates = state.rates(interface);
        [Quantity::RxFrames, Quantity::TxFrames].map(|q| rates[q as usize].unwrap_or(0.0))
    };
    let hidden = if shown.len() > room {
        let sum = |interface: &Interface| busy(interface).iter().sum::<f64>();
        shown.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
        shown.split_off(room - 1).len()
    } else {
        0
    };
    let mut y = TOP + 1;
    for interface in shown {
        let cells = cells(state, interface, &table, theme);
        table.row(buffer, y, &cells, None);
        y += 1;
    }
    if hidden > 0 {
        let text = format!("and {hidden} more with less traffic");
        put(buffer, (0, y), &text, area.width, Style::new());
        y += 1;
    }
    y + 1
}
