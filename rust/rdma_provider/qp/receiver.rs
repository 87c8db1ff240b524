// SPDX-License-Identifier: GPL-2.0

//! The receiving half of a connection: requests of the other end, and the answers to them.

use ib_fabric::rc::{
    AtomicOp, Bth, Fault, Purpose, Put, Received, Receiver, Response, Tail, Taken,
};
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{Payload, Qp, QpEvent, ReceiveEntry, ReceiveSide, Refused, WorkQueue};
use crate::memory::{self, length, permitted, Cursor, Denied, Piece, Side};
use crate::region::Right;
use crate::state::State;
use crate::wakeups::Wakeups;
use crate::work::{of_fault, Path, Status};

/// Fate of a request of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The message waits for a receive request.
    pub held: bool,
    /// There is an answer: call [`Qp::respond`] soon, from another context.
    pub owes: bool,
}

/// Circumstances in which a request of the other end comes.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The time in ns, see [`crate::now`].
    pub now: u64,
    /// The port.
    pub port: u8,
    /// True if the other end learns at once, from [`Accepted::held`], that it has to wait. If it does not, as where
    /// it has gone on or is in another kernel, no request is held, and it gets an RNR NAK.
    pub holds: bool,
}

/// A queue pair that receives a run of packets.
struct Intake<'a> {
    qp: &'a Arc<Qp>,
    queue: &'a mut WorkQueue<ReceiveEntry>,
    path: &'a Path,
    payload: &'a Payload<'a>,
    wakeups: &'a mut Wakeups,
    /// Status of the message that a rule makes fail; nothing is received behind it.
    struck: Option<Status>,
}

impl Intake<'_> {
    /// Copies a part of the payload; `fault` is that of memory that is not to be written to.
    fn copy(&self, from: u32, to: &mut Cursor<'_>, len: usize, fault: Fault) -> Result<Put, Fault> {
        match self.payload.copy(from as usize, to, len) {
            Ok(()) => Ok(Put::All),
            Err(Side::From) => Ok(Put::CutOff),
            Err(Side::To) => Err(fault),
        }
    }
}

impl Receiver for Intake<'_> {
    fn claim(&mut self) -> bool {
        if !self.queue.is_empty() {
            return true;
        }
        match &self.qp.fixed.srq {
            Some(srq) => srq.take(self.qp, self.queue, self.wakeups),
            None => false,
        }
    }

    fn put(&mut self, offset: u32, from: u32, bytes: u32) -> Result<Put, Fault> {
        let (_, pieces) = self.queue.first().ok_or(Fault::Length)?;
        let (offset, bytes) = (offset as usize, bytes as usize);
        if offset + bytes > length(pieces) {
            return Err(Fault::Length);
        }
        let domain = &self.qp.fixed.domain;
        if !permitted(domain, pieces, Right::LocalWrite) {
            return Err(Fault::Protection);
        }
        // SAFETY: The request is in its queue, whose lock is held.
        let mut to = unsafe { Cursor::new(Some(domain), Right::LocalWrite, pieces, offset) };
        self.copy(from, &mut to, bytes, Fault::Protection)
    }

    fn complete(&mut self, message: &Received) {
        let Some((entry, _)) = self.queue.first() else {
            return;
        };
        if self.struck.is_some() {
            return;
        }
        let status = self.qp.receive_status();
        if status != Status::Success {
            self.struck = Some(status);
            return;
        }
        let entry = *entry;
        self.queue.pop();
        self.queue.count_end(Status::Success, message.bytes.into());
        let mut wc: bindings::ib_wc = pin_init::zeroed();
        wc.__bindgen_anon_1.wr_id = entry.wr_id;
        wc.status = bindings::ib_wc_status_IB_WC_SUCCESS;
        wc.opcode = if message.is_write {
            bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM
        } else {
            bindings::ib_wc_opcode_IB_WC_RECV
        };
        wc.byte_len = message.bytes;
        wc.qp = self.qp.fixed.raw;
        wc.src_qp = self.path.remote_qp;
        wc.slid = self.path.to.dlid.into();
        wc.sl = self.path.to.sl;
        wc.pkey_index = self.path.pkey_index;
        match message.tail {
            Tail::Plain => {}
            Tail::Immediate(data) => {
                wc.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM as i32;
                wc.ex.imm_data = data.to_be();
            }
            Tail::Invalidate(key) => {
                wc.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32;
                wc.ex.invalidate_rkey = key;
            }
        }
        let wake = self.qp.fixed.receive_cq.push(wc, message.solicited);
        self.wakeups.add(&self.qp.fixed.receive_cq, wake);
    }

    fn allows(&self, key: u32, address: u64, bytes: u32, purpose: Purpose) -> bool {
        let right = match purpose {
            Purpose::Read => Right::RemoteRead,
            Purpose::Write => Right::RemoteWrite,
            Purpose::Atomic => Right::RemoteAtomic,
        };
        let domain = &self.qp.fixed.domain;
        Piece::remote(key, address, bytes).is_some_and(|piece| permitted(domain, &[piece], right))
    }

    fn write(&mut self, key: u32, address: u64, from: u32, bytes: u32) -> Result<Put, Fault> {
        let list = [Piece::remote(key, address, bytes).ok_or(Fault::Access)?];
        // SAFETY: The list names a region only, by `Piece::remote`.
        let mut to =
            unsafe { Cursor::new(Some(&self.qp.fixed.domain), Right::RemoteWrite, &list, 0) };
        self.copy(from, &mut to, bytes as usize, Fault::Access)
    }

    fn atomic(&mut self, key: u32, address: u64, op: AtomicOp) -> Result<u64, Fault> {
        let new = |old: u64| match op {
            AtomicOp::CompareSwap { compare, swap } if compare == old => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd(n) => old.wrapping_add(n),
        };
        memory::change(&self.qp.fixed.domain, key, address, new).map_err(|Denied| Fault::Access)
    }

    fn invalidate(&mut self, key: u32) -> Result<(), Fault> {
        let done = self.qp.fixed.domain.invalidate(key);
        done.then_some(()).ok_or(Fault::Access)
    }
}

impl Qp {
    /// Takes a request of the other end of a connection that came to a port. `check` gets that end as this one
    /// knows it, and may refuse the request.
    ///
    /// # Errors
    ///
    /// [`Refused::State`], [`Refused::Payload`] or [`Refused::Driver`]. The request is gone, and its sender does not
    /// learn of it by an answer.
    ///
    /// # Context
    ///
    /// In the callback of [`Qp::request`], or with a payload that is a copy. `check` runs with interrupts disabled.
    pub fn accept<E>(
        self: &Arc<Self>,
        wakeups: &mut Wakeups,
        arrival: Arrival,
        bth: &Bth,
        payload: &Payload<'_>,
        check: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Accepted, Refused<E>> {
        let Arrival { now, port, holds } = arrival;
        let mut side = self.receives.lock();
        let side = &mut *side;
        if !side.state.receives() || side.port != port {
            return Err(Refused::State);
        }
        let Some(responder) = &mut side.responder else {
            return Err(Refused::State);
        };
        check(&side.path).map_err(Refused::Driver)?;
        let mut intake = Intake {
            qp: self,
            queue: &mut side.queue,
            path: &side.path,
            payload,
            wakeups,
            struck: None,
        };
        responder.set_holds(holds);
        let taken = responder.request(now, bth, &mut intake);
        let struck = intake.struck;
        // The sending half learns of the failure as the answer is given.
        let owes = responder.owes() || struck.is_some();
        self.check_silence(side);
        self.note_responder(side);
        if let Some(status) = struck {
            self.break_receives(side, Some(status), wakeups);
            side.broken = true;
        } else {
            match taken {
                Taken::CutOff => return Err(Refused::Payload),
                Taken::Failed(fault) => self.fail(side, fault, wakeups),
                Taken::Done | Taken::Held => {}
            }
        }
        Ok(Accepted {
            held: taken == Taken::Held,
            owes,
        })
    }

    /// The other end has asked for what cannot be done.
    fn fail(self: &Arc<Self>, side: &mut ReceiveSide, fault: Fault, wakeups: &mut Wakeups) {
        let receiving = side.responder.as_ref().is_some_and(|r| r.is_receiving());
        let own = matches!(fault, Fault::Length | Fault::Protection);
        let reason = (receiving || own).then(|| of_fault(fault));
        self.break_receives(side, reason, wakeups);
        // The lock of the sending half is not to be had here.
        side.broken = true;
        if reason.is_none() {
            let event = match fault {
                Fault::Access => QpEvent::Access,
                _ => QpEvent::Request,
            };
            self.note(event);
        }
    }

    /// Returns the next answer that is owed to the other end of a connection, and takes it for sent.
    ///
    /// # Context
    ///
    /// Softirq, which lasts until the answer has been given to [`Qp::answer`]: who takes the queue pair to the state
    /// Error or Reset waits for that. Hold no lock of this crate's. One at a time for each queue pair, lest answers
    /// overtake each other.
    pub fn respond(self: &Arc<Self>, wakeups: &mut Wakeups) -> Option<(Path, Response)> {
        let (response, broken) = {
            let mut side = self.receives.lock();
            let response = side.responder.as_mut().and_then(|r| r.respond());
            (response.map(|response| (side.path, response)), side.broken)
        };
        if broken {
            self.follow(wakeups);
        }
        response
    }

    /// Calls `f` with the payload of an answer that [`Qp::respond`] has returned; `None` if its memory is not the other
    /// end's to read any more: [`Qp::deny`] it then.
    ///
    /// # Context
    ///
    /// As for [`Qp::respond`].
    pub fn with_payload<R>(
        &self,
        response: &Response,
        f: impl FnOnce(&Payload<'_>) -> R,
    ) -> Option<R> {
        let Some((key, address)) = response.source else {
            return Some(Payload::with(&[], f));
        };
        let (domain, len) = (&self.fixed.domain, response.bth.bytes);
        let pieces = [Piece::remote(key, address, len)?];
        if !permitted(domain, &pieces, Right::RemoteRead) {
            return None;
        }
        // SAFETY: `Piece::remote` made it.
        Some(f(&unsafe {
            Payload::new(Some(domain), Right::RemoteRead, &pieces, 0, len as usize)
        }))
    }

    /// The memory of an answer cannot be read any more. The other end knows that already, or gets a NAK.
    pub fn deny(self: &Arc<Self>, wakeups: &mut Wakeups, response: &Response) {
        {
            let mut side = self.receives.lock();
            let side = &mut *side;
            let Some(responder) = &mut side.responder else {
                return;
            };
            responder.fail_read(response.bth.psn);
            if side.state != State::Error {
                self.fail(side, Fault::Access, wakeups);
            }
        }
        self.follow(wakeups);
    }
}
