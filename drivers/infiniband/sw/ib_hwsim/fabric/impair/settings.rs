// SPDX-License-Identifier: GPL-2.0

//! The faults that a user chooses for a cable.

use core::fmt::{self, Write};

use crate::text::number;

/// Parts of which a probability counts the packets.
const MILLION: u32 = 1_000_000;

/// The longest delay, in µs.
const LONGEST: u32 = 10_000_000;

/// The fastest rate, in Mbit/s.
const FASTEST: u32 = 1_000_000;

/// The longest queue, in KiB.
const MOST: u32 = 64 << 10;

/// The faults of a cable, of both directions.
///
/// # Invariants
///
/// The number of each [`Impairment`] is in the place of that, and within its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairments([u32; Impairment::Queue as usize + 1]);

/// A fault of a cable, which has a decimal number for a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Impairment {
    /// The packets of a million that are lost.
    Loss,
    /// The packets of a million that arrive twice.
    Duplicate,
    /// The packets of a million that arrive with a wrong CRC.
    Corrupt,
    /// The time in µs that each is under way, up to 10 s.
    Delay,
    /// The time in µs up to which each is under way for longer, up to 10 s.
    Jitter,
    /// The rate in Mbit/s; 0 is none.
    Rate,
    /// The data in KiB that may wait for the rate, 1 to 65536.
    Queue,
}

impl Impairments {
    /// No fault.
    pub const NONE: Impairments = Impairments([0, 0, 0, 0, 0, 0, 1024]);

    /// Returns true if there is no fault.
    pub fn is_none(&self) -> bool {
        let [faults @ .., _queue] = &self.0;
        faults.iter().all(|fault| *fault == 0)
    }

    /// Returns the number that a fault has.
    pub fn get(&self, setting: Impairment) -> u32 {
        self.0.get(setting as usize).copied().unwrap_or(0)
    }

    /// Returns the delay of each packet, in ns.
    pub fn delay_ns(&self) -> u64 {
        u64::from(self.get(Impairment::Delay)).saturating_mul(1000)
    }

    /// Returns the time in ns that so many bytes take; `None` if no rate is kept.
    pub fn time_of(&self, bytes: u32) -> Option<u64> {
        let time = u64::from(bytes).saturating_mul(8000);
        time.checked_div(self.get(Impairment::Rate).into())
    }

    /// Returns the time in ns that a full queue takes; `None` if no rate is kept.
    pub fn longest_wait(&self) -> Option<u64> {
        self.time_of(self.get(Impairment::Queue).saturating_mul(1024))
    }

    /// Prints a fault.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn print(&self, setting: Impairment, out: &mut dyn Write) -> fmt::Result {
        write!(out, "{}", self.get(setting))
    }

    /// Parses and sets a fault; `None`, and no change, if it cannot have that value.
    pub fn set(&mut self, setting: Impairment, text: &str) -> Option<()> {
        let limits = match setting {
            Impairment::Loss | Impairment::Duplicate | Impairment::Corrupt => 0..=MILLION,
            Impairment::Delay | Impairment::Jitter => 0..=LONGEST,
            Impairment::Rate => 0..=FASTEST,
            Impairment::Queue => 1..=MOST,
        };
        *self.0.get_mut(setting as usize)? = number(text, limits)?;
        Some(())
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_impair))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        use Impairment::*;
        for (setting, least, most) in [
            (Loss, 0, 1_000_000),
            (Duplicate, 0, 1_000_000),
            (Corrupt, 0, 1_000_000),
            (Delay, 0, 10_000_000),
            (Jitter, 0, 10_000_000),
            (Rate, 0, 1_000_000),
            (Queue, 1, 65_536),
        ] {
            for number in [least, most, most + 1] {
                let mut impairments = Impairments::NONE;
                let mut text = [0; 10];
                let done = impairments.set(setting, decimal_text(number, &mut text));
                assert_eq!(done.is_some(), number <= most);
                if done.is_some() {
                    assert_eq!(impairments.get(setting), number);
                    let fair = number == 0 || setting == Queue;
                    assert_eq!(impairments.is_none(), fair);
                } else {
                    assert_eq!(impairments, Impairments::NONE);
                }
            }
            for text in ["", "-1", "+1", "1.5", "4294967296", "0x1", "1 2"] {
                let mut impairments = Impairments::NONE;
                assert_eq!(impairments.set(setting, text), None);
            }
        }
        let mut impairments = Impairments::NONE;
        assert_eq!(impairments.set(Queue, "0"), None);
    }

    fn decimal_text(mut number: u32, text: &mut [u8; 10]) -> &str {
        for place in text.iter_mut().rev() {
            *place = b'0' + (number % 10) as u8;
            number /= 10;
        }
        core::str::from_utf8(text).unwrap_or_default()
    }

    #[test]
    fn times() {
        let mut impairments = Impairments::NONE;
        assert_eq!(impairments.time_of(1000), None);
        assert!(impairments.set(Impairment::Rate, "8").is_some());
        assert_eq!(impairments.time_of(1000), Some(1_000_000));
        assert_eq!(impairments.longest_wait(), Some(1_048_576_000));
        assert!(impairments.time_of(u32::MAX).is_some());
    }
}
