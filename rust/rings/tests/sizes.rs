// SPDX-License-Identifier: GPL-2.0

//! Sizes of receive buffers, which `rust/netdev` works out: no buffer is too small, and none wastes much.

#[path = "../../netdev/sizes.rs"]
mod sizes;

use proptest::prelude::*;
use sizes::{body_lens, copied, fragment_order, MAX_BODIES, MAX_ORDER, MOST_COST};

const K: usize = 1024;
/// Of all architectures.
const PAGES: [usize; 4] = [4 * K, 16 * K, 64 * K, 256 * K];
/// The largest body.
const MAX_BODY: usize = 64 * K;
/// The longest message that the driver receives, without what its head takes.
const REST: usize = 65_535 + 16 - 580;

fn page() -> impl Strategy<Value = usize> {
    prop::sample::select(&PAGES)
}

/// Returns true if pages of an order are cut into fragments of a size without much waste, and into many if these are small.
fn is_good(page: usize, order: u32, size: usize) -> bool {
    if size <= page / 2 && page << order < 16 * K {
        return false;
    }
    let page = page << order;
    let fragments = page / size;
    fragments > 0 && (page - fragments * size) * 8 <= page
}

/// Messages of 4 and 8 KiB need the first body only, and no buffer takes much more than a message.
#[test]
fn lengths_of_bodies() {
    let page = 4 * K;
    assert_eq!(body_lens(page, REST, 30), Some([8 * K, 32 * K, 32 * K]));
    assert_eq!(body_lens(page, REST, 2), Some([32 * K, 32 * K, 0]));
    assert_eq!(body_lens(page, REST, 1), Some([64 * K, 0, 0]));
    assert_eq!(body_lens(page, REST, 0), None);
    assert_eq!(body_lens(page, 12 * K, 3), Some([8 * K, 8 * K, 0]));
    assert_eq!(body_lens(page, 8 * K, 3), Some([4 * K, 4 * K, 0]));
    assert_eq!(body_lens(page, 0, 3), Some([0; MAX_BODIES]));
    assert_eq!(body_lens(page, 3 * 64 * K, 3), None);
    // A page may be larger than the small body, and as large as the largest.
    assert_eq!(body_lens(16 * K, REST, 3), Some([32 * K, 32 * K, 0]));
    assert_eq!(body_lens(16 * K, 40 * K, 3), Some([32 * K, 32 * K, 0]));
    assert_eq!(body_lens(64 * K, REST, 3), Some([64 * K, 0, 0]));
    assert_eq!(body_lens(256 * K, REST, 3), Some([256 * K, 0, 0]));
}

/// Buffers that fill a page, or nearly, take single ones; smaller ones take more at a time.
#[test]
fn orders_of_pages() {
    for (size, order) in [
        (1, 2),
        (1024, 2),
        (2048, 2),
        // Just an eighth.
        (3584, 0),
        // One in a page would waste more than a third of it, three in two pages do not.
        (2560, 1),
        // Three in two pages waste too much as well.
        (2112, 2),
        (4096, 0),
        (4097, 3),
        (4608, 3),
        (32_768, 3),
        // None fits: the caller refuses that.
        (32_769, 3),
    ] {
        assert_eq!((size, fragment_order(4 * K, size)), (size, order));
    }
}

/// Bodies behind a head that costs 1 KiB: a message is copied up to a third of what they cost.
#[test]
fn ends_are_copied() {
    let lens = [8 * K, 32 * K, 32 * K];
    let copied = [0, 1, 2].map(|n| copied(K, &lens, n));
    assert_eq!(copied, [9 * K / 3, 41 * K / 3, 73 * K / 3]);
}

proptest! {
    /// Pages are of the first order that wastes little, or of the largest.
    #[test]
    fn pages_waste_little(page in page(), size in 1usize..600_000) {
        let order = fragment_order(page, size);
        prop_assert!(order <= MAX_ORDER);
        prop_assert!(order == MAX_ORDER || is_good(page, order, size));
        prop_assert!((0..order).all(|smaller| !is_good(page, smaller, size)));
    }

    /// Bodies take what they are to take, in as few parts as may be, and none could be left out.
    #[test]
    fn bodies_take_all(page in page(), rest in 0usize..300_000, most in 0usize..6) {
        let Some(lens) = body_lens(page, rest, most) else {
            // The first is small if there are three, so that two are what counts.
            prop_assert!(rest > most.min(MAX_BODIES - 1) * MAX_BODY.max(page));
            return Ok(());
        };
        let count = lens.iter().filter(|&&len| len > 0).count();
        prop_assert!(count <= most);
        // Those that there are come first.
        prop_assert!(lens[count..].iter().all(|&len| len == 0));
        let sum: usize = lens.iter().sum();
        prop_assert!(sum >= rest);
        if let Some(last) = count.checked_sub(1) {
            prop_assert!(sum - lens[last] < rest);
            // The others are at least as large as the first, and all of the second's size.
            prop_assert!(lens[..count].is_sorted());
            prop_assert!(count < 3 || (lens[0] == 8 * K && lens[1] == lens[2]));
        }
        for &len in &lens[..count] {
            // Whole pages of an order, and no more than the allocator has to find.
            prop_assert!(len % page == 0 && (len / page).is_power_of_two());
            prop_assert!(len <= MAX_BODY.max(page));
        }
    }

    /// The bodies that are not small are the smallest that do.
    #[test]
    fn bodies_are_small(page in page(), rest in 1usize..130_000, most in 1usize..6) {
        if let Some(lens) = body_lens(page, rest, most) {
            let large = *lens.iter().max().unwrap();
            let small = if lens[0] < large { lens[0] } else { 0 };
            let others = most.min(MAX_BODIES - 1);
            let half = large / 2;
            prop_assert!(half < page || half < small || others * half < rest - small);
        }
    }

    /// A part that is not copied costs no more than it may.
    #[test]
    fn no_message_costs_too_much(
        rest in 1usize..130_000,
        most in 1usize..6,
        len in 1usize..130_000,
        head in 512usize..4096,
    ) {
        if let Some(lens) = body_lens(4 * K, rest, most) {
            for n in 0..MAX_BODIES {
                let cost = head + lens[..=n].iter().sum::<usize>();
                let is_copied = len <= copied(head, &lens, n);
                prop_assert_eq!(is_copied, len * MOST_COST <= cost);
            }
        }
    }
}
