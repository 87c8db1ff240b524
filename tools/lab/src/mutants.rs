// SPDX-License-Identifier: GPL-2.0

//! Changes of the driver: the tests that reach a place run with its change made. Histories come first, which take the least
//! time; then the KUnit suites and the scenarios of the base kernel, on what histories have not noticed.
//!
//! A first run of all tests, with no change made, tells which places each of them reaches. Its result is kept until the
//! sources change; so are the results of the changes that were tried, so that a sweep that was interrupted goes on.

use crate::cmd::scenarios::{Scenarios, Wanted};
use crate::history::{HISTORIES, IMPATIENT, NO_END, Player, Wrong};
use crate::kernel;
use crate::kunit;
use crate::layout::{Layout, digest, read};
use crate::limit::Limit;
use crate::machine::{Kernel, Lane};
use crate::module;
use crate::step::{print, replace, say};
use crate::tally::Tally;
use crate::woven::{self, Places, Woven, reached};
use anyhow::{Context, Result, bail, ensure};
use sim::draw::draw;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the KUnit suites among the scenarios.
const KUNIT: &str = "kunit::uml_base";
/// Seeds whose histories are tests.
const SEEDS: Range<u64> = 0..60;
/// Most short tests that are run on a change.
const SHORT: usize = 4;
/// Most tests of a kind that are run after the short ones. Those come first that reach many places of the change's file, above all
/// places that are near and that few tests reach. Tests that reach the same places mostly notice the same changes.
const NEAR: usize = 8;
/// Worth of a place, which the tests that reach it share.
const WHOLE: u64 = 1 << 20;
/// Places this far from the change are worth half as much as those beside it: a function has about as many.
const FAR: usize = 8;
/// Time limit of a test. Scenarios have limits of their own, which strike before, but wait for other runs on the computer
/// first.
const LIMIT: Duration = Duration::from_secs(300);

/// A module with all changes, and what there is to try them.
struct Sweep<'a> {
    layout: &'a Layout,
    scenarios: Scenarios,
    woven: Woven,
    player: Player,
    /// Directory of the results, which are those of one state of the sources.
    results: PathBuf,
}

/// Tests of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tests {
    /// Histories, whose names are their seeds.
    Histories,
    /// KUnit suites and scenarios.
    Others,
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
    let sites = &sweep.woven.sites;
    let mut chosen: Vec<usize> = sweep
        .woven
        .compiled()
        .filter(|n| match filter {
            Some(text) => sites[*n].name().contains(text),
            None => sites[*n].is_hot(),
        })
        .enumerate()
        .filter(|(position, _)| part(*position))
        .map(|(_, number)| number)
        .collect();
    ensure!(!chosen.is_empty(), "no change has that name");
    // Not by file: those of a sweep that is interrupted are a sample, too.
    chosen.sort_by_key(|number| digest(&[&number.to_le_bytes()]));
    let left = sweep.try_all(Tests::Histories, &sweep.histories()?, &chosen)?;
    let by_histories = chosen.len() - left.len();
    say(&format!(
        "{by_histories} of {} changes noticed by histories",
        chosen.len()
    ));
    let left = match &left[..] {
        [] => left,
        _ => sweep.try_all(Tests::Others, &sweep.others()?, &left)?,
    };
    let names = left.iter().map(|number| sweep.woven.sites[*number].name());
    Ok((chosen.len() - left.len(), names.collect()))
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
        let woven = woven::build(layout, &built, Places::Changes)?;
        let player = Player::new(layout, woven.stage(&built), built.kernel);
        let id = digest(&[woven.id.as_bytes(), &read(player.program())?]);
        let results = layout.build().join("mutants").join(id);
        fs::create_dir_all(&results)?;
        Ok(Sweep {
            layout,
            scenarios,
            player,
            woven,
            results,
        })
    }

    /// Plays histories without a change, unless it is known what they reach.
    fn histories(&self) -> Result<Coverage> {
        let file = self.results.join("histories.json");
        let known = Coverage::load(&file)?;
        if !known.tests.is_empty() {
            return Ok(known);
        }
        say("histories, and which changes they reach");
        let coverage = Mutex::new(known);
        let seeds = Mutex::new(SEEDS);
        in_parallel(processors(), &|_| {
            loop {
                let next = seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(seed) = next else {
                    return Ok(());
                };
                let dir = self.results.join(format!("seed-{seed}"));
                let played = self.player.play(&draw(seed), &dir)?;
                if let Some(wrong) = played.wrong {
                    print(&format!(
                        "seed {seed} fails without a change: {}",
                        wrong.text
                    ));
                    continue;
                }
                if played.void {
                    continue;
                }
                let took = u64::try_from(played.took.as_millis())?;
                let mut coverage = coverage.lock().unwrap_or_else(PoisonError::into_inner);
                coverage
                    .tests
                    .insert(seed.to_string(), (played.reached, took));
                fs::remove_dir_all(&dir)?;
            }
        })?;
        let coverage = coverage
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        replace(&file, &serde_json::to_vec(&coverage)?)?;
        Ok(coverage)
    }

    /// Runs the other tests without a change, unless it is known what they reach. One that fails is run again next time.
    fn others(&self) -> Result<Coverage> {
        let file = self.results.join("coverage.json");
        let mut coverage = Coverage::load(&file)?;
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
        names.retain(|name| !name.starts_with(HISTORIES) && !coverage.tests.contains_key(*name));
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

    /// Tries changes with tests of a kind, several at a time, unless a test is known to notice them. Returns those that are
    /// not noticed.
    fn try_all(&self, tests: Tests, coverage: &Coverage, chosen: &[usize]) -> Result<Vec<usize>> {
        let path = self.results.join("noticed");
        let known = fs::read_to_string(&path).unwrap_or_default();
        let known: HashMap<&str, &str> = known.lines().filter_map(|l| l.split_once('\t')).collect();
        let file = File::options().append(true).create(true).open(&path)?;
        let outcome = Mutex::new((0, Vec::new(), file));
        let left = Mutex::new(chosen.iter());
        // Scenarios wait for time to pass.
        let workers = match tests {
            Tests::Histories => processors(),
            Tests::Others => 2 * processors(),
        };
        let work = |n: usize| -> Result<()> {
            let worker = Worker::new(self.layout, n)?;
            loop {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(number) = next.copied() else {
                    return Ok(());
                };
                let name = self.woven.sites[number].name();
                let result = match known.get(&*name) {
                    Some(test) => Outcome::Noticed((*test).to_owned()),
                    None => self.try_one(tests, &worker, coverage, number)?,
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
                        let of = match tests {
                            Tests::Histories => "histories",
                            Tests::Others => "tests",
                        };
                        print(&format!("not noticed by {tried} {of}: {name}"));
                        unnoticed.push(number);
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
        in_parallel(workers, &work)?;
        let (_, unnoticed, _) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(unnoticed)
    }

    /// Runs tests that reach a change's place, with the change made, until one fails that passes without it.
    fn try_one(
        &self,
        kind: Tests,
        worker: &Worker,
        coverage: &Coverage,
        number: usize,
    ) -> Result<Outcome> {
        let sites = &self.woven.sites;
        let file = &sites[number].file;
        let first = sites.partition_point(|site| site.file < *file);
        let near = first..sites.partition_point(|site| site.file <= *file);
        let tests = coverage.of(number, &near);
        for &test in &tests {
            let (is_noticed, name) = match kind {
                Tests::Histories => {
                    let (plan, dir) = (draw(test.parse()?), worker.checkout.join("build/history"));
                    let mut player = self.player.clone();
                    player.patience = IMPATIENT;
                    let without = player.clone();
                    player.mutant = Some(number);
                    let play = |player: &Player| -> Result<Option<Wrong>> {
                        Ok(player.play(&plan, &dir)?.wrong)
                    };
                    // A hang is not the change's fault if it happens without it, too.
                    let is_noticed = match play(&player)? {
                        Some(wrong) if wrong.kind == NO_END => play(&without)?.is_none(),
                        wrong => wrong.is_some(),
                    };
                    (is_noticed, format!("the history of seed {test}"))
                }
                Tests::Others => {
                    let command = || self.command(test);
                    let fails = !worker.run(&mut command()?, Some(number))?;
                    let passes = || worker.run(&mut command()?, None);
                    (fails && passes()?, test.to_owned())
                }
            };
            if is_noticed {
                return Ok(Outcome::Noticed(name));
            }
        }
        Ok(Outcome::Unnoticed(tests.len()))
    }
}

/// The number of processors.
fn processors() -> usize {
    thread::available_parallelism().map_or(2, NonZero::get)
}

/// Does work in so many threads, each with its number, until all are done or have failed.
fn in_parallel(threads: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

impl Coverage {
    /// Reads what [`replace`] has written to a file, or nothing.
    fn load(file: &Path) -> Result<Coverage> {
        match fs::read_to_string(file) {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(_) => Ok(Coverage::default()),
        }
    }

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
        let mut places = BTreeSet::new();
        let dir = self.logs(test)?;
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let text = fs::read(entry?.path())?;
            places.extend(reached(&String::from_utf8_lossy(&text)));
        }
        Ok(places)
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
