// SPDX-License-Identifier: GPL-2.0

//! Generations against a model: slots that a device has, and slots that wait to be posted.

use ipoib_rings::generations::{parts, Generations};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// Chained slots are posted; the device refuses the last few of them.
    Post(usize),
    /// The first few of what is chained are taken out, and chained behind the others.
    TakeOut(usize),
    /// The device completes one of those it has, which is chained again.
    Complete(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        prop_oneof![Just(0), 0usize..10].prop_map(Op::Post),
        (0usize..4).prop_map(Op::TakeOut),
        any::<prop::sample::Index>().prop_map(Op::Complete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn as_the_model(
        last in prop_oneof![any::<u32>(), Just(u32::MAX - 5)],
        size in 1u32..20,
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut generations = Generations::after(last);
        let mut chained: Vec<u64> = (0..size).map(|index| generations.next_id(index)).collect();
        prop_assert_eq!(generations.last(), last.wrapping_add(size));
        prop_assert_eq!(generations.posted(), last);
        let mut posted: Vec<u64> = Vec::new();
        for op in ops {
            match op {
                Op::Post(refused) => {
                    let refused = refused.min(chained.len());
                    let rest = chained.split_off(chained.len() - refused);
                    posted.extend(chained);
                    match rest.first() {
                        Some(first) => generations.posted_before(*first),
                        None => generations.all_posted(),
                    }
                    chained = rest;
                }
                Op::TakeOut(count) => {
                    for _ in 0..count.min(chained.len()) {
                        let id = chained.remove(0);
                        generations.posted_through(id);
                        chained.push(generations.next_id(parts(id).0));
                    }
                }
                Op::Complete(which) => {
                    if posted.is_empty() {
                        continue;
                    }
                    let id = posted.remove(which.index(posted.len()));
                    let again = generations.next_id(parts(id).0);
                    prop_assert_ne!(id, again);
                    chained.push(again);
                }
            }
            for id in &posted {
                prop_assert!(generations.is_posted(*id));
            }
            for id in &chained {
                prop_assert!(!generations.is_posted(*id));
            }
            // Younger ones are those that were posted later.
            for pair in posted.windows(2) {
                prop_assert!(generations.age(pair[0]) > generations.age(pair[1]));
            }
            prop_assert_eq!(generations.chained() as usize, chained.len());
        }
    }
}
