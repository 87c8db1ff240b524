// SPDX-License-Identifier: GPL-2.0

//! Queue of frames that wait for a path to be resolved or a group to be joined.

use crate::drop::DropReason;

/// Verdict of a state machine on a frame that was handed to it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame must be transmitted, or counted and freed"]
pub enum Verdict<T> {
    /// Transmit it now.
    Transmit(T),
    /// The frame waits. Poll the state machine: there may be something to do.
    Queued,
    /// Free it and count the reason.
    Drop(T, DropReason),
}

/// Frames that may wait for paths and groups together before each path and group is limited to [`FEW`].
pub const MANY: usize = 1_024;
/// As many frames as Linux's C driver lets wait for a path.
const FEW: usize = 3;

/// Returns true if a queue with `len` frames takes no more, while `all` frames wait for paths and groups: many peers that
/// do not answer neither take much memory nor all room from others.
pub const fn is_crowded(len: usize, all: usize) -> bool {
    len >= FEW && all >= MANY
}

/// Frames in the order of their arrival, bounded by number and by bytes.
///
/// A frame that does not fit is refused, not an older one displaced: what waits is the beginning of
/// a conversation, which is of no use to the peer with a gap in front.
pub trait Waiting {
    /// A frame.
    type Frame;

    /// How many wait.
    fn len(&self) -> usize;

    /// Returns true if none waits.
    fn is_empty(&self) -> bool;

    /// Appends a frame of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// Gives the frame back if it exceeds one of the limits.
    fn push(&mut self, frame: Self::Frame, bytes: u32) -> Result<(), Self::Frame>;

    /// Takes the oldest frame.
    fn pop(&mut self) -> Option<Self::Frame>;
}

/// [`Waiting`] frames in place.
#[derive(Debug)]
pub struct Queue<T, const Q: usize> {
    slots: [Option<(T, u32)>; Q],
    first: usize,
    len: usize,
    bytes: u32,
    max_bytes: u32,
}

impl<T, const Q: usize> Queue<T, Q> {
    /// Makes an empty queue for up to `Q` frames of up to `max_bytes` together.
    pub const fn new(max_bytes: u32) -> Self {
        Queue {
            slots: [const { None }; Q],
            first: 0,
            len: 0,
            bytes: 0,
            max_bytes,
        }
    }

    /// How many bytes the waiting frames have together.
    #[inline]
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }
}

impl<T, const Q: usize> Waiting for Queue<T, Q> {
    type Frame = T;

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, frame: T, bytes: u32) -> Result<(), T> {
        let total = match self.bytes.checked_add(bytes) {
            Some(total) if total <= self.max_bytes && self.len < Q => total,
            _ => return Err(frame),
        };
        // Both are less than Q, which is the length of an array and so no more than isize::MAX.
        let mut at = self.first.wrapping_add(self.len);
        if at >= Q {
            at = at.wrapping_sub(Q);
        }
        let Some(slot) = self.slots.get_mut(at) else {
            return Err(frame);
        };
        *slot = Some((frame, bytes));
        self.len = self.len.wrapping_add(1);
        self.bytes = total;
        Ok(())
    }

    fn pop(&mut self) -> Option<T> {
        let (frame, bytes) = self.slots.get_mut(self.first)?.take()?;
        self.first = self.first.wrapping_add(1);
        if self.first >= Q {
            self.first = 0;
        }
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(frame)
    }
}

impl<T, const Q: usize> Default for Queue<T, Q> {
    /// One that is bounded by number only.
    fn default() -> Self {
        Queue::new(u32::MAX)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_queue))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::{Queue, Waiting};

    #[test]
    fn first_in_first_out_around_the_end() {
        let mut queue = Queue::<u8, 3>::new(100);
        for round in 0..10 {
            assert_eq!(queue.push(round, 1), Ok(()));
            assert_eq!(queue.push(round + 100, 1), Ok(()));
            assert_eq!(queue.pop(), Some(round));
            assert_eq!(queue.pop(), Some(round + 100));
            assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    fn bounded_by_number() {
        let mut queue = Queue::<u8, 2>::new(100);
        assert_eq!(queue.push(1, 0), Ok(()));
        assert_eq!(queue.push(2, 0), Ok(()));
        assert_eq!(queue.push(3, 0), Err(3));
        assert_eq!(queue.len(), 2);
        let mut none = Queue::<u8, 0>::new(100);
        assert_eq!(none.push(1, 0), Err(1));
        assert_eq!(none.pop(), None);
    }

    #[test]
    fn bounded_by_bytes() {
        let mut queue = Queue::<u8, 8>::new(100);
        assert_eq!(queue.push(1, 60), Ok(()));
        assert_eq!(queue.push(2, 41), Err(2));
        assert_eq!(queue.push(3, 40), Ok(()));
        assert_eq!(queue.push(4, u32::MAX), Err(4));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.bytes(), 40);
        assert_eq!(queue.push(5, 60), Ok(()));
    }
}
