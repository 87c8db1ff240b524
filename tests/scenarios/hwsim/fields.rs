// SPDX-License-Identifier: GPL-2.0

//! The output of InfiniBand's diagnostic programs, which have one field in a line.

use anyhow::{Context, Result};
use lab::bed::Host;
use std::collections::BTreeSet;
use std::fmt;

/// Output of a program: `Base lid: 1`, `NodeType:......Channel Adapter` or `port_num.......1`.
pub(super) struct Fields(String);

impl Fields {
    /// Runs a program, which must succeed.
    pub(super) fn of(host: &Host, command: &str) -> Result<Fields> {
        Ok(Fields(host.ok(command)?))
    }

    /// The values of a field, in their order.
    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        self.0
            .lines()
            .filter_map(|line| line.trim().split_once([':', '.']))
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value.trim_start_matches([':', '.', ' ']))
            .collect()
    }

    /// The records of a list, each of which begins with a field of that name.
    pub(super) fn records(&self, first: &str) -> Vec<Fields> {
        let mut records: Vec<Fields> = Vec::new();
        for line in self.0.lines() {
            let name = line.trim().split_once([':', '.']).map(|(name, _)| name);
            if name == Some(first) {
                records.push(Fields(String::new()));
            }
            if let Some(record) = records.last_mut() {
                record.0 += &format!("{line}\n");
            }
        }
        records
    }

    /// The value of a field; the first, if there are several.
    pub(super) fn text(&self, name: &str) -> Result<&str> {
        let texts = self.texts(name);
        let first = texts.first().copied();
        first.with_context(|| format!("no {name} in {self}"))
    }

    /// The value of a field that is a number.
    pub(super) fn number(&self, name: &str) -> Result<u64> {
        number(self.text(name)?).with_context(|| format!("{name} in {self}"))
    }

    /// The different values of a field that is a number.
    pub(super) fn numbers(&self, name: &str) -> Result<BTreeSet<u64>> {
        self.texts(name).into_iter().map(number).collect()
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a decimal number, or a hexadecimal one with its prefix.
fn number(text: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.with_context(|| format!("{text:?} is no number"))
}
