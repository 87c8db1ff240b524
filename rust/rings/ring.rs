// SPDX-License-Identifier: GPL-2.0

//! A ring whose slots are emptied in the order in which they were filled.
//!
//! `head` counts the slots that were handed to the device, `tail` those that were emptied; both
//! only grow, modulo 2^32, and a slot is its count modulo the size. The producer fills slots and then
//! stores `head` with release; the consumer loads it with acquire, and so sees what is in
//! the slots that it counts. The consumer empties slots and then stores `tail` with release; the
//! producer loads it with acquire, and so does not fill a slot before it was emptied. A slot thus
//! always belongs to one half, and neither half waits for the other.
//!
//! `head` goes back only over slots that the device refused: those it cannot complete, so that the
//! consumer, which empties a slot when the device has completed it or a later one, never
//! looks at them.
//!
//! Each half has counts of its own ([`Producer`], [`Consumer`]), which are ahead of what it has told
//! the other.

use crate::line::Line;
use crate::ops::Ops;
use crate::sync::AtomicU32;
use crate::unsent::Unsent;

/// State shared by both halves, except for the slots themselves.
///
/// # Invariants
///
/// * `size` is a power of two, up to 2^31.
/// * Slot `n` for `n` from `tail` up to `head` belongs to the consumer, the others to the producer.
pub struct Ring {
    /// Written by the producer.
    head: Line<AtomicU32>,
    /// Written by the consumer.
    tail: Line<AtomicU32>,
    size: u32,
    unsent: Unsent,
}

impl Ring {
    /// An empty ring of `size` slots, the first of which has number `first`; None if the size is no power
    /// of two, or too large.
    pub fn new(size: u32, first: u32) -> Option<Self> {
        // INVARIANT: Checked; all slots are the producer's.
        size.is_power_of_two().then(|| Self {
            head: Line::new(AtomicU32::new(first)),
            tail: Line::new(AtomicU32::new(first)),
            size,
            unsent: Unsent::new(),
        })
    }

    /// How many slots there are.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The index of slot `n`: below the size.
    #[inline]
    pub fn index(&self, n: u32) -> usize {
        (n & self.size.wrapping_sub(1)) as usize
    }

    /// The count up to which slots were handed to the device.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head.load_acquire()
    }

    /// The count up to which slots were emptied.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail.load_acquire()
    }

    /// Frames that the device has refused.
    #[inline]
    pub fn unsent(&self) -> &Unsent {
        &self.unsent
    }
}

/// State of the producer.
///
/// # Invariants
///
/// Slots from `head` up to `end` are empty and the producer's, no more than the ring has.
#[derive(Clone, Copy, Debug)]
pub struct Producer {
    head: u32,
    end: u32,
}

impl Producer {
    /// For an empty ring, whose one producer this is.
    pub fn new(ring: &Ring) -> Self {
        let head = ring.head();
        Self {
            head,
            end: head.wrapping_add(ring.size()),
        }
    }

    /// The number of the slot that is filled next, if the ring is not full.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// How many slots were ever emptied, modulo 2^32, as of the last [look](Self::look).
    #[inline]
    pub fn tail(&self, ring: &Ring) -> u32 {
        self.end.wrapping_sub(ring.size())
    }

    /// How many slots are full, as of the last look.
    #[inline]
    pub fn in_flight(&self, ring: &Ring) -> u32 {
        ring.size().wrapping_sub(self.free())
    }

    /// How many are empty at least.
    #[inline]
    pub fn free(&self) -> u32 {
        self.end.wrapping_sub(self.head)
    }

    /// Looks at what was emptied.
    #[inline]
    pub fn look(&mut self, ring: &Ring) {
        self.end = ring.tail().wrapping_add(ring.size());
    }

    /// Slot [`Self::head`] was filled, which was empty.
    #[inline]
    pub fn filled(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    /// Takes back the slot that was filled last, which the device does not have; its number.
    #[inline]
    pub fn take_back(&mut self) -> u32 {
        self.head = self.head.wrapping_sub(1);
        self.head
    }

    /// Hands all slots that were filled to the consumer.
    #[inline]
    pub fn publish(&self, ring: &Ring) {
        ring.head.store_release(self.head);
    }
}

/// State of the consumer.
///
/// # Invariants
///
/// Slots from `tail` up to the ring's head are full and the consumer's.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    tail: u32,
}

impl Consumer {
    /// For an empty ring, whose one consumer this is.
    pub fn new(ring: &Ring) -> Self {
        Self { tail: ring.tail() }
    }

    /// The number of the slot that is emptied next.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// How many slots are empty.
    #[inline]
    pub fn free(&self, ring: &Ring) -> u32 {
        ring.size()
            .wrapping_sub(ring.head().wrapping_sub(self.tail))
    }

    /// The slot that a completion names by the identifier of a work request; None if it is none
    /// between ours and `head`, so that the device names what was not posted. `head` is to be loaded after
    /// the completion was taken, which the device made after the slot was published.
    #[inline]
    pub fn named(&self, id: u64, head: u32) -> Option<u32> {
        let n = id as u32;
        let in_flight = head.wrapping_sub(self.tail);
        (id == u64::from(n) && n.wrapping_sub(self.tail) < in_flight).then_some(n)
    }

    /// Slots up to `n`, which a completion has [named](Self::named), are not to be named again.
    #[inline]
    pub fn pass(&mut self, n: u32) {
        self.tail = n.wrapping_add(1);
    }

    /// Slot [`Self::tail`] was emptied, which was full.
    #[inline]
    pub fn emptied(&mut self) {
        self.tail = self.tail.wrapping_add(1);
    }

    /// Gives the slots that were emptied back to the producer.
    #[inline]
    pub fn give_back(&self, ring: &Ring) {
        ring.tail.store_release(self.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    /// Neither half writes to a line that the other writes to, or that both read for every frame.
    #[test]
    fn halves_write_to_lines_of_their_own() {
        let line = |offset: usize| offset / crate::line::LEN;
        let lines = [
            line(offset_of!(Ring, head)),
            line(offset_of!(Ring, tail)),
            line(offset_of!(Ring, size)),
            line(offset_of!(Ring, unsent)),
        ];
        assert_eq!(align_of::<Ring>(), crate::line::LEN);
        assert!(lines[0] != lines[1]);
        assert!(lines[2..].iter().all(|shared| !lines[..2].contains(shared)));
    }
}
