// SPDX-License-Identifier: GPL-2.0

//! Opcodes of the base transport header (section 9.2.1, table 38).

use crate::rc::{Part, Tail};

/// An end of a message, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Plain,
    Immediate,
    Invalidate,
}

impl End {
    pub(super) const fn of(tail: &Tail) -> End {
        match tail {
            Tail::Plain => End::Plain,
            Tail::Immediate(_) => End::Immediate,
            Tail::Invalidate(_) => End::Invalidate,
        }
    }
}

/// The meaning of an opcode: which extended headers a packet has, and where in a message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
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
    /// Returns the meaning of an opcode; `None` if it is reserved, or of another service.
    pub(super) fn of_opcode(opcode: u8) -> Option<Form> {
        let found = OPCODES.iter().find(|(code, _)| *code == opcode);
        found.map(|&(_, form)| form)
    }

    /// Returns the opcode; `None` if there is none, as for immediate data within a message.
    pub(super) fn opcode(self) -> Option<u8> {
        let found = OPCODES.iter().find(|(_, form)| *form == self);
        found.map(|&(code, _)| code)
    }
}
