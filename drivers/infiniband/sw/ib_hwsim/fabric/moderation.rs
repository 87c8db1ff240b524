// SPDX-License-Identifier: GPL-2.0

//! Moderation of the events of a completion queue (section 11.2.8.3): one event for many completions.

/// An answer to whether the user of a queue is to be told of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It is to be told now, of this one and those before it.
    Now,
    /// It is to be told at this time, in nanoseconds of the asker's clock, unless there are many more before.
    At(u64),
    /// It is not, or is going to be told with others.
    Never,
}

/// The completions of a queue whose user waits for an event, and has not been told of them yet.
///
/// # Invariants
///
/// `due` is 0 unless some are waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Completions for which there is an event at once; 0 for no number of them.
    count: u16,
    /// The longest time from a completion to its event, in microseconds; 0 for no moderation.
    period: u16,
    waiting: u32,
    due: u64,
}

impl Moderation {
    /// Sets both limits. True if completions are waiting: [`Moderation::poll`] is to be asked.
    pub fn set(&mut self, count: u16, period: u16) -> bool {
        (self.count, self.period) = (count, period);
        self.waiting > 0
    }

    /// Takes a completion that the user waits for. `now` is the time, which does not go back.
    #[inline]
    pub fn completed(&mut self, now: impl FnOnce() -> u64) -> Due {
        if self.period == 0 {
            return Due::Now;
        }
        self.waiting = self.waiting.saturating_add(1);
        if self.count != 0 && self.waiting >= u32::from(self.count) {
            self.told();
            return Due::Now;
        }
        if self.waiting > 1 {
            return Due::Never;
        }
        // INVARIANT: One is waiting.
        self.due = now().saturating_add(u64::from(self.period).saturating_mul(1000));
        Due::At(self.due)
    }

    /// Asks for those that are waiting.
    pub fn poll(&mut self, now: u64) -> Due {
        if self.waiting == 0 {
            return Due::Never;
        }
        if self.period != 0 && now < self.due {
            return Due::At(self.due);
        }
        self.told();
        Due::Now
    }

    fn told(&mut self) {
        // INVARIANT: None is waiting.
        (self.waiting, self.due) = (0, 0);
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_moderation))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn each_has_an_event_without_moderation() {
        let mut moderation = Moderation::default();
        for count in [0, 1, 9] {
            assert!(!moderation.set(count, 0));
            assert_eq!(moderation.completed(|| 7), Due::Now);
            assert_eq!(moderation.poll(u64::MAX), Due::Never);
        }
    }

    #[test]
    fn many_have_one() {
        let mut moderation = Moderation::default();
        moderation.set(3, 50);
        for start in [100, 200] {
            assert_eq!(moderation.completed(|| start), Due::At(start + 50_000));
            assert_eq!(moderation.completed(|| start + 1), Due::Never);
            assert_eq!(moderation.poll(start + 2), Due::At(start + 50_000));
            assert_eq!(moderation.completed(|| start + 3), Due::Now);
            assert_eq!(moderation.poll(u64::MAX), Due::Never);
        }
        moderation.set(1, 50);
        assert_eq!(moderation.completed(|| 300), Due::Now);
    }

    #[test]
    fn few_have_one_in_time() {
        let mut moderation = Moderation::default();
        moderation.set(0, u16::MAX);
        assert_eq!(moderation.completed(|| 1), Due::At(65_535_001));
        for _ in 0..100_000 {
            assert_eq!(moderation.completed(|| 2), Due::Never);
        }
        assert_eq!(moderation.poll(65_535_000), Due::At(65_535_001));
        assert_eq!(moderation.poll(65_535_001), Due::Now);
        assert_eq!(moderation.poll(65_535_001), Due::Never);
        assert_eq!(moderation.completed(|| u64::MAX), Due::At(u64::MAX));
    }

    #[test]
    fn those_that_wait_are_not_forgotten_as_it_ends() {
        let mut moderation = Moderation::default();
        moderation.set(9, 50);
        assert_eq!(moderation.completed(|| 100), Due::At(50_100));
        assert!(moderation.set(0, 0));
        assert_eq!(moderation.poll(101), Due::Now);
        assert!(!moderation.set(0, 0));
    }
}
