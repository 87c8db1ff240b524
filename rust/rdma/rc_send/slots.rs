// SPDX-License-Identifier: GPL-2.0

//! What the two halves of a shared send ring have in common.
//!
//! Sends of different queue pairs complete in any order, so that slots are not used in turn: `free` is a
//! ring of the numbers of the slots that are free. `taken` counts the slots that were ever taken off it,
//! `given` those that were ever put back; both only grow, modulo 2^32. The numbers of the free slots
//! stand at the places from `taken` up to `given` plus the size. The sender takes and then owns them;
//! a slot that it has posted belongs to the completions half, which owns those places, and puts the
//! number back when it has emptied the slot.
//!
//! A slot says whose it is: its `state` is 0 while it is free or being filled, and the generation of the
//! work request from just before that is posted until the slot is emptied. The generation is part of the
//! work request's identifier, so that a completion of what is not posted is of no effect.

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;

use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::skb::TxSkb;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::Arc;

use crate::cq::{Claim, Cq};
use crate::rc::RcQp;
use crate::send::mapping::Mapping;

/// A queue pair that sends through a shared ring.
///
/// It counts as the ring does: `posted` is the sender's to write, `done` the completions half's.
pub struct Lane {
    qp: Apart<Arc<RcQp>>,
    posted: Atomic<u32>,
    done: Atomic<u32>,
    /// [`NEW`], [`WORKS`] or [`SLOW`].
    state: Atomic<u32>,
}

/// Nothing was ever acknowledged.
const NEW: u32 = 0;
/// What was acknowledged last was not long ago.
const WORKS: u32 = 1;
/// What is under way takes so long that it is not charged to BQL, which all lanes share.
const SLOW: u32 = 2;

impl Lane {
    /// Of a queue pair that uses no other ring.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(qp: Arc<RcQp>) -> Result<Arc<Self>> {
        let lane = Self {
            qp: Apart(ManuallyDrop::new(qp)),
            posted: Atomic::new(0),
            done: Atomic::new(0),
            state: Atomic::new(NEW),
        };
        Ok(Arc::new(lane, GFP_KERNEL)?)
    }

    /// The queue pair.
    #[inline]
    pub fn qp(&self) -> &Arc<RcQp> {
        &self.qp.0
    }

    /// Frames that were posted and are not known to be sent.
    pub fn in_flight(&self) -> u32 {
        let done = self.done.load(Acquire);
        self.posted.get().wrapping_sub(done)
    }

    /// The same for who only wants to know the number.
    #[inline]
    pub(super) fn under_way(&self) -> u32 {
        self.posted.get().wrapping_sub(self.done.get())
    }

    /// Whether nothing was ever posted.
    pub fn is_unused(&self) -> bool {
        self.in_flight() == 0 && self.completed() == 0
    }

    /// How many frames were posted and are done with, modulo 2^32.
    pub fn completed(&self) -> u32 {
        self.done.get()
    }

    /// A frame was posted.
    #[inline]
    pub(super) fn add_posted(&self) {
        self.posted.set(self.posted.get().wrapping_add(1));
    }

    /// One was not after all.
    pub(super) fn take_back(&self) {
        self.posted.set(self.posted.get().wrapping_sub(1));
    }

    /// One is done with, and what it took is free.
    #[inline]
    pub(super) fn add_done(&self) {
        self.done.store(self.done.get().wrapping_add(1), Release);
    }

    /// One was acknowledged.
    #[inline]
    pub(super) fn works(&self) {
        if self.state.get() != WORKS {
            self.state.set(WORKS);
        }
    }

    /// Whether frames are acknowledged.
    pub fn has_worked(&self) -> bool {
        self.state.get() == WORKS
    }

    /// Whether what is sent is not charged to BQL.
    #[inline]
    pub fn is_slow(&self) -> bool {
        self.state.get() == SLOW
    }

    /// It is not, until something is acknowledged.
    pub fn becomes_slow(&self) {
        self.state.set(SLOW);
    }
}

/// What is dropped by a function of its own, so that to drop a reference that is not the last one is short.
struct Apart<T>(ManuallyDrop<T>);

impl<T> Drop for Apart<T> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: Dropped once, here, and not used again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// What a full slot holds.
pub(super) struct Frame {
    pub(super) skb: TxSkb,
    pub(super) lane: Arc<Lane>,
    /// The identifier of the work request in front of this one that asks for no completion, if that is
    /// so: a completion of this one is one of that as well. 0 if there is none.
    pub(super) before: u64,
    /// BQL was told of it, and is to be told when it is done with.
    pub(super) charged: bool,
}

/// # Invariants
///
/// `frame` is the sender's while `state` is 0 and the slot is not free; the completions half's while
/// `state` is not 0. A free slot has none.
pub(super) struct Slot {
    state: Atomic<u32>,
    frame: UnsafeCell<Option<Frame>>,
}

/// # Invariants
///
/// * `slots` and `free` have the same number of elements, a power of two, and `mapping` a place for
///   each.
/// * `taken`, `given` and `free` are as the module's documentation says.
pub(super) struct Slots {
    slots: KVec<Slot>,
    free: KVec<Atomic<u32>>,
    taken: Atomic<u32>,
    given: Atomic<u32>,
    unsent_frames: Atomic<u32>,
    unsent_bytes: Atomic<usize>,
    pub(super) mapping: Mapping,
    /// The generation with which the next ring on the completion queue begins.
    next_generation: Atomic<u32>,
    claim: Claim,
    cq: Arc<Cq>,
}

// SAFETY: All that it holds may be handled by any thread.
unsafe impl Send for Slots {}
// SAFETY: Each slot belongs to one half at a time, as the module's documentation says.
unsafe impl Sync for Slots {}

/// The identifier of the work request of slot `index` with a generation.
#[inline]
pub(super) fn id(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

impl Slots {
    pub(super) fn new(cq: &Arc<Cq>, size: u32, max_sge: u32) -> Result<Self> {
        let mapping = Mapping::new(cq.device(), size, max_sge)?;
        let mut slots = KVec::with_capacity(size as usize, GFP_KERNEL)?;
        let mut free = KVec::with_capacity(size as usize, GFP_KERNEL)?;
        for index in 0..size {
            let slot = Slot {
                state: Atomic::new(0),
                frame: UnsafeCell::new(None),
            };
            slots.push(slot, GFP_KERNEL)?;
            free.push(Atomic::new(index), GFP_KERNEL)?;
        }
        let claim = cq.claim()?;
        // INVARIANT: All slots are free; the caller checked that `size` is a power of two.
        Ok(Self {
            slots,
            free,
            taken: Atomic::new(0),
            given: Atomic::new(0),
            unsent_frames: Atomic::new(0),
            unsent_bytes: Atomic::new(0),
            mapping,
            next_generation: Atomic::new(claim.next),
            claim,
            cq: cq.clone(),
        })
    }

    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.slots.len() as u32
    }

    #[inline]
    pub(super) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// The generation that the first work request of this ring has: it goes on where the ring before it
    /// on the completion queue ended.
    pub(super) fn first_generation(&self) -> u32 {
        self.next_generation.get()
    }

    /// The place in `free` with number `n`.
    #[inline]
    fn place(&self, n: u32) -> &Atomic<u32> {
        // SAFETY: The index is below the length, which is a power of two.
        unsafe {
            self.free
                .get_unchecked(n as usize & self.free.len().wrapping_sub(1))
        }
    }

    /// How many slots are free.
    #[inline]
    pub(super) fn free(&self) -> u32 {
        let in_use = self.taken.get().wrapping_sub(self.given.get());
        self.size().wrapping_sub(in_use)
    }

    /// The number of the slot that would be taken next, as the sender, if one is free.
    #[inline]
    pub(super) fn peek(&self) -> Option<u32> {
        let taken = self.taken.get();
        if taken.wrapping_sub(self.given.load(Acquire)) == self.size() {
            return None;
        }
        Some(self.place(taken).get())
    }

    /// Takes the slot that [`Self::peek`] named and fills it: from now on the device may have it.
    ///
    /// # Safety
    ///
    /// The caller must be the sender, and have peeked; `generation` is not 0.
    #[inline]
    pub(super) unsafe fn fill(&self, index: u32, generation: u32, frame: Frame) {
        // SAFETY: What `free` holds is below the number of slots.
        let slot = unsafe { self.slots.get_unchecked(index as usize) };
        // SAFETY: A free slot has no frame, and is the sender's now.
        unsafe { core::ptr::write(slot.frame.get(), Some(frame)) };
        // INVARIANT: The completions half, which sees the state, sees the frame as well.
        slot.state.store(generation, Release);
        let taken = self.taken.get();
        self.taken.set(taken.wrapping_add(1));
    }

    /// Takes back the last slot that was filled, which the device does not have, and its frame.
    ///
    /// # Safety
    ///
    /// The caller must be the sender; the device must have refused the slot's work request, and those of
    /// all slots that were filled after it must have been taken back before.
    pub(super) unsafe fn take_back(&self) -> Option<(u32, Frame)> {
        let last = self.taken.get().wrapping_sub(1);
        // The place was not used since: it is used for a slot that is emptied once all taken before it
        // have been emptied, and this one has not been.
        let index = self.place(last).get();
        // SAFETY: As in `fill`.
        let slot = unsafe { self.slots.get_unchecked(index as usize) };
        // INVARIANT: No completion names it, so that it is the sender's again, and free.
        slot.state.set(0);
        // SAFETY: As above.
        let frame = unsafe { (*slot.frame.get()).take() };
        self.taken.set(last);
        frame.map(|frame| (index, frame))
    }

    /// Empties the slot of a work request that has completed, as the completions half. None: it is not
    /// posted.
    ///
    /// # Safety
    ///
    /// The caller must be the completions half, and the device be done with it.
    #[inline(always)]
    pub(super) unsafe fn empty(&self, id: u64) -> Option<Frame> {
        let (index, generation) = (id as u32, (id >> 32) as u32);
        let slot = self.slots.get(index as usize)?;
        if generation == 0 || slot.state.load(Acquire) != generation {
            return None;
        }
        // SAFETY: Its state says that it belongs to the completions half.
        let frame = unsafe { (*slot.frame.get()).take() }?;
        // SAFETY: It was in this slot, which is ours.
        unsafe { self.mapping.unmap(index as usize, &frame.skb) };
        slot.state.set(0);
        let given = self.given.get();
        self.place(given).set(index);
        // The sender sees the place, and the empty slot, when it sees the count.
        self.given.store(given.wrapping_add(1), Release);
        Some(frame)
    }

    /// Whether all slots are free, once nobody posts any more.
    pub(super) fn is_idle(&self) -> bool {
        self.taken.get() == self.given.load(Acquire)
    }

    /// Walks over the slots that are in use: their identifiers, and their lanes.
    ///
    /// # Safety
    ///
    /// Both halves must belong to the caller.
    pub(super) unsafe fn in_use(&self) -> impl Iterator<Item = (u64, Arc<Lane>)> + '_ {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            // SAFETY: By this function's requirements.
            let frame = unsafe { (*slot.frame.get()).as_ref() };
            let lane = frame?.lane.clone();
            Some((id(index as u32, slot.state.get()), lane))
        })
    }

    /// Says how many octets of slow lanes are charged to BQL, and that they are so no more.
    ///
    /// # Safety
    ///
    /// The caller must be the completions half, and the sender be at rest.
    pub(super) unsafe fn discharge(&self) -> usize {
        let mut bytes = 0;
        for slot in &self.slots {
            if slot.state.load(Acquire) == 0 {
                continue;
            }
            // SAFETY: Its state says that it belongs to the completions half, from which nobody takes it back
            // now.
            let frame = unsafe { (*slot.frame.get()).as_mut() };
            if let Some(frame) = frame.filter(|frame| frame.charged && frame.lane.is_slow()) {
                frame.charged = false;
                bytes += frame.skb.len();
            }
        }
        bytes
    }

    /// Notes, as the sender, that a frame left the ring which the device refused.
    pub(super) fn released_unsent(&self, bytes: usize) {
        self.unsent_bytes.fetch_add(bytes, Relaxed);
        self.unsent_frames.fetch_add(1, Release);
    }

    /// Whether there are such since the last time.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_frames.get() != 0
    }

    /// Frames and octets of those since the last time, as the completions half.
    #[inline]
    pub(super) fn take_unsent(&self) -> (u32, usize) {
        if !self.has_unsent() {
            return (0, 0);
        }
        let frames = self.unsent_frames.xchg(0, Acquire);
        (frames, self.unsent_bytes.xchg(0, Relaxed))
    }

    /// Says, as the sender, which generation comes next.
    pub(super) fn set_next_generation(&self, generation: u32) {
        self.next_generation.set(generation);
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        loop {
            // SAFETY: Both halves are gone.
            let Some((id, lane)) = (unsafe { self.in_use() }).next() else {
                break;
            };
            let ended = lane.qp().to_reset().or_else(|_| {
                // SAFETY: Both halves are gone, and there is no other ring for its completion queue until
                // the claim is, which will not take a lane of a queue pair that is destroyed.
                unsafe { lane.qp().destroy() }
            });
            if ended.is_ok() {
                // SAFETY: Both halves are gone; a queue pair that was reset or destroyed has nothing.
                drop(unsafe { self.empty(id) });
            } else if let Some(slot) = self.slots.get_mut(id as u32 as usize) {
                // The device may read the frame for ever.
                if let Some(frame) = slot.frame.get_mut().take() {
                    frame.skb.abandon();
                }
            }
        }
        self.claim.next = self.next_generation.get();
    }
}
