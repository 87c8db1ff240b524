// SPDX-License-Identifier: GPL-2.0

//! The ring in order against a model: a device that completes what it likes of what it was given.

use std::collections::VecDeque;

use ipoib_rings::ring::{Consumer, Producer, Ring};
use ipoib_rings::unsent::Tally;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// Frames are filled in, as far as there is room, and published, all but the last few, which the device
    /// refuses.
    Post { frames: u32, refused: u32 },
    /// The device completes a frame, counted from the oldest, and all in front of it.
    Complete(usize),
    /// It completes what it likes.
    Bogus(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1u32..20, 0u32..20).prop_map(|(frames, refused)| Op::Post { frames, refused }),
        (0usize..16).prop_map(Op::Complete),
        any::<u64>().prop_map(Op::Bogus),
        (-40i64..40).prop_map(|id| Op::Bogus(id as u64)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn as_the_model(
        first in prop_oneof![any::<u32>(), Just(u32::MAX - 3)],
        order in 0u32..6,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let size = 1u32 << order;
        let ring = Ring::new(size, first).expect("a power of two");
        let mut slots = vec![None; size as usize];
        let mut producer = Producer::new(&ring);
        let mut consumer = Consumer::new(&ring);
        // What the device has, and BQL was not told of.
        let mut device: VecDeque<u32> = VecDeque::new();
        let mut unsent = Tally::default();
        let mut next = 0;
        for op in ops {
            match op {
                Op::Post { frames, refused } => {
                    producer.look(&ring);
                    let room = producer.free();
                    prop_assert_eq!(room as usize, size as usize - device.len());
                    let frames = frames.min(room);
                    for _ in 0..frames {
                        let slot = &mut slots[ring.index(producer.head())];
                        prop_assert_eq!(slot.replace(next), None);
                        device.push_back(next);
                        producer.filled();
                        next += 1;
                    }
                    producer.publish(&ring);
                    for _ in 0..refused.min(frames) {
                        let frame = slots[ring.index(producer.take_back())].take();
                        prop_assert_eq!(frame, device.pop_back());
                        ring.unsent().add(3);
                        unsent.add(3);
                    }
                    producer.publish(&ring);
                    prop_assert_eq!(producer.in_flight(&ring) as usize, device.len());
                }
                Op::Complete(at) => {
                    let Some(_) = device.get(at) else { continue };
                    let id = consumer.tail().wrapping_add(at as u32);
                    let n = consumer.named(id.into(), ring.head());
                    prop_assert_eq!(n, Some(id));
                    // Once more it is not named, but the one behind it, if there is one.
                    let mut end = consumer;
                    end.pass(id);
                    let next = id.wrapping_add(1);
                    let is_next = at + 1 < device.len();
                    prop_assert_eq!(end.named(id.into(), ring.head()), None);
                    prop_assert_eq!(end.named(next.into(), ring.head()), is_next.then_some(next));
                    while consumer.tail() != end.tail() {
                        let frame = slots[ring.index(consumer.tail())].take();
                        prop_assert_eq!(frame, device.pop_front());
                        consumer.emptied();
                    }
                    consumer.give_back(&ring);
                    prop_assert_eq!(ring.unsent().has_some(), unsent.frames > 0);
                    prop_assert_eq!(ring.unsent().take(), unsent);
                    unsent = Tally::default();
                }
                Op::Bogus(id) => {
                    let distance = (id as u32).wrapping_sub(consumer.tail());
                    let is_known = id <= u32::MAX.into() && (distance as usize) < device.len();
                    prop_assert_eq!(consumer.named(id, ring.head()).is_some(), is_known);
                }
            }
            prop_assert_eq!(consumer.free(&ring) as usize, size as usize - device.len());
        }
        // What is left is cleared, and the ring goes on.
        while consumer.tail() != ring.head() {
            consumer.emptied();
        }
        consumer.give_back(&ring);
        producer.look(&ring);
        prop_assert_eq!((producer.free(), consumer.free(&ring)), (size, size));
        prop_assert_eq!(producer.tail(&ring), producer.head());
    }
}

#[test]
fn sizes_are_powers_of_two() {
    assert!(Ring::new(0, 0).is_none() && Ring::new(3, 0).is_none());
    assert!(Ring::new(1, 0).is_some_and(|ring| ring.size() == 1));
    assert!(Ring::new(1 << 31, 0).is_some_and(|ring| ring.index(u32::MAX) == (1 << 31) - 1));
}
