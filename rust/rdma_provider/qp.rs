// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

mod abilities;
mod attributes;
mod complete;
mod connected;
mod datagram;
mod events;
mod faulty;
mod frames;
mod kind;
mod parse;
mod payload;
mod queue;
mod receiver;
mod store;
mod tally;

use core::cmp::min;

use ib_fabric::fault::Verb;
use ib_fabric::rc::{Requester, RequesterTally, Responder, ResponderTally};
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed, Release};
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};

use crate::cq::Cq;
use crate::domain::Domain;
use crate::faults::Faults;
use crate::srq::Srq;
use crate::state::State;
use crate::wakeups::Wakeups;
use crate::work::Path;
use events::Events;
use queue::SendEntry;

pub(crate) use abilities::Abilities;
pub(crate) use attributes::{Attributes, MAX_READS};
pub use connected::{Answered, Delivery};
pub use datagram::Meta;
pub use kind::Kind;
pub(crate) use kind::QpEvent;
pub use payload::Payload;
pub use queue::QueueTally;
pub(crate) use queue::{ReceiveEntry, WorkQueue};
pub use receiver::{Accepted, Arrival};
pub use tally::QpTally;

/// The sending half.
struct SendSide {
    attributes: Attributes,
    queue: WorkQueue<SendEntry>,
    /// Of a connection that is ready to send.
    requester: Option<Requester>,
    /// Of its predecessors.
    past: RequesterTally,
    /// The ULP wants to be told when the queue has drained.
    tell_drained: bool,
}

/// The receiving half, with a copy of the attributes that it needs.
struct ReceiveSide {
    state: State,
    port: u8,
    qkey: u32,
    /// The path of packets, in both directions.
    path: Path,
    /// Receive requests; of a queue pair with a shared receive queue, the one of the present message.
    queue: WorkQueue<ReceiveEntry>,
    /// Of a connection that is ready to receive.
    responder: Option<KBox<Responder>>,
    /// Of its predecessors.
    past: ResponderTally,
    /// No packet of the connection has come.
    silent: bool,
    /// The sending half does not know yet that the queue pair is in error.
    broken: bool,
}

/// Reason why a message was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<E> {
    /// The queue pair does not receive now, or by another port.
    State,
    /// No receive request was posted.
    NoRequest,
    /// The buffers of the request are too small.
    TooLong,
    /// The buffers of the request are not the ULP's to use; the request has failed, and the queue pair is in the state
    /// Error.
    Protection,
    /// The sender's memory is not its to use any more; its request fails.
    Payload,
    /// The driver says no.
    Driver(E),
}

/// A queue pair, of which RDMA core has the other half.
///
/// # Invariants
///
/// `fixed.raw` is the `ib_qp` that this was made for. It exists while `open` is true, and for a grace period of RCU
/// after that. Completions carry it as a number; they are gone before it is.
#[pin_data]
pub struct Qp {
    fixed: Fixed,
    open: Atomic<bool>,
    #[pin]
    events: Events,
    /// The queue pair has left the state Reset.
    left: Atomic<bool>,
    /// It is being changed, by one whom others are to wait for.
    changing: Atomic<bool>,
    /// Deadlines of the requester, of the responder, and of an event that is late; [`NEVER`] if there is none.
    due: [Atomic<u64>; 3],
    #[pin]
    sends: SpinLockIrq<SendSide>,
    #[pin]
    receives: SpinLockIrq<ReceiveSide>,
}

// SAFETY: `raw` is used as the invariant says, by any thread; the rest is `Send`.
unsafe impl core::marker::Send for Qp {}
// SAFETY: As above, and what changes has locks.
unsafe impl Sync for Qp {}

/// A time that does not come.
const NEVER: u64 = u64::MAX;

/// Properties of a queue pair that stay.
pub(crate) struct Fixed {
    pub(crate) raw: *mut bindings::ib_qp,
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    /// Port that it was made for.
    pub(crate) port: u8,
    pub(crate) abilities: Abilities,
    pub(crate) signal_all: bool,
    /// Sizes of its queues.
    pub(crate) cap: bindings::ib_qp_cap,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) receive_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
    pub(crate) domain: Arc<Domain>,
    pub(crate) faults: Arc<Faults>,
}

impl Qp {
    /// Makes one in the state Reset.
    ///
    /// # Safety
    ///
    /// `fixed.raw` has to be an `ib_qp` that is being created, and to stay until a grace period of RCU after
    /// [`Qp::close`] has returned. That has to be called before the last reference goes.
    pub(crate) unsafe fn new(fixed: Fixed) -> Result<Arc<Self>> {
        let cap = &fixed.cap;
        let sends = SendSide {
            attributes: Attributes::new(fixed.port),
            queue: WorkQueue::for_sends(cap, &fixed.abilities)?,
            requester: None,
            past: RequesterTally::default(),
            tell_drained: false,
        };
        let queue = match &fixed.srq {
            Some(srq) => WorkQueue::new(1, srq.sges())?,
            None => WorkQueue::new(cap.max_recv_wr as usize, cap.max_recv_sge as usize)?,
        };
        let receives = ReceiveSide {
            state: State::Reset,
            port: fixed.port,
            qkey: 0,
            path: Path::default(),
            queue,
            responder: None,
            past: ResponderTally::default(),
            silent: true,
            broken: false,
        };
        // INVARIANT: By the safety requirement.
        let qp = Arc::pin_init(
            pin_init!(Self {
                fixed,
                open: Atomic::new(true),
                // SAFETY: It becomes this field. Below, or by `close`, its use ends before the queue pair goes.
                events <- unsafe { Events::new() },
                left: Atomic::new(false),
                changing: Atomic::new(false),
                due: [const { Atomic::new(NEVER) }; 3],
                sends <- new_spinlock_irq!(sends, "rdma_provider::Qp::sends"),
                receives <- new_spinlock_irq!(receives, "rdma_provider::Qp::receives"),
            }),
            GFP_KERNEL,
        )?;
        for cq in qp.cqs() {
            cq.add(&qp).inspect_err(|_| {
                qp.leave();
                qp.end_events();
            })?;
        }
        Ok(qp)
    }

    /// The completion queues, each once.
    fn cqs(&self) -> impl Iterator<Item = &Arc<Cq>> {
        let shared = Arc::ptr_eq(&self.fixed.send_cq, &self.fixed.receive_cq);
        let other = (!shared).then_some(&self.fixed.receive_cq);
        [Some(&self.fixed.send_cq), other].into_iter().flatten()
    }

    /// Ends the use of the completion queues.
    fn leave(self: &Arc<Self>) {
        for cq in self.cqs() {
            cq.remove(self);
        }
    }

    /// The number, 24 bits.
    pub fn number(&self) -> u32 {
        self.fixed.number
    }

    /// The transport service.
    pub fn kind(&self) -> Kind {
        self.fixed.kind
    }

    /// Port that it was made for. Only the special ones stay with it.
    pub fn first_port(&self) -> u8 {
        self.fixed.port
    }

    /// Returns true if it is kept from hearing its own messages to a multicast group.
    pub fn blocks_loopback(&self) -> bool {
        self.fixed.abilities.block_loopback
    }

    pub(crate) fn cap(&self) -> bindings::ib_qp_cap {
        self.fixed.cap
    }

    pub(crate) fn signals_all(&self) -> bool {
        self.fixed.signal_all
    }

    /// Time at which [`Qp::expire`] has to be called, in ns as [`crate::now`] counts them.
    pub fn due(&self) -> Option<u64> {
        let [requester, responder, event] = &self.due;
        let due = min(requester.load(Relaxed), responder.load(Relaxed));
        let due = min(due, event.load(Relaxed));
        (due != NEVER).then_some(due)
    }

    /// Keeps the requester's deadline.
    fn note_requester(&self, side: &SendSide) {
        let deadline = side.requester.as_ref().and_then(Requester::deadline);
        self.due[0].store(deadline.unwrap_or(NEVER), Relaxed);
    }

    /// Keeps the responder's deadline.
    fn note_responder(&self, side: &ReceiveSide) {
        let deadline = side.responder.as_ref().and_then(|r| r.deadline());
        self.due[1].store(deadline.unwrap_or(NEVER), Relaxed);
    }

    /// Posts a chain of send requests, up to the first one that is to fail. Returns whether the queue
    /// pair has something to send now, and the error, if there was one, with the request that it is for.
    ///
    /// # Safety
    ///
    /// `wr` has to be a chain of send requests of a ULP's for this queue pair, which obeys the rules of
    /// `ib_post_send()`.
    pub(crate) unsafe fn post_send(
        &self,
        mut wr: *const bindings::ib_send_wr,
        wakeups: &mut Wakeups,
    ) -> (bool, Result<(), (Error, *const bindings::ib_send_wr)>) {
        let mut side = self.sends.lock();
        let side = &mut *side;
        // The ULP may know from its receive requests.
        self.catch_up(side, wakeups);
        let mut result = Ok(());
        while !wr.is_null() {
            if !side.attributes.state.takes_sends() {
                result = Err((EINVAL, wr));
                break;
            }
            if let Err(e) = self.fixed.faults.strike(Verb::PostSend) {
                result = Err((e, wr));
                break;
            }
            let pushed = if self.fixed.kind == Kind::Rc {
                let reads = side.attributes.max_reads > 0;
                // SAFETY: By the safety requirement.
                unsafe { side.queue.push_message(wr, self.fixed.signal_all, reads) }
            } else {
                // SAFETY: By the safety requirement.
                unsafe {
                    side.queue
                        .push_datagram(wr, self.fixed.signal_all, &self.fixed.abilities)
                }
            };
            if let Err(e) = pushed {
                result = Err((e, wr));
                break;
            }
            // SAFETY: By the safety requirement.
            wr = unsafe { (*wr).next };
        }
        if side.attributes.state.flushes_sends() {
            self.flush_sends(&mut side.queue, wakeups);
        }
        let ready = side.attributes.state == State::ReadyToSend && !side.queue.is_empty();
        (ready, result)
    }

    /// Posts a chain of receive requests. Returns whether a sender has waited for one, and the error, if there was
    /// one, with the request that it is for.
    ///
    /// # Safety
    ///
    /// As for [`Qp::post_send`], with `ib_post_recv()`.
    pub(crate) unsafe fn post_receive(
        &self,
        mut wr: *const bindings::ib_recv_wr,
        wakeups: &mut Wakeups,
    ) -> (bool, Result<(), (Error, *const bindings::ib_recv_wr)>) {
        let mut side = self.receives.lock();
        let side = &mut *side;
        let mut result = Ok(());
        while !wr.is_null() {
            if !side.state.takes_receives() || self.fixed.srq.is_some() {
                result = Err((EINVAL, wr));
                break;
            }
            // SAFETY: By the safety requirement.
            if let Err(e) = unsafe { side.queue.push_receive(wr) } {
                result = Err((e, wr));
                break;
            }
            // SAFETY: By the safety requirement.
            wr = unsafe { (*wr).next };
        }
        if side.state == State::Error {
            self.flush_receives(&mut side.queue, wakeups);
        }
        let waited = !side.queue.is_empty() && self.tell_posted(side);
        (waited, result)
    }

    /// A request was posted to the shared receive queue. True if a sender has waited for one.
    pub(crate) fn posted(&self) -> bool {
        self.tell_posted(&mut self.receives.lock())
    }

    fn tell_posted(&self, side: &mut ReceiveSide) -> bool {
        let waited = side.responder.as_mut().is_some_and(|r| r.posted());
        if waited {
            self.note_responder(side);
        }
        waited
    }

    /// Gives RDMA core its half back: no request and no completion is left, and its ULP is told of no further event.
    ///
    /// # Context
    ///
    /// Process context; sleeps. Hold no lock of this crate's, and none that a handler of events may want; do not call it
    /// from one.
    pub(crate) fn close(self: &Arc<Self>) {
        {
            let mut side = self.sends.lock();
            side.attributes.state = State::Reset;
            side.queue.clear();
            side.end_requester();
            self.note_requester(&side);
            let mut other = self.receives.lock();
            other.state = State::Reset;
            other.queue.clear();
            other.end_responder();
            self.note_responder(&other);
            self.forget();
        }
        self.leave();
        // Nobody adds it any more.
        if let Some(srq) = &self.fixed.srq {
            srq.forget(self);
        }
        self.open.store(false, Release);
        self.end_events();
    }

    /// Removes its completions, and the events that its ULP has not been told of.
    fn forget(&self) {
        self.due[2].store(NEVER, Relaxed);
        self.forget_events();
        for cq in self.cqs() {
            cq.forget(self.fixed.raw);
        }
    }
}
