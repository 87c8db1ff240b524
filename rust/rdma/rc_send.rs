// SPDX-License-Identifier: GPL-2.0

//! The send ring that the reliable connections of an interface share.
//!
//! As [`crate::send`] for datagrams, in two halves: the [`RcSender`] fills slots and posts them, under the
//! transmit lock; [`RcCompletions`] empties them as the device completes them, in NAPI. Both run at once
//! without a lock ([`ipoib_rings::slots`] says how).
//!
//! Work requests of one queue pair that follow each other are built in a chain and posted with one call.
//! Only the last of a chain is signalled.

use core::ptr::{self, NonNull};

use ipoib_netdev::skb::{DropReason, TxSkb};
use ipoib_rings::slots::id;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::cq::Cq;
use crate::pd::Pd;

mod completions;
mod slots;

pub use completions::{RcCompletions, RcReaped};
pub use slots::Lane;
use slots::{Frame, Slots};

/// How many work requests are posted at once at most.
const CHAIN: usize = 16;

/// The half of a shared send ring that posts.
///
/// # Invariants
///
/// * This is the one sender of `slots`.
/// * `wrs` has [`CHAIN`] elements, each linked to the next one, the last to none, and each with the
///   `max_sge` elements of `_sges` that are its own. Neither vector ever moves its elements.
/// * The first `pending` of them are complete, for the last `pending` slots that were filled, in order,
///   all of `lane`, which `slots` hold, the last with the identifier `last`.
/// * `generation` is odd, and so not 0.
pub struct RcSender {
    slots: Arc<Slots>,
    pd: Arc<Pd>,
    wrs: KVec<bindings::ib_send_wr>,
    /// Owned here, used through the work requests.
    _sges: KVec<bindings::ib_sge>,
    max_sge: u32,
    generation: u32,
    pending: usize,
    last: u64,
    lane: Option<Arc<Lane>>,
    refused: u32,
}

// SAFETY: The pointers in the work requests are to the sender's own vectors; all else is `Send`.
unsafe impl Send for RcSender {}

/// Makes a send ring on `send_cq` with room for `size` frames (a power of two) of up to `max_sge` parts
/// each, for the queue pairs of `pd` that complete there.
///
/// # Errors
///
/// `EINVAL` if `size` is no power of two, or more than the completion queue takes, or `max_sge` is 0;
/// `EBUSY` if the completion queue has a ring; `ENOMEM`.
///
/// # Context
///
/// Process context; may sleep.
pub fn rc_ring(
    pd: &Arc<Pd>,
    send_cq: &Arc<Cq>,
    size: u32,
    max_sge: u32,
) -> Result<(RcSender, RcCompletions)> {
    if !size.is_power_of_two()
        || size > send_cq.entries()
        || max_sge == 0
        || !pd.device().same(send_cq.device())
    {
        return Err(EINVAL);
    }
    let sge = bindings::ib_sge {
        addr: 0,
        length: 0,
        lkey: pd.local_dma_lkey(),
    };
    let mut sges = KVec::from_elem(sge, CHAIN * max_sge as usize, GFP_KERNEL)?;
    let mut wrs = KVec::with_capacity(CHAIN, GFP_KERNEL)?;
    for _ in 0..CHAIN {
        wrs.push(bindings::ib_send_wr::default(), GFP_KERNEL)?;
    }
    let slots = Arc::new(Slots::new(send_cq, size, max_sge)?, GFP_KERNEL)?;
    let completions = RcCompletions::new(&slots)?;
    let mut next = ptr::null_mut();
    for (wr, sges) in wrs
        .iter_mut()
        .zip(sges.chunks_exact_mut(max_sge as usize))
        .rev()
    {
        wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        wr.sg_list = sges.as_mut_ptr();
        wr.next = next;
        next = &raw mut *wr;
    }
    let generation = slots.first_generation() | 1;
    // INVARIANT: As was just built; nothing is pending.
    let sender = RcSender {
        slots,
        pd: pd.clone(),
        wrs,
        _sges: sges,
        max_sge,
        generation,
        pending: 0,
        last: 0,
        lane: None,
        refused: 0,
    };
    Ok((sender, completions))
}

impl RcSender {
    /// How many frames the ring takes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.slots.ring.size()
    }

    /// How many more frames it takes now.
    #[inline]
    pub fn free(&self) -> u32 {
        self.slots.ring.free()
    }

    /// Whether the chain is full, so that the next [`Self::post`] would send it first. The caller flushes
    /// a full chain itself, after it has accounted the last frame.
    #[inline]
    pub fn chain_full(&self) -> bool {
        self.pending == CHAIN
    }

    /// Whether the ring and `lane`'s queue pair take another frame now.
    #[inline]
    pub fn takes(&self, lane: &Lane) -> bool {
        self.free() > 0 && lane.counts().under_way() < lane.qp().send_wr()
    }

    /// The same, if that takes no more of the ring than it leaves, so that a lane which is slow leaves
    /// something for others.
    #[inline(always)]
    pub fn has_share(&self, lane: &Lane) -> bool {
        let under_way = lane.counts().under_way();
        under_way < lane.qp().send_wr() && under_way < self.free()
    }

    /// Adds a frame for a lane, which should [have room](Self::has_share), to the chain; [`Self::flush`]
    /// sends it. What a queue pair has no room for the device refuses. True: the frame is to be charged to
    /// BQL, which is to be told of it when it [is done with](RcCompletions::reap).
    ///
    /// # Errors
    ///
    /// With the frame: `EBUSY` if the ring is full; `EINVAL` if the lane's queue pair has ended, completes
    /// elsewhere or gathers from fewer elements than the ring's frames have; `ENOMEM` if there is none for
    /// another lane, or to join the parts of a frame that has too many; `EIO` if it cannot be mapped for DMA.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    // For every frame; left to itself, the compiler calls it.
    #[inline(always)]
    pub fn post(
        &mut self,
        mut skb: TxSkb,
        lane: &Arc<Lane>,
    ) -> core::result::Result<bool, (TxSkb, Error)> {
        if !matches!(&self.lane, Some(last) if Arc::ptr_eq(last, lane)) {
            if let Err(error) = self.change_lane(lane) {
                return Err((skb, error));
            }
        }
        if self.pending == CHAIN {
            self.ring_doorbell();
        }
        let slots: &Slots = &self.slots;
        let Some(index) = slots.ring.peek() else {
            return Err((skb, EBUSY));
        };
        // SAFETY: A full chain was just posted, so that `pending < CHAIN`, which is the length of the
        // vector.
        let wr = unsafe { self.wrs.as_mut_ptr().add(self.pending) };
        // SAFETY: As above; nobody else has a reference.
        let sges = unsafe { (*wr).sg_list };
        // SAFETY: A work request has `max_sge` elements, and nobody else has a reference to them. The slot
        // is free, and so the sender's.
        let num_sge = match unsafe { slots.mapping.map(&mut skb, sges, index as usize) } {
            Ok(num_sge) => num_sge,
            Err(error) => return Err((skb, error)),
        };
        let id = id(index, self.generation);
        // SAFETY: As above.
        let wr = unsafe { &mut *wr };
        wr.__bindgen_anon_1.wr_id = id;
        wr.num_sge = num_sge;
        wr.send_flags = 0;
        let charged = !lane.is_slow();
        let frame = Frame {
            skb,
            lane: NonNull::from(&**lane),
            before: if self.pending > 0 { self.last } else { 0 },
            charged,
        };
        // INVARIANT: The lane is held since it is the one that frames are posted to.
        lane.counts().add_posted();
        // SAFETY: This is the sender, which peeked; the generation is not 0 by the type invariant.
        unsafe { slots.ring.fill(index, self.generation, frame) };
        // INVARIANT: The slot is filled and its work request is complete.
        self.last = id;
        self.pending = self.pending.wrapping_add(1);
        // INVARIANT: It stays odd.
        self.generation = self.generation.wrapping_add(2);
        Ok(charged)
    }

    /// Makes `lane` the one that frames are posted to; what is pending goes first.
    #[cold]
    fn change_lane(&mut self, lane: &Arc<Lane>) -> Result {
        let qp = lane.qp();
        if !Arc::ptr_eq(qp.send_cq(), self.slots.cq())
            || !Arc::ptr_eq(qp.pd(), &self.pd)
            || qp.send_sge() < self.max_sge
            // Nothing that is posted to it would come back.
            || qp.has_ended()
        {
            return Err(EINVAL);
        }
        if self.pending > 0 {
            self.ring_doorbell();
        }
        // SAFETY: This is the sender; it was just checked where the queue pair completes.
        unsafe { self.slots.hold(lane) }?;
        // INVARIANT: Nothing of another lane is pending, and this one is held.
        self.lane = Some(lane.clone());
        Ok(())
    }

    /// Hands the chain to its queue pair, if there is one. True: there was.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline]
    pub fn flush(&mut self) -> bool {
        let pending = self.pending > 0;
        if pending {
            self.ring_doorbell();
        }
        pending
    }

    /// How many frames the device has refused since the last time, which were dropped.
    #[inline]
    pub fn take_refused(&mut self) -> u32 {
        core::mem::take(&mut self.refused)
    }

    /// A lane whose queue pair has refused frames since it was found here the last time. The queue pair is to
    /// be put in error, and reset if it does not give back then what it has: it may never tell of the frames
    /// that it took before it refused one.
    pub fn take_refusing(&mut self) -> Option<Arc<Lane>> {
        // SAFETY: This is the sender.
        unsafe { self.slots.take_refusing() }
    }

    /// Forgets a lane, which is not used any more, as soon as nothing of it is in flight: now, or when this is
    /// called once more, or at the next that comes or goes.
    pub fn forget(&mut self, lane: &Arc<Lane>) {
        if matches!(&self.lane, Some(last) if Arc::ptr_eq(last, lane)) {
            if self.pending > 0 {
                self.ring_doorbell();
            }
            self.lane = None;
        }
        if Arc::ptr_eq(lane.qp().send_cq(), self.slots.cq()) {
            // SAFETY: This is the sender; as was just checked.
            unsafe { self.slots.leave(lane) };
        }
    }

    fn ring_doorbell(&mut self) {
        let pending = core::mem::take(&mut self.pending);
        let Some(lane) = &self.lane else {
            return;
        };
        let wrs = self.wrs.as_mut_ptr();
        // SAFETY: `1 <= pending <= CHAIN`, the length of the vector; nobody else has a reference.
        let last = unsafe { wrs.add(pending.wrapping_sub(1)) };
        // SAFETY: As above.
        let next = unsafe {
            (*last).send_flags |= SIGNALED;
            core::mem::replace(&mut (*last).next, ptr::null_mut())
        };
        let first: *const bindings::ib_send_wr = wrs;
        // Some drivers leave this alone when they refuse all.
        let mut bad = first;
        let err = match self.pd.device().ops().post_send {
            // SAFETY: The queue pair is valid. The chain is complete by the type invariant; the memory
            // that it refers to, and the queue pair, are owned by the slots until the completions half
            // learns that the device is done or the queue pair is reset.
            Some(post_send) => unsafe { post_send(lane.qp().as_raw(), first, &raw mut bad) },
            None => EOPNOTSUPP.to_errno(),
        };
        // SAFETY: As above. INVARIANT: The chain is linked as before.
        unsafe { (*last).next = next };
        if err != 0 {
            lane.refuses();
            self.unwind(pending, bad);
        }
    }

    /// Takes back what the device refused: the work requests of a chain of `pending` from `bad` on.
    #[cold]
    fn unwind(&mut self, pending: usize, bad: *const bindings::ib_send_wr) {
        // If the device names none of ours, it may have taken any of them: they stay until they complete
        // or the queue pair is reset.
        let good = self
            .wrs
            .iter()
            .take(pending)
            .position(|wr| ptr::eq(wr, bad))
            .unwrap_or(pending);
        for _ in good..pending {
            // SAFETY: This is the sender; the device does not have the last slot's work request, nor had
            // it those that were taken back before.
            let Some((index, frame)) = (unsafe { self.slots.ring.take_back() }) else {
                break;
            };
            frame.lane().counts().take_back();
            let Frame { skb, charged, .. } = frame;
            // SAFETY: Mapped by `post` for this slot, which is the sender's again.
            unsafe { self.slots.mapping.unmap(index as usize, &skb) };
            let bytes = if charged { skb.len() } else { 0 };
            self.slots.ring.unsent().add(bytes);
            skb.drop_reason(DropReason::DevReady);
        }
        let refused = pending.wrapping_sub(good) as u32;
        self.refused = self.refused.wrapping_add(refused);
    }
}

impl Drop for RcSender {
    fn drop(&mut self) {
        let pending = core::mem::take(&mut self.pending);
        if pending > 0 {
            self.unwind(pending, self.wrs.as_ptr());
        }
        self.slots.set_next_generation(self.generation);
    }
}

const SIGNALED: c_int = bindings::ib_send_flags_IB_SEND_SIGNALED as c_int;
