// SPDX-License-Identifier: GPL-2.0

//! Property tests: no packet makes a connection panic, or write where it may not.

#[allow(dead_code)]
mod connection;
#[path = "checks/stranger.rs"]
mod stranger;

use connection::{Plan, BASE, KEY};
use ib_fabric::rc::{Aeth, AtomicOp, Bth, Nak, Op, Part, Psn, Reth, Syndrome, Tail, MAX_MESSAGE};
use proptest::prelude::*;

/// First PSN of both sides.
const FIRST: u32 = Plan::USUAL.psn;

fn tail() -> impl Strategy<Value = Tail> {
    prop_oneof![
        Just(Tail::Plain),
        any::<u32>().prop_map(Tail::Immediate),
        prop_oneof![Just(KEY), any::<u32>()].prop_map(Tail::Invalidate),
    ]
}

fn reth() -> impl Strategy<Value = Reth> {
    let address = prop_oneof![BASE..BASE + 5000, any::<u64>()];
    let key = prop_oneof![9 => Just(KEY), 1 => any::<u32>()];
    let len = prop_oneof![0..2000u32, Just(MAX_MESSAGE), any::<u32>()];
    (address, key, len).prop_map(|(address, key, len)| Reth { address, key, len })
}

fn syndrome() -> impl Strategy<Value = Syndrome> {
    prop_oneof![
        6 => Just(Syndrome::Ack),
        2 => any::<u8>().prop_map(Syndrome::ReceiverNotReady),
        4 => Just(Syndrome::Nak(Nak::Sequence)),
        1 => Just(Syndrome::Nak(Nak::RemoteAccess)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let part = || (any::<bool>(), any::<bool>()).prop_map(|(first, last)| Part { first, last });
    let to = prop_oneof![3 => reth().prop_map(Some), 1 => Just(None)];
    let atomic = prop_oneof![
        any::<u64>().prop_map(AtomicOp::FetchAdd),
        (any::<u64>(), any::<u64>())
            .prop_map(|(compare, swap)| AtomicOp::CompareSwap { compare, swap }),
    ];
    prop_oneof![
        (part(), tail()).prop_map(|(part, tail)| Op::Send { part, tail }),
        (part(), to, tail()).prop_map(|(part, to, tail)| Op::Write { part, to, tail }),
        reth().prop_map(Op::Read),
        (reth(), atomic).prop_map(|(to, op)| Op::Atomic {
            address: to.address,
            key: to.key,
            op,
        }),
        part().prop_map(|part| Op::ReadResponse { part }),
        any::<u64>().prop_map(Op::AtomicResponse),
        (syndrome(), any::<u32>())
            .prop_map(|(syndrome, msn)| Op::Acknowledge(Aeth { syndrome, msn })),
        Just(Op::Resume),
    ]
}

fn bth() -> impl Strategy<Value = Bth> {
    let psn = prop_oneof![9 => FIRST..FIRST + 20, 1 => any::<u32>()];
    let packets = prop_oneof![6 => Just(1), 3 => 0..5u32, 1 => 0..100_000u32];
    let bytes = prop_oneof![3 => 0..300u32, 2 => Just(256), 1 => 0..100_000u32];
    (psn, packets, bytes, any::<bool>(), op()).prop_map(|(psn, packets, bytes, ask, op)| Bth {
        psn: Psn::new(psn),
        packets,
        bytes,
        ack_request: ask,
        solicited: false,
        op,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_packets(packets in prop::collection::vec((0..2usize, bth()), 0..60), holds: bool) {
        stranger::any_packets(&packets, holds);
    }

    /// A run that is taken apart is as many packets and bytes as before.
    #[test]
    fn any_split(bth in bth(), n: u32, mtu in prop_oneof![Just(256u32), any::<u32>()]) {
        if let Some((front, back)) = bth.split(n, mtu) {
            prop_assert_eq!(front.packets, n);
            prop_assert_eq!(front.packets + back.packets, bth.packets);
            prop_assert_eq!(front.bytes + back.bytes, bth.bytes);
            prop_assert_eq!(back.psn, bth.psn.plus(n));
            prop_assert!(back.packets > 0);
        }
    }
}
