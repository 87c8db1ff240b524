// SPDX-License-Identifier: GPL-2.0

//! The half that handles completions of what connections send.

use ipoib_netdev::napi::{Context, MAX_BUDGET};
use ipoib_rings::ring::Consumer;
use ipoib_rings::unsent::Tally;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{Lane, Shared};
use crate::cq::wr_id;
use crate::flush_time::FlushTime;

/// Completions that one call takes at most.
const BATCH: usize = MAX_BUDGET as usize;

/// Frames that left the rings, and stray completions. Messages of the driver's own are not counted.
#[derive(Clone, Copy, Default, Debug)]
pub struct RcReaped {
    /// Frames that were sent.
    pub sent: Tally,
    /// Frames that were not sent, or whose sending failed.
    pub lost: u32,
    /// Completions of requests that are in no ring, which are ignored.
    pub unknown: u32,
    /// True if there may be more completions.
    pub more: bool,
}

/// A lane whose completions come here.
///
/// # Invariants
///
/// `at` is the one consumer's of the lane's ring.
struct Entry<T> {
    lane: Arc<Lane>,
    at: Consumer,
    owner: T,
}

/// The half that handles completions, and frees what was sent. `T` is what each lane belongs to.
///
/// # Invariants
///
/// * This is the one consumer of the rings of lanes that complete on `shared.cq`.
/// * `lanes` is in the order of the rings' tags; `wcs` has [`BATCH`] elements.
pub struct RcCompletions<T> {
    shared: Arc<Shared>,
    wcs: KVec<bindings::ib_wc>,
    lanes: KVec<Entry<T>>,
    /// The place of the lane that had the last completion.
    last: usize,
}

// SAFETY: The pointers in the completions are not followed; all else is `Send` if `T` is.
unsafe impl<T: Send> Send for RcCompletions<T> {}

impl<T> RcCompletions<T> {
    pub(super) fn new(shared: &Arc<Shared>, most: usize) -> Result<Self> {
        let wcs = KVec::from_elem(bindings::ib_wc::default(), BATCH, GFP_KERNEL)?;
        // INVARIANT: Made once for each claim of a completion queue.
        Ok(Self {
            shared: shared.clone(),
            wcs,
            lanes: KVec::with_capacity(most, GFP_KERNEL)?,
            last: 0,
        })
    }

    /// Handles completions of a lane from now on. Nothing may have been posted to it before.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the lane completes elsewhere, or is here; `ENOSPC` if there are too many.
    ///
    /// # Context
    ///
    /// Any; does not allocate.
    pub fn begin(&mut self, lane: Arc<Lane>, owner: T) -> Result {
        let tag = lane.ring.tag();
        let at = self
            .lanes
            .partition_point(|entry| entry.lane.ring.tag() < tag);
        let is_there = self
            .lanes
            .get(at)
            .is_some_and(|entry| entry.lane.ring.tag() == tag);
        if is_there || !Arc::ptr_eq(lane.qp().send_cq(), &self.shared.cq) {
            return Err(EINVAL);
        }
        // INVARIANT: There is one half for the queue, and it had none for the lane.
        let entry = Entry {
            at: Consumer::new(&lane.ring.shared),
            lane,
            owner,
        };
        self.lanes
            .insert_within_capacity(at, entry)
            .map_err(|_| ENOSPC)
    }

    /// Handles no more completions of a lane that the sender has [closed](super::RcSender::close), if nothing is in flight or
    /// its queue pair was reset. Returns the owner, to be dropped where that may be, and how many frames were lost. None
    /// otherwise.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    pub fn end(&mut self, lane: &Lane) -> Option<(T, u32)> {
        let at = self.find(lane.ring.tag())?;
        // A lane of another queue may have the same tag.
        let is_it = |entry: &&mut Entry<T>| core::ptr::eq(&raw const *entry.lane, lane);
        let entry = self.lanes.get_mut(at).filter(is_it)?;
        let head = lane.ring.shared.head();
        let is_done = lane.is_closed() && (lane.qp().is_reset() || entry.at.tail() == head);
        if !is_done {
            return None;
        }
        // SAFETY: The sender is done with the lane, and so is the device.
        let lost = unsafe { entry.drop_all() };
        let entry = self.lanes.remove(at).ok()?;
        Some((entry.owner, lost))
    }

    /// Returns true if there may be something to [reap](Self::reap): completions of which there was an event.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.shared.cq.is_quiet()
    }

    /// Takes completions and frees their frames, in `poll` if one runs. Calls `failed` with the lane's owner for each request
    /// that was not sent.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    #[inline]
    pub fn reap(&mut self, poll: Option<&Context<'_>>, mut failed: impl FnMut(&T)) -> RcReaped {
        let Self {
            shared,
            wcs,
            lanes,
            last,
        } = self;
        let mut reaped = RcReaped::default();
        let wcs = shared.cq.poll(wcs, BATCH);
        for wc in wcs {
            let Some(entry) = entry(lanes, last, wr_id(wc)) else {
                reaped.unknown = reaped.unknown.wrapping_add(1);
                continue;
            };
            if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
                entry.not_sent(wr_id(wc), &mut reaped, &mut failed);
                continue;
            }
            let Entry { lane, at, .. } = entry;
            let ring = &lane.ring;
            let Some(n) = ring.named(at, wr_id(wc), ring.shared.head()) else {
                reaped.unknown = reaped.unknown.wrapping_add(1);
                continue;
            };
            let (first, end) = (at.tail(), n.wrapping_add(1));
            // SAFETY: The completion names slot `n`, which is ours, as are those in front.
            let bytes = unsafe { ring.free_sent(at, end, poll) };
            at.give_back(&ring.shared);
            lane.works();
            if lane.carries_frames() {
                let frames = end.wrapping_sub(first);
                reaped.sent.merge(Tally { frames, bytes });
            }
        }
        reaped.more = wcs.len() == BATCH;
        reaped
    }

    /// Waits for some `time` until nothing is in flight, for which the lanes' queue pairs must be in error. Then resets the
    /// queue pairs that have something left, which is lost. If a queue pair cannot be reset, its frames are freed when it is
    /// destroyed. The sender must be gone.
    ///
    /// # Context
    ///
    /// Process context, with the queue stopped and NAPI disabled; may sleep.
    pub fn drain(&mut self, time: &mut FlushTime<'_>) -> RcReaped {
        let mut all = RcReaped::default();
        let most = self.shared.cq.entries() as usize;
        loop {
            // That many the queue holds at most, whatever the device says.
            for _ in 0..=most / BATCH {
                let some = self.reap(None, |_| ());
                all.sent.merge(some.sent);
                all.lost = all.lost.wrapping_add(some.lost);
                all.unknown = all.unknown.wrapping_add(some.unknown);
                if !some.more {
                    break;
                }
            }
            let mut lanes = self.lanes.iter();
            if lanes.all(|entry| entry.lane.in_flight() == 0) || !time.wait() {
                break;
            }
        }
        for entry in &mut self.lanes {
            let lane = &entry.lane;
            let in_flight = lane.in_flight();
            if in_flight == 0 {
                continue;
            }
            let lost = if self.shared.is_closed() && lane.qp().to_reset().is_ok() {
                // SAFETY: The sender is gone, and the device is done.
                unsafe { entry.drop_all() }
            } else if lane.carries_frames() {
                in_flight
            } else {
                0
            };
            all.lost = all.lost.wrapping_add(lost);
        }
        all
    }

    /// The place of the lane whose ring has a tag.
    fn find(&self, tag: u64) -> Option<usize> {
        let tag_of = |entry: &Entry<T>| entry.lane.ring.tag();
        self.lanes.binary_search_by_key(&tag, tag_of).ok()
    }
}

/// The lane whose request has an identifier.
#[inline(always)]
fn entry<'a, T>(lanes: &'a mut [Entry<T>], last: &mut usize, id: u64) -> Option<&'a mut Entry<T>> {
    let is_it = |entry: &Entry<T>| (entry.lane.ring.tag() ^ id) >> 32 == 0;
    if !lanes.get(*last).is_some_and(is_it) {
        *last = find_other(lanes, id)?;
    }
    lanes.get_mut(*last)
}

#[inline(never)]
fn find_other<T>(lanes: &[Entry<T>], id: u64) -> Option<usize> {
    let tag_of = |entry: &Entry<T>| entry.lane.ring.tag() >> 32;
    lanes.binary_search_by_key(&(id >> 32), tag_of).ok()
}

impl<T> Entry<T> {
    /// Handles a completion of a request that was not sent.
    #[cold]
    fn not_sent(&mut self, id: u64, reaped: &mut RcReaped, failed: &mut impl FnMut(&T)) {
        let ring = &self.lane.ring;
        let Some(n) = ring.named(&self.at, id, ring.shared.head()) else {
            reaped.unknown = reaped.unknown.wrapping_add(1);
            return;
        };
        let first = self.at.tail();
        // Those in front were not signalled, and a failure would have completed them.
        //
        // SAFETY: The completion names slot `n`, which is ours, as are those in front.
        let (bytes, lost) = unsafe {
            let bytes = ring.free_sent(&mut self.at, n, None);
            (bytes, ring.free_unsent(&mut self.at, n.wrapping_add(1)))
        };
        self.at.give_back(&ring.shared);
        let frames = n.wrapping_sub(first);
        if frames > 0 {
            self.lane.works();
        }
        if self.lane.carries_frames() {
            reaped.sent.merge(Tally { frames, bytes });
            reaped.lost = reaped.lost.wrapping_add(lost.frames);
        }
        failed(&self.owner);
    }

    /// Drops everything in the ring. Returns how many frames were lost.
    ///
    /// # Safety
    ///
    /// The sender and the device must be done with the ring.
    unsafe fn drop_all(&mut self) -> u32 {
        let ring = &self.lane.ring;
        let head = ring.shared.head();
        // SAFETY: They are full, and ours by this function's requirements.
        let lost = unsafe { ring.free_unsent(&mut self.at, head) };
        self.at.give_back(&ring.shared);
        if self.lane.carries_frames() {
            lost.frames
        } else {
            0
        }
    }
}
