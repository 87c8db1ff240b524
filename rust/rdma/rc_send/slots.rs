// SPDX-License-Identifier: GPL-2.0

//! State of a shared send ring: [slots in any order](ipoib_rings::slots), their frames, and the lanes of those.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::skb::TxSkb;
use ipoib_rings::counts::Counts;
use ipoib_rings::slots::{Slot, Slots as Shared};
use ipoib_rings::sync::AtomicU32;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::Arc;

use crate::cq::{Claim, Cq};
use crate::rc::RcQp;
use crate::send::mapping::Mapping;

/// A queue pair that sends through a shared ring.
///
/// The sender counts frames that it posts, the completions half those that are done.
pub struct Lane {
    qp: Arc<RcQp>,
    counts: Counts,
    /// [`NEW`], [`WORKS`] or [`SLOW`].
    state: Atomic<u32>,
    /// [`APART`], [`HELD`] or [`LEAVES`]. The sender's of the one ring there is on the completion queue.
    place: Atomic<u32>,
    /// The queue pair has refused frames, which [`Slots::take_refusing`] has not reported. The sender's, too.
    refused: Atomic<bool>,
}

/// The ring does not hold the lane.
const APART: u32 = 0;
/// The ring holds it.
const HELD: u32 = 1;
/// The ring holds it until nothing is in flight.
const LEAVES: u32 = 2;

/// Nothing was ever acknowledged.
const NEW: u32 = 0;
/// The last acknowledgement was not long ago.
const WORKS: u32 = 1;
/// Frames in flight take so long that they are not charged to BQL, which all lanes share.
const SLOW: u32 = 2;

impl Lane {
    /// Makes a lane for a queue pair, which uses no other ring.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(qp: Arc<RcQp>) -> Result<Arc<Self>> {
        let lane = Self {
            qp,
            counts: Counts::new(),
            state: Atomic::new(NEW),
            place: Atomic::new(APART),
            refused: Atomic::new(false),
        };
        Ok(Arc::new(lane, GFP_KERNEL)?)
    }

    /// The queue pair.
    #[inline]
    pub fn qp(&self) -> &Arc<RcQp> {
        &self.qp
    }

    /// Frames that were posted and are not done.
    pub fn in_flight(&self) -> u32 {
        self.counts.in_flight()
    }

    /// Returns true if nothing was ever posted.
    pub fn is_unused(&self) -> bool {
        self.counts.is_unused()
    }

    /// The number of frames that are done, modulo 2^32.
    pub fn completed(&self) -> u32 {
        self.counts.done()
    }

    /// The counts of its frames.
    #[inline]
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Notes, as the sender, that the queue pair has refused a frame.
    #[cold]
    pub(super) fn refuses(&self) {
        self.refused.set(true);
    }

    /// Notes that a frame was acknowledged.
    #[inline]
    pub(super) fn works(&self) {
        if self.state.get() != WORKS {
            self.state.set(WORKS);
        }
    }

    /// Returns true if frames are acknowledged.
    pub fn has_worked(&self) -> bool {
        self.state.get() == WORKS
    }

    /// Returns true if its frames are not charged to BQL.
    #[inline]
    pub fn is_slow(&self) -> bool {
        self.state.get() == SLOW
    }

    /// Has its frames not charged until one is acknowledged.
    pub fn becomes_slow(&self) {
        self.state.set(SLOW);
    }
}

/// How a frame counts.
// So wide that `Frame` has no padding, which would be copied with each frame.
#[repr(u64)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is charged to BQL.
    Charged,
    /// It is not charged, since its lane is slow.
    Uncharged,
    /// It is a message of the driver's own: neither charged nor counted.
    Own,
}

impl Kind {
    /// Bytes of a frame of `len` bytes that are charged to BQL.
    pub(super) fn charge(self, len: usize) -> usize {
        match self {
            Self::Charged => len,
            Self::Uncharged | Self::Own => 0,
        }
    }
}

/// A frame in a slot.
///
/// # Invariants
///
/// The ring holds `lane`, in which the frame is in flight.
pub(super) struct Frame {
    pub(super) skb: TxSkb,
    pub(super) lane: NonNull<Lane>,
    /// The identifier of the unsignalled request in front of this one, which a completion of this one
    /// completes as well; 0 if there is none.
    pub(super) before: u64,
    pub(super) kind: Kind,
}

impl Frame {
    /// The lane of the frame.
    #[inline]
    pub(super) fn lane(&self) -> &Lane {
        // SAFETY: By the type invariant.
        unsafe { self.lane.as_ref() }
    }
}

/// A shared ring, whose producer is the sender, and whose consumer the completions half.
type Ring = Shared<Frame, KVVec<Slot<Frame>>, KVVec<AtomicU32>>;

/// # Invariants
///
/// * `mapping` has a place for each slot of `ring`.
/// * `lanes` has all lanes of which frames are in flight. So a frame costs no reference to its lane.
pub(super) struct Slots {
    pub(super) ring: Ring,
    /// The sender's; nobody's once that is gone.
    lanes: UnsafeCell<KVec<Arc<Lane>>>,
    pub(super) mapping: Mapping,
    /// The driver's own messages in the ring.
    pub(super) own: Counts,
    /// The first generation of the next ring on the completion queue.
    next_generation: Atomic<u32>,
    claim: Claim,
    cq: Arc<Cq>,
}

// SAFETY: All that it holds may be handled by any thread.
unsafe impl Send for Slots {}
// SAFETY: Each slot belongs to one half at a time, as `ring` says.
unsafe impl Sync for Slots {}

impl Slots {
    pub(super) fn new(cq: &Arc<Cq>, size: u32, max_sge: u32) -> Result<Self> {
        let mapping = Mapping::new(cq.device(), size, max_sge)?;
        let mut slots = KVVec::with_capacity(size as usize, GFP_KERNEL)?;
        let mut free = KVVec::with_capacity(size as usize, GFP_KERNEL)?;
        for index in 0..size {
            slots.push(Slot::new(), GFP_KERNEL)?;
            free.push(AtomicU32::new(index), GFP_KERNEL)?;
        }
        // SAFETY: They are vectors, which nobody else has.
        let ring = unsafe { Ring::new(slots, free) }.ok_or(EINVAL)?;
        let claim = cq.claim()?;
        // INVARIANT: So many places were made.
        Ok(Self {
            ring,
            lanes: UnsafeCell::new(KVec::new()),
            mapping,
            own: Counts::new(),
            next_generation: Atomic::new(claim.next),
            claim,
            cq: cq.clone(),
        })
    }

    #[inline]
    pub(super) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// The generation of this ring's first request, after the last one of the previous ring on the completion
    /// queue.
    pub(super) fn first_generation(&self) -> u32 {
        self.next_generation.get()
    }

    /// The number of frames in the ring, without the driver's own messages: exact when neither half runs.
    pub(super) fn in_flight(&self) -> u32 {
        let all = self.ring.size().wrapping_sub(self.ring.free());
        all.saturating_sub(self.own.in_flight())
    }

    /// Holds a lane before frames of it are posted.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The caller must be the sender, and the lane's queue pair complete on this ring's queue.
    pub(super) unsafe fn hold(&self, lane: &Arc<Lane>) -> Result {
        if lane.place.get() == HELD {
            return Ok(());
        }
        // SAFETY: By this function's requirements. There is no other sender for the completion queue, and so
        // none to which the lane's place belongs.
        unsafe { self.drop_idle() };
        if lane.place.get() == APART {
            // SAFETY: The sender's.
            unsafe { &mut *self.lanes.get() }.push(lane.clone(), GFP_ATOMIC)?;
        }
        lane.place.set(HELD);
        Ok(())
    }

    /// Lets go of a lane once none of its frames is in flight. That is checked now, and whenever another lane
    /// comes or goes.
    ///
    /// # Safety
    ///
    /// As for [`Self::hold`].
    pub(super) unsafe fn leave(&self, lane: &Lane) {
        if lane.place.get() == HELD {
            lane.place.set(LEAVES);
        }
        // SAFETY: The sender's.
        unsafe { self.drop_idle() };
    }

    /// Finds a lane whose queue pair has refused frames since it was found the last time.
    ///
    /// # Safety
    ///
    /// The caller must be the sender.
    pub(super) unsafe fn take_refusing(&self) -> Option<Arc<Lane>> {
        // SAFETY: By this function's requirements.
        let lanes = unsafe { &*self.lanes.get() };
        let lane = lanes.iter().find(|lane| lane.refused.get())?;
        lane.refused.set(false);
        Some(lane.clone())
    }

    /// Drops the lanes that leave and have nothing in flight.
    ///
    /// # Safety
    ///
    /// The caller must be the sender.
    unsafe fn drop_idle(&self) {
        // SAFETY: By this function's requirements.
        let lanes = unsafe { &mut *self.lanes.get() };
        // INVARIANT: The completions half does not access a lane after its last frame is done.
        lanes.retain(|lane| {
            let stays = lane.place.get() != LEAVES || lane.in_flight() > 0;
            if !stays {
                lane.place.set(APART);
            }
            stays
        });
    }

    /// Empties the slot of a completed request, as the completions half. None: it is not posted.
    ///
    /// # Safety
    ///
    /// The caller must be the completions half, and the device be done with it.
    #[inline(always)]
    pub(super) unsafe fn empty(&self, id: u64) -> Option<Frame> {
        let unmap = |index: u32, frame: &Frame| {
            // SAFETY: The frame was in this slot, which is ours.
            unsafe { self.mapping.unmap(index as usize, &frame.skb) };
        };
        // SAFETY: By this function's requirements.
        unsafe { self.ring.empty(id, unmap) }
    }

    /// Takes the charge of slow lanes' frames back, and drops the frames of queue pairs that were reset. Calls
    /// `discharged` with the length of each of the former that was charged, and `dropped` with the latter.
    ///
    /// # Safety
    ///
    /// Both halves must be the caller's, who has posted all that is pending.
    pub(super) unsafe fn sweep(
        &self,
        mut discharged: impl FnMut(usize),
        mut dropped: impl FnMut(Frame),
    ) {
        let keep = |frame: &mut Frame| {
            if frame.kind == Kind::Charged && frame.lane().is_slow() {
                frame.kind = Kind::Uncharged;
                discharged(frame.skb.len());
            }
            !frame.lane().qp().is_reset()
        };
        let drop = |index: u32, frame: Frame| {
            // SAFETY: The frame was in this slot, which is ours.
            unsafe { self.mapping.unmap(index as usize, &frame.skb) };
            dropped(frame);
        };
        // SAFETY: By this function's requirements; a queue pair that was reset has nothing.
        unsafe { self.ring.sweep(keep, drop) };
        // SAFETY: The sender is the caller's.
        unsafe { self.drop_idle() };
    }

    /// Sets the next generation, as the sender.
    pub(super) fn set_next_generation(&self, generation: u32) {
        self.next_generation.set(generation);
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let mut abandoned = 0u32;
        let drop = |index: u32, frame: Frame| {
            let qp = frame.lane().qp();
            let ended = qp.to_reset().or_else(|_| {
                // SAFETY: Both halves are gone, and there is no other ring for its completion queue until
                // the claim is, which will not take a lane of a queue pair that is destroyed.
                unsafe { qp.destroy() }
            });
            if ended.is_ok() {
                // SAFETY: The frame was in this slot, and a queue pair that was reset or destroyed has nothing.
                unsafe { self.mapping.unmap(index as usize, &frame.skb) };
            } else {
                // The device may still read the frame: it stays, and stays mapped.
                frame.skb.abandon();
                abandoned += 1;
            }
        };
        // SAFETY: Both halves are gone. What the device may still have stays where it is.
        unsafe { self.ring.sweep(|_| false, drop) };
        if abandoned > 0 {
            pr_err!("{} frames left to queue pairs that do not end\n", abandoned);
        }
        for lane in self.lanes.get_mut() {
            lane.place.set(APART);
        }
        self.claim.next = self.next_generation.get();
    }
}
