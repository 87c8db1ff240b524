// SPDX-License-Identifier: GPL-2.0

//! Stalls: whether work that is in flight gets done.

use crate::flow::backoff::Backoff;

/// Detector of a stall: nothing was done for a while, though work was in flight.
///
/// It observes seldom, so that what was in flight at the last observation says nothing about what is in
/// flight now: only an observation that finds the same amount done, and work still in flight, goes on with
/// the time of the one before. The clock is the user's: milliseconds or observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallDetector {
    /// Amount done, and whether work was in flight, at the last observation.
    last: Option<(u32, bool)>,
    since: u64,
}

impl StallDetector {
    /// A detector that has observed nothing.
    pub const NEW: StallDetector = StallDetector {
        last: None,
        since: 0,
    };

    /// Observes that `done` is done until now, modulo 2^32, and whether more is in flight. Returns for how
    /// long nothing was done of that.
    pub fn observe(&mut self, now: u64, done: u32, in_flight: bool) -> u64 {
        if self.last != Some((done, true)) || !in_flight {
            self.since = now;
        }
        self.last = Some((done, in_flight));
        self.stalled_for(now)
    }

    /// For how long nothing was done of what was in flight at the last observation.
    pub fn stalled_for(&self, now: u64) -> u64 {
        match self.last {
            Some((_, true)) => now.saturating_sub(self.since),
            _ => 0,
        }
    }

    /// Time at which the stall will have lasted for `limit`, if nothing is done before.
    pub fn deadline(&self, limit: u64) -> Option<u64> {
        let (_, in_flight) = self.last?;
        in_flight.then(|| self.since.saturating_add(limit))
    }
}

/// From one look at a send ring to the next, in milliseconds.
pub const LOOK_MS: u32 = 1_000;
/// Looks at a stalled ring until it is restarted: at first, and at most.
const MIN_LOOKS: u64 = 10;
const MAX_LOOKS: u64 = 320;

/// Watch over a send ring, which is looked at every [`LOOK_MS`] as long as something is on it.
///
/// Its clock counts looks, not milliseconds: a machine that stands still for a while finds much time gone and
/// nothing wrong. A ring that a restart has not cured is restarted less and less often, since that costs
/// connections and neighbours, and the wire may be what stands still.
#[derive(Debug, PartialEq, Eq)]
pub struct Watch {
    stall: StallDetector,
    looks: u64,
    /// Looks at which the stalled ring is restarted.
    limit: u64,
    backoff: Backoff,
}

impl Watch {
    /// Watches a ring that was never restarted.
    pub const NEW: Watch = Watch {
        stall: StallDetector::NEW,
        looks: 0,
        limit: MIN_LOOKS,
        backoff: Backoff::new(MIN_LOOKS * 2, MAX_LOOKS),
    };

    /// The ring begins anew.
    pub fn begin(&mut self) {
        self.stall = StallDetector::NEW;
    }

    /// Checks a ring that has completed `done` frames until now (modulo 2^32, in the order in which they were
    /// posted). Returns true if the ring is to be restarted.
    pub fn look(&mut self, done: u32, in_flight: bool) -> bool {
        if self.stall.last.is_some_and(|(before, _)| before != done) {
            self.limit = MIN_LOOKS;
            self.backoff.reset();
        }
        self.looks = self.looks.wrapping_add(1);
        let is_stalled = self.stall.observe(self.looks, done, in_flight) >= self.limit;
        if is_stalled {
            self.stall.since = self.looks;
            self.limit = self.backoff.fail(0);
        }
        is_stalled
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_stall))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// Always in flight, and observed only when the time is up.
    #[test]
    fn a_busy_one_is_not_stalled() {
        let mut stall = StallDetector::NEW;
        assert!(stall.observe(10, 1, true) == 0);
        assert!(stall.observe(5_010, 9, true) == 0);
        // All of it was done by chance when it was observed.
        assert!(stall.observe(10_010, 20, false) == 0 && stall.deadline(100).is_none());
        assert!(stall.observe(90_000, 20, true) == 0 && stall.deadline(100) == Some(90_100));
    }

    #[test]
    fn one_that_does_nothing_is() {
        let mut stall = StallDetector::NEW;
        assert!(stall.observe(100, 7, true) == 0);
        assert!(stall.observe(3_000, 7, true) == 2_900 && stall.stalled_for(3_500) == 3_400);
        assert!(stall.observe(5_100, 7, true) == 5_000 && stall.deadline(5_000) == Some(5_100));
        // It goes on.
        assert!(stall.observe(5_200, u32::MAX, true) == 0);
        assert!(stall.observe(5_300, 0, true) == 0 && stall.observe(5_400, 0, true) == 100);
    }

    #[test]
    fn an_idle_one_is_not() {
        let mut stall = StallDetector::NEW;
        assert!(stall.stalled_for(60_000) == 0 && stall.deadline(0).is_none());
        assert!(stall.observe(60_000, 0, false) == 0);
        assert!(stall.stalled_for(90_000) == 0 && stall.observe(95_000, 0, false) == 0);
    }

    /// Looks until the ring is to be restarted: how many it took.
    fn looks(watch: &mut Watch, done: u32) -> u64 {
        let mut n = 1;
        while !watch.look(done, true) {
            n += 1;
        }
        n
    }

    #[test]
    fn a_ring_that_sends_is_left_alone() {
        let mut watch = Watch::NEW;
        // There is always something in flight, and one more is done.
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
        let mut watch = Watch::NEW;
        // The first look finds it, and ten find it still there.
        assert!(looks(&mut watch, 5) == 11);
        let mut watch = Watch::NEW;
        for _ in 0..10 {
            assert!(!watch.look(5, true));
        }
        // At last it is sent, and the next one is not.
        assert!(!watch.look(6, true));
        assert!(looks(&mut watch, 6) == 10);
    }

    #[test]
    fn restarts_that_do_not_help_become_rarer() {
        let mut watch = Watch::NEW;
        for limit in [10, 20, 40, 80, 160, 320, 320] {
            // The new ring counts from anywhere.
            watch.begin();
            assert!(looks(&mut watch, limit) == u64::from(limit) + 1);
        }
        // One frame sent, and all is as at first, whether more are in flight or not.
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
        let mut watch = Watch::NEW;
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
