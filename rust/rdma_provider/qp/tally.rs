// SPDX-License-Identifier: GPL-2.0

//! Tallies of a queue pair: counters for whoever debugs it, which begin when it is created.

use ib_fabric::rc::{RequesterTally, ResponderTally};

use super::{Qp, QueueTally, ReceiveSide, SendSide};
use crate::state::State;

/// The tallies of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpTally {
    /// The state.
    pub state: State,
    /// Send requests.
    pub sends: QueueTally,
    /// Receive requests.
    pub receives: QueueTally,
    /// Retries, timeouts and NAKs of the connection's requests.
    pub requester: RequesterTally,
    /// Duplicate and early packets of the other end's requests, and NAKs.
    pub responder: ResponderTally,
}

impl SendSide {
    /// Ends the use of the requester, of which the tally is left.
    pub(super) fn end_requester(&mut self) {
        if let Some(requester) = self.requester.take() {
            self.past.add(requester.tally());
        }
    }
}

impl ReceiveSide {
    /// Ends the use of the responder, of which the tally is left.
    pub(super) fn end_responder(&mut self) {
        if let Some(responder) = self.responder.take() {
            self.past.add(responder.tally());
        }
    }
}

impl Qp {
    /// Returns its tallies.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's.
    pub fn tally(&self) -> QpTally {
        let side = self.sends.lock();
        let other = self.receives.lock();
        let mut tally = QpTally {
            state: side.attributes.state,
            sends: side.queue.tally,
            receives: other.queue.tally,
            requester: side.past,
            responder: other.past,
        };
        if other.broken {
            tally.state = State::Error;
        }
        if let Some(requester) = &side.requester {
            tally.requester.add(requester.tally());
        }
        if let Some(responder) = &other.responder {
            tally.responder.add(responder.tally());
        }
        tally
    }
}
