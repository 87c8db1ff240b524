// SPDX-License-Identifier: GPL-2.0

//! Answers to a requester, and their absence (sections 9.7.5 and 9.7.7).

use super::super::header::{Aeth, Bth, Nak, Op, Syndrome};
use super::super::request::{Data, Outcome, Requests, Work};
use super::super::{rnr_timer, Psn};
use super::{Pause, Requester, RUN};
use crate::completion::Status;
use crate::tally::add;

/// Time in ns for which a receiver without a receive request may keep the sender waiting, before
/// the sender looks again.
const HOLD: u64 = 2_000_000_000;

/// The retry count that means forever, of RNR NAKs only (section 9.7.5.2.8).
const FOREVER: u8 = 7;

impl Requester {
    /// Takes an answer.
    pub fn answer(&mut self, now: u64, bth: &Bth, requests: &impl Requests) -> Outcome {
        let mut outcome = Outcome::default();
        match bth.op {
            Op::Acknowledge(aeth) => self.acknowledge(now, bth.psn, &aeth, requests, &mut outcome),
            Op::ReadResponse { .. } => {
                self.read(now, bth, requests, &mut outcome);
            }
            Op::AtomicResponse(_) => {
                let single = Bth {
                    packets: 1,
                    bytes: 8,
                    ..*bth
                };
                self.read(now, &single, requests, &mut outcome);
            }
            Op::Resume => self.pause = Pause::No,
            _ => {}
        }
        outcome
    }

    fn acknowledge(
        &mut self,
        now: u64,
        psn: Psn,
        aeth: &Aeth,
        requests: &impl Requests,
        outcome: &mut Outcome,
    ) {
        // Not of what is acknowledged already, nor of what was never sent.
        if psn.since(self.una()) < 0 || psn.since(self.top) >= 0 {
            return;
        }
        let end = match aeth.syndrome {
            Syndrome::Ack => psn.plus(1),
            Syndrome::ReceiverNotReady(_) | Syndrome::Nak(_) => psn,
        };
        outcome.done = self.advance(now, end, requests);
        let nak = match aeth.syndrome {
            _ if self.una() != end => {
                outcome.failure = self.miss(outcome.done, requests);
                return;
            }
            Syndrome::Ack => return,
            Syndrome::ReceiverNotReady(code) => {
                outcome.failure = self.not_ready(now, code, outcome.done, requests);
                return;
            }
            Syndrome::Nak(nak) => nak,
        };
        outcome.failure = match nak {
            Nak::Sequence => {
                add(&mut self.tally.sequence_naks, 1);
                self.retry(outcome.done, requests)
            }
            Nak::InvalidRequest => Some(Status::RemoteInvalidRequest),
            Nak::RemoteAccess => Some(Status::RemoteAccess),
            Nak::RemoteOperation => Some(Status::RemoteOperation),
        };
    }

    /// Takes a part of the answer to a READ request, or the one to an atomic operation.
    fn read(
        &mut self,
        now: u64,
        bth: &Bth,
        requests: &impl Requests,
        outcome: &mut Outcome,
    ) -> Option<()> {
        let end = bth.psn.plus(bth.packets);
        let fits = bth.packets > 0 && bth.packets <= RUN;
        if !fits || end.since(self.una()) <= 0 || end.since(self.top) > 0 {
            return None;
        }
        // An answer acknowledges all before it.
        if bth.psn.since(self.una()) > 0 {
            outcome.done = self.advance(now, bth.psn, requests);
        }
        let skip = u32::try_from(self.una().since(bth.psn));
        let request = requests.get(outcome.done)?;
        let Ok(skip) = skip else {
            outcome.failure = self.miss(outcome.done, requests);
            return None;
        };
        if !request.work.is_read() {
            return None;
        }
        let total = self.psns(&request);
        let n = bth.packets.saturating_sub(skip);
        let offset = self.acked.saturating_mul(self.mtu);
        let from = skip.saturating_mul(self.mtu);
        let len = match request.work {
            Work::Atomic { .. } => 8,
            _ => request.len,
        };
        let wanted = n.saturating_mul(self.mtu).min(len.saturating_sub(offset));
        let fits =
            matches!(bth.op, Op::AtomicResponse(_)) == (total == 1 && request.work.is_atomic());
        let left = total.saturating_sub(self.acked);
        if !fits || n > left || bth.bytes != from.saturating_add(wanted) {
            outcome.failure = Some(Status::BadResponse);
            return None;
        }
        outcome.data = Some(Data {
            from,
            offset,
            bytes: wanted,
        });
        self.acked = self.acked.saturating_add(n);
        if n == left {
            outcome.done_then = self.end_read(outcome.done, requests);
        }
        let done = outcome.done.saturating_add(outcome.done_then);
        self.progress(now, done, requests);
        Some(())
    }

    /// Ends a request behind `done` others, whose answer is complete. Returns how many are done now.
    fn end_read(&mut self, done: usize, requests: &impl Requests) -> usize {
        self.oldest = self.una();
        self.acked = 0;
        // Behind the cursor, which has been put back, it does not count.
        if self.at > 0 {
            self.reads = self.reads.saturating_sub(1);
        }
        self.forget(1);
        let locals = self.locals(done.saturating_add(1), requests);
        locals.saturating_add(1)
    }

    /// Takes all before `end` for acknowledged, as far as that does not take data; returns the number
    /// of requests that are done.
    fn advance(&mut self, now: u64, end: Psn, requests: &impl Requests) -> usize {
        let before = self.una();
        let mut done = self.locals(0, requests);
        while let Some(request) = requests.get(done) {
            let total = self.psns(&request);
            let acked = u32::try_from(end.since(self.oldest)).unwrap_or(0);
            if total == 0 || request.work.is_read() {
                break;
            }
            self.acked = self.acked.max(acked.min(total));
            if self.acked < total {
                break;
            }
            self.oldest = self.oldest.plus(total);
            self.acked = 0;
            self.forget(1);
            done = done.saturating_add(1);
            done = done.saturating_add(self.locals(done, requests));
        }
        if self.una() != before {
            self.progress(now, done, requests);
        }
        done
    }

    /// Counts local requests that have been carried out and are the oldest ones, from `done` on.
    fn locals(&mut self, done: usize, requests: &impl Requests) -> usize {
        let mut more = 0usize;
        while self.passed > 0 && self.acked == 0 {
            match requests.get(done.saturating_add(more)) {
                Some(request) if matches!(request.work, Work::Local { .. }) => {
                    self.forget(1);
                    more = more.saturating_add(1);
                }
                _ => break,
            }
        }
        more
    }

    /// Returns the number of requests that are done, after a local one was carried out.
    pub fn settle(&mut self, requests: &impl Requests) -> usize {
        self.locals(0, requests)
    }

    /// Counts from the next request on.
    fn forget(&mut self, n: usize) {
        self.at = self.at.saturating_sub(n);
        self.passed = self.passed.saturating_sub(n);
    }

    /// Asks for data again that should have come before the present answer (section 9.7.5.1.3), once:
    /// other answers are under way that tell the same.
    fn miss(&mut self, done: usize, requests: &impl Requests) -> Option<Status> {
        if core::mem::replace(&mut self.missed, true) {
            return None;
        }
        self.retry(done, requests)
    }

    /// Something was acknowledged.
    fn progress(&mut self, now: u64, done: usize, requests: &impl Requests) {
        self.retries_left = self.retries;
        self.rnr_left = self.rnr_retries;
        self.missed = false;
        self.wait_from(now);
        if self.psn.since(self.una()) < 0 {
            self.go_back(done, requests);
        }
    }

    /// Puts the cursor to the first packet that has not been acknowledged. The first `done` requests
    /// are done.
    fn go_back(&mut self, done: usize, requests: &impl Requests) {
        self.psn = self.una();
        self.reads = 0;
        self.at = 0;
        self.packet = self.acked;
        // All others begin after it.
        while self.packet == 0 && self.at < self.passed {
            match requests.get(done.saturating_add(self.at)) {
                Some(request) if self.psns(&request) == 0 => self.at = self.at.saturating_add(1),
                _ => break,
            }
        }
    }

    /// Sends again what has not been acknowledged, unless that was done too often.
    fn retry(&mut self, done: usize, requests: &impl Requests) -> Option<Status> {
        let Some(left) = self.retries_left.checked_sub(1) else {
            return Some(Status::RetryExceeded);
        };
        self.retries_left = left;
        add(&mut self.tally.retries, 1);
        self.deadline = None;
        self.go_back(done, requests);
        None
    }

    /// The receiver has no receive request.
    fn not_ready(
        &mut self,
        now: u64,
        code: u8,
        done: usize,
        requests: &impl Requests,
    ) -> Option<Status> {
        add(&mut self.tally.rnr_naks, 1);
        if self.rnr_retries != FOREVER {
            let Some(left) = self.rnr_left.checked_sub(1) else {
                return Some(Status::RnrRetryExceeded);
            };
            self.rnr_left = left;
        }
        self.deadline = None;
        self.pause = Pause::Until(now.saturating_add(rnr_timer(code)));
        self.go_back(done, requests);
        None
    }

    /// Waits for [`Op::Resume`], since the receiver has just said that it would rather have what it
    /// was sent last some time later.
    pub fn hold(&mut self, now: u64, requests: &impl Requests) {
        self.deadline = None;
        self.pause = Pause::Until(now.saturating_add(HOLD));
        self.go_back(0, requests);
    }

    /// Acts on a deadline that has passed.
    pub fn expire(&mut self, now: u64, requests: &impl Requests) -> Outcome {
        let mut outcome = Outcome::default();
        if let Pause::Until(time) = self.pause {
            if now >= time {
                self.pause = Pause::No;
            }
        } else if self.deadline.is_some_and(|deadline| now >= deadline) {
            add(&mut self.tally.timeouts, 1);
            outcome.failure = self.retry(0, requests);
        }
        outcome
    }
}
