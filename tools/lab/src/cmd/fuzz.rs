// SPDX-License-Identifier: GPL-2.0

//! `make fuzz`: the targets of `tests/fuzz`, each of which libFuzzer gives inputs that reach more and more of its code.
//!
//! `tests/fuzz/corpus` has a few inputs for each target, and the cache those that were found since. `make test` begins with the
//! former alone, has ten seconds for each target, and keeps no new inputs.

use crate::layout::Layout;
use crate::limit::Limit;
use crate::step::{Job, print, say};
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use std::collections::VecDeque;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time of a target in `make test`.
const BRIEFLY: Duration = Duration::from_secs(10);
/// Time that a target needs beside that, for the corpus above all, on a machine that is busy.
const GRACE: Duration = Duration::from_secs(300);
/// Longest time that a target may take for one input, in seconds: all of them take milliseconds.
const LONGEST: u32 = 20;
/// The longest input. Without a limit, it is the longest of those that are kept, which are short.
const LARGEST: u32 = 2048;
/// The lines of a failure that are shown.
const SHOWN: usize = 20;

/// Flags for what libFuzzer looks at: counters of branches that were taken, and operands of comparisons. There is no
/// sanitizer, since no target has `unsafe` code to find faults in.
const FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// A duration as its user writes it: `90s`, `10m` or `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(Duration);

impl Time {
    pub(crate) fn duration(self) -> Duration {
        self.0
    }
}

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let unit = match text.bytes().last() {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            _ => 0,
        };
        let number = text.get(..text.len().saturating_sub(1));
        let number: Option<u64> = number.and_then(|number| number.parse().ok());
        match number.and_then(|number| number.checked_mul(unit)) {
            Some(seconds) if seconds > 0 => Ok(Time(Duration::from_secs(seconds))),
            _ => Err("not of the form 90s, 10m or 2h".into()),
        }
    }
}

/// Fuzzes the targets that have `filter` in their names, on all processors, for a time altogether. Returns true if none
/// failed. New inputs stay in the cache.
pub fn run(layout: &Layout, time: Time, filter: Option<&str>) -> Result<bool> {
    let mut names = targets(&layout.checkout)?;
    names.retain(|name| filter.is_none_or(|filter| name.contains(filter)));
    ensure!(
        !names.is_empty(),
        "no fuzz target has {:?} in its name",
        filter.unwrap_or_default()
    );
    let programs = build(layout)?;
    let corpus = layout.cache.join("corpus");
    // Where there are more processors than targets, some run on several, and learn from each other by the corpus.
    let runs = names.len() * workers().div_ceil(names.len());
    let each = time.0.mul_f64(workers().min(runs) as f64 / runs as f64);
    say(&format!(
        "targets: {}; for each: {} s; processors: {}",
        names.len(),
        each.as_secs() * (runs / names.len()) as u64,
        workers()
    ));
    let plan = Plan {
        layout,
        programs: &programs,
        corpus: &corpus,
        time: each.max(Duration::from_secs(1)),
    };
    let names: Vec<&String> = names.iter().cycle().take(runs).collect();
    let tally = plan.all(&names, &|| ());
    println!("new inputs: {}", corpus.display());
    println!("{}", tally.summary());
    Ok(tally.failed.is_empty())
}

/// Gives a target one input again. Returns true if the target takes it. Both lie in a directory with the target's name.
pub fn again(layout: &Layout, input: &Path) -> Result<bool> {
    let input = layout.checkout.join(input);
    ensure!(input.is_file(), "{}: no such file", input.display());
    let dir = input.parent().and_then(Path::file_name);
    let name = dir.and_then(|name| name.to_str()).unwrap_or_default();
    if !targets(&layout.checkout)?
        .iter()
        .any(|target| target == name)
    {
        bail!("{}: not in the directory of a target", input.display());
    }
    let program = build(layout)?.join(name);
    let status = Command::new(&program)
        .arg(&input)
        .status()
        .with_context(|| program.display().to_string())?;
    Ok(status.success())
}

/// Runs all targets for a moment each, beginning with the inputs that are kept. Each is a test, and `done` is called after it.
pub(crate) fn briefly(layout: &Layout, done: &(dyn Fn() + Sync)) -> Tally {
    let all = || -> Result<Tally> {
        let names = targets(&layout.checkout)?;
        let programs = build(layout)?;
        let scratch = tempfile::tempdir().context("a directory for inputs")?;
        let plan = Plan {
            layout,
            programs: &programs,
            corpus: scratch.path(),
            time: BRIEFLY,
        };
        Ok(plan.all(&names.iter().collect::<Vec<_>>(), done))
    };
    all().unwrap_or_else(|error| {
        print(&format!("fuzz targets: {error:#}"));
        let mut tally = Tally::default();
        tally.count("fuzz targets", false);
        tally
    })
}

/// How many targets there are.
pub(crate) fn count(layout: &Layout) -> usize {
    targets(&layout.checkout).map_or(0, |names| names.len())
}

/// The names of the targets, in order.
fn targets(checkout: &Path) -> Result<Vec<String>> {
    let dir = checkout.join("tests/fuzz/fuzz_targets");
    let entries = fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    let files = entries.flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|ext| ext == "rs"));
    let mut names: Vec<String> = files
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// The processors.
fn workers() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Compiles the targets; the directory with their programs.
fn build(layout: &Layout) -> Result<PathBuf> {
    let triple = host()?;
    Job::new(
        layout,
        "fuzz-targets",
        "compile the fuzz targets",
        "If crates cannot be fetched, see to the network (https_proxy where one is used).",
    )?
    .run(
        Command::new("cargo")
            .args(["build", "--locked", "--target", &triple])
            .args(["--manifest-path", "tests/fuzz/Cargo.toml"])
            // With a target, they are for it alone, and not for build scripts.
            .env("RUSTFLAGS", FLAGS.join(" "))
            .current_dir(&layout.checkout),
    )?;
    Ok(layout.own.join("target").join(triple).join("debug"))
}

/// The name that rustc has for this machine.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Runs of targets.
struct Plan<'a> {
    layout: &'a Layout,
    programs: &'a Path,
    /// The directory that has what is found, in one for each target.
    corpus: &'a Path,
    time: Duration,
}

impl Plan<'_> {
    /// Runs the targets, as many at a time as there are processors.
    fn all(&self, names: &[&String], done: &(dyn Fn() + Sync)) -> Tally {
        let queue: Mutex<VecDeque<&String>> = Mutex::new(names.iter().copied().collect());
        let tally = Mutex::new(Tally::default());
        thread::scope(|scope| {
            for _ in 0..workers() {
                scope.spawn(|| {
                    loop {
                        let next = queue
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .pop_front();
                        let Some(name) = next else {
                            break;
                        };
                        let result = self.one(name);
                        match &result {
                            Ok(words) => print(&format!("fuzz {name} ... ok ({words})")),
                            Err(error) => print(&format!("fuzz {name} ... FAILED\n{error:#}")),
                        }
                        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                        tally.run(&format!("fuzz {name}"), name, result.is_ok());
                        done();
                    }
                });
            }
        });
        tally.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a target; a few words on what it did, or the failure and how to have it again.
    fn one(&self, name: &str) -> Result<String> {
        let kept = self.layout.checkout.join("tests/fuzz/corpus").join(name);
        let (found, build) = (self.corpus.join(name), self.layout.build());
        // With an own name for each run, since a target may have several.
        let log = tempfile::Builder::new()
            .prefix(&format!("fuzz-{name}-"))
            .tempfile()
            .context("a log")?;
        let failures = build.join("fuzz").join(name);
        for dir in [&found, &failures] {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        let mut command = Command::new(self.programs.join(name));
        command
            .arg(&found)
            .args(kept.is_dir().then_some(kept))
            .arg(format!("-max_total_time={}", self.time.as_secs()))
            .arg(format!("-timeout={LONGEST}"))
            .arg(format!("-max_len={LARGEST}"))
            .arg(format!("-artifact_prefix={}/", failures.display()))
            .arg("-print_final_stats=1")
            .current_dir(&self.layout.checkout)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(log.reopen().context("a log")?));
        let mut child = command.spawn().with_context(|| name.to_owned())?;
        let limit = Limit::begin(child.id(), self.time + GRACE);
        let status = child.wait().with_context(|| name.to_owned())?;
        let text = fs::read(log.path()).context("a log")?;
        let text = String::from_utf8_lossy(&text);
        let told = failure(&text, &self.layout.checkout);
        ensure!(!limit.struck(), "out of time\n{told}");
        if status.success() {
            return Ok(words(&text));
        }
        bail!(told)
    }
}

/// Figures of a run, as libFuzzer tells them.
fn words(log: &str) -> String {
    let figure = |name: &str| {
        let mut lines = log.lines();
        let value = lines.find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
        value.map_or("?", |value| value.trim_start_matches(':').trim())
    };
    format!(
        "{} runs, {} new inputs",
        figure("number_of_executed_units"),
        figure("new_units_added")
    )
}

/// The lines of a log that tell a failure, and the command that has it again.
fn failure(log: &str, checkout: &Path) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let begins = |line: &&str| line.contains("panicked at") || line.starts_with("==");
    let from = lines.iter().position(begins).unwrap_or(0);
    let mut text = String::new();
    for line in lines[from..].iter().take(SHOWN) {
        text += &format!("  | {line}\n");
    }
    let input = log.lines().find_map(|line| {
        let (_, path) = line.split_once("Test unit written to ")?;
        Some(Path::new(path.trim()))
    });
    if let Some(input) = input {
        let input = input.strip_prefix(checkout).unwrap_or(input).display();
        text += &format!("input: {input}\nagain: make fuzz INPUT={input}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(text.parse(), Ok(Time(Duration::from_secs(seconds))));
        }
        for text in ["", "m", "10", "0s", "-1m", "1d", "99999999999999999999h"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_failure_says_how_to_have_it_again() {
        let log = "INFO: Seed: 1\n#2\tINITED\n\nthread '<unnamed>' panicked at fuzz_targets/rx.rs:3:1:\nodd\n\
                   ==7== ERROR: libFuzzer: deadly signal\nartifact_prefix='/c/build/fuzz/rx/'; \
                   Test unit written to /c/build/fuzz/rx/crash-0a\n";
        let text = failure(log, Path::new("/c"));
        assert!(
            text.starts_with("  | thread '<unnamed>' panicked"),
            "{text}"
        );
        let end = "input: build/fuzz/rx/crash-0a\nagain: make fuzz INPUT=build/fuzz/rx/crash-0a\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn figures_of_a_run() {
        let log = "stat::number_of_executed_units: 123\nstat::new_units_added:          4\n";
        assert_eq!(words(log), "123 runs, 4 new inputs");
        assert_eq!(words(""), "? runs, ? new inputs");
    }

    /// Each target has a program, inputs that are kept, and a word on what it is for.
    #[test]
    fn targets_are_whole() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let names = targets(&checkout).expect("targets");
        assert!(names.len() > 10, "{names:?}");
        let manifest = fs::read_to_string(checkout.join("tests/fuzz/Cargo.toml")).expect("a file");
        for name in &names {
            assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name}");
            let kept = fs::read_dir(checkout.join("tests/fuzz/corpus").join(name));
            assert!(kept.is_ok_and(|kept| kept.count() > 0), "{name}: no corpus");
        }
    }
}
