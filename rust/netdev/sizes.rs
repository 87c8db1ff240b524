// SPDX-License-Identifier: GPL-2.0

//! Sizes of receive buffers: how pages are cut up, and of which parts a buffer is.
//!
//! Arithmetic, which needs no kernel. So `rust/rings/tests/sizes.rs` includes this file and tests it on the host.

/// The largest order of pages that are cut up: one that the allocator still finds cheap.
pub(crate) const MAX_ORDER: u32 = 3;

/// The most bodies that a buffer has.
pub(crate) const MAX_BODIES: usize = 3;

/// The largest body, unless a page is larger.
const MAX_BODY: usize = 65536;

/// The first body, if there are three: what is behind the head of a message of 8 KiB and its link headers.
const SMALL_BODY: usize = 8192;

/// A message may cost so many times its length.
pub(crate) const MOST_COST: usize = 3;

/// Fragments of which a page of the order 0 takes two come from pages of so many bytes at least: to get a page and to return
/// it costs as much as several fragments. A fragment that a socket keeps holds all of its page.
const LEAST_PAGE: usize = 16384;

/// The first order whose pages, of `page` bytes in the order 0, are long enough and waste no more than an eighth when they
/// are cut into fragments of `frag_size` bytes, or else the largest.
pub(crate) fn fragment_order(page: usize, frag_size: usize) -> u32 {
    let least = if page / frag_size > 1 {
        LEAST_PAGE
    } else {
        page
    };
    (0..MAX_ORDER)
        .find(|&order| {
            let page = page << order;
            // If none fits, all of it is waste.
            page >= least && page % frag_size <= page / 8
        })
        .unwrap_or(MAX_ORDER)
}

/// Lengths of the bodies that take `rest` bytes, of which there may be `most`; 0 for those that are not needed.
pub(crate) fn body_lens(page: usize, rest: usize, most: usize) -> Option<[usize; MAX_BODIES]> {
    let most = most.min(MAX_BODIES);
    let (small, others) = if most == MAX_BODIES && page <= SMALL_BODY && rest > SMALL_BODY {
        (SMALL_BODY, most - 1)
    } else {
        (0, most.min(MAX_BODIES - 1))
    };
    let rest = rest - small;
    let len = (0..)
        .map(|order| page << order)
        .take_while(|&len| len == page || len <= MAX_BODY)
        .find(|&len| small <= len && rest <= others * len)?;
    let first = usize::from(small > 0);
    let mut lens = [0; MAX_BODIES];
    lens[0] = small;
    for place in lens.iter_mut().skip(first).take(rest.div_ceil(len)) {
        *place = len;
    }
    Some(lens)
}

/// The longest message whose end, in body `n`, is copied: it would cost too much otherwise. `head` is what
/// its head costs.
pub(crate) fn copied(head: usize, lens: &[usize; MAX_BODIES], n: usize) -> usize {
    let cost = lens.iter().take(n + 1).fold(head, |cost, len| cost + len);
    cost / MOST_COST
}
