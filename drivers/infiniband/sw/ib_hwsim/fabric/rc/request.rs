// SPDX-License-Identifier: GPL-2.0

//! Requests to send, as a requester sees them, and what it makes of them.

use super::header::{AtomicOp, Bth, Tail};
use super::Psn;
use crate::completion::Status;
use crate::Mtu;

/// Attributes of a requester (section 11.2.5.2), in their encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterSetup {
    /// First PSN.
    pub psn: Psn,
    /// Path MTU.
    pub mtu: Mtu,
    /// Local ACK timeout: 4.096 µs × 2^n, or none if 0.
    pub timeout: u8,
    /// Times that something is sent again, 0 to 7.
    pub retries: u8,
    /// Times that something is sent again after an RNR NAK, 0 to 6; 7 is no limit.
    pub rnr_retries: u8,
    /// READ requests and atomic operations that may be under way.
    pub reads: u8,
}

/// A send request, as far as the requester needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub work: Work,
    /// Bytes of the message.
    pub len: u32,
    /// True if all READ requests and atomic operations before it must have been done.
    pub fence: bool,
    /// True if it asks for a solicited event.
    pub solicited: bool,
}

/// Operations of send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// SEND.
    Send(Tail),
    /// RDMA WRITE.
    Write {
        /// Remote address.
        address: u64,
        /// Key of the remote memory.
        key: u32,
        /// Immediate data, if any.
        tail: Tail,
    },
    /// RDMA READ.
    Read {
        /// Remote address.
        address: u64,
        /// Key of the remote memory.
        key: u32,
    },
    /// An atomic operation on eight bytes.
    Atomic {
        /// Remote address.
        address: u64,
        /// Key of the remote memory.
        key: u32,
        /// The operation.
        op: AtomicOp,
    },
    /// A request that is done locally, without a packet.
    Local {
        /// True if all requests before it must have been done.
        last: bool,
    },
}

impl Work {
    /// Returns true if it is done when an answer has come, rather than an acknowledgement.
    pub(super) const fn is_read(&self) -> bool {
        matches!(self, Work::Read { .. } | Work::Atomic { .. })
    }

    /// Returns true if it is an atomic operation.
    pub(super) const fn is_atomic(&self) -> bool {
        matches!(self, Work::Atomic { .. })
    }
}

/// The requests of a send queue that are not done.
pub trait Requests {
    /// Returns the request before which `index` others are in the queue.
    fn get(&self, index: usize) -> Option<Request>;
}

/// A thing to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Idle,
    /// Carry out the local request of this index, and say so by [`Requester::settle`].
    Local(usize),
    /// Send this run.
    Run {
        /// Index of the request.
        index: usize,
        /// Offset of the payload in its message.
        offset: u32,
        /// The headers.
        bth: Bth,
    },
}

/// A piece of an answer, which belongs in the memory of the request that is then the oldest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Offset of the piece in the payload of the run.
    pub from: u32,
    /// Offset of the piece in the memory of the request.
    pub offset: u32,
    /// Bytes of the piece.
    pub bytes: u32,
}

/// Consequences of an answer, in the order in which they are to be drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// Number of the oldest requests that are done.
    pub done: usize,
    /// Data for the oldest request.
    pub data: Option<Data>,
    /// Number of the requests behind them that are done.
    pub done_then: usize,
    /// The oldest request has failed with this error, after which the queue pair is in error.
    pub failure: Option<Status>,
}
