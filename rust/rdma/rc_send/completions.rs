// SPDX-License-Identifier: GPL-2.0

//! The half of a shared send ring that handles completions.

use ipoib_netdev::napi::{Context, MAX_BUDGET};
use ipoib_netdev::skb::{DropReason, TxSkb};
use ipoib_rings::unsent::Tally;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::slots::{Frame, Lane, Slots};
use super::RcSender;
use crate::cq::wr_id;
use crate::flush_time::FlushTime;

/// Completions that one call takes at most.
const BATCH: usize = MAX_BUDGET as usize;

/// Frames that left the ring, and completions of others.
#[derive(Clone, Copy, Default, Debug)]
pub struct RcReaped {
    /// Frames that were sent, without messages of the driver's own.
    pub sent: Tally,
    /// Frames that were not sent, or whose sending failed, without messages of the driver's own.
    pub lost: u32,
    /// Completions of requests that are not in the ring, which are ignored.
    pub unknown: u32,
    /// Frames that left the ring, sent or not, and those that the device has refused: to be reported to BQL.
    /// Bytes are counted as far as they were charged.
    pub released: Tally,
    /// True if there may be more completions.
    pub more: bool,
}

impl RcReaped {
    fn add(&mut self, other: Self) {
        self.sent.merge(other.sent);
        self.lost = self.lost.wrapping_add(other.lost);
        self.unknown = self.unknown.wrapping_add(other.unknown);
        self.released.merge(other.released);
        self.more = other.more;
    }

    /// Adds a frame that has left the ring.
    #[inline]
    fn release(&mut self, frame: &Frame) {
        self.released
            .add(if frame.charged { frame.skb.len() } else { 0 });
    }
}

/// The half of a shared send ring that handles completions, and frees what was sent.
///
/// # Invariants
///
/// This is the one completions half of `slots`; `wcs` has [`BATCH`] elements.
pub struct RcCompletions {
    slots: Arc<Slots>,
    wcs: KVec<bindings::ib_wc>,
}

// SAFETY: The pointers in the completions are not followed; all else is `Send`.
unsafe impl Send for RcCompletions {}

impl RcCompletions {
    pub(super) fn new(slots: &Arc<Slots>) -> Result<Self> {
        let wcs = KVec::from_elem(bindings::ib_wc::default(), BATCH, GFP_KERNEL)?;
        // INVARIANT: Made once for each ring.
        Ok(Self {
            slots: slots.clone(),
            wcs,
        })
    }

    /// Returns true if [`Self::reap`] may have something to do: completions of which there was an event, or
    /// frames that the device refused.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.slots.cq().is_quiet() || self.slots.ring.unsent().has_some()
    }

    /// Takes completions and frees their frames, in `poll` if one runs. Calls `failed` for each frame that
    /// was lost, with its lane.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    #[inline]
    pub fn reap(&mut self, poll: Option<&Context<'_>>, mut failed: impl FnMut(&Lane)) -> RcReaped {
        let mut reaped = RcReaped::default();
        let Self { slots, wcs } = self;
        let wcs = slots.cq().poll(wcs, BATCH);
        for wc in wcs {
            complete(slots, wc, poll, &mut reaped, &mut failed);
        }
        reaped.more = wcs.len() == BATCH;
        reaped.released.merge(self.slots.ring.unsent().take());
        reaped
    }

    /// Releases the charge of slow lanes' frames, and drops the frames of queue pairs that were reset, which
    /// never complete. `sender` is the other half of the ring.
    ///
    /// # Context
    ///
    /// As [`Self::reap`].
    pub fn sweep(&mut self, sender: &mut RcSender) -> RcReaped {
        let mut reaped = RcReaped::default();
        if !Arc::ptr_eq(&sender.slots, &self.slots) {
            return reaped;
        }
        sender.flush();
        let mut bytes = 0;
        let dropped = |frame: Frame| {
            reaped.release(&frame);
            self.slots.leaves(&frame);
            reaped.lost = reaped.lost.wrapping_add(u32::from(!frame.own));
            // SAFETY: The frame is in flight until it is counted below.
            let lane = unsafe { frame.lane.as_ref() };
            frame.skb.drop_reason(DropReason::DevReady);
            // The last look at the lane, which may leave then.
            lane.counts().add_done();
        };
        // SAFETY: This is the completions half, and the sender is borrowed and has posted all.
        unsafe { self.slots.sweep(|len| bytes += len, dropped) };
        reaped.released.bytes = reaped.released.bytes.wrapping_add(bytes);
        reaped
    }

    /// Waits for some `time` until all frames are done, for which the lanes' queue pairs must be in error. What is left
    /// then counts as lost: it is freed when the queue pairs have ended. The sender must be gone.
    ///
    /// # Context
    ///
    /// Process context, with the queue stopped and NAPI disabled; may sleep.
    pub fn drain(&mut self, time: &mut FlushTime) -> RcReaped {
        let mut all = RcReaped::default();
        loop {
            loop {
                all.add(self.reap(None, |_| ()));
                if !all.more {
                    break;
                }
            }
            if self.slots.ring.is_idle() || !time.wait() {
                break;
            }
        }
        all.lost = all.lost.wrapping_add(self.slots.in_flight());
        all
    }
}

/// Handles a completion; one of what is not in the ring is ignored.
#[inline]
fn complete(
    slots: &Slots,
    wc: &bindings::ib_wc,
    poll: Option<&Context<'_>>,
    reaped: &mut RcReaped,
    failed: &mut impl FnMut(&Lane),
) {
    let (mut id, mut status) = (wr_id(wc), wc.status);
    let mut is_ours = false;
    // SAFETY: This is the completions half, and the device says that it is done with it; and so it is with
    // those in front of it which asked for no completion, since a queue pair's sends complete in order.
    while let Some(frame) = unsafe { slots.empty(id) } {
        is_ours = true;
        reaped.release(&frame);
        slots.leaves(&frame);
        let Frame {
            skb,
            lane,
            before,
            own,
            ..
        } = frame;
        // SAFETY: The frame is in flight until it is counted below.
        let lane = unsafe { lane.as_ref() };
        if status == bindings::ib_wc_status_IB_WC_SUCCESS {
            lane.works();
            if !own {
                reaped.sent.add(skb.len());
            }
            skb.napi_consume(poll);
        } else {
            reaped.lost = reaped.lost.wrapping_add(u32::from(!own));
            lost(skb, lane, failed);
        }
        // The last look at the lane, which may leave then.
        lane.counts().add_done();
        if before == 0 {
            return;
        }
        // A failed request completes, so that those in front of it were sent.
        (id, status) = (before, bindings::ib_wc_status_IB_WC_SUCCESS);
    }
    if !is_ours {
        unknown(reaped);
    }
}

#[cold]
fn unknown(reaped: &mut RcReaped) {
    reaped.unknown = reaped.unknown.wrapping_add(1);
}

#[cold]
fn lost(skb: TxSkb, lane: &Lane, failed: &mut impl FnMut(&Lane)) {
    skb.drop_reason(DropReason::DevReady);
    failed(lane);
}
