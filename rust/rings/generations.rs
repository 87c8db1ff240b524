// SPDX-License-Identifier: GPL-2.0

//! Generations of what is posted to receive.
//!
//! A slot that is to be posted is chained first. It gets the next generation then, which is the
//! upper half of its identifier; the lower half is the slot's index. So an old completion is told from
//! a new one, and what was posted from what only will be.

/// The identifier of the work request of slot `index` with a generation.
#[inline]
const fn id(index: u32, generation: u32) -> u64 {
    ((generation as u64) << 32) | index as u64
}

/// The slot's index in an identifier, and the generation.
#[inline]
pub const fn parts(id: u64) -> (u32, u32) {
    (id as u32, (id >> 32) as u32)
}

/// The generation of the slot that is chained next, and the first one that was not posted.
///
/// # Invariants
///
/// Slots that are chained have the generations from `first` on, up to the one before `next`. They are no more than
/// [`Self::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generations {
    next: u32,
    first: u32,
}

impl Generations {
    /// The most slots that may be chained at a time.
    pub const MOST: u32 = 1 << 16;

    /// Nothing is chained, and the next generation is the one after `last`.
    pub const fn after(last: u32) -> Self {
        let next = last.wrapping_add(1);
        Self { next, first: next }
    }

    /// The last one that was chained.
    pub const fn last(&self) -> u32 {
        self.next.wrapping_sub(1)
    }

    /// The last one that was posted.
    #[inline]
    pub const fn posted(&self) -> u32 {
        self.first.wrapping_sub(1)
    }

    /// The number of slots that are chained.
    #[inline]
    pub const fn chained(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// Chains slot `index`. Returns its identifier from now on.
    #[inline]
    pub fn next_id(&mut self, index: u32) -> u64 {
        let id = id(index, self.next);
        self.next = self.next.wrapping_add(1);
        id
    }

    /// The device has all that was chained.
    #[inline]
    pub fn all_posted(&mut self) {
        self.first = self.next;
    }

    /// The device has what was chained before the slot that has the identifier `id` now.
    pub fn posted_before(&mut self, id: u64) {
        let (_, generation) = parts(id);
        self.first = generation;
    }

    /// The slot with an identifier, which is the first that is chained, is not posted but done with.
    pub fn posted_through(&mut self, id: u64) {
        let (_, generation) = parts(id);
        self.first = generation.wrapping_add(1);
    }

    /// Returns true if the slot with an identifier is not chained, so that the device may have it.
    ///
    /// Of a slot that was posted nearly 2^32 receives ago, it may say that it is not.
    #[inline]
    pub fn is_posted(&self, id: u64) -> bool {
        let (_, generation) = parts(id);
        // Not compared with what is chained, but with the most that can be, which is no field to be read.
        generation.wrapping_sub(self.first) >= Self::MOST
    }

    /// How many receives were posted since that of the slot with an identifier.
    pub fn age(&self, id: u64) -> u32 {
        let (_, generation) = parts(id);
        self.posted().wrapping_sub(generation)
    }
}
