// SPDX-License-Identifier: GPL-2.0

//! Exponential back-off. All times are in milliseconds.

/// A delay that doubles with each failure, between two limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    min: u64,
    max: u64,
    next: u64,
}

impl Backoff {
    /// The limits that Linux's C driver uses for multicast joins, 1 s and 16 s.
    pub const DEFAULT: Backoff = Backoff::new(1_000, 16_000);

    /// Makes a back-off that starts with `min` and ends with `max`.
    ///
    /// A `min` of 0 counts as 1, so that a retry is never immediate, and a `max` below `min` as
    /// `min`.
    #[inline]
    pub const fn new(min: u64, max: u64) -> Backoff {
        let min = if min == 0 { 1 } else { min };
        let max = if max < min { min } else { max };
        Backoff {
            min,
            max,
            next: min,
        }
    }

    /// Notes a failure at `now` and returns when to try again.
    #[inline]
    #[must_use]
    pub fn fail(&mut self, now: u64) -> u64 {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.max);
        now.saturating_add(delay)
    }

    /// Notes a success: the next failure is the first one again.
    #[inline]
    pub fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_backoff))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::Backoff;

    #[test]
    fn doubles_up_to_the_limit() {
        let mut backoff = Backoff::DEFAULT;
        for delay in [1_000, 2_000, 4_000, 8_000, 16_000, 16_000] {
            assert_eq!(backoff.fail(5), delay + 5);
        }
        backoff.reset();
        assert_eq!(backoff.fail(0), 1_000);
    }

    #[test]
    fn odd_limits() {
        let mut backoff = Backoff::new(0, 0);
        assert_eq!(backoff.fail(0), 1);
        let mut backoff = Backoff::new(3, 10);
        for delay in [3, 6, 10, 10] {
            assert_eq!(backoff.fail(0), delay);
        }
        let mut backoff = Backoff::new(u64::MAX, u64::MAX);
        assert_eq!(backoff.fail(7), u64::MAX);
        assert_eq!(backoff.fail(7), u64::MAX);
    }
}
