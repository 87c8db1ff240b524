// SPDX-License-Identifier: GPL-2.0

//! The send ring against a model: a device that completes only what was signalled.

use std::collections::VecDeque;

use ipoib_proto::ring::{Ring, Signal, Thresholds};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// The stack hands over frames, all but the last with "more to come"; the forecast is wrong
    /// for the last one where the flag is set: the frame that was to follow is dropped.
    Burst { frames: u32, broken: bool },
    /// The device completes up to so many signalled work requests.
    Complete(usize),
    /// The device, faulty, completes a slot of its own choice.
    Bogus(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1u32..40, any::<bool>()).prop_map(|(frames, broken)| Op::Burst { frames, broken }),
        (0usize..8).prop_map(Op::Complete),
        any::<u64>().prop_map(Op::Bogus),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn nothing_is_ever_stuck(
        start: u32,
        order in 1u32..7,
        every in 0u32..70,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let size = 1 << order;
        let mut ring = Ring::from_parts(start, start, size).unwrap();
        let mut signal = Signal::new(every, size);
        let thresholds = Thresholds::new(size, 1).unwrap();
        // What is on the device: slot, and whether it asked for a completion.
        let mut device: VecDeque<(u32, bool)> = VecDeque::new();
        let mut stopped = false;
        for op in ops {
            match op {
                Op::Burst { frames, broken } => {
                    let mut chain = Vec::new();
                    for frame in 1..=frames {
                        if stopped {
                            break;
                        }
                        let id = ring.reserve().expect("a queue that runs has a slot");
                        stopped = thresholds.must_stop(ring.free());
                        let more = frame < frames || broken;
                        chain.push((id, signal.next(more, ring.free())));
                    }
                    if !signal.is_settled() {
                        chain.last_mut().expect("unsettled by this chain").1 = true;
                        signal.settle();
                    }
                    device.extend(chain);
                }
                Op::Complete(count) => {
                    for _ in 0..count {
                        let Some(at) = device.iter().position(|(_, signalled)| *signalled) else {
                            break;
                        };
                        let id = device[at].0;
                        let done: Vec<u32> = ring.complete_to(id.into()).unwrap().collect();
                        let expected: Vec<u32> = device.drain(..=at).map(|(id, _)| id).collect();
                        prop_assert_eq!(done, expected);
                    }
                    if stopped && thresholds.may_wake(ring.free()) {
                        stopped = false;
                    }
                }
                Op::Bogus(id) => {
                    let known = u32::try_from(id)
                        .is_ok_and(|id| device.iter().any(|(slot, _)| *slot == id));
                    if !known {
                        let before = ring;
                        prop_assert!(ring.complete_to(id).is_err());
                        prop_assert_eq!(ring, before);
                    }
                }
            }
            prop_assert_eq!(ring.in_flight() as usize, device.len());
            prop_assert_eq!(ring.free() + ring.in_flight(), ring.size());
            // With work in flight there is something to wait for, and it completes all of it.
            prop_assert!(device.back().is_none_or(|(_, signalled)| *signalled));
            // A stopped queue has something that will wake it.
            prop_assert!(!stopped || !device.is_empty());
            for (id, _) in &device {
                prop_assert!(ring.index(*id) < size as usize);
            }
        }
        // Once all is completed the queue runs.
        while let Some((id, _)) = device.iter().find(|(_, signalled)| *signalled).copied() {
            ring.complete_to(id.into()).unwrap();
            device.retain(|(slot, _)| slot.wrapping_sub(id).wrapping_sub(1) < size);
        }
        prop_assert!(ring.is_empty());
        prop_assert!(thresholds.may_wake(ring.free()));
    }

    #[test]
    fn parts_keep_the_invariant(head: u32, tail: u32, size: u32) {
        if let Some(ring) = Ring::from_parts(head, tail, size) {
            prop_assert!(ring.in_flight() <= size);
            prop_assert!(ring.size().is_power_of_two());
        }
    }

    #[test]
    fn unreserve_undoes_reserve(head: u32, used in 0u32..=64, count in 0u32..80) {
        let mut ring = Ring::from_parts(head.wrapping_add(used), head, 64).unwrap();
        let given = ring.unreserve(count);
        prop_assert_eq!(given, count.min(used));
        prop_assert_eq!(ring.in_flight(), used - given);
        prop_assert_eq!(ring.tail(), head);
    }
}
