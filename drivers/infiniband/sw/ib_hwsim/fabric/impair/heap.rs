// SPDX-License-Identifier: GPL-2.0

//! A binary heap in memory of the caller's: its first element is the one with the least key.

/// Restores the order after an element was added at the end.
pub fn added<T, K: Ord>(heap: &mut [T], key: impl Fn(&T) -> K) {
    let Some(mut at) = heap.len().checked_sub(1) else {
        return;
    };
    while at > 0 {
        let parent = at.wrapping_sub(1) / 2;
        match (heap.get(parent), heap.get(at)) {
            (Some(above), Some(below)) if key(below) < key(above) => heap.swap(parent, at),
            _ => return,
        }
        at = parent;
    }
}

/// Puts the least element at the end, and restores the order of those before it.
pub fn take<T, K: Ord>(heap: &mut [T], key: impl Fn(&T) -> K) {
    let Some(last) = heap.len().checked_sub(1) else {
        return;
    };
    heap.swap(0, last);
    let Some((_, rest)) = heap.split_last_mut() else {
        return;
    };
    let mut at = 0usize;
    loop {
        let left = at.saturating_mul(2).saturating_add(1);
        let right = left.saturating_add(1);
        let child = match (rest.get(left), rest.get(right)) {
            (Some(one), Some(other)) if key(other) < key(one) => right,
            (Some(_), _) => left,
            (None, _) => return,
        };
        match (rest.get(at), rest.get(child)) {
            (Some(above), Some(below)) if key(below) < key(above) => rest.swap(at, child),
            _ => return,
        }
        at = child;
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_heap))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::impair::Dice;

    #[test]
    fn the_least_comes_first() {
        let mut dice = Dice::new(3);
        for len in 0..40usize {
            let mut heap = [0u32; 40];
            for n in 0..len {
                heap[n] = dice.below(20);
                added(&mut heap[..=n], |n| *n);
            }
            let mut before = 0;
            for n in (0..len).rev() {
                take(&mut heap[..=n], |n| *n);
                assert!(heap[n] >= before);
                before = heap[n];
            }
        }
    }
}
