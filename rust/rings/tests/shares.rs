// SPDX-License-Identifier: GPL-2.0

//! Slots that are shared out against a model: queue pairs come and go, and what they have comes back as it likes.

use std::collections::BTreeMap;

use ipoib_rings::shares::{Place, Shares};
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Debug)]
enum Op {
    /// A queue pair comes, and takes so many slots, or what there is.
    Begin(usize),
    /// A queue pair wants one more.
    Take(Index),
    /// One ends.
    End(Index),
    /// A slot is flushed, or its request refused.
    GiveBack(usize),
    /// A queue pair is destroyed: all that it has comes back.
    Destroyed(Index),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0usize..6).prop_map(Op::Begin),
        any::<Index>().prop_map(Op::Take),
        any::<Index>().prop_map(Op::End),
        (0usize..24).prop_map(Op::GiveBack),
        (0usize..24).prop_map(Op::GiveBack),
        any::<Index>().prop_map(Op::Destroyed),
    ]
}

/// A user: the slots that it has, and whether it has ended.
#[derive(Default)]
struct User {
    slots: Vec<usize>,
    has_ended: bool,
}

type Tested = Shares<Vec<u32>, Vec<Place>>;
type Model = BTreeMap<usize, User>;

/// A user of the model, if there are any.
fn pick(model: &Model, which: &Index) -> Option<usize> {
    let places: Vec<usize> = model.keys().copied().collect();
    (!places.is_empty()).then(|| *which.get(&places))
}

/// Gives a slot back, in both.
fn give_back(shares: &mut Tested, model: &mut Model, index: usize) -> Result<(), TestCaseError> {
    let place = model
        .iter()
        .find(|(_, user)| user.slots.contains(&index))
        .map(|(place, _)| *place);
    let Some(place) = place else {
        prop_assert_eq!(shares.give_back(index), None);
        return Ok(());
    };
    let user = model.get_mut(&place).expect("a user");
    user.slots.retain(|slot| *slot != index);
    let is_over = user.has_ended && user.slots.is_empty();
    if is_over {
        model.remove(&place);
    }
    prop_assert_eq!(shares.give_back(index), Some((place, is_over)));
    Ok(())
}

/// Compares all that can be seen.
fn compare(
    shares: &Tested,
    model: &Model,
    size: usize,
    places: usize,
) -> Result<(), TestCaseError> {
    let held: usize = model.values().map(|user| user.slots.len()).sum();
    prop_assert_eq!(shares.idle(), size - held);
    prop_assert_eq!(shares.has_vacancy(), model.len() < places);
    for at in 0..places + 1 {
        let held = model.get(&at).map_or(0, |user| user.slots.len());
        prop_assert_eq!(shares.held(at) as usize, held);
    }
    for index in 0..size + 1 {
        let user = model.iter().find(|(_, user)| user.slots.contains(&index));
        prop_assert_eq!(shares.user(index), user.map(|(place, _)| *place));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn as_the_model(
        size in 0usize..20,
        places in 0usize..6,
        ops in prop::collection::vec(op(), 1..100),
    ) {
        let mut shares = Shares::new(vec![7; size], vec![7; size], vec![Place::default(); places])
            .expect("equally many");
        let mut model = Model::new();
        compare(&shares, &model, size, places)?;
        for op in ops {
            match op {
                Op::Begin(count) => {
                    let vacant = (0..places).find(|at| !model.contains_key(at));
                    prop_assert_eq!(shares.begin(), vacant);
                    let Some(at) = vacant else { continue };
                    let user = model.entry(at).or_default();
                    user.slots.extend((0..count).map_while(|_| shares.take(at)));
                }
                Op::Take(which) => {
                    let Some(at) = pick(&model, &which) else {
                        prop_assert_eq!(shares.take(which.index(8)), None);
                        continue;
                    };
                    let idle = shares.idle();
                    let user = model.get_mut(&at).expect("picked");
                    let taken = shares.take(at);
                    prop_assert_eq!(taken.is_some(), idle > 0 && !user.has_ended);
                    user.slots.extend(taken);
                }
                Op::End(which) => {
                    let Some(at) = pick(&model, &which) else {
                        prop_assert!(shares.end(which.index(8)));
                        continue;
                    };
                    let user = model.get_mut(&at).expect("picked");
                    user.has_ended = true;
                    let is_over = user.slots.is_empty();
                    if is_over {
                        model.remove(&at);
                    }
                    prop_assert_eq!(shares.end(at), is_over);
                }
                Op::GiveBack(index) => give_back(&mut shares, &mut model, index)?,
                Op::Destroyed(which) => {
                    let Some(at) = pick(&model, &which) else { continue };
                    model.get_mut(&at).expect("picked").has_ended = true;
                    let is_over = shares.end(at);
                    prop_assert_eq!(is_over, model[&at].slots.is_empty());
                    if is_over {
                        model.remove(&at);
                    }
                    for index in 0..size {
                        if shares.user(index) == Some(at) {
                            give_back(&mut shares, &mut model, index)?;
                        }
                    }
                    prop_assert!(!model.contains_key(&at));
                }
            }
            compare(&shares, &model, size, places)?;
        }
    }
}

#[test]
fn lists_are_equally_long() {
    assert!(Shares::new(vec![0; 2], vec![0; 3], Vec::<Place>::new()).is_none());
    assert!(Shares::new(vec![0; 3], vec![0; 2], Vec::<Place>::new()).is_none());
}
