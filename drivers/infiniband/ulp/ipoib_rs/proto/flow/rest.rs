// SPDX-License-Identifier: GPL-2.0

//! Rests of a poll that frees what was sent. All times are in milliseconds but for [`REST_US`].
//!
//! A frame that is sent alone completes alone, and a poll for each costs more than to free it. Where polls come fast, one
//! rests for a moment and frees several frames at once: what a device does that moderates its completions.

/// The time of a rest, in microseconds.
pub const REST_US: u32 = 100;

/// Polls in a millisecond from which on they rest: three for each rest, whose timer costs as much as two.
const BUSY: u64 = 32;
/// A rest that brings fewer frames is not worth its timer.
const WORTH: u32 = 3;

/// Decides whether a poll rests before the next one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    /// Time since which polls are counted.
    since: u64,
    polls: u64,
    rests: bool,
}

impl Rest {
    /// Takes note of a poll at `now` that has freed so many frames. Returns true if it is to rest, and to request no event.
    #[inline]
    pub fn after(&mut self, frames: u32, now: u64) -> bool {
        if self.rests {
            self.rests = frames >= WORTH;
            return self.rests;
        }
        self.polls = self.polls.wrapping_add(1);
        // Zero for most polls of a busy ring, and for all in a tick.
        let time = now.wrapping_sub(self.since);
        if time > 0 {
            self.rests = self.polls >= time.saturating_mul(BUSY);
            (self.since, self.polls) = (now, 0);
        }
        self.rests
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_rest))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// Polls at a steady rate for some milliseconds of ticks that are `tick` long; whether the last one rests.
    fn polls(rest: &mut Rest, per_ms: u64, tick: u64, frames: u32) -> bool {
        let mut rests = false;
        for poll in 0..100 * per_ms {
            let now = 1_000 + poll / per_ms / tick * tick;
            rests = rest.after(frames, now);
        }
        rests
    }

    #[test]
    fn polls_that_come_fast_rest() {
        for tick in [1, 4, 10] {
            assert!(polls(&mut Rest::default(), BUSY + 1, tick, WORTH));
            assert!(!polls(&mut Rest::default(), BUSY - 2, tick, WORTH));
        }
    }

    #[test]
    fn a_rest_that_brings_little_is_the_last() {
        let mut rest = Rest::default();
        assert!(polls(&mut rest, 2 * BUSY, 1, WORTH));
        assert!(rest.after(WORTH, 2_000) && !rest.after(WORTH - 1, 2_000));
        // A pause, and no rest behind it.
        assert!(!rest.after(1, 5_000));
        // Nor is there one where each brings one frame.
        assert!(!rest.after(0, 5_001));
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let mut rest = Rest::default();
        assert!(!rest.after(1, u64::MAX) && !rest.after(1, 0) && !rest.after(1, 5));
    }
}
