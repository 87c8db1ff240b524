// SPDX-License-Identifier: GPL-2.0

//! Backlog of a connection: how many frames wait for it, and when the stack's queue is stopped meanwhile.
//!
//! A connection is reliable, so that what its peer does not take has to wait. Above a high watermark the
//! stack waits with it, until the backlog has fallen below a low one. All times are in milliseconds.

/// Size of a backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Frames in it.
    pub frames: usize,
    /// Bytes of them.
    pub bytes: usize,
}

impl Backlog {
    /// Limit behind which frames are dropped.
    pub const LIMIT: Backlog = Backlog {
        frames: 512,
        bytes: 4 << 20,
    };
    const HIGH_WATERMARK: Backlog = Backlog {
        frames: Self::LIMIT.frames / 4 * 3,
        bytes: Self::LIMIT.bytes / 4 * 3,
    };
    const LOW_WATERMARK: Backlog = Backlog {
        frames: Self::HIGH_WATERMARK.frames / 2,
        bytes: Self::HIGH_WATERMARK.bytes / 2,
    };

    const fn reaches(&self, mark: &Backlog) -> bool {
        self.frames >= mark.frames || self.bytes >= mark.bytes
    }

    /// Returns true if the backlog has reached the high watermark, at which the stack's queue should stop.
    #[inline]
    pub const fn is_high(&self) -> bool {
        self.reaches(&Self::HIGH_WATERMARK)
    }
}

/// Longest time for which one connection keeps the stack's queue stopped.
const STOP_MS: u64 = 5_000;

/// Stop of the stack's queue for the backlog of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStop {
    since: Option<u64>,
}

impl QueueStop {
    /// The queue was not stopped.
    pub const NONE: QueueStop = QueueStop { since: None };

    /// The queue is stopped at `now`, or was already.
    pub fn begin(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Ends the stop if the backlog is below the low watermark, or the connection is not up. Says whether it
    /// goes on.
    pub fn update(&mut self, backlog: Backlog, is_up: bool) -> bool {
        if !is_up || !backlog.reaches(&Backlog::LOW_WATERMARK) {
            self.since = None;
        }
        self.since.is_some()
    }

    /// Time at which the stop has lasted too long, though frames may leave the backlog now and then.
    pub fn deadline(&self) -> Option<u64> {
        Some(self.since?.saturating_add(STOP_MS))
    }

    /// Returns true if that time has come.
    pub fn is_overdue(&self, now: u64) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_backlog))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::{Backlog, QueueStop};

    const fn frames(frames: usize) -> Backlog {
        Backlog {
            frames,
            bytes: frames,
        }
    }

    const fn bytes(bytes: usize) -> Backlog {
        Backlog { frames: 1, bytes }
    }

    #[test]
    fn many_frames_or_many_bytes_are_high() {
        assert!(!frames(383).is_high() && frames(384).is_high());
        let many = 3 << 20;
        assert!(!bytes(many - 1).is_high() && bytes(many).is_high());
        // There is room above the high watermark for what is under way to the driver.
        assert!(Backlog::LIMIT.is_high());
    }

    #[test]
    fn the_queue_is_stopped_until_half_is_gone() {
        for (high, half, less) in [
            (frames(384), frames(192), frames(191)),
            (bytes(3 << 20), bytes(3 << 19), bytes((3 << 19) - 1)),
        ] {
            let mut stop = QueueStop::NONE;
            // It was not stopped for this.
            assert!(!stop.update(high, true));
            stop.begin(10);
            assert!(stop.update(high, true) && stop.update(half, true));
            assert!(!stop.update(less, true) && !stop.update(half, true));
            // It waits for a connection, not for none.
            stop.begin(20);
            assert!(!stop.update(high, false) && !stop.update(high, true));
        }
    }

    /// A peer takes one frame every few seconds, so that the backlog moves all the time.
    #[test]
    fn a_stop_does_not_last_for_ever() {
        let mut stop = QueueStop::NONE;
        assert!(stop.deadline().is_none() && !stop.is_overdue(u64::MAX));
        for now in [1_000, 2_000, 5_000] {
            // Once is enough.
            stop.begin(now);
            assert!(stop.update(frames(380), true) && !stop.is_overdue(now));
        }
        assert!(stop.deadline() == Some(6_000) && !stop.is_overdue(5_999));
        assert!(stop.update(frames(380), true) && stop.is_overdue(6_000));
        // If the frames are gone at last, the peer has been slow, no more.
        assert!(!stop.update(frames(100), true) && !stop.is_overdue(6_000));
    }
}
