// SPDX-License-Identifier: GPL-2.0

//! The send ring of a UD queue pair, in two halves.
//!
//! The [`Sender`] fills slots and posts them, under the transmit lock; [`SendCompletions`] empties
//! them as the device completes them, in NAPI. Both run at once without a lock: a [ring] with one
//! producer and one consumer.
//!
//! [ring]: ipoib_rings::ring
//!
//! Work requests are built in a chain of [`CHAIN`] that is posted with one call, when it is full or
//! when the driver flushes it. Only the last of a chain is signalled, unless the driver asks for
//! more: completions are in order, so that one completes all that were posted before it.
//!
//! The address handle of the last frame belongs to the sender. When a frame uses another one, the
//! one before goes into that frame's slot, and so outlives all frames in front of it, which are
//! the only ones that use it. A flow to one destination thus costs no reference counting.

use core::ptr;

use ipoib_netdev::skb::{DropReason, TxSkb};
use ipoib_rings::ring::Producer;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::ah::Ah;
use crate::qp::UdQp;

mod completions;
pub(crate) mod mapping;
mod ring;

pub(crate) use completions::FLUSH_MS;
pub use completions::{Reaped, SendCompletions};
use ring::Ring;

/// How many work requests are posted at once at most, and completed by one completion.
const CHAIN: usize = 16;

type PostFn = unsafe extern "C" fn(
    *mut bindings::ib_qp,
    *const bindings::ib_send_wr,
    *mut *const bindings::ib_send_wr,
) -> c_int;

/// What became of the frames since the last [`Sender::flush`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Posted {
    /// Frames that the device has now.
    pub frames: u32,
    /// Frames that it refused, and that were dropped.
    pub dropped: u32,
    /// Octets of those.
    pub dropped_bytes: usize,
    /// The error with which it did.
    pub error: Option<Error>,
    /// The last frame that the device has is not signalled, so that nothing will be heard of it
    /// until a later one completes. Only after a refusal: a driver that would stop its queue now
    /// must rather drain the ring.
    pub unsignalled: bool,
}

/// The half of a send ring that posts.
///
/// # Invariants
///
/// * `at` is the one producer's of the ring. The `pending` last slots that it filled are not posted.
/// * `wrs` has [`CHAIN`] elements, each linked to the next one, the last to none. Each is complete
///   but for what a frame determines, and refers to its own [`Ring::max_sge`] elements of `_sges`.
///   Neither vector ever moves its elements.
/// * The first `pending` of them are for the pending slots, in order; `pending <= CHAIN`.
/// * `ah` is the address handle of the last frame in the ring, if there is one.
/// * `post_send` is the operation of the queue pair's device.
pub struct Sender {
    ring: Arc<Ring>,
    post_send: PostFn,
    wrs: KVec<bindings::ib_ud_wr>,
    /// Owned here, used through the work requests.
    _sges: KVec<bindings::ib_sge>,
    at: Producer,
    pending: usize,
    ah: Option<Arc<Ah>>,
    posted: Posted,
}

// SAFETY: The pointers in the work requests are to the sender's own vectors; all else is `Send`.
unsafe impl Send for Sender {}

/// Makes the send ring of `qp`, with room for `size` frames (a power of two) of up to `max_sge`
/// parts each, which are sent with `qkey`.
///
/// # Errors
///
/// `EINVAL` if `size` is no power of two, or more than the queue pair or its completion queue take,
/// or `max_sge` is 0 or more than the queue pair takes; `EBUSY` if the completion queue has a ring;
/// `ENOMEM`.
///
/// # Context
///
/// Process context; may sleep.
pub fn send_ring(
    qp: &Arc<UdQp>,
    size: u32,
    max_sge: u32,
    qkey: u32,
) -> Result<(Sender, SendCompletions)> {
    let caps = qp.caps();
    if !size.is_power_of_two()
        || size > caps.send_wr
        || size > qp.send_cq().entries()
        || max_sge == 0
        || max_sge > caps.send_sge
    {
        return Err(EINVAL);
    }
    let post_send = qp.ops().post_send.ok_or(EOPNOTSUPP)?;
    let sge = bindings::ib_sge {
        addr: 0,
        length: 0,
        lkey: qp.pd().local_dma_lkey(),
    };
    let mut sges = KVec::from_elem(sge, CHAIN * max_sge as usize, GFP_KERNEL)?;
    let mut wrs = KVec::with_capacity(CHAIN, GFP_KERNEL)?;
    for _ in 0..CHAIN {
        wrs.push(bindings::ib_ud_wr::default(), GFP_KERNEL)?;
    }
    let ring = Arc::new(Ring::new(qp, size, max_sge)?, GFP_KERNEL)?;
    let at = Producer::new(&ring.shared);
    let completions = SendCompletions::new(&ring)?;

    let mut next = ptr::null_mut();
    let mut unused = &mut sges[..];
    for wr in wrs.iter_mut().rev() {
        let (sges, rest) = unused.split_at_mut(max_sge as usize);
        unused = rest;
        wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        wr.wr.sg_list = sges.as_mut_ptr();
        wr.wr.next = next;
        wr.remote_qkey = qkey;
        wr.port_num = qp.port();
        next = &raw mut wr.wr;
    }
    // INVARIANT: As was just built; the ring is empty.
    let sender = Sender {
        ring,
        post_send,
        wrs,
        _sges: sges,
        at,
        pending: 0,
        ah: None,
        posted: Posted::default(),
    };
    Ok((sender, completions))
}

impl Sender {
    /// How many frames the ring takes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.ring.shared.size()
    }

    /// How many more frames it takes now.
    #[inline]
    pub fn free(&mut self) -> u32 {
        self.at.look(&self.ring.shared);
        self.free_at_least()
    }

    /// How many frames are in it, as of the last look at completions ([`Self::free`] takes one).
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.at.in_flight()
    }

    /// How many were ever completed, modulo 2^32, as of the last look at completions.
    #[inline]
    pub fn completed(&self) -> u32 {
        self.at.tail()
    }

    /// Whether the chain is full, so that the next [`Self::post`] would send it first.
    ///
    /// The caller flushes a full chain itself, *after* it has accounted the last frame: a frame
    /// may be complete before the call that sends it returns.
    #[inline]
    pub fn chain_full(&self) -> bool {
        self.pending == CHAIN
    }

    /// At least how many more frames the ring takes, without a look at what was completed since
    /// [`Self::free`].
    #[inline]
    pub fn free_at_least(&self) -> u32 {
        self.at.free(&self.ring.shared)
    }

    /// Adds a frame for queue pair `qpn` at `ah` to the chain; [`Self::flush`] sends it.
    ///
    /// `signal` asks for a completion of just this frame.
    ///
    /// # Errors
    ///
    /// With the frame: `EBUSY` if the ring is full; `EINVAL` if `ah` is of another protection domain
    /// than the queue pair; `ENOMEM` if the frame has too many parts and no memory to join them;
    /// `EIO` if it cannot be mapped for DMA.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline(always)]
    pub fn post(
        &mut self,
        skb: TxSkb,
        ah: &Arc<Ah>,
        qpn: u32,
        signal: bool,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        if self.free_at_least() == 0 && self.free() == 0 {
            return Err((skb, EBUSY));
        }
        if self.pending == CHAIN {
            self.ring_doorbell();
        }
        if matches!(&self.ah, Some(last) if Arc::ptr_eq(last, ah)) {
            // SAFETY: There is room in both; the address handle is the last one, and was of the protection
            // domain then.
            unsafe { self.append(skb, ah, qpn, signal) }
        } else {
            // SAFETY: There is room in both.
            unsafe { self.append_to_another(skb, ah, qpn, signal) }
        }
    }

    /// Adds a frame to the chain that does not go where the last one went.
    ///
    /// # Errors
    ///
    /// As for [`Self::post`].
    ///
    /// # Safety
    ///
    /// Neither the ring nor the chain may be full.
    #[inline(never)]
    unsafe fn append_to_another(
        &mut self,
        skb: TxSkb,
        ah: &Arc<Ah>,
        qpn: u32,
        signal: bool,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        if !Arc::ptr_eq(ah.pd(), self.ring.qp().pd()) {
            return Err((skb, EINVAL));
        }
        let slot = self.ring.slot(self.at.head());
        // SAFETY: By this function's requirements, and as was just checked; the address handle follows.
        unsafe { self.append(skb, ah, qpn, signal) }?;
        // SAFETY: The slot was filled just now and has no address handle yet. It stays ours until the
        // doorbell rings.
        unsafe { ptr::write(&raw mut (*slot).retired, self.ah.replace(ah.clone())) };
        Ok(())
    }

    /// Adds a frame to the chain.
    ///
    /// # Errors
    ///
    /// As for [`Self::post`].
    ///
    /// # Safety
    ///
    /// Neither the ring nor the chain may be full. The address handle must be of the queue pair's
    /// protection domain. If it is not the last one, it must be made that before the doorbell rings, and the
    /// one before it be left in the slot.
    #[inline(always)]
    unsafe fn append(
        &mut self,
        mut skb: TxSkb,
        ah: &Arc<Ah>,
        qpn: u32,
        signal: bool,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        let (ring, head) = (&*self.ring, self.at.head());
        // SAFETY: `pending < CHAIN`, the length of the vector, by this function's requirements.
        let wr = unsafe { self.wrs.as_mut_ptr().add(self.pending) };
        // SAFETY: As above; nobody else has a reference.
        let sges = unsafe { (*wr).wr.sg_list };
        // SAFETY: A work request has `max_sge` elements, and nobody else has a reference to them. Slot
        // `head` is ours, since the ring is not full by this function's requirements.
        let num_sge = match unsafe { ring.map(&mut skb, sges, head) } {
            Ok(num_sge) => num_sge,
            Err(error) => return Err((skb, error)),
        };
        // SAFETY: As above.
        let wr = unsafe { &mut *wr };
        wr.wr.__bindgen_anon_1.wr_id = u64::from(head);
        wr.wr.num_sge = num_sge;
        wr.wr.send_flags = if signal { SIGNALED } else { 0 };
        wr.ah = ah.as_raw();
        wr.remote_qpn = qpn;
        let slot = ring.slot(head);
        // SAFETY: Slot `head` is empty and ours by the type invariant, since the ring is not full.
        // So there is nothing in it to be dropped.
        unsafe { ptr::write(&raw mut (*slot).skb, Some(skb)) };
        // INVARIANT: The slot is filled and its work request is complete.
        self.at.filled();
        self.pending = self.pending.wrapping_add(1);
        Ok(())
    }

    /// Whether there is something to [flush](Self::flush), or to tell of.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.pending > 0 || self.posted.frames | self.posted.dropped > 0
    }

    /// Hands the chain to the queue pair, and says what became of the frames since the last time.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline]
    pub fn flush(&mut self) -> Posted {
        if self.pending > 0 {
            self.ring_doorbell();
        }
        core::mem::take(&mut self.posted)
    }

    fn ring_doorbell(&mut self) {
        let wrs = self.wrs.as_mut_ptr();
        // SAFETY: `1 <= pending <= CHAIN`, the length of the vector; nobody else has a reference.
        let last = unsafe { &raw mut (*wrs.add(self.pending - 1)).wr };
        // SAFETY: As above.
        let first = unsafe { (&raw const (*wrs).wr).cast() };
        // SAFETY: As above.
        let next = unsafe {
            (*last).send_flags |= SIGNALED;
            core::mem::replace(&mut (*last).next, ptr::null_mut())
        };
        // A completion may come before the call returns, and must find the slots.
        self.at.publish(&self.ring.shared);
        // Some drivers leave this alone when they refuse all.
        let mut bad: *const bindings::ib_send_wr = first;
        // SAFETY: The queue pair is valid. The chain is complete by the type invariant; the memory
        // that it refers to is owned by the slots, and the address handles by the slots and `ah`,
        // until the completions half learns that the device is done or the queue pair is reset.
        let err = unsafe { (self.post_send)(self.ring.qp().as_raw(), first, &raw mut bad) };
        // SAFETY: As above. INVARIANT: The chain is linked as before.
        unsafe { (*last).next = next };
        let pending = core::mem::take(&mut self.pending);
        if err == 0 {
            self.posted.frames = self.posted.frames.wrapping_add(pending as u32);
            self.posted.unsignalled = false;
        } else {
            self.unwind(pending, bad, Error::from_errno(err));
        }
    }

    /// Takes back what the device refused: the work requests of a chain of `pending` from `bad` on.
    #[cold]
    fn unwind(&mut self, pending: usize, bad: *const bindings::ib_send_wr, err: Error) {
        // If the device names none of ours, it may have taken any of them: they stay until they
        // complete or the ring is drained.
        let good = self
            .wrs
            .iter()
            .take(pending)
            .position(|wr| ptr::eq(&raw const wr.wr, bad))
            .unwrap_or(pending);
        for _ in good..pending {
            // INVARIANT: The slot is emptied, below; its frame's address handle is the last one, the
            // one before it is what the slot holds.
            let n = self.at.take_back();
            // SAFETY: The device does not have this slot's work request, so that no completion
            // names it or a later one, and the completions half does not touch it.
            let slot = unsafe { &mut *self.ring.slot(n) };
            if let Some(skb) = slot.skb.take() {
                self.posted.dropped_bytes += skb.len();
                self.ring.shared.unsent().add(skb.len());
                // SAFETY: Mapped by `post`, and the device does not have it.
                unsafe { self.ring.unmap(n, &skb) };
                skb.drop_reason(DropReason::DevReady);
            }
            if let Some(ah) = slot.retired.take() {
                self.ah = Some(ah);
            }
        }
        self.at.publish(&self.ring.shared);
        self.posted.frames = self.posted.frames.wrapping_add(good as u32);
        self.posted.dropped = self.posted.dropped.wrapping_add((pending - good) as u32);
        self.posted.error = Some(err);
        self.posted.unsignalled = good > 0;
    }

    /// Drops the chain that was not posted and says how many frames that were; drops the address
    /// handle of the last frame.
    ///
    /// # Safety
    ///
    /// The device must not have any of the ring's frames.
    unsafe fn clear(&mut self) -> u32 {
        let pending = core::mem::take(&mut self.pending);
        if pending > 0 {
            self.unwind(pending, (&raw const self.wrs[0].wr).cast(), ESHUTDOWN);
        }
        self.ah = None;
        self.posted = Posted::default();
        pending as u32
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // SAFETY: This is the sender, on its way out.
        unsafe { self.ring.bequeath(self.ah.take()) };
    }
}

const SIGNALED: c_int = bindings::ib_send_flags_IB_SEND_SIGNALED as c_int;
