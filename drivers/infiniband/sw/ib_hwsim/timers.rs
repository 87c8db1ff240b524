// SPDX-License-Identifier: GPL-2.0

//! The time of a node, and the times at which its job has something to do.

use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::time::{Delta, Instant, Monotonic};
use rdma_provider::{now, Again, Qp, MILLISECOND};

use crate::places::Places;
use crate::qps::Qps;

/// Runs a job again in so many ms.
pub(crate) fn again_in(millis: u64) -> Again {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Again::In(Delta::from_millis(millis))
}

/// Runs a job again in so many ns, rounded up to ms, since it would be in vain otherwise.
pub(crate) fn again_after(nanos: u64) -> Again {
    again_in(nanos / MILLISECOND + 1)
}

/// Time since a node was made.
pub(crate) struct Clock {
    made: Instant<Monotonic>,
    /// Seconds that leases of management keys have been told of.
    told: Atomic<u64>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            made: Instant::now(),
            told: Atomic::new(0),
        }
    }

    /// Milliseconds since the node was made.
    pub(crate) fn millis(&self) -> u64 {
        self.made.elapsed().as_millis().unsigned_abs()
    }

    /// Seconds since the last call. One call at a time.
    pub(crate) fn seconds_since(&self) -> u16 {
        let now = self.millis() / 1000;
        let passed = now - self.told.load(Relaxed);
        self.told.store(now, Relaxed);
        u16::try_from(passed).unwrap_or(u16::MAX)
    }
}

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
        again_after(due.saturating_sub(now()))
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
