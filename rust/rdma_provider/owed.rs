// SPDX-License-Identifier: GPL-2.0

//! Events that somebody is going to be told of.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// A set of events that a ULP is going to be told of, with a bit for each.
pub(crate) struct Owed(Atomic<u32>);

impl Owed {
    /// No events.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds events. True if there were none.
    pub(crate) fn add(&self, events: u32) -> bool {
        let mut old = self.0.load(Relaxed);
        while let Err(now) = self.0.cmpxchg(old, old | events, Full) {
            old = now;
        }
        old == 0
    }

    /// Takes the events.
    pub(crate) fn take(&self) -> u32 {
        self.0.xchg(0, Full)
    }
}
