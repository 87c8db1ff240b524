// SPDX-License-Identifier: GPL-2.0

//! The sequence number of a frame, `msg_id`: an extension that rides in the reserved half of the
//! encapsulation header, which receivers of RFC 4391, section 6, ignore.
//!
//! 0 means that the frame has no number. Numbers count 1…65535 and then 1 again, so that there are
//! 65535 of them: an odd number, hence one is never as far ahead of another as behind it.

use core::num::NonZeroU16;

/// How many numbers there are.
const SPACE: u32 = 65535;

/// The sequence number of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct MsgId(NonZeroU16);

impl MsgId {
    /// The number after the wrap.
    pub const FIRST: MsgId = MsgId(NonZeroU16::MIN);

    /// Reads the reserved field of a header; `None` if the frame has no number.
    #[inline]
    pub const fn new(reserved: u16) -> Option<MsgId> {
        match NonZeroU16::new(reserved) {
            Some(id) => Some(MsgId(id)),
            None => None,
        }
    }

    /// Returns what goes into the reserved field, in host byte order.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// Returns the number that follows.
    #[inline]
    pub const fn next(self) -> MsgId {
        match self.0.checked_add(1) {
            Some(id) => MsgId(id),
            None => Self::FIRST,
        }
    }

    /// Returns how far this is ahead of `other`: -32767 to 32767, negative if it is behind.
    #[inline]
    pub const fn distance(self, other: MsgId) -> i32 {
        let (a, b) = (self.get() as i32, other.get() as i32);
        let ahead = a.wrapping_sub(b);
        let half = (SPACE / 2) as i32;
        if ahead > half {
            ahead.wrapping_sub(SPACE as i32)
        } else if ahead < half.wrapping_neg() {
            ahead.wrapping_add(SPACE as i32)
        } else {
            ahead
        }
    }
}

/// Counter that a sender keeps for a destination: the number that the next frame gets.
#[derive(Clone, Copy, Debug)]
pub struct Sequence(MsgId);

impl Sequence {
    /// Begins anywhere, for instance at a random number: a receiver takes any number for the first.
    pub const fn new(start: u16) -> Sequence {
        match MsgId::new(start) {
            Some(id) => Sequence(id),
            None => Sequence(MsgId::FIRST),
        }
    }

    /// Takes the next number.
    #[inline]
    pub fn take(&mut self) -> MsgId {
        let id = self.0;
        self.0 = id.next();
        id
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_seq))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    fn id(raw: u16) -> MsgId {
        MsgId::new(raw).unwrap_or(MsgId::FIRST)
    }

    #[test]
    fn zero_is_no_number() {
        assert_eq!(MsgId::new(0), None);
        assert_eq!(id(65535).next(), id(1));
    }

    #[test]
    fn distance_goes_around_zero() {
        assert_eq!(id(1).distance(id(65535)), 1);
        assert_eq!(id(65535).distance(id(1)), -1);
        assert_eq!(id(7).distance(id(7)), 0);
        assert_eq!(id(32768).distance(id(1)), 32767);
        assert_eq!(id(32769).distance(id(1)), -32767);
        assert_eq!(id(1).distance(id(32768)), -32767);
        assert_eq!(id(1).distance(id(32769)), 32767);
    }

    #[test]
    fn every_step_is_one() {
        let mut sequence = Sequence::new(0);
        let mut before = sequence.take();
        assert_eq!(before.get(), 1);
        for _ in 0..70_000 {
            let id = sequence.take();
            assert_eq!(id.distance(before), 1);
            assert_eq!(before.distance(id), -1);
            before = id;
        }
    }
}
