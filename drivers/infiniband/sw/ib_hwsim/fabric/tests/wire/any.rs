// SPDX-License-Identifier: GPL-2.0

//! Packets and runs of packets of all kinds, as a queue pair makes them.

use ib_fabric::rc::{Aeth, AtomicOp, Bth, Nak, Op, Part, Psn, Reth, Syndrome, Tail};
use ib_fabric::{Gid, Grh, Lid, Packet, Transport};
use proptest::prelude::*;

fn grh() -> impl Strategy<Value = Grh> {
    (
        any::<u8>(),
        0..1u32 << 20,
        any::<u8>(),
        any::<[u8; 16]>(),
        any::<[u8; 16]>(),
    )
        .prop_map(|(traffic_class, flow_label, hop_limit, sgid, dgid)| Grh {
            traffic_class,
            flow_label,
            hop_limit,
            sgid: Gid::from_bytes(sgid),
            dgid: Gid::from_bytes(dgid),
        })
}

fn reth() -> impl Strategy<Value = Reth> {
    (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(address, key, len)| Reth {
        address,
        key,
        len,
    })
}

fn syndrome() -> impl Strategy<Value = Syndrome> {
    prop_oneof![
        Just(Syndrome::Ack),
        (0..32u8).prop_map(Syndrome::ReceiverNotReady),
        prop::sample::select(vec![
            Nak::Sequence,
            Nak::InvalidRequest,
            Nak::RemoteAccess,
            Nak::RemoteOperation,
        ])
        .prop_map(Syndrome::Nak),
    ]
}

/// Packets without payload.
fn bare() -> impl Strategy<Value = Op> {
    let atomic = prop_oneof![
        any::<u64>().prop_map(AtomicOp::FetchAdd),
        (any::<u64>(), any::<u64>())
            .prop_map(|(compare, swap)| AtomicOp::CompareSwap { compare, swap }),
    ];
    prop_oneof![
        reth().prop_map(Op::Read),
        (any::<u64>(), any::<u32>(), atomic).prop_map(|(address, key, op)| Op::Atomic {
            address,
            key,
            op
        }),
        any::<u64>().prop_map(Op::AtomicResponse),
        (syndrome(), 0..1u32 << 24)
            .prop_map(|(syndrome, msn)| Op::Acknowledge(Aeth { syndrome, msn })),
    ]
}

/// Parts of messages.
fn part() -> impl Strategy<Value = Op> {
    let part = (any::<bool>(), any::<bool>()).prop_map(|(first, last)| Part { first, last });
    let tail = prop_oneof![
        Just(Tail::Plain),
        any::<u32>().prop_map(Tail::Immediate),
        any::<u32>().prop_map(Tail::Invalidate),
    ];
    (part, tail, reth(), 0..3u8).prop_map(|(part, tail, to, kind)| {
        let tail = if part.last { tail } else { Tail::Plain };
        match (kind, tail) {
            (0, tail) => Op::Send { part, tail },
            (1, Tail::Plain | Tail::Immediate(_)) => Op::Write {
                part,
                to: part.first.then_some(to),
                tail,
            },
            _ => Op::ReadResponse { part },
        }
    })
}

fn run() -> impl Strategy<Value = (u32, Transport)> {
    let mtu = prop::sample::select(vec![256u32, 1024, 4096]);
    let bare = bare().prop_map(|op| (op, 1, 0, 0));
    let part = (part(), mtu, 1..6u32, any::<prop::sample::Index>()).prop_map(
        |(op, mtu, packets, rest)| {
            let rest = if packets == 1 {
                rest.index(mtu as usize + 1)
            } else {
                rest.index(mtu as usize) + 1
            };
            let bytes = (packets - 1) * mtu + rest as u32;
            (op, packets, bytes, bytes.min(mtu))
        },
    );
    let single = prop_oneof![bare, part];
    (single, 0..1u32 << 24, any::<bool>(), any::<bool>()).prop_map(
        |((op, packets, bytes, len), psn, ack_request, solicited)| {
            let bth = Bth {
                psn: Psn::new(psn),
                packets,
                bytes,
                ack_request,
                solicited,
                op,
            };
            (len, Transport::Rc(bth))
        },
    )
}

fn datagram() -> impl Strategy<Value = (u32, Transport)> {
    (
        0..4097u32,
        any::<u32>(),
        0..1u32 << 24,
        any::<Option<u32>>(),
        any::<bool>(),
    )
        .prop_map(|(len, qkey, src_qp, immediate, solicited)| {
            let transport = Transport::Ud {
                qkey,
                src_qp,
                immediate,
                solicited,
            };
            (len, transport)
        })
}

/// Any packet, or run of packets.
pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    (
        (any::<u16>(), any::<u16>()),
        0..16u8,
        any::<u16>(),
        0..1u32 << 24,
        prop::option::of(grh()),
        any::<bool>(),
        prop_oneof![run(), datagram()],
    )
        .prop_map(
            |((slid, dlid), sl, pkey, dest_qp, grh, management, (len, transport))| Packet {
                slid: Lid::new(slid),
                dlid: Lid::new(dlid),
                sl,
                pkey,
                dest_qp,
                grh,
                len,
                management: management && matches!(transport, Transport::Ud { .. }),
                transport,
            },
        )
}
