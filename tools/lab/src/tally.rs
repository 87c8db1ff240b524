// SPDX-License-Identifier: GPL-2.0

//! Counts tests: those that the lab runs itself, and those of the tools that it calls.

use regex::Regex;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Counts of tests. One that runs on two kernels, or on the host and in a kernel, is one test with two runs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// How many runs passed.
    pub passed: usize,
    /// The names of the runs that failed.
    pub failed: Vec<String>,
    /// Number of passed runs whose result is from an earlier `make test`.
    pub kept: usize,
    /// Names of the runs that a runner reported as ok.
    pub ok: Vec<String>,
    /// The names of those that had nothing to test.
    pub skipped: Vec<String>,
    /// Each test, and whether all of its runs passed.
    tests: BTreeMap<String, bool>,
    /// Explanations of failed tests by their runners, by name.
    causes: BTreeMap<String, Vec<String>>,
    /// Test that the present lines explain.
    of: Option<String>,
    /// The program whose tests the lines are about.
    program: String,
    /// Results that programs have announced, and that they have not told yet.
    outstanding: usize,
}

/// libtest's `test a::b ... ok`. Names may be padded.
static LIBTEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^test (\S.*?)(?: - should panic)? +\.\.\. (ok|FAILED|ignored)").ok()
});

/// libtest's `running 12 tests`.
static ANNOUNCED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^running (\d+) tests?$").ok());

/// cargo's `Running unittests lib.rs (target/debug/deps/lab-1234)`.
static PROGRAM: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^ +Running .*/([^/]+)-[0-9a-f]+\)$").ok());

/// Headline of a runner's explanation of a failed test.
static OF: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^---- (\S+)(?: stdout)? ----$").ok());

/// Most lines kept of an explanation.
const CAUSE: usize = 8;

/// The last part of a scenario's name: lane and kernel.
static PLACE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"::(uml|qemu)_[a-z]+$").ok());

/// How many tests a runner's line says that it will run.
pub(crate) fn announced(line: &str) -> usize {
    ANNOUNCED
        .as_ref()
        .and_then(|r| r.captures(line)?[1].parse().ok())
        .unwrap_or(0)
}

impl Tally {
    /// How many runs there were.
    #[must_use]
    pub fn total(&self) -> usize {
        self.passed + self.failed.len()
    }

    /// Counts the only run of a test.
    pub fn count(&mut self, name: &str, passed: bool) {
        self.run(name, name, passed);
    }

    /// Counts a run of `test`, which has a `name` of its own.
    pub fn run(&mut self, test: &str, name: &str, passed: bool) {
        *self.tests.entry(test.to_owned()).or_insert(true) &= passed;
        if passed {
            self.passed += 1;
        } else {
            self.failed.push(name.to_owned());
        }
    }

    /// Counts a scenario that passed in an earlier run.
    pub(crate) fn keep(&mut self, name: &str) {
        let test = PLACE.as_ref().map_or(name.into(), |r| r.replace(name, ""));
        self.run(&test, name, true);
        self.kept += 1;
    }

    /// Adds what another has counted, under a heading.
    pub fn add(&mut self, heading: &str, other: Tally) {
        self.passed += other.passed;
        self.kept += other.kept;
        let headed = |name| format!("{heading}: {name}");
        let causes = other.causes.into_iter();
        self.causes
            .extend(causes.map(|(name, cause)| (headed(name), cause)));
        self.failed.extend(other.failed.into_iter().map(headed));
        self.skipped.extend(other.skipped.into_iter().map(headed));
        for (test, passed) in other.tests {
            *self.tests.entry(test).or_insert(true) &= passed;
        }
    }

    /// Has those that were skipped fail.
    pub(crate) fn skipped_failed(&mut self) {
        for name in std::mem::take(&mut self.skipped) {
            self.count(&format!("{name} (skipped)"), false);
        }
    }

    /// Returns the first lines of a runner's explanation of a failed test, without blank ones.
    #[must_use]
    pub fn cause(&self, name: &str) -> &[String] {
        self.causes.get(name).map_or(&[], Vec::as_slice)
    }

    /// Keeps a line that explains a failed test.
    fn explain(&mut self, line: &str) {
        if let Some(found) = OF.as_ref().and_then(|r| r.captures(line)) {
            self.of = Some(found[1].to_owned());
        } else if line == "failures:" {
            self.of = None;
        } else if let (Some(name), false) = (&self.of, line.trim().is_empty()) {
            let cause = self.causes.entry(name.clone()).or_default();
            if cause.len() < CAUSE {
                cause.push(line.to_owned());
            }
        }
    }

    /// Counts a line of a test runner's output, if it tells of a test.
    pub fn line(&mut self, line: &str) {
        self.explain(line);
        if let Some(m) = PROGRAM.as_ref().and_then(|r| r.captures(line)) {
            self.program = format!("{} ", &m[1]);
        }
        self.outstanding += announced(line);
        if let Some(m) = LIBTEST.as_ref().and_then(|r| r.captures(line)) {
            self.outstanding = self.outstanding.saturating_sub(1);
            let test = PLACE.as_ref().map_or(m[1].into(), |r| r.replace(&m[1], ""));
            let test = format!("{}{test}", self.program);
            match &m[2] {
                "ok" => {
                    self.run(&test, &m[1], true);
                    self.ok.push(m[1].to_owned());
                }
                "FAILED" => self.run(&test, &m[1], false),
                _ => {}
            }
        }
    }

    /// Counts a failure for results that were announced and never came.
    pub fn close(&mut self, what: &str) {
        if self.outstanding > 0 {
            let name = format!("{what}: {} results never came", self.outstanding);
            self.count(&name, false);
        }
    }

    /// The last lines of `make test`: how many runs there were, and how many tests.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for name in &self.skipped {
            text += &format!("skipped: {name}\n");
        }
        let (runs, tests) = (self.total(), self.tests.len());
        if runs != tests {
            text += &format!("{tests} tests in {runs} runs, on the host or on one kernel each\n");
        }
        if self.kept > 0 {
            text += &format!(
                "{} of these runs were not repeated: they passed before with the same kernels, modules and scenarios (FRESH=1 runs all)\n",
                self.kept
            );
        }
        let passed = self.tests.values().filter(|passed| **passed).count();
        text + &format!("{passed} passed, {} failed", tests - passed)
    }
}

#[cfg(test)]
mod tests {
    use super::{CAUSE, Tally, announced};

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
    fn causes_are_told_by_name() {
        let block = "---- a::c ----\na on the uml lane\n\nCaused by:\n    0: 3 of 4\n";
        let long = "---- d stdout ----\n".to_owned() + &"line\n".repeat(CAUSE + 5);
        let mut all = Tally::default();
        all.add(
            "scenarios",
            tally(&format!(
                "failures:\n\n{block}\n{long}\nfailures:\n    a::c\n"
            )),
        );
        assert_eq!(
            all.cause("scenarios: a::c"),
            ["a on the uml lane", "Caused by:", "    0: 3 of 4"]
        );
        assert_eq!(all.cause("scenarios: d").len(), CAUSE);
        assert!(all.cause("scenarios: b").is_empty());
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

    /// A test that fails on one of two kernels has failed, once.
    #[test]
    fn a_test_on_two_kernels_is_one() {
        let line =
            |kernel, result| tally(&format!("test ring::copied::uml_{kernel} ... {result}\n"));
        let mut t = line("base", "ok");
        t.add("scenarios", line("debug", "ok"));
        assert!(
            t.summary().ends_with("\n1 passed, 0 failed"),
            "{}",
            t.summary()
        );
        assert!(
            t.summary().starts_with("1 tests in 2 runs"),
            "{}",
            t.summary()
        );
        t.add("scenarios", line("lockdep", "FAILED"));
        assert!(
            t.summary().ends_with("\n0 passed, 1 failed"),
            "{}",
            t.summary()
        );
        assert_eq!(t.failed, ["scenarios: ring::copied::uml_lockdep"]);
    }

    #[test]
    fn what_passed_earlier_is_told() {
        let mut t = Tally::default();
        t.keep("ring::copied::uml_base");
        let mut all = tally("test ring::copied::uml_debug ... ok\n");
        all.add("scenarios", t);
        let summary = all.summary();
        assert!(
            summary.contains("\n1 of these runs were not repeated"),
            "{summary}"
        );
        assert!(summary.ends_with("\n1 passed, 0 failed"), "{summary}");
    }

    #[test]
    fn skipped_ones_may_be_failures() {
        let mut t = Tally::default();
        t.skipped.push("a".to_owned());
        t.skipped_failed();
        assert_eq!(
            (t.skipped.len(), &*t.failed),
            (0, &["a (skipped)".to_owned()][..])
        );
    }

    /// Tests of two programs may have the same name.
    #[test]
    fn programs_have_tests_of_their_own() {
        let t = tally(
            "     Running unittests lib.rs (target/debug/deps/one-0a1b)\ntest a ... ok\n     Running tests/b.rs (/x/target/debug/deps/b_c-12)\ntest a ... ok\n",
        );
        assert_eq!(t.tests.keys().collect::<Vec<_>>(), ["b_c a", "one a"]);
    }

    #[test]
    fn results_that_never_come_are_a_failure() {
        let mut whole = tally("running 2 tests\ntest a ... ok\ntest b ... ignored\n");
        whole.close("unit");
        assert!(whole.failed.is_empty(), "{whole:?}");
        let mut cut = tally("running 2 tests\ntest a ... ok\n");
        cut.close("unit");
        assert_eq!(cut.failed, ["unit: 1 results never came"]);
    }
}
