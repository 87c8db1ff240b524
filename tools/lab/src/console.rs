// SPDX-License-Identifier: GPL-2.0

//! A machine's console: kept in a file, read along as it is written, judged line by line.

use crate::classify::{Report, classify};
use anyhow::{Context, Result, bail};
use regex::Regex;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Lines shown before and after the one that a report begins with.
const BEFORE: usize = 4;
const AFTER: usize = 45;
/// An expected pattern may stand this many lines below a report's first.
const SAME_REPORT: usize = 16;

#[derive(Default)]
struct State {
    lines: Vec<String>,
    reports: Vec<(usize, Report)>,
    expected: Vec<Regex>,
    closed: bool,
}

/// A machine's console.
#[derive(Clone)]
pub struct Console {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Console {
    /// Follows `source` to its end, copying it into the file `path`.
    pub(crate) fn follow(source: impl Read + Send + 'static, path: &Path) -> Result<Console> {
        let mut file = File::create(path).with_context(|| path.display().to_string())?;
        let console = Console {
            state: Arc::default(),
            path: path.to_owned(),
        };
        let state = Arc::clone(&console.state);
        thread::spawn(move || {
            let mut input = BufReader::new(source);
            let mut bytes = Vec::new();
            while matches!(input.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
                // The log's copy is a convenience: a full disk must not stop the watch.
                let _ = file.write_all(&bytes);
                let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                bytes.clear();
                let mut state = lock(&state);
                if let Some(report) = classify(&line) {
                    let at = state.lines.len();
                    state.reports.push((at, report));
                }
                state.lines.push(line);
            }
            lock(&state).closed = true;
        });
        Ok(console)
    }

    /// The log file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reports whose text matches `pattern` are wanted and do not fail the scenario.
    pub fn expect(&self, pattern: &str) -> Result<()> {
        let pattern = Regex::new(pattern).context("pattern of an expected report")?;
        lock(&self.state).expected.push(pattern);
        Ok(())
    }

    /// All lines up to now.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        lock(&self.state).lines.clone()
    }

    /// The machine's end of the console is closed: it is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// A report after which the machine is no use.
    #[must_use]
    pub fn fatal(&self) -> Option<String> {
        let state = lock(&self.state);
        state
            .unexpected()
            .find(|(_, r)| r.kind.fatal)
            .map(|(at, r)| state.excerpt(*at, r))
    }

    /// Fails with the first report that nobody expected.
    pub fn verdict(&self) -> Result<()> {
        let state = lock(&self.state);
        if let Some((at, report)) = state.unexpected().next() {
            bail!("{}log: {}", state.excerpt(*at, report), self.path.display());
        }
        Ok(())
    }

    /// The last lines, for a machine that does not answer.
    #[must_use]
    pub fn tail(&self, count: usize) -> String {
        let state = lock(&self.state);
        let from = state.lines.len().saturating_sub(count);
        state.lines[from..].join("\n")
    }

    /// Waits for a line that matches; false when `limit` passed.
    pub fn wait_for(&self, pattern: &str, limit: Duration) -> Result<bool> {
        let pattern = Regex::new(pattern).context("pattern of a console line")?;
        let deadline = Instant::now() + limit;
        let mut seen = 0;
        loop {
            {
                let state = lock(&self.state);
                if state.lines[seen..].iter().any(|l| pattern.is_match(l)) {
                    return Ok(true);
                }
                seen = state.lines.len();
                if state.closed {
                    return Ok(false);
                }
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl State {
    fn unexpected(&self) -> impl Iterator<Item = &(usize, Report)> {
        self.reports.iter().filter(|(at, _)| {
            let end = (at + SAME_REPORT).min(self.lines.len());
            !self.lines[*at..end]
                .iter()
                .any(|line| self.expected.iter().any(|p| p.is_match(line)))
        })
    }

    fn excerpt(&self, at: usize, report: &Report) -> String {
        let from = at.saturating_sub(BEFORE);
        let to = (at + AFTER).min(self.lines.len());
        let mut text = format!("the kernel reported: {}\n", report.kind.name);
        for line in &self.lines[from..to] {
            text.push_str("  | ");
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "[    0.1] Linux version 7.3.4\n\
        [    1.0] ------------[ cut here ]------------\n\
        [    1.0] WARNING: net/core/dev.c:1 at free_netdev+0x1/0x2, CPU#0: rmmod/64\n\
        [    2.0] quiet again\n";

    fn console(text: &'static str) -> (Console, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let console = Console::follow(text.as_bytes(), &dir.path().join("log")).expect("follows");
        while !console.is_closed() {
            thread::sleep(Duration::from_millis(1));
        }
        (console, dir)
    }

    #[test]
    fn a_report_fails_and_is_shown_with_its_surroundings() {
        let (console, _dir) = console(LOG);
        let error = console.verdict().expect_err("a WARNING").to_string();
        assert!(error.contains("free_netdev"), "{error}");
        assert!(error.contains("quiet again"), "{error}");
        assert!(console.fatal().is_none());
    }

    #[test]
    fn an_expected_report_passes() {
        let (console, _dir) = console(LOG);
        console.expect("free_netdev").expect("a pattern");
        console.verdict().expect("expected");
    }

    #[test]
    fn fatal_reports_are_fatal() {
        let (console, _dir) = console("[ 1.0] Kernel panic - not syncing: x\n");
        assert!(console.fatal().is_some());
    }

    #[test]
    fn the_log_is_kept() {
        let (console, _dir) = console(LOG);
        assert_eq!(std::fs::read_to_string(console.path()).expect("log"), LOG);
        assert!(
            console
                .wait_for("quiet", Duration::ZERO)
                .expect("a pattern")
        );
    }
}
