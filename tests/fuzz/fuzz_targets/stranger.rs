// SPDX-License-Identifier: GPL-2.0

//! Packets that a stranger forges on the wire of a reliable connection.

#![no_main]

use arbitrary::Arbitrary;
use ib_fabric::rc::{Aeth, AtomicOp, Bth, Nak, Op, Part, Psn, Reth, Syndrome, Tail};
use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/connection/mod.rs"]
#[allow(dead_code, reason = "each program uses its own part")]
mod connection;
#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/checks/stranger.rs"]
mod stranger;

use connection::{BASE, KEY, Plan};

/// An address, whether the key is right, another key, and a length.
type To = (u16, bool, u32, u32);

#[derive(Arbitrary, Debug)]
enum Kind {
    Send(bool, bool, u8, u32),
    Write(bool, bool, Option<To>, u8, u32),
    Read(To),
    FetchAdd(To, u64),
    CompareSwap(To, u64, u64),
    ReadResponse(bool, bool),
    AtomicResponse(u64),
    Acknowledge(u8, u32),
    Resume,
}

fn reth((address, right, key, len): To) -> Reth {
    Reth {
        address: BASE + u64::from(address),
        key: if right { KEY } else { key },
        len,
    }
}

fn tail(kind: u8, number: u32) -> Tail {
    match kind % 4 {
        0 => Tail::Immediate(number),
        1 => Tail::Invalidate(number),
        2 => Tail::Invalidate(KEY),
        _ => Tail::Plain,
    }
}

fn syndrome(kind: u8) -> Syndrome {
    match kind % 8 {
        0 => Syndrome::Nak(Nak::Sequence),
        1 => Syndrome::Nak(Nak::RemoteAccess),
        2 => Syndrome::Nak(Nak::InvalidRequest),
        3 => Syndrome::ReceiverNotReady(kind >> 3),
        _ => Syndrome::Ack,
    }
}

impl Kind {
    fn op(&self) -> Op {
        match *self {
            Kind::Send(first, last, kind, number) => Op::Send {
                part: Part { first, last },
                tail: tail(kind, number),
            },
            Kind::Write(first, last, to, kind, number) => Op::Write {
                part: Part { first, last },
                to: to.map(reth),
                tail: tail(kind, number),
            },
            Kind::Read(to) => Op::Read(reth(to)),
            Kind::FetchAdd(to, number) => atomic(to, AtomicOp::FetchAdd(number)),
            Kind::CompareSwap(to, compare, swap) => {
                atomic(to, AtomicOp::CompareSwap { compare, swap })
            }
            Kind::ReadResponse(first, last) => Op::ReadResponse {
                part: Part { first, last },
            },
            Kind::AtomicResponse(number) => Op::AtomicResponse(number),
            Kind::Acknowledge(kind, msn) => Op::Acknowledge(Aeth {
                syndrome: syndrome(kind),
                msn,
            }),
            Kind::Resume => Op::Resume,
        }
    }
}

fn atomic(to: To, op: AtomicOp) -> Op {
    let Reth { address, key, .. } = reth(to);
    Op::Atomic { address, key, op }
}

/// A packet: to the second side, how far from the first PSN, how many packets and bytes in each, wants an
/// acknowledgement, and what it is.
type Input = (bool, u8, u8, u16, bool, Kind);

fuzz_target!(|input: (bool, Vec<Input>)| {
    let (holds, packets) = input;
    let packets: Vec<_> = packets
        .iter()
        .take(40)
        .map(|(second, psn, packets, bytes, ask, kind)| {
            let bth = Bth {
                psn: Psn::new(Plan::USUAL.psn + u32::from(*psn)),
                packets: (*packets).into(),
                bytes: (*bytes).into(),
                ack_request: *ask,
                solicited: false,
                op: kind.op(),
            };
            (usize::from(*second), bth)
        })
        .collect();
    stranger::any_packets(&packets, holds);
});
