// SPDX-License-Identifier: GPL-2.0

//! Counts tests: those that the lab runs itself, and those of the tools that it calls.

use regex::Regex;
use std::sync::LazyLock;

/// Counts of tests.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// How many passed.
    pub passed: usize,
    /// The names of those that failed.
    pub failed: Vec<String>,
}

/// libtest's `test a::b ... ok`.
static LIBTEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^test (\S.*?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)").ok()
});

/// libtest's `running 12 tests`.
static ANNOUNCED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^running (\d+) tests?$").ok());

/// How many tests a runner's line says that it will run.
pub(crate) fn announced(line: &str) -> usize {
    ANNOUNCED
        .as_ref()
        .and_then(|r| r.captures(line)?[1].parse().ok())
        .unwrap_or(0)
}

impl Tally {
    /// How many there were.
    #[must_use]
    pub fn total(&self) -> usize {
        self.passed + self.failed.len()
    }

    /// Counts one test.
    pub fn count(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed.push(name.to_owned());
        }
    }

    /// Adds what another has counted, under a heading.
    pub fn add(&mut self, heading: &str, other: Tally) {
        self.passed += other.passed;
        self.failed
            .extend(other.failed.into_iter().map(|n| format!("{heading}: {n}")));
    }

    /// Counts a line of a test runner's output, if it tells of a test.
    pub fn line(&mut self, line: &str) {
        if let Some(m) = LIBTEST.as_ref().and_then(|r| r.captures(line)) {
            match &m[2] {
                "ok" => self.count(&m[1], true),
                "FAILED" => self.count(&m[1], false),
                _ => {}
            }
        }
    }

    /// The last line of `make test`.
    #[must_use]
    pub fn summary(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Tally, announced};

    fn tally(text: &str) -> Tally {
        let mut t = Tally::default();
        text.lines().for_each(|l| t.line(l));
        t
    }

    #[test]
    fn libtest() {
        let t = tally(
            "running 4 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest d - should panic ... ok\n\
             test e ... ignored\ntest result: FAILED. 2 passed; 1 failed; 1 ignored\n",
        );
        assert_eq!((t.passed, t.failed), (2, vec!["a::c".to_owned()]));
    }

    #[test]
    fn runners_announce_their_tests() {
        assert_eq!(announced("running 41 tests"), 41);
        assert_eq!(announced("running 1 test"), 1);
        for other in ["test running 3 tests ... ok", "running all tests", ""] {
            assert_eq!(announced(other), 0);
        }
    }

    #[test]
    fn the_summary_is_what_scripts_look_for() {
        let mut t = Tally::default();
        t.count("x", true);
        assert_eq!(t.summary(), "1 passed, 0 failed");
    }
}
