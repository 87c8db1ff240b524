// SPDX-License-Identifier: GPL-2.0

//! End of a connection: when its queue pair can be destroyed, and its receive buffers are free.
//!
//! A queue pair in error flushes its work requests, and the device reports when it takes no more from a shared
//! receive queue. Then completions may be left in the completion queue. Destroying the queue pair earlier
//! would lose received frames: some devices remove its completions.

/// Time that a device has to flush work requests, in milliseconds, and once more for polls to take their completions.
const FLUSH_MS: u64 = 2_000;
/// The longest time between two steps, in milliseconds.
const LOOK_MS: u64 = 50;

/// A connection that was ended: its queue pair is in error.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    since: u64,
    /// Number of passes when the polls were first asked.
    passes: Option<u64>,
}

/// Next step of an [`Ending`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Taking the next step in so many milliseconds.
    Wait(u64),
    /// Asking the receive poll, for [`Ending::looked`].
    Ask,
    /// Destroying the queue pair.
    Over,
}

impl Ending {
    /// A connection that ends now.
    pub const fn new(now: u64) -> Ending {
        Ending {
            since: now,
            passes: None,
        }
    }

    /// The next step; `is_busy` says that the device has sends of it, or may take receives for it.
    pub fn step(&self, now: u64, is_busy: bool) -> Step {
        let age = now.saturating_sub(self.since);
        if is_busy && age < FLUSH_MS {
            return Step::Wait(pause(age));
        }
        Step::Ask
    }

    /// The next step after polls have taken all that was in the completion queue for the `passes`-th time, with `held`
    /// buffers of its own still posted.
    pub fn looked(&mut self, now: u64, passes: u64, held: u32) -> Step {
        let age = now.saturating_sub(self.since);
        // One may have been under way.
        let is_empty = passes.wrapping_sub(*self.passes.get_or_insert(passes)) > 1;
        if is_empty && (held == 0 || age >= FLUSH_MS) || age >= 2 * FLUSH_MS {
            return Step::Over;
        }
        if is_empty {
            // What is flushed from now on has to be found, too.
            self.passes = None;
            return Step::Wait(pause(age));
        }
        Step::Ask
    }

    /// Time until the polls are asked again, in milliseconds, if they have not taken all yet.
    pub fn pause(&self, now: u64) -> u64 {
        pause(now.saturating_sub(self.since))
    }
}

/// Passes of the receive polls through the completion queue, counted while somebody waits. A pass ends when the queue is
/// found empty, or as many completions were taken as it holds: all that it had at the begin.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    count: u64,
    /// Completions that were taken in this one.
    taken: u32,
    /// Somebody waits for the end of this one.
    asked: bool,
}

impl Passes {
    /// None yet.
    pub const NONE: Passes = Passes {
        count: 0,
        taken: 0,
        asked: false,
    };

    /// Asks for one more pass to be counted. Returns how many have ended.
    pub fn ask(&mut self) -> u64 {
        self.asked = true;
        self.count
    }

    /// Returns true if somebody waits.
    #[inline]
    pub const fn is_asked(&self) -> bool {
        self.asked
    }

    /// A poll has taken so many completions, and left the queue empty if `is_empty`. The queue is first in, first out, and
    /// holds up to `entries`.
    pub fn polled(&mut self, taken: u32, is_empty: bool, entries: u32) {
        if !self.asked {
            return;
        }
        self.taken = self.taken.saturating_add(taken);
        if is_empty || self.taken >= entries {
            self.count = self.count.wrapping_add(1);
            self.taken = 0;
            self.asked = false;
        }
    }
}

/// Time until the next step of a connection that ended `age` ago.
fn pause(age: u64) -> u64 {
    (age >> 2).clamp(1, LOOK_MS)
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_ending))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn a_busy_queue_pair_is_waited_for() {
        let ending = Ending::new(100);
        assert_eq!(ending.step(100, true), Step::Wait(1));
        assert_eq!(ending.step(140, true), Step::Wait(10));
        assert_eq!(ending.step(1_100, true), Step::Wait(LOOK_MS));
        assert_eq!(ending.step(1_100, false), Step::Ask);
    }

    #[test]
    fn a_device_that_never_answers_is_not_waited_for_for_ever() {
        let mut ending = Ending::new(0);
        assert_eq!(ending.step(FLUSH_MS - 1, true), Step::Wait(LOOK_MS));
        assert_eq!(ending.step(FLUSH_MS, true), Step::Ask);
        assert_eq!(ending.looked(FLUSH_MS, 7, 5), Step::Ask);
        assert_eq!(ending.looked(FLUSH_MS, 9, 5), Step::Over);
        // Nor are polls that never come to the end.
        let mut ending = Ending::new(0);
        assert_eq!(ending.looked(2 * FLUSH_MS - 1, 7, 0), Step::Ask);
        assert_eq!(ending.looked(2 * FLUSH_MS, 7, 0), Step::Over);
        assert_eq!((ending.pause(0), ending.pause(40)), (1, 10));
        assert_eq!(ending.pause(FLUSH_MS), LOOK_MS);
    }

    #[test]
    fn polls_that_never_find_the_end() {
        let mut passes = Passes::NONE;
        // Nobody waits.
        passes.polled(100, true, 100);
        assert!(passes.ask() == 0 && passes.is_asked());
        for _ in 0..6 {
            passes.polled(16, false, 100);
        }
        assert_eq!(passes.ask(), 0);
        passes.polled(4, false, 100);
        assert!(!passes.is_asked());
        assert_eq!(passes.ask(), 1);
        // Completions of an earlier pass do not count.
        passes.polled(99, false, 100);
        assert_eq!(passes.ask(), 1);
        passes.polled(0, true, 100);
        assert_eq!(passes.ask(), 2);
    }

    #[test]
    fn completions_are_taken_before_it_is_over() {
        let mut ending = Ending::new(0);
        assert_eq!(ending.looked(1, u64::MAX, 0), Step::Ask);
        // That poll was under way.
        assert_eq!(ending.looked(1, 0, 0), Step::Ask);
        assert_eq!(ending.looked(1, 1, 0), Step::Over);
    }

    #[test]
    fn buffers_of_its_own_come_back_before_it_is_over() {
        let mut ending = Ending::new(0);
        assert_eq!(ending.looked(1, 4, 2), Step::Ask);
        assert_eq!(ending.looked(8, 6, 2), Step::Wait(2));
        // Those that came meanwhile are looked for as before.
        assert_eq!(ending.looked(10, 7, 0), Step::Ask);
        assert_eq!(ending.looked(10, 8, 0), Step::Ask);
        assert_eq!(ending.looked(10, 9, 0), Step::Over);
    }
}
