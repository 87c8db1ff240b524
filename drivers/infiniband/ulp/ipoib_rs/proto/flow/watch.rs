// SPDX-License-Identifier: GPL-2.0

//! Whether a device sends what it was given.
//!
//! A ring is looked at in intervals of [`LOOK_MS`] as long as something is on it. Looks are counted, not
//! milliseconds: a machine that stands still for a while finds much time gone and nothing wrong.
//!
//! What a restart has not cured is restarted less and less often, since that costs connections and
//! neighbours, and the wire may be what stands still.

/// From one look to the next, in milliseconds.
pub const LOOK_MS: u32 = 1_000;
/// Looks at a frame that is not sent until the ring is restarted: at first, and at most.
const PATIENCE: u32 = 10;
const MAX_PATIENCE: u32 = 320;

/// What looks at a ring have found.
#[derive(Debug, PartialEq, Eq)]
pub struct Watch {
    /// Frames done at the last look, and whether more were under way, if it was at the same ring.
    last: Option<(u32, bool)>,
    /// Looks that found the same frame under way as the one before.
    looks: u32,
    patience: u32,
}

impl Watch {
    /// At a ring that was never restarted.
    pub const fn new() -> Watch {
        Watch {
            last: None,
            looks: 0,
            patience: PATIENCE,
        }
    }

    /// The ring begins anew.
    pub fn begin(&mut self) {
        self.last = None;
    }

    /// Looks: `done` frames were done until now, modulo 2^32, in the order in which they were posted, and more
    /// are `under_way` or not. True: the ring is to be restarted.
    pub fn look(&mut self, done: u32, under_way: bool) -> bool {
        let last = self.last.replace((done, under_way));
        if last.is_some_and(|(before, _)| before != done) {
            self.patience = PATIENCE;
        }
        if last == Some((done, true)) {
            self.looks = self.looks.saturating_add(1);
        } else {
            self.looks = 0;
        }
        if self.looks >= self.patience {
            self.looks = 0;
            self.patience = self.patience.saturating_mul(2).min(MAX_PATIENCE);
            return true;
        }
        false
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_watch))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// Looks until it is to be restarted: how many it took.
    fn looks(watch: &mut Watch, done: u32) -> u32 {
        let mut n = 1;
        while !watch.look(done, true) {
            n += 1;
        }
        n
    }

    #[test]
    fn who_sends_is_left_alone() {
        let mut watch = Watch::new();
        // There is always something under way, and one more is done.
        for done in (0..1000).map(|n| u32::MAX - 500 + n % 500) {
            assert!(!watch.look(done, true));
        }
        // All is done whenever it is looked at, and as much as before.
        for n in 0..1000 {
            assert!(!watch.look(7, n % 2 == 0));
        }
    }

    #[test]
    fn a_frame_that_is_not_sent_is_noticed() {
        let mut watch = Watch::new();
        // The first look finds it, and ten find it still there.
        assert!(looks(&mut watch, 5) == 11);
        let mut watch = Watch::new();
        for _ in 0..10 {
            assert!(!watch.look(5, true));
        }
        // At last it is sent, and the next one is not.
        assert!(!watch.look(6, true));
        assert!(looks(&mut watch, 6) == 10);
    }

    #[test]
    fn what_does_not_help_is_done_less_often() {
        let mut watch = Watch::new();
        for patience in [10, 20, 40, 80, 160, 320, 320] {
            // The new ring counts from anywhere.
            watch.begin();
            assert!(looks(&mut watch, patience) == patience + 1);
        }
        // One frame sent, and all is as at first, whether more are under way or not.
        for more in [true, false] {
            watch.begin();
            assert!(!watch.look(1, true) && !watch.look(2, more));
            watch.begin();
            assert!(looks(&mut watch, 7) == 11);
        }
        // If there is no new ring, it goes on.
        assert!(looks(&mut watch, 7) == 20 && looks(&mut watch, 7) == 40);
    }

    #[test]
    fn a_new_ring_has_the_whole_time() {
        let mut watch = Watch::new();
        for _ in 0..10 {
            assert!(!watch.look(5, true));
        }
        watch.begin();
        assert!(looks(&mut watch, 5) == 11);
        // Nor does that its count is another one say that it sends.
        watch.begin();
        assert!(looks(&mut watch, 9) == 21);
    }
}
