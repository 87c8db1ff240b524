// SPDX-License-Identifier: GPL-2.0

//! Backlog of a connection: how many frames wait for it, and when the stack's queue is stopped meanwhile.
//!
//! A connection is reliable, so that what its peer does not take has to wait. Above a high watermark the
//! stack waits with it for a while, until the backlog has fallen below a low one. All times are in milliseconds.

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

/// Longest stop of the stack's queue for one connection.
const STOP_MS: u64 = 500;

/// Stop of the stack's queue for the backlog of one connection.
///
/// A stop ends when half of what waited is gone, and after [`STOP_MS`] at the latest. The next one has to wait until half is
/// gone. So a peer that takes little holds up others for that long, and frames for it are dropped then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueStop {
    /// The queue is not stopped, and may be.
    Open,
    /// It is stopped, since then.
    Stopped(u64),
    /// A stop has lasted for too long.
    Spent,
}

impl QueueStop {
    /// Notes that a frame waits, as each that does has to be. Returns true if the queue is to be stopped.
    pub fn begin(&mut self, backlog: Backlog, now: u64) -> bool {
        if *self == Self::Spent && !backlog.reaches(&Backlog::LOW_WATERMARK) {
            *self = Self::Open;
        }
        if *self == Self::Open && backlog.is_high() {
            *self = Self::Stopped(now);
        }
        matches!(self, Self::Stopped(_))
    }

    /// Ends the stop if the backlog is below the low watermark, or the connection is not up, or in time. Returns true if it
    /// goes on.
    pub fn update(&mut self, backlog: Backlog, is_up: bool, now: u64) -> bool {
        if !is_up || !backlog.reaches(&Backlog::LOW_WATERMARK) {
            *self = Self::Open;
        } else if self.deadline().is_some_and(|deadline| now >= deadline) {
            *self = Self::Spent;
        }
        matches!(self, Self::Stopped(_))
    }

    /// Time at which the stop ends, if frames do not leave the backlog before.
    pub fn deadline(&self) -> Option<u64> {
        match self {
            Self::Stopped(since) => Some(since.saturating_add(STOP_MS)),
            _ => None,
        }
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
            let mut stop = QueueStop::Open;
            // It was not stopped for this.
            assert!(!stop.update(high, true, 10) && !stop.begin(half, 10));
            assert!(stop.begin(high, 10));
            assert!(stop.update(high, true, 10) && stop.update(half, true, 10));
            // Another frame that was on its way.
            assert!(stop.begin(half, 10));
            assert!(!stop.update(less, true, 10) && !stop.update(half, true, 10));
            // It waits for a connection, not for none.
            assert!(stop.begin(high, 20));
            assert!(!stop.update(high, false, 20) && !stop.update(high, true, 20));
        }
    }

    /// A peer takes a frame now and then, so that the backlog moves all the time.
    #[test]
    fn a_stop_is_short_and_the_next_one_has_to_wait() {
        let mut stop = QueueStop::Open;
        assert!(stop.deadline().is_none());
        for now in [1_000, 1_200, 1_499] {
            // It lasts from the first frame on.
            assert!(stop.begin(frames(384), now));
            assert!(stop.deadline() == Some(1_500) && stop.update(frames(383), true, now));
        }
        assert!(!stop.update(frames(383), true, 1_500) && stop.deadline().is_none());
        assert!(!stop.begin(frames(512), 1_600) && !stop.update(frames(192), true, 9_000));
        assert!(!stop.begin(frames(512), 9_000));
        // Nobody looks while the queue is not stopped, but for the frames that come.
        assert!(!stop.begin(frames(192), 9_000) && !stop.begin(frames(384), 9_000));
        assert!(!stop.begin(frames(191), 9_001));
        assert!(stop.begin(frames(384), 9_002) && stop.deadline() == Some(9_502));
    }
}
