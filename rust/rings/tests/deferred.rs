// SPDX-License-Identifier: GPL-2.0

//! A list of elements in one thread, and its users. `loom/` has those who add to it at the same time.

use std::ptr::NonNull;

use ipoib_rings::deferred::{Link, List, Users};

#[test]
fn the_last_comes_first() {
    let list = List::new();
    assert!(list.take().is_empty());
    let links: Vec<Box<Link>> = (0..3).map(|_| Box::new(Link::new())).collect();
    let links: Vec<NonNull<Link>> = links
        .into_iter()
        .map(|link| NonNull::from(Box::leak(link)))
        .collect();
    for link in &links {
        // SAFETY: It is on no list, and given up here.
        unsafe { list.push(*link) };
    }
    let taken = list.take();
    assert!(!taken.is_empty());
    let taken: Vec<NonNull<Link>> = taken.collect();
    assert!(taken.iter().eq(links.iter().rev()));
    assert!(list.take().is_empty());
    for link in taken {
        // SAFETY: It was leaked above, and the list has given it back.
        drop(unsafe { Box::from_raw(link.as_ptr()) });
    }
}

#[test]
fn the_last_user_is_told_and_nobody_follows() {
    let users = Users::new();
    assert!(users.enter());
    assert!(!users.leave());
    assert!(users.leave());
    assert!(!users.enter());
}
