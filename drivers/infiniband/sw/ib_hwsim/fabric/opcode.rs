// SPDX-License-Identifier: GPL-2.0

//! Operation codes of packets (section 9.2.1, table 38).

use crate::packet::{Packet, Transport};
use crate::rc::{AtomicOp, Op, Part, Tail};

/// SEND Only of an unreliable datagram; with immediate data, the next code.
const DATAGRAM: u8 = 0x64;

impl Packet {
    /// Returns the OpCode of its base transport header; in a run, that of the first packet. `None`
    /// of [`Op::Resume`], which is no packet.
    pub fn opcode(&self) -> Option<u8> {
        let bth = match &self.transport {
            Transport::Ud { immediate, .. } => {
                return Some(DATAGRAM.wrapping_add(u8::from(immediate.is_some())));
            }
            Transport::Rc(bth) => bth,
        };
        let single = bth.packets == 1;
        // Only the last packet has the end of a message.
        let ends = |part: Part| part.last && single;
        Some(match bth.op {
            Op::Send { part, tail } => match (part.first, ends(part), tail) {
                (true, false, _) => 0x00,
                (false, false, _) => 0x01,
                (false, true, Tail::Plain) => 0x02,
                (false, true, Tail::Immediate(_)) => 0x03,
                (false, true, Tail::Invalidate(_)) => 0x16,
                (true, true, Tail::Plain) => 0x04,
                (true, true, Tail::Immediate(_)) => 0x05,
                (true, true, Tail::Invalidate(_)) => 0x17,
            },
            Op::Write { part, tail, .. } => {
                let immediate = matches!(tail, Tail::Immediate(_));
                match (part.first, ends(part), immediate) {
                    (true, false, _) => 0x06,
                    (false, false, _) => 0x07,
                    (false, true, false) => 0x08,
                    (false, true, true) => 0x09,
                    (true, true, false) => 0x0a,
                    (true, true, true) => 0x0b,
                }
            }
            Op::Read(_) => 0x0c,
            Op::ReadResponse { part } => match (part.first, ends(part)) {
                (true, false) => 0x0d,
                (false, false) => 0x0e,
                (false, true) => 0x0f,
                (true, true) => 0x10,
            },
            Op::Acknowledge(_) => 0x11,
            Op::AtomicResponse(_) => 0x12,
            Op::Atomic { op, .. } => match op {
                AtomicOp::CompareSwap { .. } => 0x13,
                AtomicOp::FetchAdd(_) => 0x14,
            },
            Op::Resume => return None,
        })
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_opcode))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Lid;
    use crate::rc::{Aeth, Bth, Psn, Reth, Syndrome};

    fn opcode(transport: Transport) -> Option<u8> {
        let packet = Packet {
            slid: Lid::new(1),
            dlid: Lid::new(2),
            sl: 0,
            pkey: 0xffff,
            dest_qp: 0x48,
            grh: None,
            len: 0,
            management: false,
            transport,
        };
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
