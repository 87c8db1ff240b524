// SPDX-License-Identifier: GPL-2.0

//! Runs the tests that reach a place with its change made: the KUnit suites, and scenarios of the base kernel.
//!
//! A first run of all tests, with no change made, tells which places each of them reaches. Its result is kept until the
//! sources change; so are the results of the changes that were tried, so that a sweep that was interrupted goes on.

use crate::cmd::scenarios::{Scenarios, Wanted};
use crate::kernel::{self, Built};
use crate::kunit;
use crate::layout::{Layout, digest, read};
use crate::limit::Limit;
use crate::machine::{Kernel, Lane};
use crate::module::{self, MODULES};
use crate::mutants::weave::{self, REACHED, Site, Tree};
use crate::stage::Stage;
use crate::step::{print, replace, say};
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the KUnit suites among the scenarios.
const KUNIT: &str = "kunit::uml_base";
/// Most short tests that are run on a change.
const SHORT: usize = 4;
/// Most tests that are run after the short ones. Those come first that reach many places of the change's file, above all
/// places that are near and that few tests reach. Tests that reach the same places mostly notice the same changes.
const NEAR: usize = 8;
/// Worth of a place, which the tests that reach it share.
const WHOLE: u64 = 1 << 20;
/// Places this far from the change are worth half as much as those beside it: a function has about as many.
const FAR: usize = 8;
/// Time limit of a test. Scenarios have limits of their own, which strike before, but wait for other runs on the computer
/// first.
const LIMIT: Duration = Duration::from_secs(300);
/// Most builds until all refused changes are found. Errors of one build hide those of the next.
const BUILDS: usize = 40;

/// A module with all changes, and what there is to try them.
struct Sweep<'a> {
    layout: &'a Layout,
    scenarios: Scenarios,
    sites: Vec<Site>,
    /// Changes that do not compile.
    refused: HashSet<usize>,
    /// Directory of the results, which are those of one state of the sources.
    results: PathBuf,
}

/// Result of trying a change.
enum Outcome {
    /// This test fails with it, and passes without.
    Noticed(String),
    /// No test notices it; so many were tried.
    Unnoticed(usize),
}

/// Coverage of the changes by the tests.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Coverage {
    /// For each test that passes, the changes whose places it reaches, and the milliseconds that it takes.
    tests: BTreeMap<String, (BTreeSet<usize>, u64)>,
}

/// Tries the changes that compile, whose names contain `filter`, and whose positions among those `part` accepts.
pub(crate) fn run(
    layout: &Layout,
    filter: Option<&str>,
    part: &dyn Fn(usize) -> bool,
) -> Result<(usize, Vec<String>)> {
    let sweep = Sweep::build(layout)?;
    let compiled = (0..sweep.sites.len()).filter(|n| !sweep.refused.contains(n));
    let mut chosen: Vec<usize> = compiled
        .filter(|n| filter.is_none_or(|text| sweep.sites[*n].name().contains(text)))
        .enumerate()
        .filter(|(position, _)| part(*position))
        .map(|(_, number)| number)
        .collect();
    ensure!(!chosen.is_empty(), "no change has that name");
    // Not by file: those of a sweep that is interrupted are a sample, too.
    chosen.sort_by_key(|number| digest(&[&number.to_le_bytes()]));
    sweep.try_all(&sweep.coverage()?, &chosen)
}

/// Runs the KUnit suites in the modules that are staged, in a process of its own.
pub fn suites(layout: &Layout) -> Result<bool> {
    let built = kernel::ensure(layout, Lane::Uml, Kernel::Base)?;
    Ok(kunit::run(layout, &built)?.failed.is_empty())
}

impl<'a> Sweep<'a> {
    /// Builds the module with all changes that compile, for the base kernel.
    fn build(layout: &'a Layout) -> Result<Sweep<'a>> {
        let built = kernel::ensure(layout, Lane::Uml, Kernel::Base)?;
        module::ensure(layout, &built)?;
        let scenarios = Scenarios::build(layout)?;
        let sites = weave::sites(&layout.checkout)?;
        let own = layout.own.join("mutants");
        let (refused, file) = build_module(layout, &built, &own, &sites)?;
        say(&format!(
            "{} changes, {} of which do not compile",
            sites.len(),
            refused.len()
        ));
        let id = digest(&[&read(&file)?]);
        let results = layout.build().join("mutants").join(id);
        fs::create_dir_all(&results)?;
        Ok(Sweep {
            layout,
            scenarios,
            sites,
            refused,
            results,
        })
    }

    /// Runs the tests without a change, unless it is known what they reach. One that fails is run again next time.
    fn coverage(&self) -> Result<Coverage> {
        let file = self.results.join("coverage.json");
        let mut coverage = match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(_) => Coverage::default(),
        };
        let worker = Worker::new(self.layout, 0)?;
        if !coverage.tests.contains_key(KUNIT) {
            say("the suites, and which changes they reach");
            let begun = Instant::now();
            let passed = worker.run(&mut self.command(KUNIT)?, None)?;
            ensure!(passed, "the KUnit suites fail without a change");
            let took = u64::try_from(begun.elapsed().as_millis())?;
            let reached = worker.reached(KUNIT)?;
            coverage.tests.insert(KUNIT.to_owned(), (reached, took));
        }

        let wanted = Wanted {
            filter: None,
            asked: true,
        };
        let mut names = self.scenarios.choose(Lane::Uml, Kernel::Base, wanted);
        names.retain(|name| !coverage.tests.contains_key(*name));
        if names.is_empty() {
            return Ok(coverage);
        }
        say("the scenarios, and which changes they reach");
        let mut command = self.scenarios.command(Lane::Uml, &names);
        let mut child = worker.spawn(&mut command, None, Stdio::piped())?;
        let mut tally = Tally::default();
        let output = child.stdout.take().context("a pipe")?;
        for line in BufReader::new(output).lines() {
            let line = line?;
            print(&line);
            tally.line(&line);
        }
        child.wait()?;
        ensure!(tally.total() == names.len(), "not all scenarios have run");
        for name in tally.ok {
            let (took, reached) = (worker.took(&name)?, worker.reached(&name)?);
            coverage.tests.insert(name, (reached, took));
        }
        for name in tally.failed {
            print(&format!("fails without a change, and is not used: {name}"));
        }
        replace(&file, &serde_json::to_vec(&coverage)?)?;
        Ok(coverage)
    }

    /// The command for a test.
    fn command(&self, test: &str) -> Result<Command> {
        if test != KUNIT {
            return Ok(self.scenarios.command(Lane::Uml, &[test]));
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("suites");
        Ok(command)
    }

    /// Tries changes, several at a time, unless a test is known to notice them. Returns how many are noticed, and the names
    /// of the others.
    fn try_all(&self, coverage: &Coverage, chosen: &[usize]) -> Result<(usize, Vec<String>)> {
        let path = self.results.join("noticed");
        let known = fs::read_to_string(&path).unwrap_or_default();
        let known: HashMap<&str, &str> = known.lines().filter_map(|l| l.split_once('\t')).collect();
        let file = File::options().append(true).create(true).open(&path)?;
        let outcome = Mutex::new((0, Vec::new(), file));
        let left = Mutex::new(chosen.iter());
        let workers = thread::available_parallelism().map_or(2, |n| n.get() * 2);
        let work = |n: usize| -> Result<()> {
            let worker = Worker::new(self.layout, n)?;
            loop {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(number) = next.copied() else {
                    return Ok(());
                };
                let name = self.sites[number].name();
                let result = match known.get(&*name) {
                    Some(test) => Outcome::Noticed((*test).to_owned()),
                    None => self.try_one(&worker, coverage, number)?,
                };
                let mut held = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                let (noticed, unnoticed, file) = &mut *held;
                match result {
                    Outcome::Noticed(test) => {
                        *noticed += 1;
                        if !known.contains_key(&*name) {
                            writeln!(file, "{name}\t{test}")?;
                        }
                    }
                    Outcome::Unnoticed(tried) => {
                        print(&format!("not noticed: {name} ({tried} tests tried)"));
                        unnoticed.push(name);
                    }
                }
                let done = *noticed + unnoticed.len();
                if done % 20 == 0 {
                    let count = unnoticed.len();
                    say(&format!(
                        "{done} of {} changes, {count} not noticed",
                        chosen.len()
                    ));
                }
            }
        };
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..workers).map(|n| scope.spawn(move || work(n))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|p| std::panic::resume_unwind(p))
            })
        })?;
        let (noticed, unnoticed, _) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((noticed, unnoticed))
    }

    /// Runs tests that reach a change's place, with the change made, until one fails that passes without it.
    fn try_one(&self, worker: &Worker, coverage: &Coverage, number: usize) -> Result<Outcome> {
        let file = &self.sites[number].file;
        let first = self.sites.partition_point(|site| site.file < *file);
        let near = first..self.sites.partition_point(|site| site.file <= *file);
        let tests = coverage.of(number, &near);
        for &test in &tests {
            let command = || self.command(test);
            if !worker.run(&mut command()?, Some(number))? && worker.run(&mut command()?, None)? {
                return Ok(Outcome::Noticed(test.to_owned()));
            }
        }
        Ok(Outcome::Unnoticed(tests.len()))
    }
}

impl Coverage {
    /// The tests to run on a change: the shortest ones, which notice most, and then those that are worth most for `near`,
    /// the changes of its file. The tests that reach a place share its worth.
    fn of(&self, number: usize, near: &Range<usize>) -> Vec<&str> {
        let mut reached_by: HashMap<usize, u64> = HashMap::new();
        for (reached, _) in self.tests.values() {
            for place in reached.range(near.clone()) {
                *reached_by.entry(*place).or_default() += 1;
            }
        }
        let share = |place: &usize| {
            let distance = 1 + place.abs_diff(number) / FAR;
            WHOLE / reached_by[place] / distance as u64
        };
        let mut tests: Vec<(u64, u64, &str)> = self
            .tests
            .iter()
            .filter(|(_, (reached, _))| reached.contains(&number))
            .map(|(name, (reached, took))| {
                let worth = reached.range(near.clone()).map(share).sum();
                (worth, *took, &**name)
            })
            .collect();
        tests.sort_unstable_by_key(|(_, took, name)| (*took, *name));
        let mut rest = tests.split_off(tests.len().min(SHORT));
        // By quarters of the most: a test that is worth a little more may take ten times as long.
        let most = rest.iter().map(|(worth, ..)| *worth).max();
        let most = most.unwrap_or(0).max(1);
        rest.sort_unstable_by_key(|(worth, took, name)| (Reverse(*worth * 4 / most), *took, *name));
        tests.extend(rest.into_iter().take(NEAR));
        tests.into_iter().map(|(.., name)| name).collect()
    }
}

/// Builds the module with all changes below `own`, and stages it. Returns the changes that do not compile, and the module.
fn build_module(
    layout: &Layout,
    built: &Built,
    own: &Path,
    sites: &[Site],
) -> Result<(HashSet<usize>, PathBuf)> {
    let dir = own.join("tree");
    let list = own.join("refused");
    let names: BTreeMap<String, usize> = sites.iter().map(Site::name).zip(0..).collect();
    let before = fs::read_to_string(&list).unwrap_or_default();
    let mut refused: HashSet<usize> = before
        .lines()
        .filter_map(|line| names.get(line).copied())
        .collect();
    let mut rounds = 0;
    let objects = loop {
        rounds += 1;
        let tree = Tree::write(&layout.checkout, &dir, sites, &refused)?;
        let arguments = [
            "CONFIG_INFINIBAND_IB_HWSIM=",
            "KRUSTFLAGS=--cap-lints=allow",
            "-k",
        ];
        let error = match module::build(layout, built, &dir, "mutants", &arguments) {
            Ok(objects) => break objects,
            Err(error) => error,
        };
        let log = layout.logs().join(format!(
            "module-mutants-{}-{}.log",
            built.lane, built.kernel
        ));
        let found = tree.complaints(&dir, &fs::read_to_string(log)?)?;
        let count = refused.len();
        refused.extend(found);
        if refused.len() == count || rounds == BUILDS {
            return Err(error);
        }
        let lines: Vec<String> = refused.iter().map(|n| sites[*n].name() + "\n").collect();
        fs::write(&list, lines.concat())?;
    };
    let changed = Layout {
        own: own.to_owned(),
        ..layout.clone()
    };
    let stage = module::stage(&changed, built)?;
    let file = module::install(&stage, &objects, MODULES[0])?;
    // The other modules are as they are.
    let plain = Stage::of(layout, built.lane, built.kernel);
    for name in module::installed(&plain)? {
        if name != MODULES[0] {
            module::install(&stage, &module::updates(&plain)?, &name)?;
        }
    }
    Ok((refused, file))
}

/// A checkout of its own for running tests, so that they find the changed module and keep their logs apart.
struct Worker {
    checkout: PathBuf,
}

impl Worker {
    fn new(layout: &Layout, number: usize) -> Result<Worker> {
        // Not in the cache, which programs without privileges cannot read.
        let checkout = layout.build().join(format!("mutants/worker-{number}"));
        let own = Layout::with(&checkout, &layout.cache).own;
        for dir in [&checkout.join("build/logs"), &own] {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        for entry in fs::read_dir(&layout.checkout)? {
            let entry = entry?;
            if entry.file_name() != "build" && entry.file_name() != ".git" {
                link(&entry.path(), &checkout.join(entry.file_name()))?;
            }
        }
        for name in ["target", "iproute2"] {
            link(&layout.own.join(name), &own.join(name))?;
        }
        link(&layout.own.join("mutants/stage"), &own.join("stage"))?;
        Ok(Worker { checkout })
    }

    /// Starts a test with a change made, or none.
    fn spawn(
        &self,
        command: &mut Command,
        change: Option<usize>,
        output: Stdio,
    ) -> Result<std::process::Child> {
        if let Some(number) = change {
            command.env("LAB_MUTANT", number.to_string());
        }
        command
            .env("LAB_CHECKOUT", &self.checkout)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .context("a test")
    }

    /// Runs a test. Returns true if it passed in time.
    fn run(&self, command: &mut Command, change: Option<usize>) -> Result<bool> {
        let mut child = self.spawn(command, change, Stdio::null())?;
        let limit = Limit::begin(child.id(), LIMIT);
        let status = child.wait()?;
        Ok(status.success() && !limit.struck())
    }

    /// The directory of a test's logs.
    fn logs(&self, test: &str) -> Result<PathBuf> {
        let (path, _) = test.rsplit_once("::").context("a place")?;
        let name = format!("{}-uml-base", path.replace("::", "-"));
        Ok(self.checkout.join("build/logs").join(name))
    }

    /// The changes whose places a test has reached, from the logs of its machines.
    fn reached(&self, test: &str) -> Result<BTreeSet<usize>> {
        let mut reached = BTreeSet::new();
        let dir = self.logs(test)?;
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let text = fs::read(entry?.path())?;
            let text = String::from_utf8_lossy(&text);
            let numbers = text.split(REACHED).skip(1);
            reached.extend(numbers.filter_map(|text| {
                let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
                digits.parse::<usize>().ok()
            }));
        }
        Ok(reached)
    }

    /// Milliseconds that a scenario took, by the list of its run.
    fn took(&self, test: &str) -> Result<u64> {
        let (path, _) = test.rsplit_once("::").context("a place")?;
        let name = path.replace("::", "-");
        let list = fs::read_to_string(self.checkout.join("build/logs/times-uml-base"))?;
        for line in list.lines().rev() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            match fields[..] {
                [took, _, listed] if listed == name => {
                    return Ok(Duration::from_secs_f32(took.parse()?)
                        .as_millis()
                        .try_into()?);
                }
                _ => {}
            }
        }
        bail!("{test} is not in the list of times")
    }
}

/// Makes a symbolic link unless it is there.
fn link(to: &Path, from: &Path) -> Result<()> {
    match symlink(to, from) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| from.display().to_string())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tests_come_first_and_then_those_of_the_file() {
        let test = |name: &str, reached: &[usize], took| {
            let reached = reached.iter().copied().collect();
            (name.to_owned(), (reached, took))
        };
        let mut coverage = Coverage {
            tests: BTreeMap::from([
                test("much", &[7, 8, 9], 900),
                test("little", &[7, 100, 101], 500),
                test("often", &[7, 6], 100),
                test("rare", &[7, 5], 300),
                test("elsewhere", &[6], 100),
            ]),
        };
        for n in 0..SHORT as u64 {
            let (name, test) = test(&format!("short {n}"), &[6, 7], n);
            coverage.tests.insert(name, test);
        }
        let names = |number| coverage.of(number, &(5..10));
        assert_eq!(
            names(7),
            [
                "short 0", "short 1", "short 2", "short 3", "much", "rare", "often", "little"
            ]
        );
        assert!(names(3).is_empty());
    }

    /// Of two tests that are alone with a place each, the one with the place beside the change comes first.
    #[test]
    fn places_beside_the_change_are_worth_more() {
        let mut coverage = Coverage::default();
        for n in 0..SHORT as u64 {
            let reached = BTreeSet::from([50]);
            coverage.tests.insert(format!("short {n}"), (reached, n));
        }
        for (name, place) in [("far", 10), ("beside", 51)] {
            let reached = BTreeSet::from([50, place]);
            coverage.tests.insert(name.to_owned(), (reached, 100));
        }
        assert_eq!(coverage.of(50, &(0..100))[SHORT..], ["beside", "far"]);
    }
}
