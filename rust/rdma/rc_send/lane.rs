// SPDX-License-Identifier: GPL-2.0

//! A connection's queue pair with its send ring.

use core::cell::UnsafeCell;

use ipoib_netdev::relaxed::Relax;
use ipoib_rings::ring::Producer;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::sync::Arc;

use crate::rc::RcQp;
use crate::send::ring::{Ring, FIRST};

/// A queue pair and its send ring.
///
/// # Invariants
///
/// * `at` is the position of the ring's one producer. Only the [sender](super::RcSender) of the completion queue uses it.
/// * Once `is_closed` is true, the sender posts nothing more to the ring, and takes nothing back from it.
pub struct Lane {
    pub(super) ring: Ring<RcQp>,
    at: UnsafeCell<Producer>,
    is_closed: Atomic<bool>,
    /// A frame was acknowledged.
    has_worked: Atomic<bool>,
    /// The queue pair has refused a request.
    has_refused: Atomic<bool>,
    carries_frames: bool,
}

// SAFETY: `at` belongs to the sender.
unsafe impl Sync for Lane {}

impl Lane {
    /// Makes the ring of a queue pair, with room for as many requests as that takes, rounded down to a power of two. If it
    /// carries no frames, its requests are messages of the driver's own, which no count includes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair takes no sends; `EBUSY` if it has a ring; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. If there are requests in flight and the queue pair was not reset, dropping the last
    /// reference may sleep, too.
    pub fn new(qp: &Arc<RcQp>, carries_frames: bool) -> Result<Arc<Self>> {
        let caps = qp.caps();
        let size = 1 << caps.send_wr.checked_ilog2().ok_or(EINVAL)?;
        qp.claim()?;
        let (device, cq) = (qp.pd().device(), qp.send_cq());
        let ring = Ring::new(qp, device, cq, (), (size, caps.send_sge))?;
        let at = Producer::new(&ring.shared);
        let lane = Self {
            ring,
            at: UnsafeCell::new(at),
            is_closed: Atomic::new(false),
            has_worked: Atomic::new(false),
            has_refused: Atomic::new(false),
            carries_frames,
        };
        Ok(Arc::new(lane, GFP_KERNEL)?)
    }

    /// The queue pair.
    #[inline]
    pub fn qp(&self) -> &Arc<RcQp> {
        self.ring.qp()
    }

    /// Requests that were posted and are not done.
    pub fn in_flight(&self) -> u32 {
        let done = self.ring.shared.tail();
        self.ring.shared.head().wrapping_sub(done)
    }

    /// Returns true if nothing was ever posted.
    pub fn is_unused(&self) -> bool {
        self.ring.shared.head() == FIRST
    }

    /// The number of requests that are done, modulo 2^32.
    pub fn completed(&self) -> u32 {
        self.ring.shared.tail().wrapping_sub(FIRST)
    }

    /// Returns true if requests are acknowledged.
    pub fn has_worked(&self) -> bool {
        self.has_worked.get()
    }

    /// Returns true if the queue pair has refused a request. The caller puts the queue pair in error: requests in front of
    /// the refused one may be unsignalled, and complete only then.
    pub fn has_refused(&self) -> bool {
        self.has_refused.get()
    }

    /// Returns true if it carries frames.
    #[inline]
    pub(super) fn carries_frames(&self) -> bool {
        self.carries_frames
    }

    /// Notes that a request was acknowledged.
    #[inline]
    pub(super) fn works(&self) {
        if !self.has_worked.get() {
            self.has_worked.set(true);
        }
    }

    /// Notes that the queue pair has refused a request.
    pub(super) fn refuses(&self) {
        self.has_refused.set(true);
    }

    /// Notes that the sender is done with it.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Release);
    }

    /// Returns true if the sender is done with it.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// The sender's position in the ring.
    ///
    /// # Safety
    ///
    /// The caller must be the sender of the completion queue, and have no other reference to the position.
    #[inline(always)]
    #[expect(clippy::mut_from_ref)]
    pub(super) unsafe fn at(&self) -> &mut Producer {
        // SAFETY: By this function's requirements and the type invariant.
        unsafe { &mut *self.at.get() }
    }
}
