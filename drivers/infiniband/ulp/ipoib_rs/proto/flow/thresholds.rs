// SPDX-License-Identifier: GPL-2.0

//! Thresholds at which a send ring stops the stack's queue.

/// When to stop the stack's queue and when to wake it: two thresholds, so that a full ring does
/// not stop and wake for each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    stop: u32,
    wake: u32,
}

impl Thresholds {
    /// Makes the thresholds for a ring of `size` slots, of which one frame takes up to
    /// `per_frame`; `None` if the ring is too small for two frames.
    ///
    /// The queue wakes at a quarter of the ring, or at two frames if that is more.
    pub const fn new(size: u32, per_frame: u32) -> Option<Thresholds> {
        if per_frame == 0 {
            return None;
        }
        let two = match per_frame.checked_mul(2) {
            Some(two) if two <= size => two,
            _ => return None,
        };
        let quarter = size / 4;
        Some(Thresholds {
            stop: per_frame,
            wake: if quarter > two { quarter } else { two },
        })
    }

    /// Returns true if the queue has to be stopped: the next frame might not fit.
    #[inline]
    pub const fn must_stop(&self, free: u32) -> bool {
        free < self.stop
    }

    /// Returns true if a stopped queue may be woken.
    #[inline]
    pub const fn may_wake(&self, free: u32) -> bool {
        free >= self.wake
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_thresholds))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn stop_and_wake_have_distance() -> Result<(), ()> {
        let t = Thresholds::new(128, 1).ok_or(())?;
        assert!(t.must_stop(0));
        assert!(!t.must_stop(1));
        assert!(!t.may_wake(31));
        assert!(t.may_wake(32));
        assert_eq!(Thresholds::new(4, 4), None);
        assert_eq!(Thresholds::new(4, 0), None);
        assert!(Thresholds::new(2, 1).is_some_and(|t| t.may_wake(2) && !t.may_wake(1)));
        Ok(())
    }
}
