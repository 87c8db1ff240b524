// SPDX-License-Identifier: GPL-2.0

//! The hash table against the standard library's.

use std::collections::HashMap;

use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::table::{InsertError, Seed, Slot, Table, PROBE};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Insert(u8, u32),
    Remove(u8),
    Get(u8),
    Evict(u8),
    Pop,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => any::<(u8, u32)>().prop_map(|(key, value)| Op::Insert(key, value)),
        2 => any::<u8>().prop_map(Op::Remove),
        2 => any::<u8>().prop_map(Op::Get),
        1 => any::<u8>().prop_map(Op::Evict),
        1 => Just(Op::Pop),
    ]
}

fn addr(key: u8) -> HwAddr {
    let mut addr = HwAddr([0; 20]);
    addr.0[3] = key & 3;
    addr.0[19] = key >> 2;
    addr
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn behaves_like_a_hash_map(
        order in 0u32..13,
        seed: [u64; 6],
        flags: u8,
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let storage: Vec<Slot<u32>> = (0..1 << order).map(|_| Slot::EMPTY).collect();
        let mut table = Table::new(storage, Seed(seed)).unwrap();
        let mut model: HashMap<HwAddr, u32> = HashMap::new();
        let with_flags = |key| addr(key).with_flags(Flags(flags));
        for op in ops {
            match op {
                Op::Insert(key, value) => match table.insert(addr(key), value) {
                    Ok(_) => prop_assert_eq!(model.insert(addr(key), value), None),
                    Err((InsertError::Exists, back)) => {
                        prop_assert_eq!(back, value);
                        prop_assert!(model.contains_key(&addr(key)));
                    }
                    Err((InsertError::Full, back)) => {
                        prop_assert_eq!(back, value);
                        prop_assert!(!model.contains_key(&addr(key)));
                        prop_assert!(model.len() >= PROBE.min(table.capacity()));
                    }
                },
                Op::Remove(key) => {
                    prop_assert_eq!(table.remove(&with_flags(key)), model.remove(&addr(key)));
                }
                Op::Get(key) => {
                    prop_assert_eq!(table.get(&with_flags(key)), model.get(&addr(key)));
                    prop_assert_eq!(table.get_mut(&addr(key)), model.get_mut(&addr(key)));
                }
                Op::Evict(key) => {
                    let victim = table.victim(&addr(key), |value| Some(u64::from(*value)));
                    if let Some(victim) = victim {
                        prop_assert!(model.contains_key(&victim));
                        if !model.contains_key(&addr(key)) {
                            table.remove(&victim);
                            model.remove(&victim);
                            prop_assert!(table.insert(addr(key), 1).is_ok());
                            model.insert(addr(key), 1);
                        }
                    } else {
                        prop_assert!(!model.contains_key(&addr(key)));
                    }
                }
                Op::Pop => match table.pop() {
                    Some((key, value)) => prop_assert_eq!(model.remove(&key), Some(value)),
                    None => prop_assert!(model.is_empty()),
                },
            }
            prop_assert_eq!(table.len(), model.len());
        }
        let mut seen: Vec<_> = table.iter().map(|(key, value)| (*key, *value)).collect();
        let mut walked = Vec::new();
        let mut rest = 0..table.capacity();
        while let Some(at) = table.first_in(rest.clone()) {
            walked.extend(table.slot_mut(at).map(|(key, value)| (*key, *value)));
            rest.start = at + 1;
        }
        let mut changed: Vec<_> = table.iter_mut().map(|(key, value)| (*key, *value)).collect();
        let mut expected: Vec<_> = model.into_iter().collect();
        for list in [&mut seen, &mut walked, &mut changed, &mut expected] {
            list.sort_by_key(|(key, _)| key.0);
        }
        prop_assert_eq!(&seen, &expected);
        prop_assert_eq!(&walked, &expected);
        prop_assert_eq!(&changed, &expected);
        for start in 0..table.capacity() {
            let end = start.saturating_add(usize::from(flags)).min(table.capacity());
            let found = (start..end).find(|at| table.slot_mut(*at).is_some());
            prop_assert_eq!(table.first_in(start..end), found);
        }
        while table.pop().is_some() {}
        prop_assert_eq!(table.first_in(0..table.capacity()), None);
    }

    /// A table of twice as many slots as entries takes them all, whatever the addresses are.
    #[test]
    fn half_full_is_no_problem(seed: [u64; 6], start: u32, stride in 1u32..100_000) {
        let storage: Vec<Slot<u32>> = (0..1024).map(|_| Slot::EMPTY).collect();
        let mut table = Table::new(storage, Seed(seed)).unwrap();
        let mut refused = 0;
        for number in 0..512u32 {
            let mut addr = HwAddr([0; 20]);
            let id = start.wrapping_add(number.wrapping_mul(stride));
            addr.0[16..].copy_from_slice(&id.to_be_bytes());
            refused += usize::from(table.insert(addr, number).is_err());
        }
        // A few in a full window are luck, more would be a bad hash.
        prop_assert!(refused <= 8, "{} refused", refused);
    }
}
