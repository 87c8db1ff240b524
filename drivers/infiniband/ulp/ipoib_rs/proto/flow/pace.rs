// SPDX-License-Identifier: GPL-2.0

//! How often an interface is restarted. All times are in milliseconds.
//!
//! A restart costs connections and neighbours. One that does not help is followed by others at longer and
//! longer intervals; one that was followed by a calm counts as the first again.

use crate::flow::backoff::Backoff;

/// From one restart to the next at least: at first, and at most.
const MIN_MS: u64 = 50;
const MAX_MS: u64 = 5_000;

/// When an interface may be restarted.
#[derive(Debug, PartialEq, Eq)]
pub struct Pace {
    backoff: Backoff,
    /// Not before this.
    earliest: u64,
}

impl Pace {
    /// Of an interface that was never restarted.
    pub const fn new() -> Pace {
        Pace {
            backoff: Backoff::new(MIN_MS, MAX_MS),
            earliest: 0,
        }
    }

    /// A restart is asked for at `now`. Returns 0 if it may be, and else for how long it has to wait.
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

impl Default for Pace {
    fn default() -> Self {
        Self::new()
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
        assert_eq!(Pace::new().ask(0), 0);
        assert_eq!(Pace::new().ask(7_000_000), 0);
    }

    #[test]
    fn what_does_not_help_is_done_less_and_less_often() {
        let mut pace = Pace::new();
        // At 0, 50, 150, 350, 750, 1550, 3150 and 6350 ms.
        assert_eq!(restarts(&mut pace, 0, 6_351), 8);
        assert_eq!(restarts(&mut pace, 6_351, 50_000), 10);
    }

    #[test]
    fn after_a_calm_it_is_the_first_again() {
        let mut pace = Pace::new();
        restarts(&mut pace, 0, 60_000);
        assert_eq!(pace.ask(70_000), 0);
        assert_eq!(pace.ask(70_000), MIN_MS);
    }
}
