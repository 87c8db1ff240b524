// SPDX-License-Identifier: GPL-2.0

//! The half of a send ring that handles completions.

use ipoib_netdev::napi::Context;
use ipoib_netdev::skb::DropReason;
use ipoib_rings::ring::Consumer;
use ipoib_rings::unsent::Tally;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{Ring, Sender};
use crate::cq::{wr_id, BATCH};
use crate::flush_time::FlushTime;
use crate::qp::QpState;

/// The most batches that one call takes.
const MAX_BATCHES: usize = 8;

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

/// What [`SendCompletions::drain`] has found in the ring.
#[derive(Clone, Copy, Default, Debug)]
pub struct Drained {
    /// Frames that were sent.
    pub sent: Tally,
    /// Frames that were not.
    pub lost: u32,
}

/// The half of a send ring that handles completions, and frees what was sent.
///
/// # Invariants
///
/// * `at` is the one consumer's of the ring.
/// * `wcs` has [`BATCH`] elements.
pub struct SendCompletions {
    ring: Arc<Ring>,
    wcs: KVec<bindings::ib_wc>,
    at: Consumer,
    report: SendReport,
}

// SAFETY: The pointers in the completions are not followed; all else is `Send`.
unsafe impl Send for SendCompletions {}

impl SendCompletions {
    pub(super) fn new(ring: &Arc<Ring>) -> Result<Self> {
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
    #[inline]
    pub fn reap(&mut self, poll: Option<&Context<'_>>) -> Reaped {
        let before = self.at.tail();
        let mut bytes = 0;
        let mut more = true;
        for _ in 0..MAX_BATCHES {
            let wcs = self.ring.qp().send_cq().poll(&mut self.wcs, BATCH);
            let mut emptying = Emptying {
                head: self.ring.shared.head(),
                ring: &self.ring,
                at: &mut self.at,
                report: &mut self.report,
            };
            for wc in wcs {
                emptying.complete(wc, poll, &mut bytes);
            }
            more = wcs.len() == BATCH;
            if !more {
                break;
            }
        }
        let frames = self.at.tail().wrapping_sub(before);
        if frames > 0 {
            self.at.give_back(&self.ring.shared);
        }
        let mut sent = Tally { frames, bytes };
        let mut released = sent;
        if self.report.some {
            let failed = core::mem::take(&mut self.report.released);
            sent.frames = frames.wrapping_sub(failed.frames);
            released.bytes = bytes.wrapping_add(failed.bytes);
        }
        released.merge(self.ring.shared.unsent().take());
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

    /// Requests an event at the next completion. If this returns true, poll again: there may be some already.
    #[inline]
    pub fn arm(&self) -> bool {
        self.ring.qp().send_cq().arm()
    }

    /// Empties the ring and resets the queue pair. That drops receives as well: drain that ring too.
    ///
    /// Frames have some `time` to be flushed; what is left after the reset is dropped, and counts as
    /// flushed, as does what was not posted yet.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `sender` is not the other half; otherwise the queue pair could not be reset, and
    /// the ring keeps what the device may still use.
    ///
    /// # Context
    ///
    /// Process context, with the queue stopped and NAPI disabled; may sleep.
    pub fn drain(&mut self, sender: &mut Sender, time: &mut FlushTime) -> Result<Drained> {
        if !Arc::ptr_eq(&self.ring, &sender.ring) {
            return Err(EINVAL);
        }
        let mut all = Drained::default();
        let qp = self.ring.qp().clone();
        if qp.state() != Ok(QpState::Reset) && qp.to_error().is_ok() {
            loop {
                self.reap_into(&mut all);
                if self.at.tail() == self.ring.shared.head() || !time.wait() {
                    break;
                }
            }
        }
        qp.to_reset()?;
        self.reap_into(&mut all);

        // SAFETY: The queue pair was reset, so that the device has nothing.
        let pending = unsafe { sender.clear() };
        all.lost = all.lost.wrapping_add(pending);
        // SAFETY: As above; the caller has both halves.
        unsafe {
            self.ring.clear(|skb| {
                all.lost = all.lost.wrapping_add(1);
                skb.drop_reason(DropReason::DevReady);
            });
        }
        // INVARIANT: All slots are empty.
        self.at.restart(&self.ring.shared);
        sender.at.look(&self.ring.shared);
        // Nobody reports them any more.
        self.ring.shared.unsent().take();
        Ok(all)
    }

    fn reap_into(&mut self, all: &mut Drained) {
        loop {
            let some = self.reap(None);
            all.sent.merge(some.sent);
            if let Some(report) = self.take_report() {
                let lost = report.errors.wrapping_add(report.flushed);
                all.lost = all.lost.wrapping_add(lost);
            }
            if !some.more {
                return;
            }
        }
    }
}

/// A ring of which completions are just being handled.
struct Emptying<'a> {
    ring: &'a Ring,
    at: &'a mut Consumer,
    report: &'a mut SendReport,
    /// The ring's head, loaded after the completions were taken.
    head: u32,
}

impl Emptying<'_> {
    /// Frees all slots up to the one that a completion names, and adds the bytes of what was sent.
    #[inline(always)]
    fn complete(&mut self, wc: &bindings::ib_wc, poll: Option<&Context<'_>>, bytes: &mut usize) {
        let is_ours = core::ptr::eq(wc.qp, self.ring.qp().as_raw());
        let Some(n) = self.at.named(wr_id(wc), self.head).filter(|_| is_ours) else {
            return self.count_unknown();
        };
        if wc.status == bindings::ib_wc_status_IB_WC_SUCCESS {
            self.free_sent(n.wrapping_add(1), poll, bytes);
        } else {
            self.fail(n, wc.status, poll, bytes);
        }
    }

    /// Frees the slots up to `end`, which is no more than the ring's head.
    // For nearly every completion; left to itself, the compiler calls it.
    #[inline(always)]
    fn free_sent(&mut self, end: u32, poll: Option<&Context<'_>>, bytes: &mut usize) {
        while self.at.tail() != end {
            let slot = self.ring.slot(self.at.tail());
            // SAFETY: Below the ring's head, as the caller checked, hence full and ours.
            let slot = unsafe { &mut *slot };
            if let Some(skb) = slot.skb.take() {
                *bytes = bytes.wrapping_add(skb.len());
                // SAFETY: It was in this slot, which is ours.
                unsafe { self.ring.unmap(self.at.tail(), &skb) };
                skb.napi_consume(poll);
            }
            if slot.retired.is_some() {
                slot.retired = None;
            }
            // INVARIANT: The slot was emptied.
            self.at.emptied();
        }
    }

    #[cold]
    fn count_unknown(&mut self) {
        self.report.some = true;
        self.report.unknown = self.report.unknown.wrapping_add(1);
    }

    /// Frees all slots up to `n`, which the device has failed to send.
    #[cold]
    fn fail(
        &mut self,
        n: u32,
        status: bindings::ib_wc_status,
        poll: Option<&Context<'_>>,
        bytes: &mut usize,
    ) {
        // Those in front were not signalled, and a failure would have completed them.
        self.free_sent(n, poll, bytes);
        let report = &mut *self.report;
        report.some = true;
        // SAFETY: As in `free_sent`.
        let slot = unsafe { &mut *self.ring.slot(self.at.tail()) };
        report.released.frames = report.released.frames.wrapping_add(1);
        if let Some(skb) = slot.skb.take() {
            report.released.bytes = report.released.bytes.wrapping_add(skb.len());
            // SAFETY: It was in this slot, which is ours.
            unsafe { self.ring.unmap(self.at.tail(), &skb) };
            skb.drop_reason(DropReason::DevReady);
        }
        slot.retired = None;
        // INVARIANT: The slot was emptied.
        self.at.emptied();
        if status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
            report.flushed = report.flushed.wrapping_add(1);
        } else {
            report.errors = report.errors.wrapping_add(1);
            report.status = status;
        }
    }
}
