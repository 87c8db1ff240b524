// SPDX-License-Identifier: GPL-2.0

//! How long scenarios took: in the cache for the order of the next run, and in a list for people.

use crate::layout::Layout;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long each scenario took last time.
pub(super) struct Times(HashMap<String, Duration>);

/// The cache's file for the time of a test.
fn file(cache: &Path, name: &str) -> PathBuf {
    cache.join("times").join(name.replace("::", "-"))
}

impl Times {
    /// The cache's.
    pub(super) fn load(cache: &Path) -> Times {
        let files = fs::read_dir(cache.join("times")).into_iter().flatten();
        let times = files.flatten().filter_map(|file| {
            let seconds = fs::read_to_string(file.path()).ok()?.parse().ok()?;
            let name = file.file_name().into_string().ok()?;
            Some((name, Duration::try_from_secs_f32(seconds).ok()?))
        });
        Times(times.collect())
    }

    /// That of a test. One that has never run may take longest.
    pub(super) fn of(&self, name: &str) -> Duration {
        let time = self.0.get(&name.replace("::", "-"));
        time.copied().unwrap_or(Duration::MAX)
    }
}

/// Notes how long a test took, and how long it waited for slots before. A note that cannot be written fails no test.
pub(super) fn note(layout: &Layout, name: &str, took: Duration, waited: Duration) {
    let file = file(&layout.cache, name);
    let _ = file.parent().map(fs::create_dir_all);
    let _ = fs::write(file, took.as_secs_f32().to_string());

    let Some((path, place)) = name.rsplit_once("::") else {
        return;
    };
    let list = layout
        .build()
        .join("logs")
        .join(format!("times-{}", place.replace('_', "-")));
    let list = File::options().append(true).create(true).open(list);
    // In one write: others write there, too.
    let line = format!(
        "{:8.2} {:8.2} {}\n",
        took.as_secs_f32(),
        waited.as_secs_f32(),
        path.replace("::", "-")
    );
    let _ = list.map(|mut list| list.write_all(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout {
            checkout: dir.path().into(),
            cache: dir.path().into(),
            own: dir.path().into(),
        };
        fs::create_dir_all(layout.build().join("logs")).expect("a directory");
        let seconds = Duration::from_secs(3);
        note(&layout, "a::b::uml_base", seconds, Duration::ZERO);
        let times = Times::load(&layout.cache);
        assert_eq!(times.of("a::b::uml_base"), seconds);
        assert_eq!(times.of("a::c::uml_base"), Duration::MAX);
        let list = fs::read_to_string(layout.build().join("logs/times-uml-base"));
        assert_eq!(list.expect("a list"), "    3.00     0.00 a-b\n");
    }
}
