// SPDX-License-Identifier: GPL-2.0

//! Sets of queue pairs, by their places in the table of an adapter.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

use crate::qps::ROOM;

/// A set of places, a bit each, which any context may change at any time.
pub(crate) struct Places([Atomic<u64>; ROOM / 64]);

impl Places {
    /// The empty set.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; ROOM / 64])
    }

    /// Adds a place.
    pub(crate) fn add(&self, place: usize) {
        let word = &self.0[place / 64];
        let mut old = word.load(Relaxed);
        while let Err(now) = word.cmpxchg(old, old | 1 << (place % 64), Full) {
            old = now;
        }
    }

    /// Takes a place out: the next one from `first` on, round the table.
    pub(crate) fn take_from(&self, first: usize) -> Option<usize> {
        let words = self.0.len();
        // The word of the first place comes last once more, for the places before that one.
        for i in 0..=words {
            let at = (first / 64 + i) % words;
            let mask = if i == 0 {
                u64::MAX << (first % 64)
            } else {
                u64::MAX
            };
            let word = &self.0[at];
            let mut old = word.load(Relaxed);
            while old & mask != 0 {
                let bit = (old & mask).trailing_zeros();
                match word.cmpxchg(old, old & !(1 << bit), Full) {
                    Ok(_) => return Some(at * 64 + bit as usize),
                    Err(now) => old = now,
                }
            }
        }
        None
    }

    /// Takes all places out, and calls a function with each.
    pub(crate) fn drain(&self, mut act: impl FnMut(usize)) {
        for (at, word) in self.0.iter().enumerate() {
            let mut bits = word.xchg(0, Full);
            while bits != 0 {
                act(at * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}
