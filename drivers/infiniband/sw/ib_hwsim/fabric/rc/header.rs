// SPDX-License-Identifier: GPL-2.0

//! Headers of the packets of a reliable connection (sections 9.2 to 9.5).

use super::Psn;

/// The base transport header and its extensions, of a packet or of a run of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// The sequence number; in a run, that of the first packet.
    pub psn: Psn,
    /// The packets in the run, 1 or more; 0 of [`Op::Resume`], which is none. Only parts of messages
    /// and of answers to READ requests come in runs.
    pub packets: u32,
    /// The bytes of payload of all of them. Each but the last one is as long as the path MTU.
    pub bytes: u32,
    /// True if the last packet asks for an acknowledgement.
    pub ack_request: bool,
    /// True if the message asks for a solicited event.
    pub solicited: bool,
    /// The operation, with its extended headers.
    pub op: Op,
}

/// An operation of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A part of a SEND.
    Send {
        /// The place of the packet in the message.
        part: Part,
        /// The end of the message, if the part has that.
        tail: Tail,
    },
    /// A part of an RDMA WRITE.
    Write {
        /// The place of the packet in the message.
        part: Part,
        /// The memory to write, in the part that begins the message.
        to: Option<Reth>,
        /// The end of the message, if the part has that.
        tail: Tail,
    },
    /// An RDMA READ request.
    Read(Reth),
    /// An atomic operation.
    Atomic {
        /// Address of eight bytes.
        address: u64,
        /// Key of the memory.
        key: u32,
        /// The operation.
        op: AtomicOp,
    },
    /// A part of the answer to an RDMA READ.
    ReadResponse {
        /// The place of the packet in the answer.
        part: Part,
    },
    /// The answer to an atomic operation: the number that was there before.
    AtomicResponse(u64),
    /// An acknowledgement, or the opposite.
    Acknowledge(Aeth),
    /// No packet: a receive request was posted, so that what waits for one can come. It stands
    /// for the credits of a link, by which a sender learns the same.
    Resume,
}

/// A place in a message: its beginning, its end, both or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// True if the message begins here.
    pub first: bool,
    /// True if the message ends here.
    pub last: bool,
}

impl Part {
    /// A whole message.
    pub const ONLY: Part = Part {
        first: true,
        last: true,
    };
}

/// An end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing besides.
    Plain,
    /// Immediate data.
    Immediate(u32),
    /// The key of a memory region that is to be invalidated.
    Invalidate(u32),
}

/// An RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Address of the memory.
    pub address: u64,
    /// Key of the memory.
    pub key: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

/// An operation on eight bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Writes `swap` if the number there is `compare`.
    CompareSwap {
        /// The number that has to be there.
        compare: u64,
        /// The number to be written.
        swap: u64,
    },
    /// Adds a number to the one there.
    FetchAdd(u64),
}

/// An acknowledgement extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The kind of acknowledgement. It says nothing of credits: that is their value 31.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, modulo 2^24.
    pub msn: u32,
}

/// Kinds of acknowledgement (section 9.7.5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All up to and with this PSN has arrived.
    Ack,
    /// All before this PSN has, and for this one no receive request was posted. The sender has to
    /// wait for the time that this timer code means.
    ReceiverNotReady(u8),
    /// All before this PSN has arrived, and this one has not been, or cannot be, done.
    Nak(Nak),
}

/// Reasons of a negative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nak {
    /// A packet is missing.
    Sequence,
    /// The request is none that the responder can do.
    InvalidRequest,
    /// The memory is not the requester's to use.
    RemoteAccess,
    /// The responder could not do it, for a reason of its own.
    RemoteOperation,
}

/// Rights to use the memory of a queue pair's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// RDMA READ.
    pub read: bool,
    /// RDMA WRITE.
    pub write: bool,
    /// Atomic operations.
    pub atomic: bool,
}

impl Bth {
    /// The header of what is no packet.
    pub(crate) const RESUME: Bth = Bth {
        packets: 0,
        ..Bth::bare(Psn::new(0), Op::Resume)
    };

    /// Makes the header of a single packet without payload.
    pub const fn bare(psn: Psn, op: Op) -> Bth {
        Bth {
            psn,
            packets: 1,
            bytes: 0,
            ack_request: false,
            solicited: false,
            op,
        }
    }

    /// Returns true if it is a request, which goes to a responder; an answer goes to a requester.
    pub const fn is_request(&self) -> bool {
        matches!(
            self.op,
            Op::Send { .. } | Op::Write { .. } | Op::Read(_) | Op::Atomic { .. }
        )
    }

    /// Returns the bytes of the extended headers of all packets of the run.
    pub(crate) fn extended_bytes(&self) -> u32 {
        const RETH: u32 = 16;
        const ATOMIC: u32 = 28;
        const AETH: u32 = 4;
        let of_tail = |tail: &Tail| match tail {
            Tail::Plain => 0,
            Tail::Immediate(_) | Tail::Invalidate(_) => 4u32,
        };
        match &self.op {
            Op::Send { tail, .. } => of_tail(tail),
            Op::Write { to, tail, .. } => {
                let head = if to.is_some() { RETH } else { 0 };
                of_tail(tail).saturating_add(head)
            }
            Op::Read(_) => RETH,
            Op::Atomic { .. } => ATOMIC,
            // The first and the last packet of an answer have the header.
            Op::ReadResponse { part } => {
                let one = self.packets == 1;
                let ends = match (part.first, part.last) {
                    (true, true) if !one => 2,
                    (false, false) => 0,
                    _ => 1,
                };
                AETH.saturating_mul(ends)
            }
            Op::AtomicResponse(_) => AETH + 8,
            Op::Acknowledge(_) => AETH,
            Op::Resume => 0,
        }
    }

    /// Takes a packet out of a run: number `n`, counted from 0. `None` if there is no such packet, or
    /// if its payload is not what a run of packets of `mtu` bytes leaves for it.
    pub fn nth(&self, n: u32, mtu: u32) -> Option<Bth> {
        self.slice(n, 1, mtu)
    }

    /// Splits a run into its first `n` packets and the rest; `None` if either would be empty.
    pub fn split(&self, n: u32, mtu: u32) -> Option<(Bth, Bth)> {
        let rest = self.packets.checked_sub(n)?;
        Some((self.slice(0, n, mtu)?, self.slice(n, rest, mtu)?))
    }

    /// Takes `n` packets out of a run, from number `from` on.
    fn slice(&self, from: u32, n: u32, mtu: u32) -> Option<Bth> {
        let after = self.packets.checked_sub(from.checked_add(n)?)?;
        let (first, last) = (from == 0, after == 0);
        let (rest, full) = (
            self.bytes.checked_sub(mtu.checked_mul(from)?)?,
            mtu.checked_mul(n)?,
        );
        let bytes = if last { rest } else { full };
        if n == 0 || bytes > full || bytes > rest {
            return None;
        }
        Some(Bth {
            psn: self.psn.plus(from),
            packets: n,
            bytes,
            ack_request: self.ack_request && last,
            solicited: self.solicited && last,
            op: self.op.part(first, last)?,
        })
    }
}

impl Op {
    /// Returns the operation of a part of a run: `first` and `last` say which ends of the run it has. `None` if it has
    /// not both and the operation is one of single packets.
    pub(crate) fn part(self, first: bool, last: bool) -> Option<Op> {
        let of_part = |part: Part| Part {
            first: part.first && first,
            last: part.last && last,
        };
        let of_last = |tail| if last { tail } else { Tail::Plain };
        match self {
            _ if first && last => Some(self),
            Op::Send { part, tail } => Some(Op::Send {
                part: of_part(part),
                tail: of_last(tail),
            }),
            Op::Write { part, to, tail } => Some(Op::Write {
                part: of_part(part),
                to: to.filter(|_| first),
                tail: of_last(tail),
            }),
            Op::ReadResponse { part } => Some(Op::ReadResponse {
                part: of_part(part),
            }),
            _ => None,
        }
    }
}
