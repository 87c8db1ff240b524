// SPDX-License-Identifier: GPL-2.0

//! Packets that are received, as a responder sees them, and what it makes of them.

use super::header::{Access, AtomicOp, Bth, Tail};
use super::Psn;
use crate::Mtu;

/// Attributes of a responder (section 11.2.5.2), in their encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderSetup {
    /// PSN of the first packet.
    pub psn: Psn,
    /// Path MTU.
    pub mtu: Mtu,
    /// Timer code of RNR NAKs.
    pub rnr_timer: u8,
    /// READ requests and atomic operations that it keeps, 0 to 16.
    pub resources: u8,
    /// Access rights of the requester.
    pub access: Access,
}

/// Use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// An atomic operation.
    Atomic,
}

/// Reason why a request cannot be done, with which the queue pair goes to error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The message is longer than the receive request has room for.
    Length,
    /// The memory of the receive request is not the owner's to use.
    Protection,
    /// The request is none that can be done, or comes out of turn.
    Invalid,
    /// The remote memory that it names is not the requester's to use.
    Access,
}

/// A message that has been received as a whole, and uses up a receive request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of it.
    pub bytes: u32,
    /// The end of the message.
    pub tail: Tail,
    /// True if it was an RDMA WRITE.
    pub is_write: bool,
    /// True if it asks for a solicited event.
    pub solicited: bool,
}

/// Fate of a part of a message that a receiver has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Put {
    /// The payload is where it belongs.
    All,
    /// The rest of it cannot be read any more, as the sender's memory is gone.
    CutOff,
}

/// A receiving side: its receive requests and its memory.
pub trait Receiver {
    /// Returns true if there is a receive request for the present message. It stays that message's until
    /// [`Receiver::complete`].
    fn claim(&mut self) -> bool;

    /// Puts `bytes` of the run's payload, beginning at `from`, at `offset` of the receive request.
    ///
    /// # Errors
    ///
    /// [`Fault::Length`] or [`Fault::Protection`].
    fn put(&mut self, offset: u32, from: u32, bytes: u32) -> Result<Put, Fault>;

    /// The message that the claimed receive request is for has come to its end.
    fn complete(&mut self, message: &Received);

    /// Returns true if this memory may be used so.
    fn allows(&self, key: u32, address: u64, bytes: u32, purpose: Purpose) -> bool;

    /// Writes `bytes` of the run's payload, beginning at `from`.
    ///
    /// # Errors
    ///
    /// [`Fault::Access`].
    fn write(&mut self, key: u32, address: u64, from: u32, bytes: u32) -> Result<Put, Fault>;

    /// Carries out an atomic operation on eight bytes, whose address is a multiple of eight; returns
    /// the number that was there.
    ///
    /// # Errors
    ///
    /// [`Fault::Access`].
    fn atomic(&mut self, key: u32, address: u64, op: AtomicOp) -> Result<u64, Fault>;

    /// Invalidates a memory region.
    ///
    /// # Errors
    ///
    /// [`Fault::Access`].
    fn invalidate(&mut self, key: u32) -> Result<(), Fault>;
}

/// Fate of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// The request was taken, or dropped in a way that the sender will learn of, or need not.
    Done,
    /// The request waits for a receive request.
    Held,
    /// The request did not come to its end, and is as if it had not come at all. The sender has to learn of that
    /// at once.
    CutOff,
    /// The request cannot be done: the queue pair is in error, once what is owed has been sent.
    Failed(Fault),
}

/// An answer that is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The headers.
    pub bth: Bth,
    /// The memory that the payload is read from, if there is any: key and address.
    pub source: Option<(u32, u64)>,
}
