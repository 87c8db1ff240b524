// SPDX-License-Identifier: GPL-2.0

//! The send ring that reliable connections share.
//!
//! As in [`crate::send`], the [`RcSender`] fills slots and posts them, under the transmit lock, and
//! [`RcCompletions`] empties them as the device completes them, in NAPI. They run concurrently, without a
//! lock ([`ipoib_rings::slots`]).
//!
//! Consecutive requests for one queue pair are built in a chain that is posted with one call. Only the last
//! one is signalled.

use core::ptr::{self, NonNull};

use ipoib_netdev::skb::{DropReason, TxSkb};
use ipoib_rings::slots::id;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::cq::Cq;
use crate::pd::Pd;
use crate::send::PostFn;
use crate::send_chain::SendChain;

mod completions;
mod slots;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub use completions::{RcCompletions, RcReaped};
pub use slots::Lane;
use slots::{Frame, Kind, Slots};

/// The half of a shared send ring that posts.
///
/// # Invariants
///
/// * This is the one sender of `slots`.
/// * The requests pending in `chain` are for the last slots that were filled, in order, all of `lane`, which
///   `slots` hold, the last with the identifier `last`.
/// * `post_send` is the operation of the queue pairs' device.
/// * `generation` is odd, and so not 0.
pub struct RcSender {
    slots: Arc<Slots>,
    pd: Arc<Pd>,
    post_send: PostFn,
    chain: SendChain<bindings::ib_send_wr>,
    max_sge: u32,
    /// Slots for the first frame of each lane.
    reserve: u32,
    generation: u32,
    last: u64,
    lane: Option<Arc<Lane>>,
    /// Messages of so many bytes are taken by the device as they are posted, if they are `lane`'s.
    inline: usize,
    refused: Option<u32>,
}

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
/// Process context; may sleep. So must be dropping the half that is dropped last.
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
    let post_send = pd.device().ops().post_send.ok_or(EOPNOTSUPP)?;
    let chain = SendChain::new(
        pd.local_dma_lkey(),
        max_sge,
        bindings::ib_send_wr::default(),
    )?;
    let slots = Arc::new(Slots::new(send_cq, size, max_sge)?, GFP_KERNEL)?;
    let completions = RcCompletions::new(&slots)?;
    let generation = slots.first_generation() | 1;
    // INVARIANT: Nothing is pending.
    let sender = RcSender {
        slots,
        pd: pd.clone(),
        post_send,
        chain,
        max_sge,
        reserve: size / 8,
        generation,
        last: 0,
        lane: None,
        inline: 0,
        refused: None,
    };
    Ok((sender, completions))
}

/// The flags of a message of `len` bytes, for a queue pair that can take so many as they are posted.
#[inline(always)]
fn flags(len: usize, inline: usize) -> c_int {
    if len <= inline {
        bindings::ib_send_flags_IB_SEND_INLINE as c_int
    } else {
        0
    }
}

impl RcSender {
    /// The number of frames that it takes now.
    #[inline]
    pub fn free(&self) -> u32 {
        self.slots.ring.free()
    }

    /// Returns true if the chain is full, so that the next [`Self::post`] would post it first. The caller flushes a
    /// full chain itself, after it has accounted the last frame.
    #[inline]
    pub fn chain_full(&self) -> bool {
        self.chain.is_full()
    }

    /// Returns true if the ring and `lane`'s queue pair take another frame now, and the lane has no more of the ring than
    /// is left, so that a slow lane leaves room for others. An eighth of the ring is for the first frame of each lane.
    #[inline(always)]
    pub fn has_share(&self, lane: &Lane) -> bool {
        lane.counts()
            .has_share(lane.qp().caps().send_wr, self.free(), self.reserve)
    }

    /// The number of frames that it has now, without messages of the driver's own.
    pub fn in_flight(&self) -> u32 {
        self.slots.in_flight()
    }

    /// Adds a frame of a lane, which should [have room](Self::has_share), to the chain; [`Self::flush`] posts
    /// it. With `own`, it is a message of the driver's own, which no count of frames includes. The device refuses frames
    /// that the queue pair has no room for. Returns whether to charge the frame to BQL, which is to be told when it is
    /// [released](RcCompletions::reap). A message of the driver's own is never charged.
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
    // Once a frame; the compiler would not inline it.
    #[inline(always)]
    pub fn post(
        &mut self,
        mut skb: TxSkb,
        lane: &Arc<Lane>,
        own: bool,
    ) -> core::result::Result<bool, (TxSkb, Error)> {
        // Null equals no lane's pointer, so one comparison covers `None`, too.
        if self.lane.as_ref().map_or(ptr::null(), Arc::as_ptr) != Arc::as_ptr(lane) {
            if let Err(error) = self.change_lane(lane) {
                return Err((skb, error));
            }
        }
        if self.chain.is_full() {
            self.make_room();
        }
        let slots: &Slots = &self.slots;
        let Some(index) = slots.ring.peek() else {
            return Err((skb, EBUSY));
        };
        // SAFETY: A full chain was just posted.
        let sges = unsafe { self.chain.elements() };
        // SAFETY: A request has `max_sge` elements, and nobody else has a reference to them. The slot
        // is free, and so the sender's.
        let num_sge = match unsafe { slots.mapping.map(&mut skb, sges, || index as usize) } {
            Ok(num_sge) => num_sge,
            Err(error) => return Err((skb, error)),
        };
        let id = id(index, self.generation);
        let len = skb.len();
        skb.timestamp();
        let kind = match (own, lane.is_slow()) {
            (true, _) => Kind::Own,
            (false, true) => Kind::Uncharged,
            (false, false) => Kind::Charged,
        };
        let frame = Frame {
            skb,
            lane: NonNull::from(&**lane),
            before: if self.chain.pending() > 0 {
                self.last
            } else {
                0
            },
            kind,
        };
        if own {
            slots.own.add_posted();
        }
        // INVARIANT: The lane is held since it is the one that frames are posted to.
        lane.counts().add_posted();
        // SAFETY: This is the sender, which peeked; the generation is not 0 by the type invariant.
        unsafe { slots.ring.fill(index, self.generation, frame) };
        // SAFETY: As above; that many elements were filled. INVARIANT: The slot is filled, and the lane held.
        unsafe { self.chain.push(id, num_sge) }.send_flags = flags(len, self.inline);
        self.last = id;
        // INVARIANT: It stays odd.
        self.generation = self.generation.wrapping_add(2);
        Ok(kind == Kind::Charged)
    }

    /// Makes `lane` the one that frames are posted to, and posts what is pending for the last one.
    #[cold]
    fn change_lane(&mut self, lane: &Arc<Lane>) -> Result {
        let qp = lane.qp();
        if !Arc::ptr_eq(qp.send_cq(), self.slots.cq())
            || !Arc::ptr_eq(qp.pd(), &self.pd)
            || qp.caps().send_sge < self.max_sge
            // Frames posted to it would never complete.
            || qp.has_ended()
        {
            return Err(EINVAL);
        }
        self.flush();
        // SAFETY: This is the sender; it was just checked where the queue pair completes.
        unsafe { self.slots.hold(lane) }?;
        self.inline = qp.inline() as usize;
        // INVARIANT: Nothing of another lane is pending, and this one is held.
        self.lane = Some(lane.clone());
        Ok(())
    }

    /// Posts the chain, if there is one. Returns whether there was.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline(always)]
    pub fn flush(&mut self) -> bool {
        let pending = self.chain.pending() > 0;
        if pending {
            self.ring_doorbell();
        }
        pending
    }

    /// The number of frames that the device has refused since the last call, which were dropped; Some(0) if it has refused
    /// messages of the driver's own only.
    #[inline]
    pub fn take_refused(&mut self) -> Option<u32> {
        self.refused.take()
    }

    /// A lane whose queue pair has refused frames since it was found here last. The caller puts the queue
    /// pair in error, and resets it if its frames do not complete: some in front of the refused one may be
    /// unsignalled.
    pub fn take_refusing(&mut self) -> Option<Arc<Lane>> {
        // SAFETY: This is the sender.
        unsafe { self.slots.take_refusing() }
    }

    /// Drops a lane that is not used any more, once none of its frames is in flight: now, or when another
    /// lane comes or goes.
    pub fn forget(&mut self, lane: &Arc<Lane>) {
        if matches!(&self.lane, Some(last) if Arc::ptr_eq(last, lane)) {
            self.flush();
            self.lane = None;
        }
        if Arc::ptr_eq(lane.qp().send_cq(), self.slots.cq()) {
            // SAFETY: This is the sender; as was just checked.
            unsafe { self.slots.leave(lane) };
        }
    }

    /// Posts the chain, which is full.
    #[cold]
    fn make_room(&mut self) {
        self.ring_doorbell();
    }

    /// Posts the chain, which is not empty.
    #[inline(always)]
    fn ring_doorbell(&mut self) {
        let Some(lane) = &self.lane else {
            return;
        };
        let (post_send, qp) = (self.post_send, lane.qp().as_raw());
        // SAFETY: The queue pair is valid. The chain is complete by the type invariant; the memory
        // that it refers to, and the queue pair, are owned by the slots until the completions half
        // learns that the device is done or the queue pair is reset.
        let post = |first, bad| unsafe { post_send(qp, first, bad) };
        // SAFETY: The chain is not empty.
        let posted = unsafe { self.chain.post(post) };
        if posted.result.is_err() {
            lane.refuses();
            self.unwind(posted.refused);
        }
    }

    /// Takes back the last `count` frames, which the device does not have, and drops them.
    #[cold]
    fn unwind(&mut self, count: usize) {
        for _ in 0..count {
            // SAFETY: This is the sender; the device does not have the last slot's request, nor had
            // it those that were taken back before.
            let Some((index, frame)) = (unsafe { self.slots.ring.take_back() }) else {
                break;
            };
            frame.lane().counts().take_back();
            let own = frame.kind == Kind::Own;
            if own {
                self.slots.own.take_back();
            }
            let refused = self.refused.get_or_insert(0);
            *refused = refused.wrapping_add(u32::from(!own));
            let (bytes, skb) = (frame.kind.charge(frame.skb.len()), frame.skb);
            // SAFETY: Mapped by `post` for this slot, which is the sender's again.
            unsafe { self.slots.mapping.unmap(index as usize, &skb) };
            self.slots.ring.unsent().add(bytes);
            skb.drop_reason(DropReason::DevReady);
        }
    }

    /// Drops what was not posted yet. Returns as [`Self::take_refused`] what was dropped.
    pub fn clear(&mut self) -> u32 {
        let pending = self.chain.clear();
        self.unwind(pending);
        self.take_refused().unwrap_or(0)
    }
}

impl Drop for RcSender {
    fn drop(&mut self) {
        self.clear();
        self.slots.set_next_generation(self.generation);
    }
}
