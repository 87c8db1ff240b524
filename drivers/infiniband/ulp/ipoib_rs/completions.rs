// SPDX-License-Identifier: GPL-2.0

//! Sent: the NAPI that takes completed frames off the send ring.

use core::convert::Infallible;

use ipoib_netdev::device::{OwnedDevice, RawDevice};
use ipoib_netdev::napi::{Context, Poll};
use ipoib_netdev::netdev_log;
use ipoib_proto::drop::DropReason;
use ipoib_proto::ring::Thresholds;
use ipoib_rdma::{SendCompletions, Sender};
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::counters::Counters;
use crate::interface::{Interface, RECOVER};
use crate::verbs::Events;

/// The state of the completion NAPI.
pub(crate) struct TxPoll {
    completions: SendCompletions,
    thresholds: Thresholds,
    counters: Arc<Counters>,
    dev: OwnedDevice<Interface>,
}

impl TxPoll {
    /// Puts it together.
    pub(crate) fn new(
        completions: SendCompletions,
        thresholds: Thresholds,
        counters: Arc<Counters>,
        dev: OwnedDevice<Interface>,
    ) -> Self {
        Self {
            completions,
            thresholds,
            counters,
            dev,
        }
    }

    /// Frees what is left on the ring of a QP that has stopped.
    pub(crate) fn drain(mut self, dev: &RawDevice, mut sender: Sender) {
        match self.completions.drain(&mut sender) {
            Ok(left) => {
                self.counters.done.frames.add(u64::from(left.frames));
                self.counters.done.bytes.add(left.bytes as u64);
                self.counters
                    .dropped(DropReason::Flushed, u64::from(left.flushed));
            }
            Err(error) => {
                netdev_log!(dev, Err, "send ring does not drain: {error:?}\n");
            }
        }
    }
}

impl Poll for TxPoll {
    const TX: bool = true;
    type Source = Events;
    type Question = Infallible;

    fn answer(&mut self, question: &mut Infallible) {
        match *question {}
    }

    fn poll(&mut self, _context: &Context<'_>, budget: usize) -> usize {
        let reaped = self.completions.reap(budget);
        if reaped.released_frames > 0 {
            self.counters.done.frames.add(u64::from(reaped.frames));
            self.counters.done.bytes.add(reaped.bytes as u64);
            self.dev
                .completed(reaped.released_frames, reaped.released_bytes as u32);
        }
        if reaped.failed {
            self.counters
                .dropped(DropReason::SendFailed, u64::from(reaped.errors));
            netdev_log!(
                &self.dev,
                Warn,
                limited,
                "{} sends failed, status {}\n",
                reaped.errors,
                reaped.status
            );
            self.dev.queue_task(RECOVER, 0);
        }
        if reaped.flushed > 0 {
            self.counters
                .dropped(DropReason::Flushed, u64::from(reaped.flushed));
            self.dev.queue_task(RECOVER, 0);
        }
        // Pairs with the barrier in `Line::send`.
        smp_mb(Full);
        if self.dev.queue_stopped()
            && self.thresholds.may_wake(self.completions.free())
            && self.dev.is_running()
        {
            self.counters.done.wakes.add(1);
            self.dev.start_queue();
        }
        // Freeing what was sent is not what the budget is for.
        if reaped.more {
            budget
        } else {
            0
        }
    }
}
