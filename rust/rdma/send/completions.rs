// SPDX-License-Identifier: GPL-2.0

//! The half of a send ring that handles completions.

use ipoib_netdev::napi::{Context, MAX_BUDGET};
use ipoib_rings::ring::Consumer;
use ipoib_rings::unsent::Tally;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::ring::Ring;
use super::Sender;
use crate::cq::wr_id;
use crate::flush_time::FlushTime;
use crate::qp::{QpState, UdQp};

/// Completions that one call takes at most.
const BATCH: usize = MAX_BUDGET as usize;

/// Frames that left the ring.
#[derive(Clone, Copy, Default, Debug)]
pub struct Reaped {
    /// Frames that were sent.
    pub sent: Tally,
    /// Frames that left the ring, sent or not, and those that the device has
    /// refused: to be reported to BQL.
    pub released: Tally,
    /// True if there may be more completions.
    pub more: bool,
}

/// Completions of frames that were not sent.
#[derive(Clone, Copy, Default, Debug)]
pub struct SendReport {
    /// Frames that the device failed to send, so that the queue pair may want [`crate::UdQp::recover_sqe`].
    pub errors: u32,
    /// Frames that it flushed, since the queue pair is in error.
    pub flushed: u32,
    /// Completions of requests that are not in the ring, which are ignored.
    pub unknown: u32,
    /// The status of the last failure, `IB_WC_*`.
    pub status: u32,
    /// Frames that left the ring.
    released: Tally,
    /// True if a count is not 0.
    some: bool,
}

/// Outcome of [`SendCompletions::drain`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Drained {
    /// Frames that were sent.
    pub sent: Tally,
    /// Frames that the device failed to send.
    pub errors: u32,
    /// Frames that were not sent, since the queue pair has stopped.
    pub lost: u32,
    /// Completions of requests that are not in the ring, which are ignored.
    pub unknown: u32,
}

/// The half of a send ring that handles completions, and frees what was sent.
///
/// # Invariants
///
/// * `at` is the one consumer's of the ring.
/// * `wcs` has [`BATCH`] elements.
pub struct SendCompletions {
    ring: Arc<Ring<UdQp>>,
    wcs: KVec<bindings::ib_wc>,
    at: Consumer,
    report: SendReport,
}

// SAFETY: The pointers in the completions are not followed; all else is `Send`.
unsafe impl Send for SendCompletions {}

impl SendCompletions {
    pub(super) fn new(ring: &Arc<Ring<UdQp>>) -> Result<Self> {
        let wcs = KVec::from_elem(bindings::ib_wc::default(), BATCH, GFP_KERNEL)?;
        // INVARIANT: The ring is empty.
        Ok(Self {
            ring: ring.clone(),
            wcs,
            at: Consumer::new(&ring.shared),
            report: SendReport::default(),
        })
    }

    /// The number of frames that the ring takes now.
    #[inline]
    pub fn free(&self) -> u32 {
        self.at.free(&self.ring.shared)
    }

    /// Returns true if [`Self::reap`] may have something to do: completions of which there was an event, or
    /// frames that the device refused.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.ring.qp().send_cq().is_quiet() || self.ring.shared.unsent().has_some()
    }

    /// Takes completions and frees their frames, in `poll` if one runs.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    // For nearly every frame; left to itself, the compiler calls it.
    #[inline(always)]
    pub fn reap(&mut self, poll: Option<&Context<'_>>) -> Reaped {
        let ring = &*self.ring;
        // In registers until the end.
        let (mut at, mut bytes) = (self.at, 0usize);
        let wcs = ring.qp().send_cq().poll(&mut self.wcs, BATCH);
        let head = ring.shared.head();
        // Behind all that were named; those in front of it are ours.
        let mut end = at;
        for wc in wcs {
            let Some(n) = ring.named(&end, wr_id(wc), head) else {
                self.report.count_unknown();
                continue;
            };
            end.pass(n);
            if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
                // SAFETY: The completion names slot `n`, which is ours, as are those in front.
                let freed = unsafe { self.report.free_failed(ring, at, n, wc.status) };
                at = freed.0;
                bytes = bytes.wrapping_add(freed.1);
            }
        }
        // SAFETY: As above.
        let sent = unsafe { ring.free_sent(&mut at, end.tail(), poll) };
        bytes = bytes.wrapping_add(sent);
        let more = wcs.len() == BATCH;
        let frames = at.tail().wrapping_sub(self.at.tail());
        if frames > 0 {
            // INVARIANT: The slots were emptied.
            self.at = at;
            self.at.give_back(&ring.shared);
        }
        let mut sent = Tally { frames, bytes };
        let mut released = sent;
        if self.report.some {
            let failed = core::mem::take(&mut self.report.released);
            sent.frames = frames.wrapping_sub(failed.frames);
            released.bytes = bytes.wrapping_add(failed.bytes);
        }
        released.merge(ring.shared.unsent().take());
        Reaped {
            sent,
            released,
            more,
        }
    }

    /// Takes the counts of completions of frames that were not sent since the last call; None if there were none.
    #[inline]
    pub fn take_report(&mut self) -> Option<SendReport> {
        self.report.some.then(|| core::mem::take(&mut self.report))
    }

    /// Empties the ring and resets the queue pair. That drops receives as well: drain that ring too.
    ///
    /// Frames have some `time` to be flushed; what is left after the reset is dropped, and counts as
    /// lost, as does what was not posted yet. Adds what became of the frames to `all`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `sender` is not the other half; otherwise the queue pair could not be reset, and
    /// the ring keeps what the device may still use. That counts as lost, too.
    ///
    /// # Context
    ///
    /// Process context, with the queue stopped and NAPI disabled; may sleep.
    pub fn drain(
        &mut self,
        sender: &mut Sender,
        time: &mut FlushTime<'_>,
        all: &mut Drained,
    ) -> Result {
        if !Arc::ptr_eq(&self.ring, &sender.ring) {
            return Err(EINVAL);
        }
        let qp = self.ring.qp().clone();
        let has_frames = self.at.tail() != self.ring.shared.head();
        let posted = has_frames.then(|| qp.epoch());
        if qp.state() != Ok(QpState::Reset) && qp.to_error().is_ok() {
            loop {
                self.reap_into(all);
                if self.at.tail() == self.ring.shared.head() || !time.wait() {
                    break;
                }
            }
        }
        let reset = qp.to_reset(posted);
        self.reap_into(all);
        if reset.is_err() {
            let left = sender.at.head().wrapping_sub(self.at.tail());
            let refused = core::mem::take(&mut sender.refusal).frames;
            all.lost = all.lost.wrapping_add(left.wrapping_add(refused));
            return reset;
        }

        // SAFETY: The queue pair was reset, so that the device has nothing.
        let dropped = unsafe { sender.clear() };
        all.lost = all.lost.wrapping_add(dropped);
        let head = self.ring.shared.head();
        // SAFETY: As above: they are full, and ours.
        let left = unsafe { self.ring.free_unsent(&mut self.at, head) };
        all.lost = all.lost.wrapping_add(left.frames);
        self.at.give_back(&self.ring.shared);
        sender.at.look(&self.ring.shared);
        // Nobody reports them any more.
        self.ring.shared.unsent().take();
        Ok(())
    }

    /// Takes all completions there are, of which the queue holds so many at most, whatever the device says.
    fn reap_into(&mut self, all: &mut Drained) {
        let most = self.ring.qp().send_cq().entries() as usize;
        for _ in 0..=most / BATCH {
            let some = self.reap(None);
            all.sent.merge(some.sent);
            if let Some(report) = self.take_report() {
                all.errors = all.errors.wrapping_add(report.errors);
                all.lost = all.lost.wrapping_add(report.flushed);
                all.unknown = all.unknown.wrapping_add(report.unknown);
            }
            if !some.more {
                return;
            }
        }
    }
}

impl SendReport {
    #[cold]
    fn count_unknown(&mut self) {
        self.some = true;
        self.unknown = self.unknown.wrapping_add(1);
    }

    /// Frees the slots up to `n`, which the device has failed to send, and returns where the consumer is then, and how
    /// many bytes were sent.
    ///
    /// # Safety
    ///
    /// The slots must be full, and the caller's.
    #[cold]
    unsafe fn free_failed(
        &mut self,
        ring: &Ring<UdQp>,
        mut at: Consumer,
        n: u32,
        status: bindings::ib_wc_status,
    ) -> (Consumer, usize) {
        // Those in front were not signalled, and a failure would have completed them.
        //
        // SAFETY: By this function's requirements.
        let (sent, failed) = unsafe {
            let sent = ring.free_sent(&mut at, n, None);
            (sent, ring.free_unsent(&mut at, n.wrapping_add(1)))
        };
        self.some = true;
        self.released.merge(failed);
        if status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
            self.flushed = self.flushed.wrapping_add(1);
        } else {
            self.errors = self.errors.wrapping_add(1);
            self.status = status;
        }
        (at, sent)
    }
}
