// SPDX-License-Identifier: GPL-2.0

//! Completions of a queue pair's requests.

use ipoib_sys::bindings;
use kernel::sync::Arc;

use super::queue::SendEntry;
use super::{Qp, QpEvent, ReceiveEntry, ReceiveSide, SendSide, WorkQueue};
use crate::state::State;
use crate::wakeups::Wakeups;
use crate::work::{as_raw, Status};

impl Qp {
    /// Takes the sending half to the state Error, with its oldest request failed for a reason of its own, if
    /// there is one.
    pub(super) fn break_sends(
        &self,
        side: &mut SendSide,
        reason: Option<Status>,
        wakeups: &mut Wakeups,
    ) {
        side.attributes.state = State::Error;
        side.end_requester();
        self.note_requester(side);
        if let Some(status) = reason {
            self.finish_sends(&mut side.queue, 1, status, wakeups);
        }
        self.flush_sends(&mut side.queue, wakeups);
    }

    /// Takes the receiving half to the state Error.
    pub(super) fn break_receives(
        self: &Arc<Self>,
        side: &mut ReceiveSide,
        reason: Option<Status>,
        wakeups: &mut Wakeups,
    ) {
        if side.state == State::Error {
            return;
        }
        side.state = State::Error;
        if let Some(status) = reason {
            self.fail_receives(&mut side.queue, 1, status, wakeups);
        }
        self.flush_receives(&mut side.queue, wakeups);
        if self.fixed.srq.is_some() {
            self.report_last_receive();
        }
    }

    /// Takes it to the state Error since its completions are lost, and says so (section 11.6.3.1). Nothing happens if
    /// it is there already, or has nothing to complete.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's but that of a completion queue's users.
    pub(crate) fn break_fatally(self: &Arc<Self>, wakeups: &mut Wakeups) {
        let mut side = self.sends.lock();
        let side = &mut *side;
        self.catch_up(side, wakeups);
        if !matches!(side.attributes.state, State::Reset | State::Error) {
            self.break_both(side, None, wakeups);
            self.note(QpEvent::Fatal);
        }
    }

    /// Completes the oldest send requests, `n` at most.
    pub(super) fn finish_sends(
        &self,
        queue: &mut WorkQueue<SendEntry>,
        n: usize,
        status: Status,
        wakeups: &mut Wakeups,
    ) {
        for _ in 0..n {
            let Some((entry, _)) = queue.first() else {
                return;
            };
            let entry = *entry;
            queue.pop();
            queue.count_end(status, entry.sent_bytes());
            self.complete_send(&entry, status, wakeups);
        }
    }

    fn complete_send(&self, entry: &SendEntry, status: Status, wakeups: &mut Wakeups) {
        if !entry.signaled && status == Status::Success {
            return;
        }
        let mut wc: bindings::ib_wc = pin_init::zeroed();
        wc.__bindgen_anon_1.wr_id = entry.wr_id;
        wc.status = as_raw(status);
        wc.opcode = entry.opcode;
        wc.byte_len = entry.len();
        wc.qp = self.fixed.raw;
        // A failure counts as solicited (section 11.4.2.2).
        let wake = self.fixed.send_cq.push(wc, status != Status::Success);
        wakeups.add(&self.fixed.send_cq, wake);
    }

    pub(super) fn flush_sends(&self, queue: &mut WorkQueue<SendEntry>, wakeups: &mut Wakeups) {
        self.finish_sends(queue, queue.len(), Status::Flushed, wakeups);
    }

    pub(super) fn flush_receives(
        &self,
        queue: &mut WorkQueue<ReceiveEntry>,
        wakeups: &mut Wakeups,
    ) {
        self.fail_receives(queue, queue.len(), Status::Flushed, wakeups);
    }

    /// Completes the oldest receive requests, `n` at most, for which no message has come.
    fn fail_receives(
        &self,
        queue: &mut WorkQueue<ReceiveEntry>,
        n: usize,
        status: Status,
        wakeups: &mut Wakeups,
    ) {
        for _ in 0..n {
            let Some((entry, _)) = queue.first() else {
                return;
            };
            let mut wc: bindings::ib_wc = pin_init::zeroed();
            wc.__bindgen_anon_1.wr_id = entry.wr_id;
            wc.status = as_raw(status);
            wc.opcode = bindings::ib_wc_opcode_IB_WC_RECV;
            wc.qp = self.fixed.raw;
            queue.pop();
            queue.count_end(status, 0);
            let wake = self.fixed.receive_cq.push(wc, true);
            wakeups.add(&self.fixed.receive_cq, wake);
        }
    }
}
