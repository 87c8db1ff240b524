// SPDX-License-Identifier: GPL-2.0

//! Sending by reliable connections.
//!
//! Each connection's queue pair has a [send ring](crate::send::ring) of its own, its [`Lane`]. As in [`crate::send`], the
//! [`RcSender`] fills slots and posts them, under the transmit lock, and [`RcCompletions`] empties them as the device
//! completes them, in NAPI. There is one of each for all lanes of a completion queue.
//!
//! Consecutive requests for one lane are built in a chain that is posted with one call. Only the last one is signalled.

use core::ptr;

use ipoib_netdev::skb::TxSkb;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::sync::Arc;

use crate::cq::{Claim, Cq};
use crate::pd::Pd;
use crate::send::ring::PostFn;
use crate::send_chain::SendChain;

mod completions;
mod lane;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub use completions::{RcCompletions, RcReaped};
pub use lane::Lane;

/// State of both halves.
struct Shared {
    cq: Arc<Cq>,
    /// The sender is gone.
    is_closed: Atomic<bool>,
    _claim: Claim,
}

/// The half that posts.
///
/// # Invariants
///
/// * This is the one sender of `shared.cq`, on which `lane` completes.
/// * The requests pending in `chain` are complete, and are for the last slots that were filled in `lane`'s ring. That ring's
///   requests have up to `max_sge` elements, as many as the chain has room for.
/// * `post_send` is the operation of the queue pairs' device.
pub struct RcSender {
    shared: Arc<Shared>,
    pd: Arc<Pd>,
    post_send: PostFn,
    chain: SendChain<bindings::ib_send_wr>,
    max_sge: u32,
    lane: Option<Arc<Lane>>,
    /// Messages of so many bytes are taken by the device as they are posted, if they are `lane`'s.
    inline: usize,
    refused: Option<u32>,
}

/// Makes both halves for up to `most` queue pairs of `pd` at a time, which complete on `send_cq` and gather from up to
/// `max_sge` elements.
///
/// # Errors
///
/// `EINVAL` if `max_sge` is 0, or for objects of different devices; `EBUSY` if the completion queue has a ring; `ENOMEM`.
///
/// # Context
///
/// Process context; may sleep. So must be dropping the half that is dropped last.
pub fn rc_sends<T>(
    pd: &Arc<Pd>,
    send_cq: &Arc<Cq>,
    max_sge: u32,
    most: usize,
) -> Result<(RcSender, RcCompletions<T>)> {
    if max_sge == 0 || !pd.device().same(send_cq.device()) {
        return Err(EINVAL);
    }
    let post_send = pd.device().ops().post_send.ok_or(EOPNOTSUPP)?;
    let wr = bindings::ib_send_wr::default();
    let chain = SendChain::new(pd.local_dma_lkey(), max_sge, wr)?;
    let shared = Shared {
        cq: send_cq.clone(),
        is_closed: Atomic::new(false),
        _claim: send_cq.claim()?,
    };
    let shared = Arc::new(shared, GFP_KERNEL)?;
    let completions = RcCompletions::new(&shared, most)?;
    // INVARIANT: The claim is for this one; nothing is pending.
    let sender = RcSender {
        shared,
        pd: pd.clone(),
        post_send,
        chain,
        max_sge,
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
    /// Returns true if the chain is full, so that the next [`Self::post`] would post it first. The caller flushes a
    /// full chain itself, after it has accounted the last frame.
    #[inline]
    pub fn chain_full(&self) -> bool {
        self.chain.is_full()
    }

    /// Returns true if a lane's ring takes another request now.
    #[inline(always)]
    pub fn has_room(&mut self, lane: &Lane) -> bool {
        if !self.is_ours(lane) {
            return false;
        }
        // SAFETY: This is the sender.
        let at = unsafe { lane.at() };
        if at.free() == 0 {
            at.look(&lane.ring.shared);
        }
        at.free() > 0
    }

    /// The number of a lane's frames that were posted or are in the chain, and are not done.
    pub fn in_flight(&mut self, lane: &Lane) -> u32 {
        if !self.is_ours(lane) || !lane.carries_frames() {
            return 0;
        }
        // SAFETY: This is the sender.
        let at = unsafe { lane.at() };
        at.look(&lane.ring.shared);
        at.in_flight(&lane.ring.shared)
    }

    /// Returns true if this is the sender for a lane.
    #[inline(always)]
    fn is_ours(&self, lane: &Lane) -> bool {
        Arc::ptr_eq(lane.qp().send_cq(), &self.shared.cq)
    }

    /// Adds a frame, or a message of the driver's own, to the chain of a lane; [`Self::flush`] posts it.
    ///
    /// # Errors
    ///
    /// With the frame: `EBUSY` if the ring is full; `EINVAL` if the lane's queue pair has ended, completes elsewhere or
    /// gathers from more elements than requests have here; `ENOMEM` if there is no memory to join the parts of a frame that
    /// has too many; `EIO` if it cannot be mapped for DMA.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    // Once a frame; the compiler would not inline it.
    #[inline(always)]
    pub fn post(
        &mut self,
        skb: TxSkb,
        lane: &Arc<Lane>,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        // Null equals no lane's pointer, so one comparison covers `None`, too.
        if self.lane.as_ref().map_or(ptr::null(), Arc::as_ptr) != Arc::as_ptr(lane) {
            if let Err(error) = self.change_lane(lane) {
                return Err((skb, error));
            }
        }
        if self.chain.is_full() {
            self.make_room();
        }
        let ring = &lane.ring;
        // SAFETY: This is the lane's sender by the type invariant.
        let at = unsafe { lane.at() };
        if at.free() == 0 {
            at.look(&ring.shared);
            if at.free() == 0 {
                return Err((skb, EBUSY));
            }
        }
        let inline = self.inline;
        let fill = |wr: &mut bindings::ib_send_wr, skb: &TxSkb| {
            wr.send_flags = flags(skb.len(), inline);
        };
        // SAFETY: This is the half that posts; the chain has requests of this lane only, and enough elements by the type
        // invariant. Neither is full. INVARIANT: The request is complete.
        unsafe { ring.append(at, &mut self.chain, skb, fill) }
    }

    /// Makes `lane` the one that frames are posted to, and posts what is pending for the last one.
    #[cold]
    fn change_lane(&mut self, lane: &Arc<Lane>) -> Result {
        let qp = lane.qp();
        if !self.is_ours(lane)
            || !Arc::ptr_eq(qp.pd(), &self.pd)
            || qp.caps().send_sge > self.max_sge
            // Frames posted to it would never complete.
            || lane.is_closed()
            || qp.is_reset()
        {
            return Err(EINVAL);
        }
        self.flush();
        self.inline = qp.inline() as usize;
        // INVARIANT: Nothing of another lane is pending; as was just checked.
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
    /// messages of the driver's own only. [`Lane::has_refused`] says which lanes have.
    #[inline]
    pub fn take_refused(&mut self) -> Option<u32> {
        self.refused.take()
    }

    /// Posts nothing more to a lane.
    pub fn close(&mut self, lane: &Arc<Lane>) {
        if !self.is_ours(lane) {
            return;
        }
        if matches!(&self.lane, Some(last) if Arc::ptr_eq(last, lane)) {
            self.flush();
            self.lane = None;
        }
        // INVARIANT: `change_lane` takes none that is closed.
        lane.close();
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
        // SAFETY: This is the lane's sender. The chain is not empty, and complete by the type invariant.
        let posted = unsafe {
            lane.ring
                .ring_doorbell(lane.at(), &mut self.chain, self.post_send)
        };
        if posted.result.is_err() {
            lane.refuses();
            self.unwind(posted.refused);
        }
    }

    /// Takes back the last `count` requests, which the device does not have, and drops their frames.
    #[cold]
    fn unwind(&mut self, count: usize) {
        let Some(lane) = &self.lane else {
            return;
        };
        // SAFETY: This is the lane's sender.
        let at = unsafe { lane.at() };
        for _ in 0..count {
            // SAFETY: As above; the device does not have the last slot's request.
            unsafe { lane.ring.take_back(at, |_, ()| ()) };
        }
        at.publish(&lane.ring.shared);
        let frames = if lane.carries_frames() { count } else { 0 };
        let refused = self.refused.get_or_insert(0);
        *refused = refused.wrapping_add(frames as u32);
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
        self.shared.is_closed.store(true, Release);
    }
}

impl Shared {
    /// Returns true if the sender is gone.
    fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }
}
