// SPDX-License-Identifier: GPL-2.0

//! A machine's console: kept in a file, read along as it is written, judged line by line.

use crate::classify::{Report, classify};
use anyhow::{Context, Result, bail, ensure};
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
/// First line of a report that is named a few lines later.
const CUT: &str = "------------[ cut here ]------------";
/// Most lines between [`CUT`] and the line that names the report.
const SAME_REPORT: usize = 16;

/// Reports that are wanted.
struct Expected {
    /// Patterns of their head lines.
    patterns: Vec<Regex>,
    /// The lines among which they come. Without an end, those to come.
    from: usize,
    to: Option<usize>,
}

impl Expected {
    /// Returns true if `at` is among its lines.
    fn spans(&self, at: usize) -> bool {
        at >= self.from && self.to.is_none_or(|to| at < to)
    }
}

#[derive(Default)]
struct State {
    lines: Vec<String>,
    reports: Vec<(usize, Report)>,
    expected: Vec<Expected>,
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
                lock(&state).take(line);
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

    /// From line `from` on, reports whose head lines match one of `patterns` are wanted. Returns a number for
    /// [`Console::expected`].
    pub(crate) fn expect(&self, patterns: Vec<Regex>, from: usize) -> usize {
        let mut state = lock(&self.state);
        state.expected.push(Expected {
            patterns,
            from,
            to: None,
        });
        state.expected.len() - 1
    }

    /// From line `to` on, these reports are wanted no more. Fails unless each pattern has matched one.
    pub(crate) fn expected(&self, number: usize, to: usize) -> Result<()> {
        self.over(number, to);
        let state = lock(&self.state);
        let expected = &state.expected[number];
        for pattern in &expected.patterns {
            let came = state
                .reports
                .iter()
                .any(|(at, r)| expected.spans(*at) && pattern.is_match(&r.line));
            ensure!(
                came,
                "the kernel did not report {pattern}: {}",
                self.path.display()
            );
        }
        Ok(())
    }

    /// From line `to` on, these reports are wanted no more.
    pub(crate) fn over(&self, number: usize, to: usize) {
        lock(&self.state).expected[number].to = Some(to);
    }

    /// Waits for a line that ends in `text`; its number.
    pub(crate) fn number_of(&self, text: &str, limit: Duration) -> Result<usize> {
        let deadline = Instant::now() + limit;
        loop {
            let state = lock(&self.state);
            let found = state.lines.iter().rposition(|line| line.ends_with(text));
            let closed = state.closed;
            drop(state);
            if let Some(number) = found {
                return Ok(number);
            }
            ensure!(
                !closed && Instant::now() < deadline,
                "{text:?} is not in the log"
            );
            thread::sleep(Duration::from_millis(5));
        }
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
    /// Takes a line, and judges it.
    fn take(&mut self, line: String) {
        if let Some(report) = classify(&line) {
            let at = self.lines.len();
            let names = ["WARNING: ", "kernel BUG at "];
            // A WARN() with a text of its own may have that reported, too.
            let cut = names
                .iter()
                .any(|name| report.line.starts_with(name))
                .then(|| {
                    let near = self.reports.iter_mut().rev().take(3);
                    near.filter(|(cut, _)| at - cut < SAME_REPORT)
                        .find(|(_, report)| report.line == CUT)
                });
            match cut.flatten() {
                Some((_, unnamed)) => *unnamed = report,
                None => self.reports.push((at, report)),
            }
        }
        self.lines.push(line);
    }

    fn unexpected(&self) -> impl Iterator<Item = &(usize, Report)> {
        self.reports.iter().filter(|(at, report)| {
            !self
                .expected
                .iter()
                .filter(|expected| expected.spans(*at))
                .any(|expected| expected.patterns.iter().any(|p| p.is_match(&report.line)))
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

    fn pattern(text: &str) -> Vec<Regex> {
        vec![Regex::new(text).expect("a pattern")]
    }

    /// An expected report passes where it is expected, and nowhere else.
    #[test]
    fn an_expected_report_passes() {
        let (console, _dir) = console(LOG);
        let number = console.expect(pattern("^WARNING: .* at free_netdev"), 1);
        console.verdict().expect("expected");
        console.expected(number, 3).expect("it came");
        console.verdict().expect("expected");
        console.expected(number, 1).expect_err("it came later");
        console.verdict().expect_err("it came later");
        let number = console.expect(pattern("^WARNING: .* at free_netdev"), 2);
        console.expected(number, 4).expect_err("it came before");
        console.verdict().expect_err("it came before");
    }

    /// A report is what its head line says, whatever stands below, or above.
    #[test]
    fn the_head_line_tells() {
        for other in ["cut here", "quiet again", "at another_function"] {
            let (console, _dir) = console(LOG);
            let number = console.expect(pattern(other), 0);
            console.verdict().expect_err(other);
            console.expected(number, 4).expect_err(other);
        }
    }

    #[test]
    fn each_report_has_one_head() {
        let (console, _dir) = console(
            "[ 1.0] ------------[ cut here ]------------\n\
             [ 1.0] refcount_t: underflow; use-after-free.\n\
             [ 1.0] WARNING: lib/refcount.c:28 at refcount_warn_saturate+0x1/0x2\n\
             [ 1.1] WARNING: suspicious RCU usage\n\
             [ 1.2] ------------[ cut here ]------------\n",
        );
        let heads: Vec<(usize, String)> = lock(&console.state)
            .reports
            .iter()
            .map(|(at, r)| (*at, r.line.chars().take(12).collect()))
            .collect();
        let want = [
            (0, "WARNING: lib"),
            (1, "refcount_t: "),
            (3, "WARNING: sus"),
            (4, "------------"),
        ];
        assert_eq!(heads, want.map(|(at, line)| (at, line.to_owned())));
    }

    #[test]
    fn lines_have_numbers() {
        let (console, _dir) = console(LOG);
        assert_eq!(console.number_of("again", Duration::ZERO).ok(), Some(3));
        console
            .number_of("quiet", Duration::ZERO)
            .expect_err("no such line");
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
