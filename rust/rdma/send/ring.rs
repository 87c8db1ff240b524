// SPDX-License-Identifier: GPL-2.0

//! A send ring of a queue pair: [slots in order](ipoib_rings::ring), with the frames that the device has.
//!
//! One half fills slots and posts them, the other one empties them as they complete. What differs from one kind of queue
//! pair to another is said by [`SendQp`].

use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, MaybeUninit};

use ipoib_netdev::napi::Context;
use ipoib_netdev::skb::{DropReason, TxSkb};
use ipoib_rings::ring::{self, Consumer, Producer};
use ipoib_rings::unsent::Tally;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::cq::Cq;
use crate::device::Device;
use crate::left::Left;
use crate::send::mapping::Mapping;
use crate::send_chain::{Posted, SendChain, SendWr};

pub(crate) type PostFn = unsafe extern "C" fn(
    *mut bindings::ib_qp,
    *const bindings::ib_send_wr,
    *mut *const bindings::ib_send_wr,
) -> c_int;

/// The number of the first slot. Numbers wrap around soon, in every run.
pub(crate) const FIRST: u32 = u32::MAX - 9;

/// A queue pair that a ring sends by.
pub(crate) trait SendQp: Send + Sync {
    /// An object that requests refer to. A slot whose request refers to another one than those in front of it owns theirs.
    type Kept: Default + Send + 'static;
    /// An object that is held for as long as the device may access the ring's memory.
    type Held: Send + 'static;

    /// The queue pair of the RDMA core's.
    fn raw(&self) -> *mut bindings::ib_qp;

    /// Has the device forget what was posted, for a ring that is dropped with frames.
    ///
    /// # Errors
    ///
    /// The device may still access the frames.
    fn forget_sends(&self) -> Result;

    /// Keeps a ring's memory, which the device may access, until the queue pair is destroyed.
    fn keep(&self, left: KBox<dyn Left>);
}

/// A frame that the device has.
#[derive(Default)]
pub(crate) struct Slot<K> {
    /// The frame; none in an empty slot.
    pub(crate) skb: Option<TxSkb>,
    /// The object that the requests in front of this one refer to, if this one refers to another.
    pub(crate) retired: K,
}

/// Memory that the device may reach, and all that belongs to it.
///
/// # Invariants
///
/// `slots` and `mapping` have a place for each slot of the ring, whose memory this is. When it is dropped,
/// the device has none of the frames.
struct Memory<Q: SendQp> {
    slots: KVVec<UnsafeCell<Slot<Q::Kept>>>,
    mapping: Mapping,
    /// The object that the last request refers to, once both halves are gone.
    last: Q::Kept,
    _held: Q::Held,
}

// SAFETY: All that it holds may be handled by any thread.
unsafe impl<Q: SendQp> Send for Memory<Q> {}

impl<Q: SendQp> Memory<Q> {
    /// Undoes the mapping of all frames and drops them with `drop_skb`.
    ///
    /// # Safety
    ///
    /// All slots must belong to the caller, and the device must have none of the frames.
    unsafe fn clear(&self, mut drop_skb: impl FnMut(TxSkb)) {
        for (index, slot) in self.slots.iter().enumerate() {
            // SAFETY: All slots belong to the caller.
            let slot = unsafe { &mut *slot.get() };
            if let Some(skb) = slot.skb.take() {
                // SAFETY: As above; it was in this slot.
                unsafe { self.mapping.unmap(index, &skb) };
                drop_skb(skb);
            }
            slot.retired = Q::Kept::default();
        }
    }
}

impl<Q: SendQp> Left for Memory<Q> {
    fn abandon(&mut self) {
        let slots = self.slots.iter_mut();
        for skb in slots.filter_map(|slot| slot.get_mut().skb.take()) {
            skb.abandon();
        }
    }
}

impl<Q: SendQp> Drop for Memory<Q> {
    fn drop(&mut self) {
        // SAFETY: The slots are ours, and the device has nothing by the type invariant.
        unsafe { self.clear(drop) };
    }
}

/// The ring.
///
/// # Invariants
///
/// * `memory` has a place for each slot of `shared`, whose producer is one half, and whose consumer the other one.
/// * `raw_qp` is `qp`.
/// * No other ring of the completion queue has `tag`, the upper half of the identifiers of requests.
pub(crate) struct Ring<Q: SendQp + 'static> {
    memory: ManuallyDrop<Memory<Q>>,
    /// Positions and counts that the halves share.
    pub(crate) shared: ring::Ring,
    tag: u64,
    raw_qp: *mut bindings::ib_qp,
    /// The object that the last request refers to, from when the half that posts has gone.
    last: UnsafeCell<Q::Kept>,
    /// Place for `memory` if the device may still reach it when the ring is dropped.
    place: ManuallyDrop<KBox<MaybeUninit<Memory<Q>>>>,
    qp: Arc<Q>,
}

// SAFETY: All that it holds may be handled by any thread.
unsafe impl<Q: SendQp> Send for Ring<Q> {}
// SAFETY: Each slot belongs to one half at a time, as `shared` says.
unsafe impl<Q: SendQp> Sync for Ring<Q> {}

impl<Q: SendQp> Ring<Q> {
    /// Makes a ring of `size` slots for requests of up to `max_sge` elements each, which complete on `cq`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the size is no power of two; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn new(
        qp: &Arc<Q>,
        device: &Device,
        cq: &Cq,
        held: Q::Held,
        (size, max_sge): (u32, u32),
    ) -> Result<Self> {
        let mapping = Mapping::new(device, size, max_sge)?;
        let mut slots = KVVec::with_capacity(size as usize, GFP_KERNEL)?;
        for _ in 0..size {
            slots.push(UnsafeCell::new(Slot::default()), GFP_KERNEL)?;
        }
        let shared = ring::Ring::new(size, FIRST).ok_or(EINVAL)?;
        let place = KBox::new_uninit(GFP_KERNEL)?;
        // INVARIANT: So many places were made of each.
        Ok(Self {
            shared,
            tag: cq.next_tag(),
            last: UnsafeCell::new(Q::Kept::default()),
            place: ManuallyDrop::new(place),
            raw_qp: qp.raw(),
            qp: qp.clone(),
            memory: ManuallyDrop::new(Memory {
                slots,
                mapping,
                last: Q::Kept::default(),
                _held: held,
            }),
        })
    }

    #[inline]
    pub(crate) fn qp(&self) -> &Arc<Q> {
        &self.qp
    }

    /// The upper half of the identifiers of requests; the lower half is 0.
    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// The slot that a completion names by the identifier of its request, as [`Consumer::named`] says.
    #[inline(always)]
    pub(crate) fn named(&self, at: &Consumer, id: u64, head: u32) -> Option<u32> {
        at.named(id ^ self.tag, head)
    }

    /// Slot `n`, which the caller may use if it belongs to its half.
    #[inline]
    pub(crate) fn slot(&self, n: u32) -> *mut Slot<Q::Kept> {
        // SAFETY: The index is below the size, and there are so many by the type invariant.
        unsafe { self.memory.slots.get_unchecked(self.shared.index(n)) }.get()
    }

    /// Keeps the object that requests may still refer to when the half that posts goes.
    ///
    /// # Safety
    ///
    /// The caller must be that half, on its way out.
    pub(crate) unsafe fn bequeath(&self, last: Q::Kept) {
        // SAFETY: Only that half writes it, once; only `drop` reads it.
        unsafe { *self.last.get() = last };
    }

    /// Puts a frame into the next slot, and a request to send it, which `fill` completes, into the chain.
    ///
    /// # Errors
    ///
    /// Those of [`Mapping::map`], with the frame.
    ///
    /// # Safety
    ///
    /// The caller must be the half that posts, `at` its position, and `chain` have the requests of the last slots that it
    /// filled, each with as many elements as the ring's at least. Neither the ring nor the chain may be full.
    #[inline(always)]
    pub(crate) unsafe fn append<W: SendWr>(
        &self,
        at: &mut Producer,
        chain: &mut SendChain<W>,
        mut skb: TxSkb,
        fill: impl FnOnce(&mut W, &TxSkb),
    ) -> Result<(), (TxSkb, Error)> {
        let head = at.head();
        let index = || self.shared.index(head);
        // SAFETY: The chain is not full by this function's requirements.
        let sges = unsafe { chain.elements() };
        // SAFETY: A request has enough elements, and nobody else has a reference to them. Slot `head` is ours, since the
        // ring is not full by this function's requirements.
        let num_sge = match unsafe { self.memory.mapping.map(&mut skb, sges, index) } {
            Ok(num_sge) => num_sge,
            Err(error) => return Err((skb, error)),
        };
        let id = u64::from(head) | self.tag;
        // SAFETY: As above; that many elements were filled.
        let wr = unsafe { chain.push(id, num_sge) };
        fill(wr, &skb);
        skb.timestamp();
        let slot = self.slot(head);
        // SAFETY: Slot `head` is empty and ours, since the ring is not full. So there is nothing in it to be dropped.
        unsafe { core::ptr::write(&raw mut (*slot).skb, Some(skb)) };
        // INVARIANT: The slot is filled.
        at.filled();
        Ok(())
    }

    /// Posts the chain.
    ///
    /// # Safety
    ///
    /// The chain must not be empty, and all its requests be complete and for the last slots that were filled. `at` is the
    /// position of the half that posts, who calls; `post_send` is the operation of the queue pair's device.
    #[inline(always)]
    pub(crate) unsafe fn ring_doorbell<W: SendWr>(
        &self,
        at: &Producer,
        chain: &mut SendChain<W>,
        post_send: PostFn,
    ) -> Posted {
        // A completion may come before the call returns, and must find the slots.
        at.publish(&self.shared);
        let qp = self.raw_qp;
        // SAFETY: The queue pair is valid. The memory that the chain refers to is owned by the slots until the other half
        // learns that the device is done or the queue pair is reset.
        let post = |first, bad| unsafe { post_send(qp, first, bad) };
        // SAFETY: The chain is not empty.
        unsafe { chain.post(post) }
    }

    /// Takes back the last frame, which the device does not have, and drops it. `see` looks at what was in the slot.
    ///
    /// # Safety
    ///
    /// The caller must be the half that posts, `at` its position, and the slot full; the device must have refused its
    /// request, or not have been given it.
    #[cold]
    pub(crate) unsafe fn take_back(&self, at: &mut Producer, see: impl FnOnce(&TxSkb, Q::Kept)) {
        // INVARIANT: The slot is emptied, below.
        let n = at.take_back();
        // SAFETY: The device does not have this slot's request, so that no completion names it or a later one, and the
        // completions half does not touch it.
        let slot = unsafe { &mut *self.slot(n) };
        let retired = core::mem::take(&mut slot.retired);
        if let Some(skb) = slot.skb.take() {
            see(&skb, retired);
            // SAFETY: Mapped for this slot, and the device does not have it.
            unsafe { self.memory.mapping.unmap(self.shared.index(n), &skb) };
            skb.drop_reason(DropReason::DevReady);
        }
    }

    /// Frees the frames of the slots up to `end`, which were sent, in `poll` if one runs. Returns how many bytes they had.
    ///
    /// # Safety
    ///
    /// The slots must be full, and the caller's.
    // For nearly every completion; left to itself, the compiler calls it.
    #[inline(always)]
    pub(crate) unsafe fn free_sent(
        &self,
        at: &mut Consumer,
        end: u32,
        poll: Option<&Context<'_>>,
    ) -> usize {
        let mut bytes = 0usize;
        while at.tail() != end {
            // SAFETY: By this function's requirements.
            let slot = unsafe { &mut *self.slot(at.tail()) };
            if let Some(skb) = slot.skb.take() {
                bytes = bytes.wrapping_add(skb.len());
                let index = self.shared.index(at.tail());
                // SAFETY: It was in this slot, which is ours.
                unsafe { self.memory.mapping.unmap(index, &skb) };
                skb.napi_consume(poll);
            }
            slot.retired = Q::Kept::default();
            at.emptied();
        }
        bytes
    }

    /// Drops the frames of the slots up to `end`, which were not sent. Returns how many bytes they had.
    ///
    /// # Safety
    ///
    /// The slots must be full, and the caller's.
    #[cold]
    pub(crate) unsafe fn free_unsent(&self, at: &mut Consumer, end: u32) -> Tally {
        let mut unsent = Tally::default();
        while at.tail() != end {
            // SAFETY: By this function's requirements.
            let slot = unsafe { &mut *self.slot(at.tail()) };
            if let Some(skb) = slot.skb.take() {
                unsent.add(skb.len());
                let index = self.shared.index(at.tail());
                // SAFETY: It was in this slot, which is ours.
                unsafe { self.memory.mapping.unmap(index, &skb) };
                skb.drop_reason(DropReason::DevReady);
            }
            slot.retired = Q::Kept::default();
            at.emptied();
        }
        unsent
    }
}

impl<Q: SendQp> Drop for Ring<Q> {
    fn drop(&mut self) {
        // SAFETY: Neither is used again.
        let (mut memory, place) = unsafe {
            (
                ManuallyDrop::take(&mut self.memory),
                ManuallyDrop::take(&mut self.place),
            )
        };
        memory.last = core::mem::take(self.last.get_mut());
        let full = |slot: &mut UnsafeCell<Slot<Q::Kept>>| slot.get_mut().skb.is_some();
        if memory.slots.iter_mut().any(full) && self.qp.forget_sends().is_err() {
            // The device may still read the frames, and complete them: all of it stays until the queue
            // pair is destroyed.
            let memory = KBox::write(place, memory);
            self.qp.keep(memory);
        }
        // INVARIANT: Otherwise it has no frame, or the queue pair was reset and has nothing.
    }
}
