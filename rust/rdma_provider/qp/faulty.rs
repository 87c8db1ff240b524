// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of a device that has faults.

use ib_fabric::fault::{Direction, EventName, Quirk, Setting};
use ipoib_sys::bindings;
use kernel::sync::atomic::{Acquire, Relaxed};
use kernel::sync::Arc;

use super::{Kind, Qp, QpEvent, SendSide, NEVER};
use crate::clock::{now, MILLISECOND};
use crate::state::State;
use crate::wakeups::Wakeups;
use crate::work::Status;

impl Qp {
    /// Counts a request that ends with success; its status if a rule has another one. The special queue pairs are
    /// spared, since their traffic is nobody's to foresee.
    #[inline]
    fn end(&self, direction: Direction) -> Status {
        match self.fixed.kind {
            Kind::Smi | Kind::Gsi => Status::Success,
            Kind::Ud | Kind::Rc => self
                .fixed
                .faults
                .complete(direction)
                .unwrap_or(Status::Success),
        }
    }

    /// Status of a receive request that has got its message.
    #[inline]
    pub(super) fn receive_status(&self) -> Status {
        self.end(Direction::Receive)
    }

    /// Status of a send request that has ended so.
    #[inline]
    pub(super) fn send_status(&self, status: Status) -> Status {
        if status == Status::Success {
            self.end(Direction::Send)
        } else {
            status
        }
    }

    /// Completes the `n` oldest send requests with success, up to one that a rule makes fail: its status. It is
    /// the oldest one then.
    pub(super) fn settle_sends(
        &self,
        side: &mut SendSide,
        n: usize,
        wakeups: &mut Wakeups,
    ) -> Option<Status> {
        for _ in 0..n {
            let status = self.end(Direction::Send);
            if status != Status::Success {
                return Some(status);
            }
            self.finish_sends(&mut side.queue, 1, Status::Success, wakeups);
        }
        None
    }

    /// Makes the completion of a datagram say what it should not.
    #[inline]
    pub(super) fn distort(&self, wc: &mut bindings::ib_wc) {
        if self.fixed.faults.has(Quirk::NoGrhFlag) {
            wc.wc_flags &= !(bindings::ib_wc_flags_IB_WC_GRH as i32);
        }
        if self.fixed.faults.has(Quirk::ChecksumFlag) {
            wc.wc_flags |= bindings::ib_wc_flags_IB_WC_IP_CSUM_OK as i32;
        }
    }

    /// Reports that it takes no more requests from its shared receive queue: now, later or not at all.
    pub(super) fn report_last_receive(&self) {
        if self.fixed.faults.has(Quirk::NoLastWqe) {
            return;
        }
        match self.fixed.faults.number(Setting::LastWqeDelay) {
            Some(millis) => {
                let due = now().saturating_add(u64::from(millis) * MILLISECOND);
                self.due[2].store(due, Relaxed);
                self.fixed.faults.note_late();
            }
            None => self.note(QpEvent::LastReceive),
        }
    }

    /// Reports so if it is late, and time.
    pub(super) fn report_late(&self, now: u64) {
        if self.due[2].load(Relaxed) <= now {
            self.due[2].store(NEVER, Relaxed);
            self.note(QpEvent::LastReceive);
        }
    }

    /// Returns true if it is in the state Reset.
    pub(crate) fn is_reset(&self) -> bool {
        self.attributes().0.state == State::Reset
    }

    /// Returns true if it has left the state Reset before.
    pub(crate) fn has_left_reset(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Notes that the queue pair has left the state Reset.
    pub(crate) fn leave_reset(&self) {
        self.left.store(true, Relaxed);
    }

    /// Makes a change, and warns if another one is being made. Of two at a time, the one that begins first is looked at.
    ///
    /// # Context
    ///
    /// As `change`.
    pub(crate) fn change_alone<R>(&self, change: impl FnOnce() -> R) -> R {
        let is_alone = self.changing.cmpxchg(false, true, Relaxed).is_ok();
        if !is_alone {
            // SAFETY: It may be called in any context.
            unsafe { bindings::rdma_provider_warn_overlap() };
        }
        let result = change();
        if is_alone {
            self.changing.store(false, Relaxed);
        }
        result
    }

    /// Takes it to the state Error, unless it is in the state Reset.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's.
    pub fn break_down(self: &Arc<Self>, wakeups: &mut Wakeups) {
        let mut side = self.sends.lock();
        if side.attributes.state != State::Reset {
            self.break_both(&mut side, None, wakeups);
        }
    }

    /// Shows completions that were held back: all of its queues', or those that have waited long enough, since a turn
    /// with this number begins. All queue pairs of a device tell of each turn.
    ///
    /// # Context
    ///
    /// As for [`Qp::break_down`].
    pub fn show(&self, wakeups: &mut Wakeups, turn: Option<u32>) {
        for cq in [&self.fixed.send_cq, &self.fixed.receive_cq] {
            let wake = cq.show(turn);
            wakeups.add(cq, wake);
        }
    }

    /// Reports an event of the queue pair, of its completion queues or of its shared receive queue. An error of
    /// the queue pair takes it to the state Error (section 11.6.3.1). Other events are not its own: nothing happens.
    ///
    /// # Context
    ///
    /// As for [`Qp::break_down`], and hold no lock that a handler may want.
    pub fn report(self: &Arc<Self>, wakeups: &mut Wakeups, event: EventName) {
        // One that could not be destroyed does not report for its queues either.
        if !self.open.load(Acquire) {
            return;
        }
        let own = match event {
            EventName::QpFatal => QpEvent::Fatal,
            EventName::QpRequest => QpEvent::Request,
            EventName::QpAccess => QpEvent::Access,
            EventName::Established => QpEvent::Established,
            EventName::Drained => QpEvent::Drained,
            EventName::Migrated => QpEvent::Migrated,
            EventName::MigrationError => QpEvent::MigrationError,
            EventName::LastWqe => QpEvent::LastReceive,
            EventName::CqError => {
                self.fixed.send_cq.report_error();
                if !Arc::ptr_eq(&self.fixed.send_cq, &self.fixed.receive_cq) {
                    self.fixed.receive_cq.report_error();
                }
                return;
            }
            EventName::SrqError | EventName::SrqLimit => {
                if let Some(srq) = &self.fixed.srq {
                    match event {
                        EventName::SrqError => srq.notify_error(),
                        _ => srq.notify_limit(),
                    }
                }
                return;
            }
            _ => return,
        };
        if matches!(own, QpEvent::Fatal | QpEvent::Request | QpEvent::Access) {
            self.break_down(wakeups);
        }
        self.note(own);
    }

    /// Ends the queue pair and its queues for RDMA core, which has not destroyed them: they have no request, and their
    /// ULPs are not told of anything, a grace period of RCU later.
    ///
    /// # Context
    ///
    /// As for [`Qp::close`].
    pub fn abandon(self: &Arc<Self>) {
        self.close();
        self.fixed.send_cq.abandon();
        self.fixed.receive_cq.abandon();
        if let Some(srq) = &self.fixed.srq {
            srq.abandon();
        }
    }
}
