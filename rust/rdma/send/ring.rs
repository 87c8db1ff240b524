// SPDX-License-Identifier: GPL-2.0

//! What the two halves of a send ring share.
//!
//! `head` counts the slots that were handed to the device, `tail` those that were emptied; both
//! only grow, modulo 2^32, and a slot is its count modulo the size. The sender fills slots and then
//! stores `head` with release; the completions half loads it with acquire, and so sees what is in
//! the slots that it counts. That half empties slots and then stores `tail` with release; the
//! sender loads it with acquire, and so does not fill a slot before it was emptied. A slot thus
//! always belongs to one half, and neither half waits for the other.
//!
//! `head` goes back only over slots that the device refused: those it cannot complete, so that the
//! completions half, which empties a slot when the device has completed it or a later one, never
//! looks at them.

use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, MaybeUninit};

use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::skb::TxSkb;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::Arc;

use crate::ah::Ah;
use crate::cq::Claim;
use crate::left::Left;
use crate::qp::UdQp;
use crate::send::mapping::Mapping;

/// A frame that the device has.
#[derive(Default)]
pub(super) struct Slot {
    /// The frame; none in an empty slot.
    pub(super) skb: Option<TxSkb>,
    /// The address handle of the frames in front of this one, if this one uses another.
    pub(super) retired: Option<Arc<Ah>>,
}

/// What the device may reach, and what belongs to it.
///
/// # Invariants
///
/// * `slots` has a power of two of elements, and `mapping` a place for each.
/// * When it is dropped, the device has none of the frames.
struct Memory {
    slots: KVec<UnsafeCell<Slot>>,
    mapping: Mapping,
    /// The address handle of the last frame, once both halves are gone.
    last_ah: Option<Arc<Ah>>,
    claim: Claim,
}

// SAFETY: All that it holds may be handled by any thread.
unsafe impl Send for Memory {}

impl Memory {
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
            slot.retired = None;
        }
    }
}

impl Left for Memory {
    fn abandon(&mut self) {
        let slots = self.slots.iter_mut();
        for skb in slots.filter_map(|slot| slot.get_mut().skb.take()) {
            skb.abandon();
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: The slots are ours, and the device has nothing by the type invariant.
        unsafe { self.clear(drop) };
    }
}

/// # Invariants
///
/// Slot `n` for `n` from `tail` up to `head` belongs to the completions half, the others to the
/// sender.
pub(super) struct Ring {
    memory: ManuallyDrop<Memory>,
    head: Atomic<u32>,
    tail: Atomic<u32>,
    unsent_frames: Atomic<u32>,
    unsent_bytes: Atomic<usize>,
    /// The address handle of the last frame, once the sender is gone, until when it had it.
    last_ah: UnsafeCell<Option<Arc<Ah>>>,
    /// Where `memory` goes if the device may still reach it when the ring is dropped.
    place: ManuallyDrop<KBox<MaybeUninit<Memory>>>,
    qp: Arc<UdQp>,
}

// SAFETY: All that it holds may be handled by any thread.
unsafe impl Send for Ring {}
// SAFETY: Each slot belongs to one half at a time, as the module's documentation says.
unsafe impl Sync for Ring {}

impl Ring {
    pub(super) fn new(qp: &Arc<UdQp>, size: u32, max_sge: u32) -> Result<Self> {
        let claim = qp.send_cq().claim()?;
        let mapping = Mapping::new(qp.pd().device(), size, max_sge)?;
        let mut slots = KVec::with_capacity(size as usize, GFP_KERNEL)?;
        for _ in 0..size {
            slots.push(UnsafeCell::new(Slot::default()), GFP_KERNEL)?;
        }
        let place = KBox::new_uninit(GFP_KERNEL)?;
        // INVARIANT: `send_ring` checked that `size` is a power of two; all slots are empty.
        Ok(Self {
            head: Atomic::new(claim.next),
            tail: Atomic::new(claim.next),
            unsent_frames: Atomic::new(0),
            unsent_bytes: Atomic::new(0),
            last_ah: UnsafeCell::new(None),
            place: ManuallyDrop::new(place),
            qp: qp.clone(),
            memory: ManuallyDrop::new(Memory {
                slots,
                mapping,
                last_ah: None,
                claim,
            }),
        })
    }

    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.memory.slots.len() as u32
    }

    #[inline]
    pub(super) fn qp(&self) -> &Arc<UdQp> {
        &self.qp
    }

    #[inline]
    fn index(&self, n: u32) -> usize {
        n as usize & self.memory.slots.len().wrapping_sub(1)
    }

    /// Slot `n`, which the caller may use if it belongs to its half.
    #[inline]
    pub(super) fn slot(&self, n: u32) -> *mut Slot {
        // SAFETY: The index is below the length, which is a power of two.
        unsafe { self.memory.slots.get_unchecked(self.index(n)) }.get()
    }

    /// Keeps the address handle that frames may still use when the sender goes.
    ///
    /// # Safety
    ///
    /// The caller must be the sender, on its way out.
    pub(super) unsafe fn bequeath(&self, ah: Option<Arc<Ah>>) {
        // SAFETY: Only the sender writes it, once; only `drop` reads it.
        unsafe { *self.last_ah.get() = ah };
    }

    /// The count up to which slots were handed to the device.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.head.load(Acquire)
    }

    /// Hands the slots below `head` to the completions half, as the sender.
    #[inline]
    pub(super) fn publish(&self, head: u32) {
        self.head.store(head, Release);
    }

    /// The count up to which slots were emptied.
    #[inline]
    pub(super) fn tail(&self) -> u32 {
        self.tail.load(Acquire)
    }

    /// Gives the slots below `tail` back to the sender, as the completions half.
    #[inline]
    pub(super) fn give_back(&self, tail: u32) {
        self.tail.store(tail, Release);
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

    /// Maps a frame for slot `n`, and fills the elements from `sges` on.
    ///
    /// # Errors
    ///
    /// Those of [`Mapping::map`].
    ///
    /// # Safety
    ///
    /// The slot must belong to the caller; for the elements as for [`Mapping::map`].
    #[inline(always)]
    pub(super) unsafe fn map(
        &self,
        skb: &mut TxSkb,
        sges: *mut bindings::ib_sge,
        n: u32,
    ) -> Result<c_int> {
        // SAFETY: By this function's requirements.
        unsafe { self.memory.mapping.map(skb, sges, self.index(n)) }
    }

    /// Undoes the mapping of the frame that was in slot `n`.
    ///
    /// # Safety
    ///
    /// The slot must belong to the caller, and `skb` must be the frame that was put into it.
    #[inline]
    pub(super) unsafe fn unmap(&self, n: u32, skb: &TxSkb) {
        // SAFETY: By this function's requirements.
        unsafe { self.memory.mapping.unmap(self.index(n), skb) };
    }

    /// Undoes the mapping of all frames and drops them with `drop_skb`.
    ///
    /// # Safety
    ///
    /// Both halves must belong to the caller, and the device must have none of the frames.
    pub(super) unsafe fn clear(&self, drop_skb: impl FnMut(TxSkb)) {
        // SAFETY: By this function's requirements.
        unsafe { self.memory.clear(drop_skb) };
        self.give_back(self.head());
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: Neither is used again.
        let (mut memory, place) = unsafe {
            (
                ManuallyDrop::take(&mut self.memory),
                ManuallyDrop::take(&mut self.place),
            )
        };
        memory.claim.next = self.head();
        memory.last_ah = self.last_ah.get_mut().take();
        let full = |slot: &mut UnsafeCell<Slot>| slot.get_mut().skb.is_some();
        if memory.slots.iter_mut().any(full) && self.qp.to_reset().is_err() {
            // The device may still read the frames, and complete them: all of it stays until the queue
            // pair is destroyed, and no other ring has the completion queue before.
            let memory = KBox::write(place, memory);
            self.qp.keep(memory);
        }
        // INVARIANT: Otherwise it has no frame, or the queue pair was reset and has nothing.
    }
}
