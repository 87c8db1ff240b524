// SPDX-License-Identifier: GPL-2.0

//! The sending half of a connection: its requests, and the answers to them.

use ib_fabric::rc::{Aeth, Bth, Nak, Next, Op, Outcome, Response, Syndrome};
use kernel::prelude::*;
use kernel::sync::Arc;

use super::queue::What;
use super::{Arrival, Payload, Qp, Refused, SendSide};
use crate::domain::Domain;
use crate::memory::{self, permitted, Cursor, Denied, Piece, Side};
use crate::region::Right;
use crate::state::State;
use crate::wakeups::Wakeups;
use crate::work::{Path, Status};

/// Bytes that are sent before somebody else gets a lock of the queue pair's.
const ENOUGH: usize = 128 << 10;

/// Runs that are sent before that.
const RUNS: usize = 16;

/// Fate of a run of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The run is under way, or lost, or there.
    Sent,
    /// The receiver has no receive request for it, and keeps the sender waiting.
    Held,
}

/// Result of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// There is something to be sent now.
    pub ready: bool,
    /// The requester waited for it, but the memory that the answer is read from is not the requester's to use:
    /// [`Qp::deny`] the responder.
    pub denied: bool,
}

/// Reason why the oldest request fails.
enum Failure {
    /// The request has this status.
    Status(Status),
    /// The memory that its answer is read from is not the responder's to use.
    Denied,
}

/// Payload of an answer.
enum Source<'a> {
    None,
    /// Memory of the responder's; no piece if the key means no region.
    Region(Option<Piece>, &'a Domain),
    Payload(&'a Payload<'a>),
}

impl Source<'_> {
    fn cursor(&self) -> Option<Cursor<'_>> {
        match self {
            Source::None => None,
            Source::Region(piece, domain) => {
                // SAFETY: The list names a region only.
                let cursor =
                    unsafe { Cursor::new(Some(domain), Right::RemoteRead, piece.as_slice(), 0) };
                Some(cursor)
            }
            Source::Payload(payload) => Some(payload.cursor(0)),
        }
    }
}

impl Qp {
    /// Sends some of the requests of a connection. `deliver` gets the other end, the headers of a run of packets,
    /// and their payload. True if there is more to be sent at once.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's, and none that `deliver` takes. `deliver` runs with interrupts
    /// disabled. Its error is that with which the request ends.
    pub fn request(
        self: &Arc<Self>,
        wakeups: &mut Wakeups,
        now: u64,
        mut deliver: impl FnMut(&mut Wakeups, &Path, &Bth, &Payload<'_>) -> Result<Delivery, Status>,
    ) -> bool {
        let mut side = self.sends.lock();
        let side = &mut *side;
        self.catch_up(side, wakeups);
        let mut bytes = 0;
        for _ in 0..RUNS {
            let drains = match side.attributes.state {
                State::ReadyToSend => false,
                State::SendQueueDrained => true,
                _ => return false,
            };
            let Some(requester) = &mut side.requester else {
                return false;
            };
            let failed = match requester.next(now, drains, &side.queue) {
                Next::Idle => {
                    self.note_requester(side);
                    return false;
                }
                Next::Local(index) => self.run_local(side, index, wakeups),
                Next::Run { index, offset, bth } => {
                    let Some((_, pieces)) = side.queue.get(index) else {
                        return false;
                    };
                    let domain = &self.fixed.domain;
                    let (offset, len) = (offset as usize, bth.bytes as usize);
                    // SAFETY: The request is in its queue, whose lock is held.
                    let payload = unsafe {
                        Payload::new(Some(domain), Right::LocalRead, pieces, offset, len)
                    };
                    bytes += payload.len();
                    let path = side.attributes.path();
                    let may_send = self.may_send(&bth.op, pieces);
                    let sent = may_send.then(|| deliver(wakeups, &path, &bth, &payload));
                    let read = sent.filter(|_| !payload.is_cut_off());
                    let delivered = read.unwrap_or(Err(Status::LocalProtection));
                    if delivered == Ok(Delivery::Held) {
                        requester.hold(now, &side.queue);
                    }
                    delivered.err().map(|status| (index, status))
                }
            };
            if let Some((index, status)) = failed {
                // Those before it may have been done; nobody will know.
                self.finish_sends(&mut side.queue, index, Status::Flushed, wakeups);
                self.break_both(side, Some(status), wakeups);
                return false;
            }
            if bytes >= ENOUGH {
                break;
            }
        }
        self.note_requester(side);
        true
    }

    /// Carries out a local request, and completes what is done. Returns the request that has failed, if one has, and
    /// how.
    fn run_local(
        &self,
        side: &mut SendSide,
        index: usize,
        wakeups: &mut Wakeups,
    ) -> Option<(usize, Status)> {
        let entry = side.queue.get(index).map(|(entry, _)| entry.what);
        let requester = side.requester.as_mut()?;
        if !entry.is_some_and(|what| self.local(&what)) {
            return Some((index, Status::LocalOperation));
        }
        let n = requester.settle(&side.queue);
        let struck = self.settle_sends(side, n, wakeups);
        struck.map(|status| (0, status))
    }

    /// Returns true if the memory of a request may be used for its operation.
    fn may_send(&self, op: &Op, pieces: &[Piece]) -> bool {
        let right = match op {
            Op::Read(_) | Op::Atomic { .. } => Right::LocalWrite,
            _ => Right::LocalRead,
        };
        permitted(&self.fixed.domain, pieces, right)
    }

    /// Carries out a local request.
    fn local(&self, what: &What) -> bool {
        match *what {
            What::Register(request, _) => {
                let region = self.fixed.domain.find(request.key);
                region.is_some_and(|region| region.register(request).is_ok())
            }
            What::Invalidate { key, .. } => self.fixed.domain.invalidate(key),
            What::Datagram(..) | What::Message(_) => false,
        }
    }

    /// Takes both halves to the state Error.
    pub(super) fn break_both(
        self: &Arc<Self>,
        side: &mut SendSide,
        reason: Option<Status>,
        wakeups: &mut Wakeups,
    ) {
        self.break_sends(side, reason, wakeups);
        let mut other = self.receives.lock();
        self.break_receives(&mut other, None, wakeups);
        // It owes a NAK if it has found an error of its own.
        if !core::mem::take(&mut other.broken) {
            other.end_responder();
        }
        self.note_responder(&other);
    }

    /// Takes an answer of the other end that came to a port, and whose queue pair is `responder`. `check` gets the
    /// other end as this one knows it, and may refuse the answer.
    ///
    /// # Errors
    ///
    /// [`Refused::State`] or [`Refused::Driver`]. The answer is gone.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's, and none that `check` takes. `check` runs with interrupts disabled.
    pub fn answer<E>(
        self: &Arc<Self>,
        wakeups: &mut Wakeups,
        arrival: Arrival,
        response: &Response,
        responder: &Qp,
        check: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Answered, Refused<E>> {
        let bth = response.bth;
        let source = match response.source {
            None => Source::None,
            Some((key, address)) => Source::Region(
                Piece::remote(key, address, bth.bytes),
                &responder.fixed.domain,
            ),
        };
        self.take_answer(wakeups, arrival, bth, &source, check)
    }

    /// Takes an answer that came to a port, with a copy of its payload. As for [`Qp::answer`].
    ///
    /// # Errors
    ///
    /// [`Refused::State`] or [`Refused::Driver`]. The answer is gone.
    pub fn answer_copy<E>(
        self: &Arc<Self>,
        wakeups: &mut Wakeups,
        arrival: Arrival,
        bth: &Bth,
        payload: &Payload<'_>,
        check: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Answered, Refused<E>> {
        self.take_answer(wakeups, arrival, *bth, &Source::Payload(payload), check)
    }

    fn take_answer<E>(
        self: &Arc<Self>,
        wakeups: &mut Wakeups,
        Arrival { now, port, .. }: Arrival,
        mut bth: Bth,
        from: &Source<'_>,
        check: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Answered, Refused<E>> {
        let mut side = self.sends.lock();
        let side = &mut *side;
        if !matches!(
            side.attributes.state,
            State::ReadyToSend | State::SendQueueDrained
        ) {
            return Err(Refused::State);
        }
        let Some(requester) = &mut side.requester else {
            return Err(Refused::State);
        };
        if side.attributes.port != port {
            return Err(Refused::State);
        }
        check(&side.attributes.path()).map_err(Refused::Driver)?;
        let mut refused = false;
        let mut source = from.cursor();
        if let (Source::Region(..), Some(source)) = (from, &mut source) {
            refused = source.is_empty() || source.enter().is_err();
        }
        if refused {
            let (syndrome, msn) = (Syndrome::Nak(Nak::RemoteAccess), 0);
            bth = Bth::bare(bth.psn, Op::Acknowledge(Aeth { syndrome, msn }));
        }
        let outcome = requester.answer(now, &bth, &side.queue);
        let mut ready = false;
        // An answer that it does not wait for any more is no error.
        let mut denied = false;
        match self.conclude(side, &outcome, &bth, (source, refused), wakeups) {
            Some(Failure::Status(status)) => self.break_both(side, Some(status), wakeups),
            Some(Failure::Denied) => {
                denied = matches!(from, Source::Region(..));
                self.break_both(side, Some(Status::RemoteAccess), wakeups);
            }
            None => {
                let requester = side.requester.as_ref();
                ready = requester.is_some_and(|requester| requester.is_eager(&side.queue));
                self.note_requester(side);
                self.check_drained(side);
            }
        }
        Ok(Answered { ready, denied })
    }

    /// Draws the consequences of an answer, whose payload comes with whether it could not be read, which makes the
    /// answer a NAK. Returns why the oldest request fails, if it does.
    fn conclude(
        &self,
        side: &mut SendSide,
        outcome: &Outcome,
        bth: &Bth,
        (source, refused): (Option<Cursor<'_>>, bool),
        wakeups: &mut Wakeups,
    ) -> Option<Failure> {
        if let Some(status) = self.settle_sends(side, outcome.done, wakeups) {
            return Some(Failure::Status(status));
        }
        if let (Some(data), Some((_, pieces))) = (outcome.data, side.queue.first()) {
            if !permitted(&self.fixed.domain, pieces, Right::LocalWrite) {
                return Some(Failure::Status(Status::LocalProtection));
            }
            // SAFETY: The request is in its queue, whose lock is held.
            let mut to = unsafe {
                Cursor::new(
                    Some(&self.fixed.domain),
                    Right::LocalWrite,
                    pieces,
                    data.offset as usize,
                )
            };
            let copied = match (bth.op, source) {
                (Op::AtomicResponse(old), _) => {
                    to.put(&old.to_ne_bytes()).map_err(|Denied| Side::To)
                }
                (_, Some(mut source)) => {
                    source.skip(data.from as usize);
                    memory::copy(&mut source, &mut to, data.bytes as usize)
                }
                (_, None) => Ok(()),
            };
            match copied {
                Ok(()) => {}
                Err(Side::From) => return Some(Failure::Denied),
                Err(Side::To) => return Some(Failure::Status(Status::LocalProtection)),
            }
        }
        if let Some(status) = self.settle_sends(side, outcome.done_then, wakeups) {
            return Some(Failure::Status(status));
        }
        outcome.failure.map(|failure| match failure {
            Status::RemoteAccess if refused => Failure::Denied,
            status => Failure::Status(status),
        })
    }

    /// Acts on deadlines that have passed. True: call [`Qp::request`] and [`Qp::respond`].
    ///
    /// # Context
    ///
    /// As for [`Qp::request`].
    pub fn expire(self: &Arc<Self>, wakeups: &mut Wakeups, now: u64) -> bool {
        if self.due().is_none_or(|due| now < due) {
            return false;
        }
        self.report_late(now);
        let mut side = self.sends.lock();
        let side = &mut *side;
        if let Some(requester) = &mut side.requester {
            let outcome = requester.expire(now, &side.queue);
            if let Some(failure) = outcome.failure {
                self.break_both(side, Some(failure), wakeups);
                return false;
            }
            self.note_requester(side);
        }
        let mut other = self.receives.lock();
        if let Some(responder) = &mut other.responder {
            responder.expire(now);
        }
        self.note_responder(&other);
        true
    }

    /// Takes the sending half to the state Error, if the receiving one was taken there without it.
    pub(super) fn follow(&self, wakeups: &mut Wakeups) {
        self.catch_up(&mut self.sends.lock(), wakeups);
    }

    /// As [`Self::follow`], with the lock of the sending half held.
    pub(super) fn catch_up(&self, side: &mut SendSide, wakeups: &mut Wakeups) {
        let broken = core::mem::take(&mut self.receives.lock().broken);
        if broken {
            self.break_sends(side, None, wakeups);
        }
    }
}
