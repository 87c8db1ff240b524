// SPDX-License-Identifier: GPL-2.0

//! End of a connection: when its queue pair can be destroyed, and its receive buffers are free.
//!
//! A queue pair in error flushes its work requests, and the device reports when it takes no more from a shared
//! receive queue. Then completions may be left in the completion queue. Destroying the queue pair earlier
//! would lose received frames: some devices remove its completions.

/// Time that a device has to flush work requests, in milliseconds, and once more to find their completions among others
/// that keep coming.
const FLUSH_MS: u64 = 2_000;
/// The longest time between two steps, in milliseconds.
const LOOK_MS: u64 = 50;

/// A connection that was ended: its queue pair is in error.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    since: u64,
    /// Times that polls had found the completion queue empty when that was asked first.
    empty: Option<u64>,
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
            empty: None,
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

    /// The next step after polls have found nothing more for the `times`-th time, with `held` buffers of
    /// its own still posted.
    pub fn looked(&mut self, now: u64, times: u64, held: u32) -> Step {
        let age = now.saturating_sub(self.since);
        // One poll may have been under way.
        let is_empty = times.wrapping_sub(*self.empty.get_or_insert(times)) > 1;
        if is_empty && (held == 0 || age >= FLUSH_MS) || age >= 2 * FLUSH_MS {
            return Step::Over;
        }
        if is_empty {
            // What is flushed from now on has to be found, too.
            self.empty = None;
            return Step::Wait(pause(age));
        }
        Step::Ask
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
        // Nor is a completion queue that never is empty.
        let mut ending = Ending::new(0);
        assert_eq!(ending.looked(2 * FLUSH_MS - 1, 7, 0), Step::Ask);
        assert_eq!(ending.looked(2 * FLUSH_MS, 7, 0), Step::Over);
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
