// SPDX-License-Identifier: GPL-2.0

//! Opcodes of the base transport header (section 9.2.1, table 38).

use crate::packet::{Packet, Transport};
use crate::rc::{AtomicOp, Op, Part, Tail};

/// How a message ends: plain, with immediate data, or with an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Plain,
    Immediate,
    Invalidate,
}

impl End {
    pub(crate) const fn of(tail: &Tail) -> End {
        match tail {
            Tail::Plain => End::Plain,
            Tail::Immediate(_) => End::Immediate,
            Tail::Invalidate(_) => End::Invalidate,
        }
    }
}

/// The meaning of an opcode: which extended headers a packet has, and where in a message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Send(Part, End),
    Write(Part, End),
    Read,
    ReadResponse(Part),
    Acknowledge,
    AtomicResponse,
    CompareSwap,
    FetchAdd,
    Datagram(End),
}

const FIRST: Part = Part {
    first: true,
    last: false,
};
const MIDDLE: Part = Part {
    first: false,
    last: false,
};
const LAST: Part = Part {
    first: false,
    last: true,
};

/// The opcodes of reliable connections and of unreliable datagrams.
const OPCODES: [(u8, Form); 25] = [
    (0x00, Form::Send(FIRST, End::Plain)),
    (0x01, Form::Send(MIDDLE, End::Plain)),
    (0x02, Form::Send(LAST, End::Plain)),
    (0x03, Form::Send(LAST, End::Immediate)),
    (0x04, Form::Send(Part::ONLY, End::Plain)),
    (0x05, Form::Send(Part::ONLY, End::Immediate)),
    (0x06, Form::Write(FIRST, End::Plain)),
    (0x07, Form::Write(MIDDLE, End::Plain)),
    (0x08, Form::Write(LAST, End::Plain)),
    (0x09, Form::Write(LAST, End::Immediate)),
    (0x0a, Form::Write(Part::ONLY, End::Plain)),
    (0x0b, Form::Write(Part::ONLY, End::Immediate)),
    (0x0c, Form::Read),
    (0x0d, Form::ReadResponse(FIRST)),
    (0x0e, Form::ReadResponse(MIDDLE)),
    (0x0f, Form::ReadResponse(LAST)),
    (0x10, Form::ReadResponse(Part::ONLY)),
    (0x11, Form::Acknowledge),
    (0x12, Form::AtomicResponse),
    (0x13, Form::CompareSwap),
    (0x14, Form::FetchAdd),
    (0x16, Form::Send(LAST, End::Invalidate)),
    (0x17, Form::Send(Part::ONLY, End::Invalidate)),
    (0x64, Form::Datagram(End::Plain)),
    (0x65, Form::Datagram(End::Immediate)),
];

impl Form {
    /// Returns the form of a single packet of a connection; `None` of [`Op::Resume`], which is no packet.
    pub(crate) const fn of(op: &Op) -> Option<Form> {
        Some(match op {
            Op::Send { part, tail } => Form::Send(*part, End::of(tail)),
            Op::Write { part, tail, .. } => Form::Write(*part, End::of(tail)),
            Op::Read(_) => Form::Read,
            Op::Atomic { op, .. } => match op {
                AtomicOp::CompareSwap { .. } => Form::CompareSwap,
                AtomicOp::FetchAdd(_) => Form::FetchAdd,
            },
            Op::ReadResponse { part } => Form::ReadResponse(*part),
            Op::AtomicResponse(_) => Form::AtomicResponse,
            Op::Acknowledge(_) => Form::Acknowledge,
            Op::Resume => return None,
        })
    }

    /// Returns the meaning of an opcode; `None` if it is reserved, or of another service.
    pub(crate) fn of_opcode(opcode: u8) -> Option<Form> {
        let found = OPCODES.iter().find(|(code, _)| *code == opcode);
        found.map(|&(_, form)| form)
    }

    /// Returns the opcode; `None` if there is none, as for immediate data within a message.
    pub(crate) fn opcode(self) -> Option<u8> {
        let found = OPCODES.iter().find(|(_, form)| *form == self);
        found.map(|&(code, _)| code)
    }
}

impl Packet {
    /// Returns the opcode of the base transport header; in a run, that of the first packet. `None` of
    /// [`Op::Resume`], which is no packet.
    pub fn opcode(&self) -> Option<u8> {
        let form = match &self.transport {
            Transport::Ud {
                immediate: None, ..
            } => Form::Datagram(End::Plain),
            Transport::Ud { .. } => Form::Datagram(End::Immediate),
            Transport::Rc(run) => Form::of(&run.op.part(true, run.packets == 1)?)?,
        };
        form.opcode()
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_opcode))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Lid;
    use crate::rc::{Aeth, Bth, Psn, Reth, Syndrome};

    fn opcode(transport: Transport) -> Option<u8> {
        let packet = Packet::new(Lid::new(1), Lid::new(2), 0x48, transport);
        packet.opcode()
    }

    fn connected(packets: u32, op: Op) -> Option<u8> {
        opcode(Transport::Rc(Bth {
            packets,
            ..Bth::bare(Psn::new(0), op)
        }))
    }

    #[test]
    fn parts_of_messages() {
        let to = None;
        let plain = Tail::Plain;
        // first, last, packets, SEND, WRITE, the answer to a READ
        let cases = [
            (true, false, 1, 0x00, 0x06, 0x0d),
            (true, true, 2, 0x00, 0x06, 0x0d),
            (false, false, 2, 0x01, 0x07, 0x0e),
            (false, true, 2, 0x01, 0x07, 0x0e),
            (false, true, 1, 0x02, 0x08, 0x0f),
            (true, true, 1, 0x04, 0x0a, 0x10),
        ];
        for (first, last, packets, send, write, response) in cases {
            let part = Part { first, last };
            let tail = plain;
            assert_eq!(connected(packets, Op::Send { part, tail }), Some(send));
            assert_eq!(
                connected(packets, Op::Write { part, to, tail }),
                Some(write)
            );
            assert_eq!(
                connected(packets, Op::ReadResponse { part }),
                Some(response)
            );
        }
    }

    #[test]
    fn ends_of_messages() {
        let (to, immediate) = (None, Tail::Immediate(1));
        // first, SEND with immediate data, with a key, WRITE with immediate data
        for (first, send, invalidate, write) in
            [(false, 0x03, 0x16, 0x09), (true, 0x05, 0x17, 0x0b)]
        {
            let part = Part { first, last: true };
            let tail = immediate;
            assert_eq!(connected(1, Op::Send { part, tail }), Some(send));
            assert_eq!(connected(1, Op::Write { part, to, tail }), Some(write));
            let tail = Tail::Invalidate(1);
            assert_eq!(connected(1, Op::Send { part, tail }), Some(invalidate));
        }
    }

    #[test]
    fn others() {
        let reth = Reth {
            address: 0,
            key: 0,
            len: 0,
        };
        let aeth = Aeth {
            syndrome: Syndrome::Ack,
            msn: 0,
        };
        let atomic = |op| Op::Atomic {
            address: 0,
            key: 0,
            op,
        };
        let swap = AtomicOp::CompareSwap {
            compare: 0,
            swap: 0,
        };
        assert_eq!(connected(1, Op::Read(reth)), Some(0x0c));
        assert_eq!(connected(1, Op::Acknowledge(aeth)), Some(0x11));
        assert_eq!(connected(1, Op::AtomicResponse(0)), Some(0x12));
        assert_eq!(connected(1, atomic(swap)), Some(0x13));
        assert_eq!(connected(1, atomic(AtomicOp::FetchAdd(1))), Some(0x14));
        assert_eq!(connected(0, Op::Resume), None);
        assert_eq!(opcode(Transport::datagram(1, 0)), Some(0x64));
        let immediate = Transport::Ud {
            qkey: 0,
            src_qp: 1,
            immediate: Some(0),
            solicited: false,
        };
        assert_eq!(opcode(immediate), Some(0x65));
    }
}
