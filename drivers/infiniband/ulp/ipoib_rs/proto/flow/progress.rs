// SPDX-License-Identifier: GPL-2.0

//! Whether what was handed to the device gets done. All times are in milliseconds.

/// How much was done at the last look, and since when nothing more was.
///
/// It is looked at seldom, so that what was under way at the last look says nothing about what is under
/// way now: only a look that finds the same amount done and something still under way goes on with the
/// time of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    done: u32,
    under_way: bool,
    since: u64,
}

impl Progress {
    /// Nothing is under way.
    pub const fn new(now: u64) -> Progress {
        Progress {
            done: 0,
            under_way: false,
            since: now,
        }
    }

    /// Looks: `done` were done until now, modulo 2^32, and more are `under_way` or not. Says for how long
    /// nothing was done of that.
    pub fn look(&mut self, now: u64, done: u32, under_way: bool) -> u64 {
        if done != self.done || !under_way || !self.under_way {
            self.since = now;
        }
        self.done = done;
        self.under_way = under_way;
        now.saturating_sub(self.since)
    }

    /// For how long nothing was done, as of the last look, of what was under way then.
    pub fn unchanged_for(&self, now: u64) -> u64 {
        if self.under_way {
            now.saturating_sub(self.since)
        } else {
            0
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_progress))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::Progress;

    /// Always under way, and looked at only when the time is up.
    #[test]
    fn who_is_busy_is_not_stuck() {
        let mut progress = Progress::new(0);
        assert!(progress.look(10, 1, true) == 0);
        assert!(progress.look(5_010, 9, true) == 0);
        // All of it was done by chance when it was looked at.
        assert!(progress.look(10_010, 20, false) == 0);
        assert!(progress.look(90_000, 20, true) == 0);
    }

    #[test]
    fn who_does_nothing_is() {
        let mut progress = Progress::new(0);
        assert!(progress.look(100, 7, true) == 0);
        assert!(progress.look(3_000, 7, true) == 2_900 && progress.unchanged_for(3_000) == 2_900);
        assert!(progress.look(5_100, 7, true) == 5_000);
        // It goes on.
        assert!(progress.look(5_200, u32::MAX, true) == 0);
        assert!(progress.look(5_300, 0, true) == 0 && progress.look(5_400, 0, true) == 100);
    }

    #[test]
    fn there_is_nothing_to_do() {
        let mut progress = Progress::new(0);
        assert!(progress.look(60_000, 0, false) == 0);
        assert!(progress.unchanged_for(90_000) == 0);
    }
}
