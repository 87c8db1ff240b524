// SPDX-License-Identifier: GPL-2.0

//! Counters of a cable through a network device.

use core::fmt::Write;

use ib_fabric::wire::Malformed;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};

/// Things that are counted.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    /// Packets that the device has taken.
    Sent,
    /// Packets that have come.
    Received,
    /// Packets that were not sent: the link was down, there was no room, or the device did not take them.
    Dropped,
    /// Packets that are not of the other end, or of an earlier time that the link was up.
    Stranger,
    /// Hellos of somebody else than the other end.
    Third,
    /// Frames that are none.
    Bad,
}

/// Names, in the order above.
const NAMES: [&str; 6] = [
    "sent",
    "received",
    "dropped",
    "stranger",
    "third_party",
    "bad_frame",
];

/// The counters.
pub(super) struct Counters {
    counted: [Atomic<u64>; NAMES.len()],
    malformed: [Atomic<u64>; Malformed::ALL.len()],
}

impl Counters {
    /// All of them zero.
    pub(super) const fn new() -> Self {
        Self {
            counted: [const { Atomic::new(0) }; NAMES.len()],
            malformed: [const { Atomic::new(0) }; Malformed::ALL.len()],
        }
    }

    /// Counts some.
    pub(super) fn add(&self, what: Counted, n: u64) {
        if let Some(counter) = self.counted.get(what as usize) {
            counter.fetch_add(n, Relaxed);
        }
    }

    /// Counts a packet that is none.
    pub(super) fn malformed(&self, reason: Malformed) {
        if let Some(counter) = self.malformed.get(reason as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Prints them, each in a line that begins with the name.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result {
        for (name, counter) in NAMES.iter().zip(&self.counted) {
            write!(out, "\n{name} {}", counter.load(Relaxed))?;
        }
        for (reason, counter) in Malformed::ALL.iter().zip(&self.malformed) {
            write!(out, "\nmalformed_{reason} {}", counter.load(Relaxed))?;
        }
        Ok(())
    }
}
