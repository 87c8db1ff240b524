// SPDX-License-Identifier: GPL-2.0

//! Generations of what is posted to receive.
//!
//! A slot that is to be posted is chained first. It gets the next generation then, which is the
//! upper half of its identifier; the lower half is the slot's index. So an old completion is told from
//! a new one, and what was posted from what only will be.

/// Last generation that was chained, and the last one that was posted.
///
/// # Invariants
///
/// Slots that are chained have the generations after `posted`, up to `chained`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generations {
    chained: u32,
    posted: u32,
}

impl Generations {
    /// Nothing is chained, and the next generation is the one after `last`.
    pub const fn after(last: u32) -> Self {
        Self {
            chained: last,
            posted: last,
        }
    }

    /// The last one.
    pub const fn last(&self) -> u32 {
        self.chained
    }

    /// The last one that was posted.
    #[inline]
    pub const fn posted(&self) -> u32 {
        self.posted
    }

    /// The number of slots that are chained.
    #[inline]
    pub const fn chained(&self) -> u32 {
        self.chained.wrapping_sub(self.posted)
    }

    /// Chains slot `index`. Returns its identifier from now on.
    #[inline]
    pub fn next_id(&mut self, index: u32) -> u64 {
        self.chained = self.chained.wrapping_add(1);
        crate::slots::id(index, self.chained)
    }

    /// The device has all that was chained.
    #[inline]
    pub fn all_posted(&mut self) {
        self.posted = self.chained;
    }

    /// The device has what was chained before the slot that has the identifier `id` now.
    pub fn posted_before(&mut self, id: u64) {
        let (_, generation) = crate::slots::parts(id);
        self.posted = generation.wrapping_sub(1);
    }

    /// The slot with an identifier, which is the first that is chained, is not posted but done with.
    pub fn posted_through(&mut self, id: u64) {
        let (_, generation) = crate::slots::parts(id);
        self.posted = generation;
    }

    /// Returns true if the slot with an identifier is not chained, so that the device may have it.
    ///
    /// Of a slot that was posted 2^32 receives ago, it may say that it is not.
    #[inline]
    pub fn is_posted(&self, id: u64) -> bool {
        let (_, generation) = crate::slots::parts(id);
        self.chained.wrapping_sub(generation) >= self.chained.wrapping_sub(self.posted)
    }

    /// How many receives were posted since that of the slot with an identifier.
    pub fn age(&self, id: u64) -> u32 {
        let (_, generation) = crate::slots::parts(id);
        self.posted.wrapping_sub(generation)
    }
}
