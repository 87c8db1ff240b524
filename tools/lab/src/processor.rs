// SPDX-License-Identifier: GPL-2.0

//! Processors for guests that play histories. Such a guest always has something to do, on one CPU. Its kernel and its
//! programs are processes that wait for each other at each system call, which takes half as long if none has to wake another
//! processor.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// How many guests each processor has.
static GUESTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A processor, counted as that of a guest until it is dropped.
#[derive(Debug)]
pub(crate) struct Processor(usize);

impl Processor {
    /// Takes the one with the fewest guests of those that this process may run on.
    pub(crate) fn take() -> Result<Processor> {
        let allowed = sched_getaffinity(this())?;
        let mut guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
        // Programs that run at the same time should not all begin with the first one.
        let turn = |cpu: usize| (cpu + std::process::id() as usize) % CpuSet::count();
        let fewest = all.min_by_key(|cpu| (guests.get(cpu).copied().unwrap_or(0), turn(*cpu)));
        let cpu = fewest.context("no processor")?;
        *guests.entry(cpu).or_default() += 1;
        Ok(Processor(cpu))
    }

    /// Does something on it; processes that are started meanwhile stay there.
    pub(crate) fn run<T>(&self, f: impl FnOnce() -> T) -> Result<T> {
        let before = sched_getaffinity(this())?;
        let mut own = CpuSet::new();
        own.set(self.0)?;
        sched_setaffinity(this(), &own)?;
        let result = f();
        sched_setaffinity(this(), &before)?;
        Ok(result)
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let mut guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
        guests.entry(self.0).and_modify(|guests| *guests -= 1);
    }
}

/// The calling thread.
fn this() -> Pid {
    Pid::from_raw(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_have_one_each_while_there_are_enough() {
        let allowed = sched_getaffinity(this()).expect("a set");
        let many = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
        let taken: Vec<Processor> = many.map(|_| Processor::take().expect("one")).collect();
        let mut numbers: Vec<usize> = taken.iter().map(|processor| processor.0).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), taken.len());
        let inside = taken[0].run(|| sched_getaffinity(this()).expect("a set"));
        let inside = inside.expect("it runs");
        assert!(inside.is_set(taken[0].0).expect("a number"));
        assert_eq!(
            (0..CpuSet::count())
                .filter(|cpu| inside.is_set(*cpu).unwrap_or(false))
                .count(),
            1
        );
        assert_eq!(sched_getaffinity(this()).expect("a set"), allowed);
    }
}
