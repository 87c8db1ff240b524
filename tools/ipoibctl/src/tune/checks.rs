// SPDX-License-Identifier: GPL-2.0

//! Checks of the record of changed settings, and of lines of sysctl's configuration.

use super::persist::variable;
use super::setting::numbers;
use super::store::Record;
use std::path::{Component, Path};

/// Checks a record: what it says is written below the directories that settings have, and it is written as it was read.
pub fn record(text: &str) {
    let Ok(record) = Record::parse(text) else {
        return;
    };
    let is_below = |path: &str| {
        let mut parts = Path::new(path).components();
        !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
    };
    assert!(record.files.keys().all(|path| is_below(path)), "{record:?}");
    for entry in &record.entries {
        let setting = &entry.setting;
        match setting.sysctl() {
            Some(path) => assert!(is_below(path), "{path}"),
            None => assert!(is_below(&setting.interface), "{setting:?}"),
        }
    }
    let again = record.text().expect("a text");
    assert_eq!(Record::parse(&again).ok(), Some(record));
}

/// Checks a line of sysctl's configuration, and a value of ethtool's.
pub fn line(text: &str) {
    if let Some(name) = variable(text) {
        assert!(name.len() < text.len() && !name.contains('='));
        assert_eq!(name.trim(), name);
    }
    if let Some((usecs, frames)) = numbers(text) {
        assert_eq!(
            numbers(&super::setting::coalescing(usecs, frames)),
            Some((usecs, frames))
        );
    }
}
