// SPDX-License-Identifier: GPL-2.0

//! Deadline of held frames. All times are in microseconds.

/// The least time of grace while there is more to poll.
const MIN_GRACE: u64 = 1_000;

/// The time at which held frames expire, if any are held.
///
/// While more completions are queued, the missing frame may be among them: frames are held for a time of grace then,
/// which is as long as the timeout. It has an end because under a flood there are always more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadline(Option<u64>);

impl Deadline {
    /// Nothing is held.
    pub const NONE: Deadline = Deadline(None);

    /// Returns true if frames are held.
    #[inline]
    pub const fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// A frame is held since `now`. True: it is the first one, and a timer is to be started.
    pub fn start(&mut self, now: u64, timeout: u64) -> bool {
        let first = self.0.is_none();
        if first {
            self.0 = Some(now.saturating_add(timeout));
        }
        first
    }

    /// Sets the deadline anew after frames have expired: those that are left expire in `rest`.
    pub fn again(&mut self, now: u64, rest: Option<u64>) {
        self.0 = rest.map(|rest| now.saturating_add(rest));
    }

    /// Returns true if frames are to expire now, at the end of a poll; `over`: there is no more to poll.
    pub fn is_due(&self, now: u64, timeout: u64, over: bool) -> bool {
        let grace = if over { 0 } else { timeout.max(MIN_GRACE) };
        self.0
            .is_some_and(|deadline| now >= deadline.saturating_add(grace))
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_deadline))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::Deadline;

    #[test]
    fn it_is_the_first_frame_that_counts() {
        let mut deadline = Deadline::NONE;
        assert!(!deadline.is_set() && !deadline.is_due(u64::MAX, 0, true));
        assert!(deadline.start(100, 5_000));
        assert!(!deadline.start(2_000, 5_000));
        assert!(!deadline.is_due(5_099, 5_000, true));
        assert!(deadline.is_due(5_100, 5_000, true));
    }

    /// A flood, whose polls never take all, prolongs the wait by as much again and no more.
    #[test]
    fn a_flood_has_an_end() {
        let mut deadline = Deadline::NONE;
        deadline.start(0, 5_000);
        assert!(!deadline.is_due(9_999, 5_000, false));
        assert!(deadline.is_due(10_000, 5_000, false));
        // Until the end of the poll, but no more than a millisecond of polls.
        let mut deadline = Deadline::NONE;
        deadline.start(0, 0);
        assert!(deadline.is_due(0, 0, true));
        assert!(!deadline.is_due(999, 0, false));
        assert!(deadline.is_due(1_000, 0, false));
    }

    #[test]
    fn what_is_left_is_looked_for_again() {
        let mut deadline = Deadline::NONE;
        deadline.start(0, 5_000);
        deadline.again(5_000, Some(700));
        assert!(!deadline.is_due(5_699, 5_000, true));
        assert!(deadline.is_due(5_700, 5_000, true));
        deadline.again(5_700, None);
        assert!(!deadline.is_set());
    }

    #[test]
    fn set_while_something_is_held() {
        let mut deadline = Deadline::NONE;
        assert!(!deadline.is_set() && deadline.start(5, 10) && deadline.is_set());
        deadline.again(15, None);
        assert!(!deadline.is_set());
    }
}
