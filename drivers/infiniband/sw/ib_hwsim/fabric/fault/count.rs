// SPDX-License-Identifier: GPL-2.0

//! Counts of calls, and of those that a rule makes fail.

use core::fmt::{self, Display, Formatter};

use crate::text;

/// The highest number of a call that a rule can name.
pub const MAX_CALL: u32 = 1_000_000_000;

/// Calls that a rule is for, counted from 1 since the rule was given. As a text: `at N` or `from N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The call of that number.
    At(u32),
    /// The call of that number, and all behind it.
    From(u32),
}

impl When {
    /// Parses the two words.
    pub(super) fn parse(word: &str, number: &str) -> Option<When> {
        let number = text::number(number, 1..=MAX_CALL)?;
        match word {
            "at" => Some(When::At(number)),
            "from" => Some(When::From(number)),
            _ => None,
        }
    }
}

impl Display for When {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            When::At(number) => write!(f, "at {number}"),
            When::From(number) => write!(f, "from {number}"),
        }
    }
}

/// Calls so far, and those that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    when: When,
    calls: u32,
    struck: u32,
}

impl Count {
    /// Begins to count.
    pub(super) const fn new(when: When) -> Count {
        Count {
            when,
            calls: 0,
            struck: 0,
        }
    }

    /// Counts a call. Returns whether it is to fail.
    pub(super) fn call(&mut self) -> bool {
        // It stays beyond all that a rule can name.
        self.calls = self.calls.saturating_add(1);
        let strikes = match self.when {
            When::At(number) => self.calls == number,
            When::From(number) => self.calls >= number,
        };
        if strikes {
            self.struck = self.struck.saturating_add(1);
        }
        strikes
    }

    /// Returns the number of calls that failed.
    pub const fn struck(&self) -> u32 {
        self.struck
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Count {
            when,
            calls,
            struck,
        } = self;
        write!(f, "{when} # calls {calls} struck {struck}")
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_fault_count))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn one_call_or_all_behind_it() {
        let cases = [
            (When::At(1), [true, false, false, false]),
            (When::At(3), [false, false, true, false]),
            (When::From(1), [true; 4]),
            (When::From(3), [false, false, true, true]),
            (When::From(9), [false; 4]),
        ];
        for (when, expected) in cases {
            let mut count = Count::new(when);
            assert_eq!(expected.map(|_| count.call()), expected);
            assert_eq!(
                count.struck() as usize,
                expected.iter().filter(|e| **e).count()
            );
        }
    }

    #[test]
    fn a_count_does_not_wrap() {
        let mut count = Count::new(When::At(MAX_CALL));
        count.calls = u32::MAX;
        assert!(!count.call());
        let mut count = Count::new(When::From(MAX_CALL));
        (count.calls, count.struck) = (u32::MAX, u32::MAX);
        assert!(count.call());
        assert_eq!(count.struck(), u32::MAX);
    }
}
