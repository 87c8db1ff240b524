// SPDX-License-Identifier: GPL-2.0

//! The half of a shared send ring that handles completions.

use ipoib_netdev::napi::{Context, MAX_BUDGET};
use ipoib_netdev::skb::{DropReason, TxSkb};
use ipoib_rings::unsent::Tally;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::slots::{Frame, Kind, Lane, Slots};
use super::RcSender;
use crate::cq::wr_id;
use crate::flush_time::FlushTime;

/// Completions that one call takes at most.
const BATCH: usize = MAX_BUDGET as usize;

/// Frames that left the ring, and stray completions.
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
}

impl RcReaped {
    fn add(&mut self, other: Self) {
        self.sent.merge(other.sent);
        self.lost = self.lost.wrapping_add(other.lost);
        self.unknown = self.unknown.wrapping_add(other.unknown);
        self.released.merge(other.released);
    }

    /// Adds charged frames that were sent.
    fn add_sent(&mut self, sent: Tally) {
        self.sent.merge(sent);
        self.released.merge(sent);
    }

    /// Adds a frame of `len` bytes that has left the ring. `sent` is false if sending it failed.
    fn add_frame(&mut self, slots: &Slots, kind: Kind, len: usize, sent: bool) {
        self.released.add(kind.charge(len));
        if kind == Kind::Own {
            slots.own.add_done();
        } else if sent {
            self.sent.add(len);
        } else {
            self.lost = self.lost.wrapping_add(1);
        }
    }
}

/// Counts of everything but charged frames that were sent.
#[derive(Default)]
struct Unusual {
    counts: RcReaped,
    /// True if a count is not 0.
    some: bool,
}

impl Unusual {
    #[cold]
    fn add_frame(&mut self, slots: &Slots, kind: Kind, len: usize, sent: bool) {
        self.some = true;
        self.counts.add_frame(slots, kind, len, sent);
    }

    #[cold]
    fn count_unknown(&mut self) {
        self.some = true;
        self.counts.unknown = self.counts.unknown.wrapping_add(1);
    }

    /// Takes the counts, and the frames that the device has refused.
    #[cold]
    fn take(&mut self, slots: &Slots) -> RcReaped {
        let mut counts = core::mem::take(self).counts;
        counts.released.merge(slots.ring.unsent().take());
        counts
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
    unusual: Unusual,
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
            unusual: Unusual::default(),
        })
    }

    /// Returns true if there may be something to [reap](Self::reap), completions of which there was an event, or
    /// [to take](Self::take_unusual), frames that the device refused.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.slots.cq().is_quiet() || self.slots.ring.unsent().has_some()
    }

    /// Takes completions and frees their frames, in `poll` if one runs. Calls `failed` for each frame that
    /// was lost, with its lane. Returns the charged frames that were sent, and true if there may be more
    /// completions; for all other frames see [`Self::take_unusual`].
    ///
    /// # Context
    ///
    /// Softirq or process context.
    #[inline]
    pub fn reap(
        &mut self,
        poll: Option<&Context<'_>>,
        mut failed: impl FnMut(&Lane),
    ) -> (Tally, bool) {
        let Self {
            slots,
            wcs,
            unusual,
        } = self;
        // In registers until the end.
        let mut usual = Tally::default();
        let wcs = slots.cq().poll(wcs, BATCH);
        for wc in wcs {
            complete(slots, wc, poll, (&mut usual, unusual), &mut failed);
        }
        (usual, wcs.len() == BATCH)
    }

    /// Takes the counts of everything but charged frames that were sent, since the last call; as a rule, there
    /// is nothing.
    #[inline]
    pub fn take_unusual(&mut self) -> Option<RcReaped> {
        let some = self.unusual.some || self.slots.ring.unsent().has_some();
        some.then(|| self.unusual.take(&self.slots))
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
            reaped.add_frame(&self.slots, frame.kind, frame.skb.len(), false);
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
    pub fn drain(&mut self, time: &mut FlushTime<'_>) -> RcReaped {
        let mut all = RcReaped::default();
        let most = self.slots.cq().entries() as usize;
        loop {
            // That many the queue holds at most, whatever the device says.
            for _ in 0..=most / BATCH {
                let (sent, more) = self.reap(None, |_| ());
                all.add_sent(sent);
                if !more {
                    break;
                }
            }
            if self.slots.ring.is_idle() || !time.wait() {
                break;
            }
        }
        if let Some(unusual) = self.take_unusual() {
            all.add(unusual);
        }
        all.lost = all.lost.wrapping_add(self.slots.in_flight());
        all
    }
}

/// Handles a completion; one of what is not in the ring is ignored. Charged frames that were sent are counted in `usual`,
/// everything else in `unusual`.
#[inline(always)]
fn complete(
    slots: &Slots,
    wc: &bindings::ib_wc,
    poll: Option<&Context<'_>>,
    (usual, unusual): (&mut Tally, &mut Unusual),
    failed: &mut impl FnMut(&Lane),
) {
    // SAFETY: This is the completions half, and the device says that it is done with it.
    let Some(mut frame) = (unsafe { slots.empty(wr_id(wc)) }) else {
        return unusual.count_unknown();
    };
    let mut sent = wc.status == bindings::ib_wc_status_IB_WC_SUCCESS;
    loop {
        let Frame {
            skb,
            lane,
            before,
            kind,
        } = frame;
        let len = skb.len();
        if sent && kind == Kind::Charged {
            usual.add(len);
        } else {
            unusual.add_frame(slots, kind, len, sent);
        }
        // SAFETY: The frame is in flight until it is counted below.
        let lane = unsafe { lane.as_ref() };
        if sent {
            lane.works();
            skb.napi_consume(poll);
        } else {
            lost(skb, lane, failed);
        }
        // The last look at the lane, which may leave then.
        lane.counts().add_done();
        if before == 0 {
            return;
        }
        // SAFETY: As above. A queue pair's sends complete in order: so have those in front of it, which asked for no
        // completion.
        let Some(next) = (unsafe { slots.empty(before) }) else {
            return;
        };
        // A failed request completes, so that those in front of it were sent.
        (frame, sent) = (next, true);
    }
}

#[cold]
fn lost(skb: TxSkb, lane: &Lane, failed: &mut impl FnMut(&Lane)) {
    skb.drop_reason(DropReason::DevReady);
    failed(lane);
}
