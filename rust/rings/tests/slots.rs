// SPDX-License-Identifier: GPL-2.0

//! The ring in any order against a model: a device that completes what it likes, in any order.

use std::collections::BTreeMap;
use std::rc::Rc;

use ipoib_rings::slots::{id, parts, Slot, Slots};
use ipoib_rings::sync::AtomicU32;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// Frames are posted, as far as there is room, all but the last few, which the device refuses.
    Post { frames: u32, refused: u32 },
    /// The device completes one of those it has.
    Complete(prop::sample::Index),
    /// It completes one again, that was completed or refused.
    Again(prop::sample::Index),
    /// It completes what it likes.
    Bogus(u32, u32),
    /// It forgets what it has of every n-th frame.
    Forget(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1u32..20, 0u32..20).prop_map(|(frames, refused)| Op::Post { frames, refused }),
        any::<prop::sample::Index>().prop_map(Op::Complete),
        any::<prop::sample::Index>().prop_map(Op::Complete),
        any::<prop::sample::Index>().prop_map(Op::Again),
        (0u32..40, 0u32..200).prop_map(|(index, generation)| Op::Bogus(index, generation)),
        any::<(u32, u32)>().prop_map(|(index, generation)| Op::Bogus(index, generation)),
        (1u32..5).prop_map(Op::Forget),
    ]
}

type Frame = Box<u32>;
type Tested = Slots<Frame, Vec<Slot<Frame>>, Vec<AtomicU32>>;

fn slots(size: u32) -> Option<Tested> {
    let slots = (0..size).map(|_| Slot::new()).collect();
    // SAFETY: They are vectors, which nobody else has.
    unsafe { Slots::new(slots, (0..size).map(AtomicU32::new).collect()) }
}

/// Empties the slots of frames that `keep` does not; all frames, and those of the emptied slots, in order.
fn sweep(slots: &Tested, keep: impl Fn(u32) -> bool) -> (Vec<u32>, Vec<u32>) {
    let (mut all, mut removed) = (Vec::new(), Vec::new());
    let look = |frame: &mut Frame| {
        all.push(**frame);
        keep(**frame)
    };
    // SAFETY: There is one thread, and no device.
    unsafe { slots.sweep(look, |_, frame| removed.push(*frame)) };
    all.sort_unstable();
    removed.sort_unstable();
    (all, removed)
}

/// Empties a slot, as a completion has it.
fn empty(slots: &Tested, id: u64) -> Option<u32> {
    // SAFETY: There is one thread, and no device.
    unsafe { slots.empty(id, |index, _| assert_eq!(index, parts(id).0)) }.map(|frame| *frame)
}

/// A device that completes what it has refused does not have the frame come out twice.
#[test]
fn what_has_completed_is_not_taken_back() {
    let slots = slots(2).expect("a power of two");
    let index = slots.peek().expect("is empty");
    // SAFETY: There is one thread; it was peeked.
    unsafe { slots.fill(index, 1, Box::new(7)) };
    assert_eq!(empty(&slots, id(index, 1)), Some(7));
    // SAFETY: As above; the device has refused it, too.
    assert_eq!(unsafe { slots.take_back() }, None);
    assert_eq!(slots.free(), 2);
}

/// A frame that the device never completes is dropped with its slot.
#[test]
fn what_is_posted_is_dropped_in_the_end() {
    let frame = Rc::new(());
    let vector: Vec<Slot<Rc<()>>> = vec![Slot::new(), Slot::new()];
    let ids: Vec<AtomicU32> = (0..2).map(AtomicU32::new).collect();
    // SAFETY: They are vectors, which nobody else has.
    let slots = unsafe { Slots::new(vector, ids) }.expect("a power of two");
    let index = slots.peek().expect("is empty");
    // SAFETY: There is one thread; it was peeked.
    unsafe { slots.fill(index, 1, frame.clone()) };
    assert_eq!(Rc::strong_count(&frame), 2);
    drop(slots);
    assert_eq!(Rc::strong_count(&frame), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn as_the_model(
        order in 0u32..6,
        first: u32,
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let size = 1u32 << order;
        let slots = slots(size).expect("a power of two");
        // What the device has, by identifier, and what it had.
        let mut device = BTreeMap::new();
        let mut old = Vec::new();
        let mut generation = first | 1;
        let mut next = 0;
        for op in ops {
            match op {
                Op::Post { frames, refused } => {
                    let frames = frames.min(size - device.len() as u32);
                    let mut chain = Vec::new();
                    for _ in 0..frames {
                        let index = slots.peek().expect("has room");
                        // SAFETY: There is one thread; it was peeked.
                        unsafe { slots.fill(index, generation, Box::new(next)) };
                        let id = id(index, generation);
                        prop_assert_eq!(parts(id), (index, generation));
                        prop_assert!(device.insert(id, next).is_none());
                        chain.push((id, next));
                        generation = generation.wrapping_add(2);
                        next += 1;
                    }
                    for (id, frame) in chain.into_iter().rev().take(refused as usize) {
                        // SAFETY: As above; it is the last one.
                        let taken = unsafe { slots.take_back() };
                        prop_assert_eq!(taken, Some((parts(id).0, Box::new(frame))));
                        device.remove(&id);
                        old.push(id);
                    }
                }
                Op::Complete(which) => {
                    if device.is_empty() {
                        continue;
                    }
                    let ids: Vec<u64> = device.keys().copied().collect();
                    let id = *which.get(&ids);
                    prop_assert_eq!(empty(&slots, id), device.remove(&id));
                    old.push(id);
                }
                Op::Again(which) => {
                    if !old.is_empty() {
                        prop_assert_eq!(empty(&slots, *which.get(&old)), None);
                    }
                }
                Op::Bogus(index, generation) => {
                    let id = id(index, generation);
                    prop_assert_eq!(empty(&slots, id), device.remove(&id));
                }
                Op::Forget(n) => {
                    let (_, mut removed) = sweep(&slots, |frame| frame % n != 0);
                    for (id, frame) in std::mem::take(&mut device) {
                        if frame % n == 0 {
                            prop_assert_eq!(empty(&slots, id), None);
                            removed.retain(|other| *other != frame);
                            old.push(id);
                        } else {
                            device.insert(id, frame);
                        }
                    }
                    prop_assert!(removed.is_empty());
                }
            }
            prop_assert_eq!(slots.free() as usize, size as usize - device.len());
            prop_assert_eq!(slots.is_idle(), device.is_empty());
            prop_assert_eq!(slots.peek().is_some(), device.len() < size as usize);
            let mut model: Vec<u32> = device.values().copied().collect();
            model.sort_unstable();
            prop_assert_eq!(sweep(&slots, |_| true), (model, Vec::new()));
        }
        let (all, removed) = sweep(&slots, |_| false);
        prop_assert_eq!(all.len(), device.len());
        prop_assert_eq!(all, removed);
        prop_assert!(slots.is_idle());
    }
}

#[test]
fn sizes_are_powers_of_two_and_places_are_all_slots() {
    assert!(slots(0).is_none() && slots(3).is_none());
    assert!(slots(1).is_some_and(|slots| slots.size() == 1));
    for free in [vec![0], vec![0, 0], vec![0, 2], vec![0, 1, 2]] {
        let free = free.into_iter().map(AtomicU32::new).collect::<Vec<_>>();
        let two: Vec<Slot<u32>> = (0..2).map(|_| Slot::new()).collect();
        // SAFETY: As above.
        assert!(unsafe { Slots::new(two, free) }.is_none());
    }
}
