// SPDX-License-Identifier: GPL-2.0

//! How far a run of tests is, and how long the rest will take.
//!
//! A run is a sequence of phases. The cache keeps how long each took last time, and how many tests it
//! had; until there is such a record, a table stands in.

use crate::step;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Without a terminal, a line this often.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Expected duration of the first run on two idle cores: seconds and tests of each phase.
const TABLE: &[(&str, u64, usize)] = &[
    ("prepare", 60, 846),
    ("kernel uml base", 600, 0),
    ("kernel uml debug", 510, 0),
    ("kernel uml lockdep", 480, 0),
    ("kernel qemu base", 420, 0),
    ("kernel qemu debug", 500, 0),
    ("kernel qemu kcsan", 600, 0),
    ("kernel qemu stock", 330, 0),
    ("kunit uml base", 14, 671),
    ("kunit uml debug", 16, 669),
    ("kunit qemu base", 8, 85),
    ("kunit qemu debug", 20, 85),
    ("kunit qemu stock", 30, 0),
    ("sample uml base", 55, 43),
    ("sample uml debug", 555, 356),
    ("scenarios uml base", 470, 227),
    ("scenarios uml debug", 520, 225),
    ("scenarios qemu base", 5000, 221),
    ("scenarios qemu debug", 10500, 105),
    ("scenarios qemu stock", 5000, 220),
];

/// Duration of a phase in an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Past {
    seconds: u64,
    tests: usize,
}

/// Durations of the phases of earlier runs.
#[derive(Debug)]
pub(crate) struct Record {
    file: PathBuf,
    past: BTreeMap<String, Past>,
}

impl Record {
    /// The cache's record. One that cannot be read is as good as none.
    pub(crate) fn load(cache: &Path) -> Record {
        let file = cache.join("durations.json");
        let past = fs::read(&file)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Record { file, past }
    }

    /// The last run's figures of a phase, or those of the table, and whether they are the former.
    fn of(&self, key: &str) -> (Past, bool) {
        if let Some(past) = self.past.get(key) {
            return (*past, true);
        }
        let row = TABLE.iter().find(|row| row.0 == key);
        let (seconds, tests) = row.map_or((60, 0), |row| (row.1, row.2));
        (Past { seconds, tests }, false)
    }

    /// Keeps what a phase took.
    pub(crate) fn note(&mut self, key: &str, took: Duration, tests: usize) {
        let past = Past {
            seconds: took.as_secs(),
            tests,
        };
        self.past.insert(key.to_owned(), past);
        // An estimate that is not kept fails nobody's run.
        let temporary = self
            .file
            .with_extension(format!("tmp{}", std::process::id()));
        let written = serde_json::to_vec_pretty(&self.past)
            .map_err(std::io::Error::from)
            .and_then(|text| fs::write(&temporary, text))
            .and_then(|()| fs::rename(&temporary, &self.file));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
    }
}

/// A part of a run.
#[derive(Debug, Clone)]
struct Phase {
    title: String,
    expected: Duration,
    /// Builds run beside its tests, which then say little of what is left.
    builds: bool,
    /// Tests that it had last time.
    tests: usize,
    /// Tests that its runners have announced this time.
    announced: usize,
    done: usize,
    /// True if only a part of its tests runs.
    is_cut: bool,
    /// When it began and how long it took, from the start of the run.
    began: Option<Duration>,
    ended: Option<Duration>,
}

impl Phase {
    fn total(&self) -> usize {
        // Not all of its runners may have announced theirs, until it has ended.
        let expected = if self.ended.is_some() {
            self.announced
        } else {
            self.announced.max(self.tests)
        };
        expected.max(self.done)
    }

    /// Time left of it at `now`: at its beginning what was expected, and the more of its tests are
    /// done the more by their rate.
    fn left(&self, now: Duration) -> Duration {
        if self.ended.is_some() {
            return Duration::ZERO;
        }
        let Some(began) = self.began else {
            return self.expected;
        };
        let elapsed = now.saturating_sub(began);
        let plan = self.expected.saturating_sub(elapsed);
        let total = self.total();
        if self.builds || total == 0 || self.done == 0 {
            return plan;
        }
        let fraction = self.done as f64 / total as f64;
        let rate = elapsed.as_secs_f64() * (1.0 - fraction) / fraction;
        let planned = self.expected.as_secs_f64() * (1.0 - fraction);
        Duration::from_secs_f64(planned * (1.0 - fraction) + rate * fraction)
    }
}

/// All phases of a run, in their order.
#[derive(Debug, Default)]
struct Course {
    phases: Vec<Phase>,
    /// The step that is being built right now, in words.
    note: String,
}

impl Course {
    fn current(&self) -> Option<&Phase> {
        self.phases
            .iter()
            .find(|p| p.began.is_some() && p.ended.is_none())
    }

    fn remaining(&self, now: Duration) -> Duration {
        self.phases.iter().map(|p| p.left(now)).sum()
    }

    /// Tests done and tests in all.
    fn tests(&self) -> (usize, usize) {
        self.phases
            .iter()
            .fold((0, 0), |(done, all), p| (done + p.done, all + p.total()))
    }

    /// Where the run is, in a line.
    fn line(&self, now: Duration) -> String {
        let (done, all) = self.tests();
        let title = self.current().map_or("", |p| p.title.as_str());
        let mut line = match self.note.as_str() {
            "" => title.to_owned(),
            note => format!("{title} ({note})"),
        };
        let left = self.remaining(now);
        if all > 0 {
            line += &format!(": {done} of {all} tests done");
        }
        if !left.is_zero() {
            line += &format!(", {} left", about(left));
        }
        line
    }
}

/// A duration for people who wait.
fn about(left: Duration) -> String {
    let seconds = left.as_secs();
    if seconds < 50 {
        "less than a minute".into()
    } else {
        format!("about {} min", (seconds + 30) / 60)
    }
}

struct Shared {
    course: Mutex<Course>,
    over: Mutex<bool>,
    wake: Condvar,
    start: Instant,
    bar: Option<ProgressBar>,
}

impl Shared {
    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self) {
        let mut course = self.course();
        course.note = step::building();
        let line = course.line(self.start.elapsed());
        drop(course);
        match &self.bar {
            Some(bar) => bar.set_message(line),
            None => step::say(&line),
        }
    }

    /// Shows the line until the run is over: each second on a terminal.
    fn tick(&self) {
        let every = match self.bar {
            Some(_) => Duration::from_secs(1),
            None => REPORT_EVERY,
        };
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            let (guard, timeout) = self
                .wake
                .wait_timeout(over, every)
                .unwrap_or_else(PoisonError::into_inner);
            over = guard;
            if timeout.timed_out() {
                drop(over);
                self.show();
                over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// The line that tells how far a run is: at the bottom of a terminal, else one now and then.
pub(crate) struct Status {
    shared: Arc<Shared>,
    record: Mutex<Record>,
    keys: Vec<String>,
    /// True if what phases take is kept: not that of a part of their tests.
    keep: bool,
    ticker: Option<JoinHandle<()>>,
}

impl Status {
    /// Begins a run of phases, each with a key and a title. A phase whose key is a list, joined by
    /// `+`, is expected to take as long as all of them.
    pub(crate) fn begin(record: Record, phases: &[(String, String)], keep: bool) -> Status {
        let mut course = Course::default();
        let mut known = true;
        for (key, title) in phases {
            let mut expected = Past {
                seconds: 0,
                tests: 0,
            };
            for part in key.split('+').filter(|part| !part.is_empty()) {
                let (past, recorded) = record.of(part);
                // Of a part of the tests nothing is known beforehand; a kernel is built whole.
                if keep || part.starts_with("kernel ") {
                    expected.seconds += past.seconds;
                    expected.tests += past.tests;
                    known &= recorded;
                }
            }
            course.phases.push(Phase {
                title: title.clone(),
                expected: Duration::from_secs(expected.seconds),
                builds: key.starts_with("prepare"),
                tests: expected.tests,
                announced: 0,
                done: 0,
                is_cut: false,
                began: None,
                ended: None,
            });
        }
        if keep {
            step::say(&format!(
                "{} in all, {}",
                about(course.remaining(Duration::ZERO)),
                if known {
                    "as the last time"
                } else {
                    "if two cores have nothing else to do"
                }
            ));
        }
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = step::bars().add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        let shared = Arc::new(Shared {
            course: Mutex::new(course),
            over: Mutex::new(false),
            wake: Condvar::new(),
            start: Instant::now(),
            bar,
        });
        step::gather_progress(true);
        let ticker = Arc::clone(&shared);
        Status {
            shared,
            record: Mutex::new(record),
            keys: phases.iter().map(|p| p.0.clone()).collect(),
            keep,
            ticker: Some(std::thread::spawn(move || ticker.tick())),
        }
    }

    /// The phase with this number begins; the one before has ended.
    pub(crate) fn phase(&self, number: usize) {
        self.end_phase();
        let now = self.shared.start.elapsed();
        for (n, phase) in self.shared.course().phases.iter_mut().enumerate() {
            if n == number {
                phase.began = Some(now);
            } else if n < number && phase.began.is_none() {
                // Passed over: what it needs could not be built.
                phase.ended = Some(now);
            }
        }
        self.shared.show();
    }

    fn end_phase(&self) {
        let now = self.shared.start.elapsed();
        let mut course = self.shared.course();
        let running = |p: &Phase| p.began.is_some() && p.ended.is_none();
        let Some(number) = course.phases.iter().position(running) else {
            return;
        };
        let phase = &mut course.phases[number];
        phase.ended = Some(now);
        // A phase of several parts is noted by who knows them.
        if self.keep && !phase.is_cut && !self.keys[number].contains('+') {
            let took = now.saturating_sub(phase.began.unwrap_or(now));
            let done = phase.done;
            drop(course);
            self.note(&self.keys[number], took, done);
        }
    }

    /// Keeps what a part of a phase took.
    pub(crate) fn note(&self, key: &str, took: Duration, tests: usize) {
        self.record
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .note(key, took, tests);
    }

    /// Leaves the time of a phase out of the record: only a part of it runs.
    pub(crate) fn leave_out(&self, phase: usize) {
        self.change(phase, |phase| phase.is_cut = true);
    }

    /// A runner says how many tests of a phase it will run.
    pub(crate) fn announced(&self, phase: usize, tests: usize) {
        self.change(phase, |phase| phase.announced += tests);
    }

    /// So many tests of a phase are over: maybe beside a later phase.
    pub(crate) fn done(&self, phase: usize, tests: usize) {
        self.change(phase, |phase| phase.done += tests);
    }

    fn change(&self, phase: usize, change: impl FnOnce(&mut Phase)) {
        if let Some(phase) = self.shared.course().phases.get_mut(phase) {
            change(phase);
        }
    }

    /// Tests of a phase that are over.
    pub(crate) fn tests_done(&self, phase: usize) -> usize {
        let course = self.shared.course();
        course.phases.get(phase).map_or(0, |phase| phase.done)
    }

    /// The run's last phase has ended.
    pub(crate) fn finish(self) {
        self.end_phase();
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        *self
            .shared
            .over
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        if let Some(ticker) = self.ticker.take() {
            // It has nothing to tell.
            let _ = ticker.join();
        }
        step::gather_progress(false);
        if let Some(bar) = &self.shared.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn phase(expected: u64, tests: usize) -> Phase {
        Phase {
            title: "scenarios, uml base".into(),
            expected: seconds(expected),
            builds: false,
            tests,
            announced: 0,
            done: 0,
            is_cut: false,
            began: None,
            ended: None,
        }
    }

    #[test]
    fn what_is_left_comes_from_the_last_run_and_then_from_this_one() {
        let mut p = phase(100, 10);
        assert_eq!(p.left(seconds(500)), seconds(100));
        p.began = Some(seconds(50));
        assert_eq!(p.left(seconds(80)), seconds(70));
        assert_eq!(p.left(seconds(500)), seconds(0));
        // Half of it done at half the speed: 50 s as planned, 100 s by the rate.
        p.done = 5;
        assert_eq!(p.left(seconds(150)), seconds(75));
        p.done = 10;
        assert_eq!(p.left(seconds(250)), seconds(0));
        p.done = 11;
        assert_eq!(p.left(seconds(250)), seconds(0));
        // The tests are done, and a kernel is still being compiled.
        p.builds = true;
        assert_eq!(p.left(seconds(80)), seconds(70));
    }

    #[test]
    fn a_line_tells_phase_tests_and_time() {
        let mut course = Course {
            phases: vec![phase(100, 10), phase(200, 20)],
            note: String::new(),
        };
        course.phases[0].began = Some(seconds(0));
        course.phases[0].announced = 12;
        course.phases[0].done = 3;
        assert_eq!(
            course.line(seconds(25)),
            "scenarios, uml base: 3 of 32 tests done, about 5 min left"
        );
        course.note = "compile: 7 of about 9".into();
        course.phases[0].ended = Some(seconds(90));
        course.phases[1].began = Some(seconds(90));
        assert_eq!(
            course.line(seconds(250)),
            "scenarios, uml base (compile: 7 of about 9): 3 of 32 tests done, less than a minute left"
        );
    }

    #[test]
    fn what_is_unknown_is_not_told() {
        let mut course = Course {
            phases: vec![phase(0, 0)],
            note: String::new(),
        };
        course.phases[0].began = Some(seconds(0));
        assert_eq!(course.line(seconds(9)), "scenarios, uml base");
        course.phases[0].announced = 4;
        assert_eq!(
            course.line(seconds(9)),
            "scenarios, uml base: 0 of 4 tests done"
        );
    }

    #[test]
    fn the_record_survives_and_garbage_is_no_record() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut record = Record::load(dir.path());
        assert_eq!(record.of("prepare").0.seconds, TABLE[0].1);
        assert!(!record.of("prepare").1);
        record.note("prepare", seconds(77), 8);
        let record = Record::load(dir.path());
        let past = Past {
            seconds: 77,
            tests: 8,
        };
        assert_eq!(record.of("prepare"), (past, true));
        fs::write(dir.path().join("durations.json"), "{\"prepare\": ").expect("writes");
        assert!(!Record::load(dir.path()).of("prepare").1);
    }

    #[test]
    fn a_run_notes_what_its_phases_took_unless_it_was_partial() {
        let dir = tempfile::tempdir().expect("a directory");
        let phases = [
            ("prepare+kernel uml base".to_owned(), "builds".to_owned()),
            ("kunit uml base".to_owned(), "KUnit".to_owned()),
        ];
        for (keep, noted) in [(false, false), (true, true)] {
            let status = Status::begin(Record::load(dir.path()), &phases, keep);
            status.phase(0);
            status.announced(0, 2);
            status.done(0, 2);
            assert_eq!(status.tests_done(0), 2);
            status.phase(1);
            status.done(1, 5);
            status.finish();
            let record = Record::load(dir.path());
            assert_eq!(record.of("kunit uml base").1, noted);
            assert!(!record.of("prepare").1, "noted by who knows its parts");
            assert!(!noted || record.of("kunit uml base").0.tests == 5);
        }
    }
}
