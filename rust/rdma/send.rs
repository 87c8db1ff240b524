// SPDX-License-Identifier: GPL-2.0

//! The send ring of a datagram queue pair, in two halves.
//!
//! The [`Sender`] fills slots and posts them, under the transmit lock; [`SendCompletions`] empties them as
//! the device completes them, in NAPI. The two run concurrently, without a lock: a [ring] with one producer
//! and one consumer.
//!
//! [ring]: ipoib_rings::ring
//!
//! Requests are built in a chain that is posted with one call, when it is full or when the driver flushes it.
//! Only the last one is signalled: requests complete in order, so that one completion stands for all that were
//! posted before.
//!
//! The sender owns the address handle of the last frame. When a frame uses another one, its slot takes the
//! previous one over. So an address handle outlives all frames that use it, and a flow to one destination
//! costs no reference counting.

use core::ptr;

use ipoib_netdev::skb::TxSkb;
use ipoib_rings::ring::Producer;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::ah::Ah;
use crate::cq::Claim;
use crate::left::Left;
use crate::qp::{UdOffloads, UdQp};
use crate::send_chain::SendChain;

mod completions;
mod mapping;
pub(crate) mod ring;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub use completions::{Drained, Reaped, SendCompletions, SendReport};
use ring::{PostFn, Ring, SendQp};

/// A request refers to an address handle. The claim on the completion queue is held with the memory: if the queue pair cannot
/// be reset, no other ring has that queue before the queue pair is destroyed.
impl SendQp for UdQp {
    type Kept = Option<Arc<Ah>>;
    type Held = Claim;

    fn raw(&self) -> *mut bindings::ib_qp {
        self.as_raw()
    }

    fn forget_sends(&self) -> Result {
        // The epoch of the last post is not known; the one now is the worst.
        self.to_reset(Some(self.epoch()))
    }

    fn keep(&self, left: KBox<dyn Left>) {
        UdQp::keep(self, left);
    }
}

/// Frames that the device has refused.
#[derive(Clone, Copy, Default, Debug)]
pub struct Refusal {
    /// How many, which were dropped.
    pub frames: u32,
    /// The error of the last refusal.
    pub error: Option<Error>,
    /// The last frame that the device has taken is not signalled, so that nothing is reported before a later
    /// one completes. This happens only after a refusal. Instead of stopping its queue, a driver has to drain
    /// the ring.
    pub unsignalled: bool,
    /// The device was given a super-frame to segment, and refused: it is given none from now on.
    pub segments_refused: bool,
}

/// The most bytes of headers that a device has room for: of encapsulation, IPv4 and TCP, with all options.
const MAX_HEADERS: usize = 4 + 60 + 60;

/// Work on a frame that is left to the device.
#[derive(Clone, Copy)]
struct Work {
    checksum: bool,
    segments: Option<Lso>,
}

/// How a device segments a super-frame of TCP (large send offload).
#[derive(Clone, Copy)]
pub struct Lso {
    /// Bytes in front of its payload that each segment begins with.
    pub headers: u32,
    /// Bytes of its payload in each segment but the last.
    pub size: u32,
}

/// The half of a datagram queue pair's send ring that posts.
///
/// # Invariants
///
/// * `at` is the one producer's of the ring. The requests of the last slots that it filled are pending in `chain`,
///   in order, and complete.
/// * `ah` is the address handle of the last frame in the ring, if there is one.
/// * `post_send` is the operation of the queue pair's device.
pub struct Sender {
    ring: Arc<Ring<UdQp>>,
    post_send: PostFn,
    chain: SendChain<bindings::ib_ud_wr>,
    at: Producer,
    ah: Option<Arc<Ah>>,
    /// The device has taken frames that no [`Self::flush`] has told of.
    posted: bool,
    /// Since the last [`Self::take_refusal`].
    refusal: Refusal,
    offloads: UdOffloads,
    max_sge: usize,
}

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
/// Process context; may sleep. So must be dropping the half that is dropped last, which resets the queue pair if
/// something is posted.
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
    let wr = bindings::ib_ud_wr {
        remote_qkey: qkey,
        port_num: qp.port(),
        ..Default::default()
    };
    let chain = SendChain::new(qp.pd().local_dma_lkey(), max_sge, wr)?;
    let claim = qp.send_cq().claim()?;
    let device = qp.pd().device();
    let ring = Ring::new(qp, device, qp.send_cq(), claim, (size, max_sge))?;
    let ring = Arc::new(ring, GFP_KERNEL)?;
    let at = Producer::new(&ring.shared);
    let completions = SendCompletions::new(&ring)?;
    // INVARIANT: The ring is empty, and so is the chain.
    let sender = Sender {
        ring,
        post_send,
        chain,
        at,
        ah: None,
        posted: false,
        refusal: Refusal::default(),
        offloads: qp.offloads(),
        max_sge: max_sge as usize,
    };
    Ok((sender, completions))
}

impl Sender {
    /// The number of frames that the ring takes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.ring.shared.size()
    }

    /// The number of frames that it takes now.
    #[inline]
    pub fn free(&mut self) -> u32 {
        self.at.look(&self.ring.shared);
        self.free_at_least()
    }

    /// The number of frames that were ever completed, modulo 2^32, as of the last call of [`Self::free`].
    #[inline]
    pub fn completed(&self) -> u32 {
        self.at.tail(&self.ring.shared)
    }

    /// Returns true if the chain is full, so that the next [`Self::post`] would send it first.
    ///
    /// The caller flushes a full chain itself, *after* it has accounted the last frame: a frame may complete
    /// before the call that posts it returns.
    #[inline]
    pub fn chain_full(&self) -> bool {
        self.chain.is_full()
    }

    /// The number of frames that it has now, whether the device has them yet or not.
    pub fn in_flight(&mut self) -> u32 {
        self.at.look(&self.ring.shared);
        self.at.in_flight(&self.ring.shared)
    }

    /// A lower bound of [`Self::free`], as of its last call.
    #[inline]
    pub fn free_at_least(&self) -> u32 {
        self.at.free()
    }

    /// Work on frames that the device does: those that come to [`Self::post`] may have it left to be done.
    #[inline]
    pub fn offloads(&self) -> UdOffloads {
        self.offloads
    }

    /// The most elements that a frame is gathered from.
    #[inline]
    pub fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// Adds a frame that is no super-frame, for queue pair `qpn` at `ah`, to the chain; [`Self::flush`] sends it. With
    /// `checksum`, the frame's is partial, and the device completes it. The caller has looked; it is not checked again.
    ///
    /// # Errors
    ///
    /// With the frame: `EBUSY` if the ring is full; `EINVAL` if `ah` is of another protection domain
    /// than the queue pair, or the frame has a checksum that the device does not make;
    /// `ENOMEM` if the frame has too many parts and no memory to join them; `EIO` if it cannot be mapped for DMA.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline(always)]
    pub fn post(
        &mut self,
        skb: TxSkb,
        checksum: bool,
        ah: &Arc<Ah>,
        qpn: u32,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        debug_assert!(!skb.is_gso() && checksum == skb.needs_checksum());
        let work = Work {
            checksum,
            segments: None,
        };
        self.post_any(skb, work, ah, qpn)
    }

    /// Adds a super-frame of TCP whose checksum is yet to be made, which the device segments as `lso` says. The headers
    /// are taken off the frame, so that its length is that of the payload. The caller has looked at what the frame is; it
    /// is not checked again.
    ///
    /// # Errors
    ///
    /// Those of [`Self::post`], and `EINVAL` if the queue pair does not segment, or if there are no such headers with
    /// payload behind them.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline(always)]
    pub fn post_large(
        &mut self,
        mut skb: TxSkb,
        lso: Lso,
        ah: &Arc<Ah>,
        qpn: u32,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        let headers = lso.headers as usize;
        let possible = self.offloads.segments
            && (1..=MAX_HEADERS).contains(&headers)
            && headers <= skb.headlen()
            && headers < skb.len();
        debug_assert!(
            !possible
                || skb
                    .tcp_segments()
                    .is_some_and(|s| s.size == lso.size as usize)
        );
        if !possible || skb.pull(headers).is_err() {
            return Err((skb, EINVAL));
        }
        let work = Work {
            checksum: true,
            segments: Some(lso),
        };
        self.post_any(skb, work, ah, qpn)
    }

    /// Adds a frame on which the device has some work to do. If it is to be segmented, its headers are in front of its data.
    #[inline(always)]
    fn post_any(
        &mut self,
        skb: TxSkb,
        work: Work,
        ah: &Arc<Ah>,
        qpn: u32,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        // The device has to be able to complete the frame.
        if work.checksum && !self.offloads.checksums {
            return Err((skb, EINVAL));
        }
        if self.free_at_least() == 0 && self.free() == 0 {
            return Err((skb, EBUSY));
        }
        if self.chain.is_full() {
            self.make_room();
        }
        if matches!(&self.ah, Some(last) if Arc::ptr_eq(last, ah)) {
            // SAFETY: There is room in both; the address handle is the last one, and was of the protection
            // domain then.
            unsafe { self.append(skb, work, ah, qpn) }
        } else {
            // SAFETY: There is room in both.
            unsafe { self.append_to_another(skb, work, ah, qpn) }
        }
    }

    /// Adds a frame with another address handle than the last one.
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
        work: Work,
        ah: &Arc<Ah>,
        qpn: u32,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        if !Arc::ptr_eq(ah.pd(), self.ring.qp().pd()) {
            return Err((skb, EINVAL));
        }
        let slot = self.ring.slot(self.at.head());
        // SAFETY: By this function's requirements, and as was just checked; the address handle follows.
        unsafe { self.append(skb, work, ah, qpn) }?;
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
        skb: TxSkb,
        work: Work,
        ah: &Arc<Ah>,
        qpn: u32,
    ) -> core::result::Result<(), (TxSkb, Error)> {
        let fill = |wr: &mut bindings::ib_ud_wr, skb: &TxSkb| {
            wr.ah = ah.as_raw();
            wr.remote_qpn = qpn;
            if work.checksum {
                wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_IP_CSUM as c_int;
            }
            if let Some(Lso { headers, size }) = work.segments {
                wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_LSO;
                // They were taken off the front. The head may have moved since, and they with it.
                wr.header = skb.front().wrapping_sub(headers as usize).cast_mut().cast();
                wr.hlen = headers as c_int;
                wr.mss = size as c_int;
            }
        };
        // SAFETY: This is the half that posts, with its chain, whose requests have `max_sge` elements, as the ring's.
        // Neither is full by this function's requirements. INVARIANT: The request is complete.
        unsafe { self.ring.append(&mut self.at, &mut self.chain, skb, fill) }
    }

    /// Has frames sent with another Q_Key, also those that are in the chain.
    pub fn set_qkey(&mut self, qkey: u32) {
        self.chain.change(|wr| wr.remote_qkey = qkey);
    }

    /// Returns true if there is something to [flush](Self::flush), or to report.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.chain.pending() > 0 || self.posted || self.refusal.frames > 0
    }

    /// Posts the chain. Returns true if the device has taken frames since the last call.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline]
    pub fn flush(&mut self) -> bool {
        let taken = self.chain.pending() > 0 && self.ring_doorbell();
        if self.posted {
            self.posted = false;
            return true;
        }
        taken
    }

    /// Takes the account of what the device has refused since the last call; None if there is nothing.
    #[inline]
    pub fn take_refusal(&mut self) -> Option<Refusal> {
        (self.refusal.frames > 0).then(|| core::mem::take(&mut self.refusal))
    }

    /// Posts the chain, which is full.
    #[cold]
    fn make_room(&mut self) {
        self.posted |= self.ring_doorbell();
    }

    /// Posts the chain, which is not empty. Returns true if the device has taken frames.
    #[inline(always)]
    fn ring_doorbell(&mut self) -> bool {
        // SAFETY: The chain is not empty, and complete by the type invariant. The address handles are the slots' and
        // `ah`, until the completions half learns that the device is done or the queue pair is reset.
        let result = unsafe {
            self.ring
                .ring_doorbell(&self.at, &mut self.chain, self.post_send)
        };
        match result.result {
            Ok(()) => {
                self.refusal.unsignalled = false;
                true
            }
            Err(error) => {
                let taken = result.taken > 0;
                self.refused(result.refused, error);
                self.refusal.unsignalled |= taken;
                taken
            }
        }
    }

    /// Takes back the last `count` frames, which the device has refused.
    #[cold]
    fn refused(&mut self, count: usize, error: Error) {
        let large = self.unwind(count);
        if large && error == EINVAL {
            // Verbs do not say how much a device segments at a time.
            self.ring.qp().stop_segmenting();
            self.offloads.segments = false;
            self.refusal.segments_refused = true;
        }
        self.refusal.error = Some(error);
    }

    /// Takes back the last `count` frames, which the device does not have, and drops them. Returns true if the first of
    /// them was to be segmented.
    #[cold]
    fn unwind(&mut self, count: usize) -> bool {
        let (ring, last) = (&*self.ring, &mut self.ah);
        let mut large = false;
        for _ in 0..count {
            // SAFETY: This is the half that posts, and the device does not have the last slot's request. INVARIANT: The
            // slot's frame has the last address handle; the one before it is what the slot holds.
            unsafe {
                ring.take_back(&mut self.at, |skb, retired| {
                    large = skb.is_gso();
                    ring.shared.unsent().add(skb.len());
                    if retired.is_some() {
                        *last = retired;
                    }
                });
            }
        }
        self.at.publish(&self.ring.shared);
        self.refusal.frames = self.refusal.frames.wrapping_add(count as u32);
        large
    }

    /// Drops the frames of the chain, and the address handle of the last frame. Returns the number of frames that were
    /// dropped since the last [`Self::flush`].
    ///
    /// # Safety
    ///
    /// The device must not have any of the ring's frames.
    unsafe fn clear(&mut self) -> u32 {
        let pending = self.chain.clear();
        self.unwind(pending);
        self.ah = None;
        self.posted = false;
        core::mem::take(&mut self.refusal).frames
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // SAFETY: This is the sender, on its way out.
        unsafe { self.ring.bequeath(self.ah.take()) };
    }
}
