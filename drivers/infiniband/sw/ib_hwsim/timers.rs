// SPDX-License-Identifier: GPL-2.0

//! Times at which the job of an adapter has something to do.

use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::time::Delta;
use rdma_provider::{now, Again, Qp, MILLISECOND};

use crate::places::Places;
use crate::qps::Qps;

/// Deadlines of the queue pairs of an adapter.
pub(crate) struct Deadlines {
    /// The earliest one, in ns; `u64::MAX` if there is none.
    due: Atomic<u64>,
    /// Places of the queue pairs that have a deadline.
    places: Places,
}

impl Deadlines {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            due: Atomic::new(u64::MAX),
            places: Places::new(),
        }
    }

    /// Notes the deadline of a queue pair. True if there was none that is as early.
    pub(crate) fn note(&self, qp: &Qp) -> bool {
        let Some(due) = qp.due() else {
            return false;
        };
        // Both are written even if they do not change: either `drain` takes the bit after this, and sees the queue
        // pair's deadline, or this comes after it has reset the earliest one.
        self.places.add(Qps::place_of(qp));
        let mut old = self.due.load(Relaxed);
        while let Err(now) = self.due.cmpxchg(old, old.min(due), Full) {
            old = now;
        }
        due < old
    }

    /// Returns the time in ns if a deadline has passed. Call [`Self::drain`] then.
    pub(crate) fn take_passed(&self) -> Option<u64> {
        let due = self.due.load(Relaxed);
        if due == u64::MAX {
            return None;
        }
        let now = now();
        if now < due {
            return None;
        }
        // A deadline that is noted meanwhile has set its bit before, or lowers this again.
        self.due.store(u64::MAX, Relaxed);
        Some(now)
    }

    /// Takes the places of the queue pairs that have a deadline.
    pub(crate) fn drain(&self, act: impl FnMut(usize)) {
        self.places.drain(act);
    }

    /// The next time at which a deadline passes.
    pub(crate) fn again(&self) -> Again {
        let due = self.due.load(Relaxed);
        if due == u64::MAX {
            return Again::Idle;
        }
        // Rounded up, since it would be in vain otherwise.
        let millis = due.saturating_sub(now()) / MILLISECOND + 1;
        Again::In(Delta::from_millis(
            i64::try_from(millis).unwrap_or(i64::MAX),
        ))
    }
}

/// Turns by which late completions are released.
pub(crate) struct Turns {
    /// Number of the present turn.
    turn: Atomic<u32>,
    /// The time at which it ends, in ns.
    end: Atomic<u64>,
}

impl Turns {
    pub(crate) const fn new() -> Self {
        Self {
            turn: Atomic::new(0),
            end: Atomic::new(0),
        }
    }

    /// Begins the next turn if the present one has ended. Returns the ns that are left, and the number of a turn that
    /// has begun. A turn has `length` ns, and may have had more so far. One call at a time.
    pub(crate) fn pass(&self, now: u64, length: u64) -> (u64, Option<u32>) {
        let left = self.end.load(Relaxed).saturating_sub(now);
        if left != 0 && left <= length {
            return (left, None);
        }
        self.end.store(now.saturating_add(length), Relaxed);
        let turn = self.turn.fetch_add(1, Relaxed).wrapping_add(1);
        (length, Some(turn))
    }
}
