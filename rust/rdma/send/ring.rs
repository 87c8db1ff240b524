// SPDX-License-Identifier: GPL-2.0

//! State shared by the two halves of a send ring: [slots in order](ipoib_rings::ring), with their frames.

use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, MaybeUninit};

use ipoib_netdev::skb::TxSkb;
use ipoib_rings::ring;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
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

/// Memory that the device may reach, and all that belongs to it.
///
/// # Invariants
///
/// `slots` and `mapping` have a place for each slot of the ring, whose memory this is. When it is dropped,
/// the device has none of the frames.
struct Memory {
    slots: KVVec<UnsafeCell<Slot>>,
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
/// * `memory` has a place for each slot of `shared`, whose producer is the sender, and whose consumer the
///   completions half.
/// * `raw_qp` is `qp`.
pub(super) struct Ring {
    memory: ManuallyDrop<Memory>,
    /// Positions and counts that the halves share.
    pub(super) shared: ring::Ring,
    /// The address handle of the last frame, once the sender is gone, until when it had it.
    last_ah: UnsafeCell<Option<Arc<Ah>>>,
    /// Place for `memory` if the device may still reach it when the ring is dropped.
    place: ManuallyDrop<KBox<MaybeUninit<Memory>>>,
    raw_qp: *mut bindings::ib_qp,
    qp: Arc<UdQp>,
}

// SAFETY: All that it holds may be handled by any thread.
unsafe impl Send for Ring {}
// SAFETY: Each slot belongs to one half at a time, as `shared` says.
unsafe impl Sync for Ring {}

impl Ring {
    pub(super) fn new(qp: &Arc<UdQp>, size: u32, max_sge: u32) -> Result<Self> {
        let claim = qp.send_cq().claim()?;
        let mapping = Mapping::new(qp.pd().device(), size, max_sge)?;
        let mut slots = KVVec::with_capacity(size as usize, GFP_KERNEL)?;
        for _ in 0..size {
            slots.push(UnsafeCell::new(Slot::default()), GFP_KERNEL)?;
        }
        let shared = ring::Ring::new(size, claim.next).ok_or(EINVAL)?;
        let place = KBox::new_uninit(GFP_KERNEL)?;
        // INVARIANT: So many places were made of each.
        Ok(Self {
            shared,
            last_ah: UnsafeCell::new(None),
            place: ManuallyDrop::new(place),
            raw_qp: qp.as_raw(),
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
    pub(super) fn qp(&self) -> &Arc<UdQp> {
        &self.qp
    }

    #[inline]
    pub(super) fn raw_qp(&self) -> *mut bindings::ib_qp {
        self.raw_qp
    }

    /// Slot `n`, which the caller may use if it belongs to its half.
    #[inline]
    pub(super) fn slot(&self, n: u32) -> *mut Slot {
        // SAFETY: The index is below the size, and there are so many by the type invariant.
        unsafe { self.memory.slots.get_unchecked(self.shared.index(n)) }.get()
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
        unsafe { self.memory.mapping.map(skb, sges, || self.shared.index(n)) }
    }

    /// Undoes the mapping of the frame that was in slot `n`.
    ///
    /// # Safety
    ///
    /// The slot must belong to the caller, and `skb` must be the frame that was put into it.
    #[inline]
    pub(super) unsafe fn unmap(&self, n: u32, skb: &TxSkb) {
        // SAFETY: By this function's requirements.
        unsafe { self.memory.mapping.unmap(self.shared.index(n), skb) };
    }

    /// Undoes the mapping of all frames and drops them with `drop_skb`.
    ///
    /// # Safety
    ///
    /// Both halves must belong to the caller, and the device must have none of the frames.
    pub(super) unsafe fn clear(&self, drop_skb: impl FnMut(TxSkb)) {
        // SAFETY: By this function's requirements.
        unsafe { self.memory.clear(drop_skb) };
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
        memory.claim.next = self.shared.head();
        memory.last_ah = self.last_ah.get_mut().take();
        let full = |slot: &mut UnsafeCell<Slot>| slot.get_mut().skb.is_some();
        // The epoch of the last post is not known; the one now is the worst.
        let posted = Some(self.qp.epoch());
        if memory.slots.iter_mut().any(full) && self.qp.to_reset(posted).is_err() {
            // The device may still read the frames, and complete them: all of it stays until the queue
            // pair is destroyed, and no other ring has the completion queue before.
            let memory = KBox::write(place, memory);
            self.qp.keep(memory);
        }
        // INVARIANT: Otherwise it has no frame, or the queue pair was reset and has nothing.
    }
}
