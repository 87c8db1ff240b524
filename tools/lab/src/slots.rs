// SPDX-License-Identifier: GPL-2.0

//! How many machines may run at once, over all processes and checkouts on this computer.
//!
//! A slot is a locked file in the cache: whoever dies gives its slots back.

use crate::machine::Lane;
use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// How long this thread has waited for slots.
pub(crate) fn waited() -> Duration {
    WAITED.get()
}

/// Slots held; dropping it gives them back.
pub(crate) struct Slots {
    _held: Vec<Flock<File>>,
}

fn open(path: &Path) -> Result<File> {
    File::create(path).with_context(|| path.display().to_string())
}

/// Slots of a processor: a machine of the uml lane, which often waits, takes two of them; one of the qemu lane all.
pub(crate) const OF_PROCESSOR: usize = 7;

/// How many slots a machine of a lane takes.
pub(crate) fn needed(lane: Lane) -> usize {
    match lane {
        Lane::Uml => 2,
        Lane::Qemu => OF_PROCESSOR,
    }
}

/// The computer's number of slots, as if it had two processors at least.
fn total() -> usize {
    OF_PROCESSOR * std::thread::available_parallelism().map_or(2, |n| n.get().max(2))
}

/// How many machines of a lane fit.
pub(crate) fn machines(lane: Lane) -> usize {
    total() / needed(lane)
}

/// Waits for `wanted` slots, all that there are at most.
pub(crate) fn take(cache: &Path, wanted: usize) -> Result<Slots> {
    let start = Instant::now();
    let slots = gather(cache, wanted);
    WAITED.set(WAITED.get() + start.elapsed());
    slots
}

fn gather(cache: &Path, wanted: usize) -> Result<Slots> {
    let dir = cache.join("slots");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let total = total();
    // One waiter at a time gathers slots, so that two who want several cannot starve each other.
    let _turn = Flock::lock(open(&dir.join("turn"))?, FlockArg::LockExclusive)
        .map_err(|(_, e)| e)
        .context("slots")?;
    let mut held = Vec::new();
    loop {
        for n in 0..total {
            if held.len() == wanted.min(total) {
                return Ok(Slots { _held: held });
            }
            if let Ok(slot) = Flock::lock(
                open(&dir.join(n.to_string()))?,
                FlockArg::LockExclusiveNonblock,
            ) {
                held.push(slot);
            }
        }
        if held.len() == wanted.min(total) {
            return Ok(Slots { _held: held });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_and_given_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let all = take(dir.path(), usize::MAX).expect("all slots");
        let path = dir.path().to_owned();
        let waiter = std::thread::spawn(move || take(&path, 1).map(drop));
        std::thread::sleep(Duration::from_millis(150));
        assert!(!waiter.is_finished());
        drop(all);
        waiter.join().expect("no panic").expect("one slot");
    }
}
