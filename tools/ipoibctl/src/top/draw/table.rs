// SPDX-License-Identifier: GPL-2.0

//! Tables, whose last columns take what room is left; and that of the peers.

use super::spark::spark;
use super::{State, Theme, WIDE, put, rate, trouble};
use crate::top::list::{Peer, Sort};
use crate::top::meter::Quantity;
use crate::top::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Room for an address of IPv4, and for one of IPv6.
const NAMES: (u16, u16) = (15, 39);

/// A column and its heading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    /// Its width, unless it takes what is left.
    width: Option<u16>,
    is_right: bool,
    sort: Option<Sort>,
}

impl Column {
    pub(super) const fn left(title: &'static str, width: u16) -> Column {
        Column {
            title,
            width: Some(width),
            is_right: false,
            sort: None,
        }
    }

    pub(super) const fn right(title: &'static str, width: u16) -> Column {
        Column {
            is_right: true,
            ..Column::left(title, width)
        }
    }

    /// A column for a sparkline.
    pub(super) const fn rest(title: &'static str) -> Column {
        Column {
            width: None,
            ..Column::left(title, 0)
        }
    }

    const fn by(self, sort: Sort) -> Column {
        Column {
            sort: Some(sort),
            ..self
        }
    }
}

/// Text in a row, with a style of its own.
#[derive(Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(super) fn plain(text: String) -> Cell {
        Cell::styled(text, Style::new())
    }

    pub(super) fn styled(text: String, style: Style) -> Cell {
        Cell { text, style }
    }
}

/// Columns in a width.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    width: u16,
    rest: u16,
}

impl Table {
    pub(super) fn new(columns: Vec<Column>, width: u16) -> Table {
        let fixed: u16 = columns.iter().filter_map(|c| c.width).sum();
        let gaps = columns.len().saturating_sub(1) as u16;
        let open = columns.iter().filter(|c| c.width.is_none()).count() as u16;
        Table {
            rest: width.saturating_sub(fixed + gaps) / open.max(1),
            columns,
            width,
        }
    }

    pub(super) fn width(&self) -> u16 {
        self.width
    }

    /// Width of a column that takes what is left.
    pub(super) fn rest(&self) -> u16 {
        self.rest
    }

    /// The heading in line `y`.
    pub(super) fn head(&self, buffer: &mut Buffer, y: u16, theme: &Theme, sort: Option<Sort>) {
        let blank = " ".repeat(usize::from(self.width));
        put(buffer, (0, y), &blank, self.width, theme.head());
        let style = |column: &Column| {
            if column.sort.is_some() && column.sort == sort {
                theme.sorted()
            } else {
                theme.head()
            }
        };
        let cells = self.columns.iter();
        let cells: Vec<Cell> = cells
            .map(|column| Cell::styled(column.title.to_owned(), style(column)))
            .collect();
        self.row(buffer, y, &cells, None);
    }

    /// A row in line `y`. A style for all of it takes the place of those of the cells.
    pub(super) fn row(&self, buffer: &mut Buffer, y: u16, cells: &[Cell], style: Option<Style>) {
        if let Some(style) = style {
            let blank = " ".repeat(usize::from(self.width));
            put(buffer, (0, y), &blank, self.width, style);
        }
        let mut x = 0;
        for (column, cell) in self.columns.iter().zip(cells) {
            let width = column.width.unwrap_or(self.rest);
            let length = cell.text.chars().count().min(usize::from(width)) as u16;
            let at = if column.is_right {
                x + width - length
            } else {
                x
            };
            put(
                buffer,
                (at, y),
                &cell.text,
                width,
                style.unwrap_or(cell.style),
            );
            x += width + 1;
        }
    }
}

fn columns(width: u16, names: u16) -> Vec<Column> {
    let is_wide = width >= WIDE;
    let mut columns = vec![
        Column::left("PEER", if is_wide { names } else { NAMES.0 }).by(Sort::Peer),
        Column::left("LINK", if is_wide { 15 } else { 8 }).by(Sort::Link),
        Column::left("STATE", 10).by(Sort::State),
    ];
    if is_wide {
        columns.push(Column::left("NEIGHBOUR", 10));
        columns.push(Column::left("PATH", 9));
        columns.push(Column::left("CONNECTION", 10));
        columns.push(Column::right("MAY", 5));
        columns.push(Column::right("WAIT", 5));
    }
    columns.extend([
        Column::right("RX/s", 5).by(Sort::RxFrames),
        Column::right("RX b/s", 6).by(Sort::RxBits),
        Column::right("TX/s", 5).by(Sort::TxFrames),
        Column::right("TX b/s", 6).by(Sort::TxBits),
        Column::right("LATE/s", 6).by(Sort::Late),
        Column::rest("RX+TX").by(Sort::Traffic),
    ]);
    columns
}

fn cells(state: &State, peer: &Peer, table: &Table, theme: &Theme) -> Vec<Cell> {
    let style = if peer.is_lost() {
        theme.bad()
    } else {
        Style::new()
    };
    let mut cells = vec![
        Cell::plain(peer.name()),
        Cell::plain(peer.interface.clone()),
        Cell::styled(peer.state().to_owned(), style),
    ];
    if table.width() >= WIDE {
        for text in [
            &peer.neighbour,
            &peer.path,
            &peer.connection,
            &peer.may_send,
            &peer.waiting,
        ] {
            let text = if text.is_empty() { "-" } else { text };
            cells.push(Cell::plain(text.to_owned()));
        }
    }
    let rates = &peer.rates;
    for quantity in [
        Quantity::RxFrames,
        Quantity::RxBits,
        Quantity::TxFrames,
        Quantity::TxBits,
    ] {
        cells.push(Cell::plain(rate(rates, quantity)));
    }
    cells.push(trouble(rates, Quantity::Late, theme));
    let track = state.meter.peer(&peer.interface, &peer.gid, peer.qpn);
    let both = track.rx.iter().zip(&track.tx);
    let wave = spark(both.map(|(rx, tx)| rx + tx), table.rest(), theme.blocks);
    cells.push(Cell::styled(wave, theme.wave()));
    cells
}

/// The peers in an area, as far as there is room.
pub(super) fn peers(
    buffer: &mut Buffer,
    area: Rect,
    (state, view): (&State, &mut View),
    theme: &Theme,
) {
    let shown = view.shown(&state.peers);
    let names = shown.iter().map(|peer| peer.name().len() as u16).max();
    let names = names.unwrap_or(0).clamp(NAMES.0, NAMES.1);
    let table = Table::new(columns(area.width, names), area.width);
    if area.height == 0 {
        return;
    }
    table.head(buffer, area.y, theme, Some(view.sort()));
    let page = area.height - 1;
    let first = view.scroll(&shown, usize::from(page));
    let selected = view.selected(&shown);
    let places = (first..shown.len()).zip(area.y + 1..area.y + 1 + page);
    for (place, y) in places {
        let style = (Some(place) == selected).then(|| theme.selected());
        table.row(buffer, y, &cells(state, shown[place], &table, theme), style);
    }
}
