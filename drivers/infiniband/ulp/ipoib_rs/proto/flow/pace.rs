// SPDX-License-Identifier: GPL-2.0

//! Pace of an interface's restarts. All times are in milliseconds.
//!
//! A restart costs connections and neighbours. One that does not help is followed by others at longer and
//! longer intervals; one that was followed by a calm counts as the first again.

use crate::flow::backoff::Backoff;

/// The least time from one restart to the next: at first, and at most.
const MIN_MS: u64 = 50;
const MAX_MS: u64 = 5_000;

/// Pacer of the restarts of an interface.
#[derive(Debug, PartialEq, Eq)]
pub struct Pace {
    backoff: Backoff,
    /// Not before this.
    earliest: u64,
}

impl Pace {
    /// Paces an interface that was never restarted.
    pub const NEW: Pace = Pace {
        backoff: Backoff::new(MIN_MS, MAX_MS),
        earliest: 0,
    };

    /// Asks for a restart at `now`. Returns how long it has to wait; 0 if it is due.
    pub fn ask(&mut self, now: u64) -> u64 {
        let early = self.earliest.saturating_sub(now);
        if early > 0 {
            return early;
        }
        if now.saturating_sub(self.earliest) >= MAX_MS {
            self.backoff.reset();
        }
        self.earliest = self.backoff.fail(now);
        0
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_pace))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// How many restarts there are within `ms` from `now` on if one is always asked for.
    fn restarts(pace: &mut Pace, mut now: u64, ms: u64) -> u32 {
        let end = now + ms;
        let mut count = 0;
        while now < end {
            match pace.ask(now) {
                0 => count += 1,
                wait => now += wait,
            }
        }
        count
    }

    #[test]
    fn the_first_one_need_not_wait() {
        for now in [0, 7_000_000] {
            let mut pace = Pace::NEW;
            assert_eq!(pace.ask(now), 0);
        }
    }

    #[test]
    fn what_does_not_help_is_done_less_and_less_often() {
        let mut pace = Pace::NEW;
        // At 0, 50, 150, 350, 750, 1550, 3150 and 6350 ms.
        assert_eq!(restarts(&mut pace, 0, 6_351), 8);
        assert_eq!(restarts(&mut pace, 6_351, 50_000), 10);
    }

    #[test]
    fn after_a_calm_it_is_the_first_again() {
        let mut pace = Pace::NEW;
        restarts(&mut pace, 0, 60_000);
        assert_eq!(pace.ask(70_000), 0);
        assert_eq!(pace.ask(70_000), MIN_MS);
    }
}
