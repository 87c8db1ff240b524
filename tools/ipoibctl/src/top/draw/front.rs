// SPDX-License-Identifier: GPL-2.0

//! The line of keys at the bottom, and windows in front of the list.

use super::{Front, Theme, View, put};
use crate::top::list::Sort;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Block, Clear, Widget};

const HELP: &[&str] = &[
    "Up Down PgUp PgDn Home End   select a peer; j and k are Down and Up",
    "Enter                        follow the way to the selected peer",
    "Esc                          select none",
    "F3 /                         search; F3 again: the next one",
    "F4 \\                         show only peers whose line has a text",
    "F6 > .                       choose the column to sort by",
    "N P T                        sort by address, frames, bits received",
    "I                            invert the order",
    "Z                            pause, go on",
    "Ctrl-L                       draw anew",
    "F10 q                        quit",
    "",
    "Rates are per second: frames, bits (b), frames passed up late, and",
    "frames dropped. A dash: the driver does not count it. Of datagrams",
    "to a peer it counts none, and of those from it only the numbered ones.",
    "MAY: messages that the peer lets us send. WAIT: frames that wait.",
];

const KEYS: &[(&str, &str)] = &[
    ("F1", "Help"),
    ("F3", "Search"),
    ("F4", "Filter"),
    ("F6", "SortBy"),
    ("Enter", "Way"),
    ("Z", "Pause"),
    ("F10", "Quit"),
];

/// The last line: keys, or text that is typed. Returns the place of the cursor in the text.
pub(super) fn bar(buffer: &mut Buffer, view: &View, theme: &Theme) -> Option<Position> {
    let area = buffer.area;
    let y = area.bottom().checked_sub(1)?;
    let typed = match view.front() {
        Front::Filter => Some(("Filter: ", view.filter(), "Enter keeps it, Esc shows all")),
        Front::Search(text) => Some(("Search: ", text.as_str(), "F3 next, Enter done")),
        _ => None,
    };
    if let Some((head, text, hint)) = typed {
        let x = put(buffer, (0, y), head, area.width, theme.selected());
        let x = put(buffer, (x, y), text, area.width, Style::new());
        put(buffer, (x + 3, y), hint, area.width, Style::new());
        return Some(Position::new(x.min(area.width - 1), y));
    }
    let mut x = 0;
    for (key, what) in KEYS {
        x = put(buffer, (x, y), key, area.width, Style::new());
        x = put(buffer, (x, y), what, area.width, theme.selected());
        x = put(buffer, (x, y), " ", area.width, Style::new());
    }
    None
}

/// Overlay in front of the list, if any.
pub(super) fn window(frame: &mut Frame<'_>, view: &View, theme: &Theme) {
    let buffer = frame.buffer_mut();
    match view.front() {
        Front::Help => lines(buffer, "Keys", HELP, None, theme),
        Front::Way(way) => lines(buffer, "The way to the peer", way, None, theme),
        Front::Sort(at) => {
            let words: Vec<&str> = Sort::ALL.iter().map(|sort| sort.words()).collect();
            lines(buffer, "Sort by", &words, Some(*at), theme);
        }
        Front::Nothing | Front::Filter | Front::Search(_) => {}
    }
}

/// A window in the middle, as large as its lines.
fn lines(
    buffer: &mut Buffer,
    title: &str,
    lines: &[impl AsRef<str>],
    selected: Option<usize>,
    theme: &Theme,
) {
    let longest = lines.iter().map(|line| line.as_ref().chars().count());
    let longest = longest.max().unwrap_or(0).max(title.len() + 2) as u16;
    let screen = buffer.area;
    let width = (longest + 4).min(screen.width);
    let height = (lines.len() as u16 + 2).min(screen.height);
    let area = Rect {
        x: (screen.width - width) / 2,
        y: (screen.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buffer);
    let block = Block::bordered().title(format!(" {title} "));
    let block = if theme.blocks {
        block
    } else {
        block.border_set(super::PLAIN_BORDER)
    };
    let inner = block.inner(area);
    block.render(area, buffer);
    for ((place, line), y) in lines.iter().enumerate().zip(inner.y..inner.bottom()) {
        let style = if selected == Some(place) {
            theme.selected()
        } else {
            Style::new()
        };
        let room = inner.width.saturating_sub(2);
        put(buffer, (inner.x + 1, y), line.as_ref(), room, style);
    }
}
