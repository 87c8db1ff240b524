// SPDX-License-Identifier: GPL-2.0

//! Counts of the frames that one producer posts and one consumer is done with.

use crate::line::Line;
use crate::ops::Ops;
use crate::sync::AtomicU32;

/// Frames that were posted, and those that are done with; both modulo 2^32.
///
/// # Examples
///
/// ```
/// use ipoib_rings::counts::Counts;
///
/// let counts = Counts::new();
/// counts.add_posted();
/// counts.add_posted();
/// counts.add_done();
/// assert_eq!((counts.in_flight(), counts.done()), (1, 1));
/// ```
pub struct Counts {
    /// Written by the producer.
    posted: Line<AtomicU32>,
    /// Written by the consumer.
    done: Line<AtomicU32>,
}

impl Counts {
    /// None of either.
    pub fn new() -> Self {
        Self {
            posted: Line::new(AtomicU32::new(0)),
            done: Line::new(AtomicU32::new(0)),
        }
    }

    /// Frames that were posted and are not known to be done with. What the consumer did with those that
    /// are comes before.
    pub fn in_flight(&self) -> u32 {
        let done = self.done.load_acquire();
        self.posted.get().wrapping_sub(done)
    }

    /// The number of those, without any order.
    #[inline]
    pub fn under_way(&self) -> u32 {
        self.posted.get().wrapping_sub(self.done.get())
    }

    /// Returns true if the producer, who may have up to `most` frames under way, may take another one of the `free` slots
    /// of a ring. It may hold at most as many as are free beyond a `reserve`, which is kept for each producer's first frame.
    /// So those whose frames are not done with leave room to others.
    #[inline(always)]
    pub fn has_share(&self, most: u32, free: u32, reserve: u32) -> bool {
        let under_way = self.under_way();
        under_way < most
            && (under_way.saturating_add(reserve) < free || (under_way == 0 && free > 0))
    }

    /// How many are done with.
    #[inline]
    pub fn done(&self) -> u32 {
        self.done.get()
    }

    /// Returns true if nothing was ever posted.
    pub fn is_unused(&self) -> bool {
        self.in_flight() == 0 && self.done() == 0
    }

    /// Counts a frame that the producer is about to post.
    #[inline]
    pub fn add_posted(&self) {
        self.posted.set(self.posted.get().wrapping_add(1));
    }

    /// Takes the last one back: it was not posted.
    pub fn take_back(&self) {
        self.posted.set(self.posted.get().wrapping_sub(1));
    }

    /// A frame is done with, says the consumer.
    #[inline]
    pub fn add_done(&self) {
        self.done.store_release(self.done.get().wrapping_add(1));
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn each_side_writes_to_a_line_of_its_own() {
        let lines = [offset_of!(Counts, posted), offset_of!(Counts, done)]
            .map(|offset| offset / crate::line::LEN);
        assert!(lines[0] != lines[1]);
        assert_eq!(align_of::<Counts>(), crate::line::LEN);
    }
}
