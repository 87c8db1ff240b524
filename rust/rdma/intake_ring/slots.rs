// SPDX-License-Identifier: GPL-2.0

//! Slots of a receive ring, and those of them that are to be posted.

use core::ptr;

use ipoib_netdev::parts::{Parts, MAX_PARTS};
use ipoib_rings::generations::Generations;
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;

/// A buffer and the work request that posts it.
pub(super) struct Slot {
    pub(super) wr: bindings::ib_recv_wr,
    pub(super) sge: [bindings::ib_sge; MAX_PARTS],
    pub(super) parts: Parts,
    /// Whose it is, where queue pairs have receive queues of their own.
    pub(super) queue: usize,
}

impl Slot {
    /// The identifier of a slot that is neither chained nor posted: no slot has such an index.
    pub(super) const IDLE: u64 = u64::MAX;

    pub(super) fn is_idle(&self) -> bool {
        self.id() == Self::IDLE
    }

    pub(super) fn set_idle(&mut self) {
        self.wr.__bindgen_anon_1.wr_id = Self::IDLE;
    }

    #[inline]
    pub(super) fn id(&self) -> u64 {
        // SAFETY: Every view of the union is plain octets.
        unsafe { self.wr.__bindgen_anon_1.wr_id }
    }
}

/// Work requests that are to be posted.
///
/// Each gets the next [generation](Generations). So an old completion is told from a new one, and what was
/// posted from what only will be.
///
/// # Invariants
///
/// * `first` to `last` are the work requests of the chained slots, linked, unless `first` is null;
///   the last one's link is null.
/// * `generations` has chained those, and posted what the device has.
pub(super) struct Chain {
    pub(super) first: *mut bindings::ib_recv_wr,
    pub(super) last: *mut bindings::ib_recv_wr,
    pub(super) generations: Generations,
}

impl Chain {
    /// Adds a slot with index `index` that is neither chained nor posted.
    #[inline]
    pub(super) fn push(&mut self, slot: &mut Slot, index: usize) {
        let wr = &mut slot.wr;
        wr.__bindgen_anon_1.wr_id = self.generations.next_id(index as u32);
        wr.next = ptr::null_mut();
        let wr: *mut _ = wr;
        if self.first.is_null() {
            self.first = wr;
        } else {
            // SAFETY: `last` is the work request of a slot by the type invariant, another than this
            // one, and nobody has a reference to it.
            unsafe { (*self.last).next = wr };
        }
        self.last = wr;
    }

    /// Takes the first slot out, and says which it is.
    pub(super) fn pop(&mut self) -> Option<usize> {
        if self.first.is_null() {
            // INVARIANT: Nothing is chained.
            self.generations.all_posted();
            return None;
        }
        // SAFETY: A work request of the chain, to which nobody has a reference; every view of the union is
        // plain octets.
        let (next, id) = unsafe { ((*self.first).next, (*self.first).__bindgen_anon_1.wr_id) };
        // INVARIANT: What is chained is now the rest, whose last is as before.
        self.generations.posted_through(id);
        self.first = next;
        Some(id as u32 as usize)
    }

    /// Whether the slot whose identifier this is is not chained, so that the device may have it.
    ///
    /// Of a slot that was posted 2^32 receives ago, it may say that it is not.
    #[inline]
    pub(super) fn is_posted(&self, id: u64) -> bool {
        self.generations.is_posted(id)
    }

    /// How many receives were posted since that of the slot whose identifier this is.
    pub(super) fn age(&self, id: u64) -> u32 {
        self.generations.age(id)
    }

    /// Records how much of the chain the device took: all of it, or all in front of `bad` if it refused some.
    #[inline]
    pub(super) fn settle(&mut self, err: c_int, bad: *const bindings::ib_recv_wr) -> Result {
        if err != 0 {
            return self.refused(err, bad);
        }
        // INVARIANT: The device has what was chained.
        self.first = ptr::null_mut();
        self.generations.all_posted();
        Ok(())
    }

    #[cold]
    fn refused(&mut self, err: c_int, bad: *const bindings::ib_recv_wr) -> Result {
        let mut wr = self.first;
        while !wr.is_null() && !ptr::eq(wr, bad) {
            // SAFETY: A work request of the chain, to which nobody has a reference.
            wr = unsafe { (*wr).next };
        }
        // INVARIANT: What is chained is now the rest, whose last is as before. If the device named
        // none of ours, it may have all of them.
        self.first = wr;
        if wr.is_null() {
            self.generations.all_posted();
        } else {
            // SAFETY: As above; every view of the union is plain octets.
            let id = unsafe { (*wr).__bindgen_anon_1.wr_id };
            self.generations.posted_before(id);
        }
        to_result(err.min(0))
    }
}
