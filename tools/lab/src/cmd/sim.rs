// SPDX-License-Identifier: GPL-2.0

//! `make sim`: histories in simulated time, one for each seed. One that fails is played again with fewer and fewer steps.

use crate::cmd::build;
use crate::cmd::fuzz::Time;
use crate::history::{Played, Player, Wrong};
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::step::{print, say};
use anyhow::{Context, Result, bail, ensure};
use sim::Plan;
use sim::draw::draw;
use sim::shrink::shrink;
use std::fs;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two lines that tell how far it is.
const TOLD: Duration = Duration::from_secs(20);

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

/// What to play.
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
    /// The kernel: that for simulated time, with KASAN or without.
    pub kernel: Option<Kernel>,
}

/// Plays histories. Returns true if all passed.
pub fn run(layout: &Layout, request: &Request) -> Result<bool> {
    let kernel = request.kernel.unwrap_or(Kernel::Sim);
    ensure!(
        kernel.is_simulated(),
        "only the kernels sim and sim_debug have simulated time"
    );
    build::ready(layout, Lane::Uml, kernel)?;
    let all = Histories {
        player: Player::new(layout, kernel),
        dir: layout.build().join("sim"),
    };
    if let Some(path) = &request.input {
        let path = layout.checkout.join(path);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        return all.one("input", &Plan::parse(&text)?);
    }
    if let Some(seed) = request.seed {
        return all.one(&seed.to_string(), &draw(seed));
    }
    let seeds = match (&request.seeds, request.time) {
        (Some(seeds), _) => seeds.0.clone(),
        (None, Some(_)) => 0..u64::MAX,
        (None, None) => USUAL,
    };
    all.many(seeds, request.time.map(Time::duration))
}

/// Histories of a checkout.
struct Histories {
    player: Player,
    /// Where each has a directory.
    dir: PathBuf,
}

impl Histories {
    /// Plays one with a trace, and tells all.
    fn one(&self, name: &str, plan: &Plan) -> Result<bool> {
        let dir = self.dir.join(name);
        let mut player = self.player.clone();
        player.trace = true;
        let played = player.play(plan, &dir)?;
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

    /// Plays those of seeds, as many at a time as there are processors; the first that fails is made small.
    fn many(&self, seeds: Range<u64>, time: Option<Duration>) -> Result<bool> {
        let start = Instant::now();
        let next = AtomicU64::new(seeds.start);
        let done = AtomicU64::new(0);
        let failed: Mutex<Vec<(u64, Wrong)>> = Mutex::default();
        let told = Mutex::new(Instant::now());
        let worker = || -> Result<()> {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                let is_late = time.is_some_and(|time| start.elapsed() > time);
                if seed >= seeds.end || is_late {
                    return Ok(());
                }
                let dir = self.dir.join(seed.to_string());
                let played = self.player.play(&draw(seed), &dir)?;
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                match played.wrong {
                    None => fs::remove_dir_all(&dir)?,
                    Some(wrong) => {
                        print(&format!("seed {seed} ... FAILED: {:.300}", wrong.text));
                        failed.push((seed, wrong));
                    }
                }
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.elapsed() > TOLD {
                    *told = Instant::now();
                    say(&progress(done, &seeds, time, failed.len(), start.elapsed()));
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
        let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let done = done.into_inner();
        println!(
            "{done} histories in {} s: {} passed, {} failed",
            start.elapsed().as_secs(),
            done - failed.len() as u64,
            failed.len()
        );
        failed.sort_by_key(|(seed, _)| *seed);
        let Some((seed, wrong)) = failed.first() else {
            return Ok(true);
        };
        self.make_small(*seed, wrong)?;
        println!("the first that failed, again: make sim SEED={seed}");
        Ok(false)
    }

    /// Finds a plan with fewer steps that fails in the same way, and prints it.
    fn make_small(&self, seed: u64, wrong: &Wrong) -> Result<()> {
        let plan = draw(seed);
        say(&format!(
            "seed {seed}: fewer of its {} steps",
            plan.steps.len()
        ));
        let dir = self.dir.join(format!("{seed}-fewer"));
        let mut tried = 0;
        let mut broken = None;
        let small = shrink(&plan, |plan| {
            tried += 1;
            match self.player.play(plan, &dir) {
                Ok(Played { wrong: Some(w), .. }) => w.kind == wrong.kind,
                Ok(_) => false,
                Err(e) => {
                    broken.get_or_insert(e);
                    false
                }
            }
        });
        if let Some(e) = broken {
            bail!(e);
        }
        let file = self.dir.join(format!("{seed}.plan"));
        let text = format!(
            "# Seed {seed} with {} of its {} steps, found by {tried} histories. It fails:\n#   {}\n{small}",
            small.steps.len(),
            plan.steps.len(),
            wrong.text.trim_end().replace('\n', "\n#   ")
        );
        fs::write(&file, &text)?;
        println!("{text}");
        println!("make sim INPUT={}", relative(&file));
        Ok(())
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
    let of = match time {
        Some(time) => format!(
            "{} of {} s",
            passed.as_secs().min(time.as_secs()),
            time.as_secs()
        ),
        None => format!("of {}", seeds.end - seeds.start),
    };
    format!("{done} histories, {of}; {failed} failed; {rate:.0} an hour")
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
            "10 histories, of 100; 1 failed; 600 an hour"
        );
        let time = Some(Duration::from_secs(90));
        assert_eq!(
            progress(10, &(0..100), time, 0, passed),
            "10 histories, 60 of 90 s; 0 failed; 600 an hour"
        );
    }
}
