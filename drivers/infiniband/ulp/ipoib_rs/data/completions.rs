// SPDX-License-Identifier: GPL-2.0

//! Sent: the NAPI that takes completed frames off the send rings.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, OwnedDevice, RawDevice};
use ipoib_netdev::napi::{Context, Poll};
use ipoib_netdev::netdev_log;
use ipoib_proto::drop::DropReason;
use ipoib_proto::header::Header;
use ipoib_proto::rest::{Rest, REST_US};
use ipoib_proto::thresholds::Thresholds;
use ipoib_rdma::{
    Drained, FlushTime, RcCompletions, RcReaped, SendCompletions, SendReport, Sender,
};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::counters::Counters;
use crate::base::interface::Interface;
use crate::base::work::Work;
use crate::data::events::{to_poll, Events};
use crate::rc::conn::Conn;
use crate::rc::shared::Shared;

/// Has the poll of an interface's completions call `f` with its state, and waits for the result.
///
/// # Errors
///
/// `ENETDOWN` while the interface is down.
///
/// # Context
///
/// Process context, without the transmit lock; sleeps.
pub(crate) fn ask<R: Send>(
    dev: &Device<Interface>,
    f: impl FnOnce(&mut TxPoll) -> R + Send,
) -> Result<R> {
    let completions = dev.lock_tx().as_ref().map(|tx| tx.completions.clone());
    completions.ok_or(ENETDOWN)?.ask(f)
}

/// Has the poll of completions forget a connection by which nothing is in flight, or whose queue pair was reset.
///
/// # Context
///
/// As [`ask`].
pub(crate) fn forget(dev: &Device<Interface>, rc: &Conn) {
    // Without a poll there is nothing to forget. What it had is dropped here, where that may sleep.
    drop(ask(dev, |poll| poll.forget(rc)));
}

/// The state of the completion NAPI.
pub(crate) struct TxPoll {
    rc: Option<RcDone>,
    datagrams: Datagrams,
}

/// The part of [`TxPoll`] that does not depend on connections.
struct Datagrams {
    completions: SendCompletions,
    thresholds: Thresholds,
    rest: Rest,
    counters: Arc<Counters>,
    dev: OwnedDevice<Interface>,
}

/// Datagrams that left the ring.
#[derive(Default)]
struct Released {
    frames: u32,
    bytes: u32,
    /// There may be more.
    more: bool,
}

/// Counts frames that left the rings of connections.
#[inline(always)]
fn count_rc(dev: &RawDevice, reaped: &RcReaped, counters: &Counters) {
    // Wire headers are no part of the packets.
    let headers = Header::LEN * reaped.sent.frames as usize;
    counters.done.rc_frames.add(u64::from(reaped.sent.frames));
    let bytes = reaped.sent.bytes.wrapping_sub(headers);
    counters.done.rc_bytes.add(bytes as u64);
    if reaped.lost | reaped.unknown > 0 {
        count_unsent(dev, reaped, counters);
    }
}

#[cold]
fn count_unsent(dev: &RawDevice, reaped: &RcReaped, counters: &Counters) {
    counters.dropped(dev, DropReason::Flushed, u64::from(reaped.lost), 0);
    counters.done.unknown.add(u64::from(reaped.unknown));
}

/// The completions of what connections send.
pub(crate) struct RcDone {
    pub(crate) completions: RcCompletions<Arc<Conn>>,
    pub(crate) shared: Arc<Shared>,
}

impl RcDone {
    /// Frees what was sent.
    #[inline(always)]
    fn reap(&mut self, dev: &Device<Interface>, context: &Context<'_>) -> RcReaped {
        self.completions.reap(Some(context), |rc| {
            if let Some(tx) = dev.lock_tx().as_mut() {
                tx.connection_failed(dev, rc);
            }
        })
    }
}

/// Lets what waits for room go.
#[cold]
fn serve(dev: &Device<Interface>) {
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.service(dev);
    }
}

/// Starts the stack's queue, unless it is to stay stopped since so much waits.
#[cold]
fn start_queue(dev: &Device<Interface>, shared: Option<&Shared>) {
    dev.start_queue();
    // Pairs with the barrier in `Route::wait`: either we see `blocked`, or it stops the queue after we have started
    // it.
    smp_mb(Full);
    if shared.is_some_and(|shared| shared.is_blocked()) {
        // Under the lock, lest `Tx::service` clear it and start the queue before we stop it.
        let _guard = dev.lock_tx();
        if shared.is_some_and(|shared| shared.is_blocked()) {
            dev.stop_queue();
        }
    }
}

impl TxPoll {
    /// Creates the state of the poll.
    pub(crate) fn new(
        completions: SendCompletions,
        rc: Option<RcDone>,
        thresholds: Thresholds,
        counters: Arc<Counters>,
        dev: OwnedDevice<Interface>,
    ) -> Self {
        Self {
            rc,
            datagrams: Datagrams {
                completions,
                thresholds,
                rest: Rest::default(),
                counters,
                dev,
            },
        }
    }

    /// Handles the completions of a connection from now on.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are too many; `ENETDOWN` without connected mode.
    pub(crate) fn learn(&mut self, rc: Arc<Conn>) -> Result {
        let done = self.rc.as_mut().ok_or(ENETDOWN)?;
        done.completions.begin(rc.lane.clone(), rc)
    }

    /// Handles no more completions of a connection. Returns the reference to it.
    fn forget(&mut self, rc: &Conn) -> Option<Arc<Conn>> {
        let Datagrams { counters, dev, .. } = &self.datagrams;
        let (rc, lost) = self.rc.as_mut()?.completions.end(&rc.lane)?;
        counters.dropped(dev, DropReason::Flushed, u64::from(lost), 0);
        Some(rc)
    }

    /// Frees what is left on the ring of a QP that has stopped.
    pub(crate) fn drain(&mut self, dev: &RawDevice, sender: &mut Sender, time: &mut FlushTime<'_>) {
        if let Some(rc) = &mut self.rc {
            count_rc(dev, &rc.completions.drain(time), &self.datagrams.counters);
        }
        let mut left = Drained::default();
        if let Err(error) = self.datagrams.completions.drain(sender, time, &mut left) {
            netdev_log!(dev, Err, "send ring does not drain: {error:?}\n");
        }
        let counters = &self.datagrams.counters;
        let done = &counters.done;
        done.frames.add(u64::from(left.sent.frames));
        done.bytes.add(left.sent.bytes as u64);
        done.unknown.add(u64::from(left.unknown));
        let (errors, lost) = (u64::from(left.errors), u64::from(left.lost));
        counters.dropped(dev, DropReason::SendFailed, errors, 0);
        counters.dropped(dev, DropReason::Flushed, lost, 0);
    }
}

impl Datagrams {
    /// Frees datagrams that were sent. Says what left the ring, and whether there may be more.
    // As `RxPoll::poll_datagrams`.
    #[inline(always)]
    fn reap_datagrams(&mut self, context: &Context<'_>) -> Released {
        let reaped = self.completions.reap(Some(context));
        let done = &self.counters.done;
        done.frames.add(u64::from(reaped.sent.frames));
        done.bytes.add(reaped.sent.bytes as u64);
        if let Some(report) = self.completions.take_report() {
            self.not_sent(&report);
        }
        Released {
            frames: reaped.released.frames,
            bytes: reaped.released.bytes as u32,
            more: reaped.more,
        }
    }

    /// Counts what the device did not send, and has the QP recovered.
    #[cold]
    fn not_sent(&self, report: &SendReport) {
        let Self { counters, dev, .. } = self;
        let (errors, flushed) = (u64::from(report.errors), u64::from(report.flushed));
        counters.dropped(dev, DropReason::SendFailed, errors, 0);
        counters.dropped(dev, DropReason::Flushed, flushed, 0);
        counters.done.unknown.add(u64::from(report.unknown));
        if report.errors > 0 {
            netdev_log!(
                dev,
                Warn,
                limited,
                "{} sends failed, status {}\n",
                report.errors,
                report.status
            );
        }
        if report.errors | report.flushed > 0 {
            Interface::queue(dev, Work::Recover, 0);
        }
    }

    /// Polls, with `rc` if there can be connections.
    #[inline(always)]
    fn poll(&mut self, rc: Option<&mut RcDone>, context: &Context<'_>, budget: usize) -> usize {
        let due = rc.as_ref();
        let due = due.map(|rc| (self.completions.is_due(), rc.completions.is_due()));
        let (datagrams, connections) = to_poll(due);
        let mut released = Released::default();
        if datagrams {
            released = self.reap_datagrams(context);
        }
        let (completions, counters, dev) = (&self.completions, &self.counters, &self.dev);
        let (thresholds, rest) = (&self.thresholds, &mut self.rest);
        // Frames that left the rings of connections, which are not charged to the byte limit.
        let mut freed = 0;
        let mut shared = None;
        if let Some(rc) = rc {
            if connections {
                let reaped = rc.reap(dev, context);
                count_rc(dev, &reaped, counters);
                freed = reaped.sent.frames.wrapping_add(reaped.lost);
                released.more |= reaped.more;
            }
            shared = Some(&*rc.shared);
        }
        // Its barrier pairs with those in `UdRing::sent_last`, and where a frame begins to wait: either they
        // see the room, or we see that somebody waits for it.
        let mut stopped = dev.completed(context, released.frames, released.bytes);
        if freed > 0 && shared.is_some_and(|shared| shared.is_stalled()) {
            serve(dev);
            stopped = dev.completed(context, 0, 0);
        }
        let blocked = shared.is_some_and(|shared| shared.is_blocked());
        if stopped && !blocked && thresholds.may_wake(completions.free()) && dev.is_running() {
            counters.tx.wakes.add(1);
            start_queue(dev, shared);
        }
        // Freeing what was sent is not what the budget is for.
        if released.more {
            return budget;
        }
        // It rests if nobody waits for room, and there is enough until the end of a rest.
        if rest.after(released.frames.wrapping_add(freed), now_ms())
            && !stopped
            && !shared.is_some_and(|shared| shared.is_stalled())
            && thresholds.may_wake(completions.free())
        {
            context.rest(REST_US);
        }
        0
    }
}

impl Poll for TxPoll {
    const TX: bool = true;
    type Source = Events;

    // As for `RxPoll`.
    #[inline(always)]
    fn poll(&mut self, context: &Context<'_>, budget: usize) -> usize {
        // Compiled twice: without connections, nothing of it looks for them.
        match &mut self.rc {
            None => self.datagrams.poll(None, context, budget),
            Some(rc) => self.datagrams.poll(Some(rc), context, budget),
        }
    }
}
