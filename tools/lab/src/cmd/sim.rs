// SPDX-License-Identifier: GPL-2.0

//! `make sim`: histories in simulated time, one for each seed. One that fails is played again with fewer and fewer steps.

use crate::cmd::build;
use crate::cmd::fuzz::Time;
use crate::cover::Cover;
use crate::history::{IMPATIENT, Played, Player, Wrong};
use crate::kernel;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::step::{print, say};
use crate::woven::{self, Places};
use anyhow::{Context, Result, bail, ensure};
use sim::Plan;
use sim::draw::draw;
use sim::shrink::shrink;
use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two lines that tell how far it is.
const TOLD: Duration = Duration::from_secs(20);

/// The longest time to make a plan small.
const SHRINKING: Duration = Duration::from_secs(30 * 60);

/// Seeds that are played unless others are asked for.
const USUAL: Range<u64> = 0..20;

/// Seeds from one to the one before another: `SEEDS=0..100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let ends = text.split_once("..");
        let ends = ends.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match ends {
            Some((from, to)) if from < to => Ok(Seeds(from..to)),
            _ => Err("not of the form 0..100".into()),
        }
    }
}

/// A request: which histories to play.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The histories of these seeds.
    pub seeds: Option<Seeds>,
    /// That of this seed alone, with a trace of its packets.
    pub seed: Option<u64>,
    /// The plan in this file alone.
    pub input: Option<PathBuf>,
    /// Seeds for as long as this.
    pub time: Option<Time>,
    /// The kernel: base or sim-debug.
    pub kernel: Option<Kernel>,
    /// A fault that is made in the driver: a part of its name that no other has.
    pub mutant: Option<String>,
    /// Lines of the driver that are reached are told.
    pub cover: bool,
}

/// Plays histories. Returns true if all passed.
pub fn run(layout: &Layout, request: &Request) -> Result<bool> {
    let kernel = request.kernel.unwrap_or(Kernel::Base);
    ensure!(
        matches!(kernel, Kernel::Base | Kernel::SimDebug),
        "only the kernels base and sim-debug have simulated time"
    );
    ensure!(
        request.mutant.is_none() || !request.cover,
        "MUTANT and COVER exclude each other"
    );
    let stage = build::ready(layout, Lane::Uml, kernel)?;
    let woven = match (&request.mutant, request.cover) {
        (Some(_), _) => Some(Places::Changes),
        (None, true) => Some(Places::Marks),
        (None, false) => None,
    };
    let built = kernel::ensure(layout, Lane::Uml, kernel)?;
    let woven = woven
        .map(|places| woven::build(layout, &built, places))
        .transpose()?;
    let stage = woven.as_ref().map_or(stage, |woven| woven.stage(&built));
    let mut player = Player::new(layout, stage, kernel);
    if let (Some(woven), Some(name)) = (&woven, &request.mutant) {
        player.mutant = Some(woven.named(name)?);
        player.patience = IMPATIENT;
    }
    let all = Histories {
        player,
        kernel,
        mutant: request.mutant.clone(),
        dir: layout.build().join("sim"),
        reached: Mutex::new(BTreeSet::new()),
    };
    let passed = all.chosen(layout, request)?;
    if let (Some(woven), true) = (&woven, request.cover) {
        let reached = all.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let cover = Cover::of(&layout.checkout, woven, &reached)?;
        print(&cover.table());
        let file = all.dir.join("missed");
        fs::write(&file, cover.missed()).with_context(|| file.display().to_string())?;
        println!("lines that were not reached: {}", relative(&file));
    }
    Ok(passed)
}

/// Histories of a checkout.
struct Histories {
    player: Player,
    kernel: Kernel,
    /// The name of the fault that is made in the driver, if any.
    mutant: Option<String>,
    /// Where each has a directory.
    dir: PathBuf,
    /// The places that were reached, if the driver has some.
    reached: Mutex<BTreeSet<usize>>,
}

impl Histories {
    /// Plays those of a request. Returns true if all passed.
    fn chosen(&self, layout: &Layout, request: &Request) -> Result<bool> {
        if let Some(path) = &request.input {
            let path = layout.checkout.join(path);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            return self.one("input", &Plan::parse(&text)?);
        }
        if let Some(seed) = request.seed {
            return self.one(&seed.to_string(), &draw(seed));
        }
        let seeds = match (&request.seeds, request.time) {
            (Some(seeds), _) => seeds.0.clone(),
            (None, Some(_)) => 0..u64::MAX,
            (None, None) => USUAL,
        };
        self.many(seeds, request.time.map(Time::duration))
    }

    /// Plays one with a trace, and tells all.
    fn one(&self, name: &str, plan: &Plan) -> Result<bool> {
        let dir = self.dir.join(name);
        let mut player = self.player.clone();
        player.trace = true;
        let mut played = player.play(plan, &dir)?;
        self.note_reached(&mut played);
        print(&fs::read_to_string(dir.join("log")).unwrap_or_default());
        println!("plan, log, console and packets: {}", dir.display());
        println!(
            "digest: {}; {:.1} s",
            played.digest,
            played.took.as_secs_f64()
        );
        match played.wrong {
            None => println!("passed"),
            Some(wrong) => {
                println!("failed: {}", wrong.text);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Plays those of seeds, as many at a time as there are processors, and the first one twice; the first that fails is
    /// made small.
    fn many(&self, seeds: Range<u64>, time: Option<Duration>) -> Result<bool> {
        let start = Instant::now();
        let next = AtomicU64::new(seeds.start);
        let stop = AtomicBool::new(false);
        let all = Mutex::new(Told::new());
        let worker = || -> Result<()> {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                let is_late = time.is_some_and(|time| start.elapsed() > time);
                if seed >= seeds.end || is_late || stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let result = self.history(seed, seed == seeds.start);
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                match result {
                    Ok(played) => {
                        let failed = played.wrong.is_some();
                        all.count(seed, played);
                        // Whether a fault that was made is found at all.
                        if failed && self.player.mutant.is_some() {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    Err(e) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(e);
                    }
                }
                if all.at.elapsed() > TOLD {
                    all.at = Instant::now();
                    say(&progress(
                        all.done,
                        &seeds,
                        time,
                        all.failed.len(),
                        start.elapsed(),
                    ));
                }
            }
        };
        thread::scope(|scope| {
            let workers = thread::available_parallelism().map_or(1, NonZero::get);
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        let Told {
            done,
            void,
            mut failed,
            ..
        } = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!(
            "{done} histories in {} s: {} passed, {void} void, since ib_ipoib failed, {} failed",
            start.elapsed().as_secs(),
            done - void - failed.len() as u64,
            failed.len()
        );
        failed.sort_by_key(|(seed, _)| *seed);
        let Some((seed, wrong)) = failed.first() else {
            return Ok(true);
        };
        if self.player.mutant.is_none() {
            self.make_small(*seed, wrong)?;
        }
        println!("the first failure again: {} SEED={seed}", self.make());
        Ok(false)
    }

    /// Plays the history of a seed, and once more if `twice`: it has to be the same then.
    fn history(&self, seed: u64, twice: bool) -> Result<Played> {
        let plan = draw(seed);
        let dir = self.dir.join(seed.to_string());
        let mut played = self.player.play(&plan, &dir)?;
        let has_passed = played.wrong.is_none();
        if twice && has_passed && self.player.play(&plan, &dir)?.digest != played.digest {
            let text = "the history of this seed is not the same when it is played again";
            played.wrong = Some(Wrong {
                kind: text.to_owned(),
                text: text.to_owned(),
            });
        }
        if played.wrong.is_none() {
            fs::remove_dir_all(&dir)?;
        }
        self.note_reached(&mut played);
        Ok(played)
    }

    /// Takes the places that a history has reached.
    fn note_reached(&self, played: &mut Played) {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.append(&mut played.reached);
    }

    /// Finds a plan with fewer steps that fails in the same way, as far as there is time, and prints it.
    fn make_small(&self, seed: u64, wrong: &Wrong) -> Result<()> {
        let plan = draw(seed);
        say(&format!(
            "seed {seed}: shrinking its {} steps",
            plan.steps.len()
        ));
        let start = Instant::now();
        let dir = self.dir.join(format!("{seed}-fewer"));
        let (mut tried, mut last) = (0, wrong.clone());
        let mut broken = None;
        let small = shrink(&plan, |plan| {
            if broken.is_some() || start.elapsed() > SHRINKING {
                return false;
            }
            tried += 1;
            match self.player.play(plan, &dir) {
                Ok(Played { wrong: Some(w), .. }) if w.kind == wrong.kind => {
                    last = w;
                    true
                }
                Ok(_) => false,
                Err(e) => {
                    broken = Some(e);
                    false
                }
            }
        });
        if let Some(e) = broken {
            bail!(e);
        }
        // The last plan that was tried may have passed.
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let file = self.dir.join(format!("{seed}.plan"));
        let text = format!(
            "# Seed {seed} with {} of its {} steps, found by {tried} histories. It fails:\n#   {}\n{small}",
            small.steps.len(),
            plan.steps.len(),
            last.text.trim_end().replace('\n', "\n#   ")
        );
        fs::write(&file, &text)?;
        println!("{text}");
        println!("{} INPUT={}", self.make(), relative(&file));
        Ok(())
    }

    /// The command for these histories, less what says which.
    fn make(&self) -> String {
        let mut command = match self.kernel {
            Kernel::Base => "make sim".to_owned(),
            kernel => format!("make sim KERNEL={kernel}"),
        };
        if let Some(name) = &self.mutant {
            command += &format!(" MUTANT='{name}'");
        }
        command
    }
}

/// Histories that were played.
struct Told {
    done: u64,
    void: u64,
    failed: Vec<(u64, Wrong)>,
    /// The time of the last line about them.
    at: Instant,
}

impl Told {
    fn new() -> Told {
        Told {
            done: 0,
            void: 0,
            failed: Vec::new(),
            at: Instant::now(),
        }
    }

    /// Counts one, and tells if it has failed.
    fn count(&mut self, seed: u64, played: Played) {
        self.done += 1;
        self.void += u64::from(played.void);
        if let Some(wrong) = played.wrong {
            print(&format!("seed {seed} ... FAILED: {:.300}", wrong.text));
            self.failed.push((seed, wrong));
        }
    }
}

/// A path as it is from the current directory.
fn relative(path: &Path) -> String {
    let from = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(from)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// How far it is.
fn progress(
    done: u64,
    seeds: &Range<u64>,
    time: Option<Duration>,
    failed: usize,
    passed: Duration,
) -> String {
    let rate = done as f64 * 3600.0 / passed.as_secs_f64().max(1.0);
    let done = match time {
        Some(time) => {
            let all = time.as_secs();
            format!("{done} histories, {} of {all} s", passed.as_secs().min(all))
        }
        None => format!("{done} of {} histories", seeds.end - seeds.start),
    };
    format!("{done}; {failed} failed; {rate:.0} an hour")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range() {
        assert_eq!("3..17".parse(), Ok(Seeds(3..17)));
        for text in ["", "3", "3..", "5..5", "7..3", "a..b"] {
            assert!(text.parse::<Seeds>().is_err(), "{text}");
        }
    }

    #[test]
    fn progress_says_how_far_it_is() {
        let passed = Duration::from_secs(60);
        assert_eq!(
            progress(10, &(0..100), None, 1, passed),
            "10 of 100 histories; 1 failed; 600 an hour"
        );
        let time = Some(Duration::from_secs(90));
        assert_eq!(
            progress(10, &(0..100), time, 0, passed),
            "10 histories, 60 of 90 s; 0 failed; 600 an hour"
        );
    }
}
