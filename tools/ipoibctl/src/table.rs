// SPDX-License-Identifier: GPL-2.0

//! Tables of the driver in debugfs: lines of columns, of which the first has their names.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A row of a table. All rows share its text: there may be thousands, of which most are never looked at.
#[derive(Clone)]
pub(crate) struct Row {
    text: Arc<str>,
    line: Range<usize>,
}

/// The rows of a table with a heading.
pub(crate) fn rows(text: &str) -> Vec<Row> {
    let text: Arc<str> = text.into();
    let mut rows = Vec::new();
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let end = begin + line.len();
        if begin > 0 {
            let line = begin..begin + line.trim_end_matches('\n').len();
            let text = text.clone();
            rows.push(Row { text, line });
        }
        begin = end;
    }
    rows
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.columns()).finish()
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.columns().eq(other.columns())
    }
}

impl Row {
    /// The row's names and values.
    fn columns(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.text.lines().next().unwrap_or_default().split(' ');
        let line = self.text.get(self.line.clone()).unwrap_or_default();
        names.zip(line.split(' '))
    }

    /// A column's value, if the row has one.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut columns = self.columns();
        columns.find_map(|(other, value)| (other == name).then_some(value))
    }

    /// A row with these columns.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn of(columns: &[(&str, &str)]) -> Row {
        let (names, values): (Vec<_>, Vec<_>) = columns.iter().copied().unzip();
        let text = format!("{}\n{}", names.join(" "), values.join(" "));
        rows(&text).remove(0)
    }

    /// Changes a column, or adds it.
    #[cfg(test)]
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        let mut columns: Vec<_> = self.columns().filter(|(other, _)| *other != name).collect();
        columns.push((name, value));
        *self = Row::of(&columns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_heading() {
        let rows = rows("gid qpn state\nfe80::1 0x000012 ready\nfe80::2 0x000013\n");
        let state: Vec<_> = rows.iter().map(|row| row.get("state")).collect();
        assert_eq!(state, [Some("ready"), None]);
        assert_eq!(rows[1].get("qpn"), Some("0x000013"));
        assert_eq!(rows[1].get("mtu"), None);
    }

    #[test]
    fn tables_may_be_empty() {
        assert_eq!(rows(""), []);
        assert_eq!(rows("gid qpn\n"), []);
    }

    #[test]
    fn columns_can_be_set() {
        let mut row = Row::of(&[("gid", "fe80::1"), ("state", "ready")]);
        row.set("state", "failed");
        row.set("waiting", "3");
        let found = ["gid", "state", "waiting"].map(|name| row.get(name));
        assert_eq!(found, [Some("fe80::1"), Some("failed"), Some("3")]);
    }
}
