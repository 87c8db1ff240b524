// SPDX-License-Identifier: GPL-2.0

//! Results that are kept for `make report`: a file for each page and lane, in build/bench.

use super::plot::Plot;
use super::report::Record;
use crate::layout::Layout;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The format of the files.
const SCHEMA: u32 = 2;

/// Results of one page on one lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    schema: u32,
    pub(super) records: Vec<Record>,
    pub(super) plots: Vec<Plot>,
}

impl Default for Results {
    fn default() -> Results {
        Results {
            schema: SCHEMA,
            records: Vec::new(),
            plots: Vec::new(),
        }
    }
}

impl Results {
    /// Reads a file; none if the page was never measured.
    pub(super) fn load(path: &Path) -> Result<Option<Results>> {
        let text = match fs::read_to_string(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            text => text,
        };
        let parsed = text.map_err(anyhow::Error::from).and_then(|text| {
            let results: Results = serde_json::from_str(&text)?;
            ensure!(
                results.schema == SCHEMA,
                "its format is {}, not {SCHEMA}",
                results.schema
            );
            Ok(results)
        });
        parsed
            .map(Some)
            .with_context(|| format!("{} cannot be read", path.display()))
    }

    /// Takes newer results in: they stand in for those of the same case, and come last if they are of none.
    pub(super) fn merge(&mut self, newer: Results) -> &Results {
        for record in newer.records {
            let same = |r: &Record| (&r.case, r.at) == (&record.case, record.at);
            put(&mut self.records, same, record.clone());
        }
        for plot in newer.plots {
            put(&mut self.plots, |p| p.name == plot.name, plot.clone());
        }
        self
    }

    /// Writes a file; one that is there is whole at any time.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let write = || -> Result<()> {
            let dir = path.parent().context("no directory")?;
            fs::create_dir_all(dir)?;
            let temporary = path.with_extension("json.new");
            fs::write(&temporary, serde_json::to_string_pretty(self)? + "\n")?;
            Ok(fs::rename(&temporary, path)?)
        };
        write().with_context(|| path.display().to_string())
    }
}

/// Puts `value` in the place of the one that is the same, or at the end.
fn put<T>(all: &mut Vec<T>, same: impl Fn(&T) -> bool, value: T) {
    match all.iter_mut().find(|other| same(other)) {
        Some(other) => *other = value,
        None => all.push(value),
    }
}

/// The directory of the files.
pub(super) fn dir(layout: &Layout) -> PathBuf {
    layout.build().join("bench")
}

/// The file of a page on a lane.
pub(super) fn file(page: &str, lane: &str) -> String {
    format!("{page}-{lane}.json")
}

/// The version of the sources, if git knows it, and today's date.
pub(super) fn version(layout: &Layout) -> String {
    let say = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let output = command.args(arguments).current_dir(&layout.checkout);
        let output = output.output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The checkout may belong to the user who called sudo.
    let describe = "-c safe.directory=* describe --always --dirty";
    let words: Vec<&str> = describe.split(' ').collect();
    [say("git", &words), say("date", &["-u", "+%F"])]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Results, file};
    use crate::bench::plot::tests::plot;
    use crate::bench::report::Record;
    use std::fs;

    /// A result with a ratio of `ours` to 100.
    pub(in crate::bench) fn record(case: &str, at: Option<u32>, ours: f64) -> Record {
        Record {
            page: "papers".into(),
            lane: "uml".into(),
            case: case.into(),
            at,
            unit: "Mbit/s".into(),
            ours: Some(ours),
            peer: Some(100.0),
            ratio: Some(ours / 100.0),
            ratio_min: Some(ours / 200.0),
            ratio_max: Some(ours / 50.0),
            pairs: 1,
            stamp: "Linux 7.3.4, today".into(),
            ..Record::default()
        }
    }

    fn results(records: &[Record]) -> Results {
        Results {
            records: records.to_vec(),
            plots: vec![plot(true, vec![(2.0, 1.0)])],
            ..Results::default()
        }
    }

    #[test]
    fn what_was_kept_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("bench").join(file("papers", "uml"));
        assert_eq!(Results::load(&path).expect("no error"), None);
        let mut saved = results(&[record("a", None, 120.0)]);
        // JSON has no word for what is no number.
        saved.records[0].bound = Some(f64::NAN);
        saved.save(&path).expect("written");
        saved.records[0].bound = None;
        assert_eq!(Results::load(&path).expect("no error"), Some(saved));
        let files = fs::read_dir(path.parent().expect("a directory")).expect("its files");
        assert_eq!(files.count(), 1);
    }

    #[test]
    fn newer_results_stand_in_for_the_same_case() {
        let mut kept = results(&[
            record("a", Some(2), 1.0),
            record("a", Some(4), 2.0),
            record("b", None, 3.0),
        ]);
        let mut newer = results(&[record("c", None, 5.0), record("a", Some(4), 4.0)]);
        newer.plots[0].title = "newer".into();
        kept.merge(newer);
        let all: Vec<_> = kept
            .records
            .iter()
            .map(|r| (r.case.as_str(), r.at, r.ours))
            .collect();
        assert_eq!(
            all,
            [
                ("a", Some(2), Some(1.0)),
                ("a", Some(4), Some(4.0)),
                ("b", None, Some(3.0)),
                ("c", None, Some(5.0))
            ]
        );
        assert_eq!(
            (kept.plots.len(), kept.plots[0].title.as_str()),
            (1, "newer")
        );
    }

    #[test]
    fn half_a_file_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(file("papers", "uml"));
        results(&[record("a", None, 1.0)])
            .save(&path)
            .expect("written");
        let whole = fs::read_to_string(&path).expect("text");
        let end = whole.trim_end().len();
        for part in [0, 1, end / 2, end - 1] {
            fs::write(&path, &whole[..part]).expect("written");
            let error = Results::load(&path).expect_err("half of it");
            assert!(format!("{error:#}").contains("papers-uml.json cannot be read: "));
        }
        fs::write(&path, whole.replace("\"schema\": 2", "\"schema\": 3")).expect("written");
        let error = Results::load(&path).expect_err("another format");
        assert!(
            format!("{error:#}").ends_with("its format is 3, not 2"),
            "{error:#}"
        );
    }
}
