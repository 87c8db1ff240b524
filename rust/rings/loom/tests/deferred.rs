// SPDX-License-Identifier: GPL-2.0

//! Lists of objects to be destroyed: all interleavings of those who add with the one who takes.

use std::ptr::NonNull;
use std::sync::Arc;

use ipoib_rings_loom::deferred::{Link, List, Users};
use ipoib_rings_loom::sync::{AtomicU32, Cell, Ops};
use loom::thread;

#[repr(C)]
struct Node {
    link: Link,
    value: Cell<u32>,
}

fn node(value: u32) -> NonNull<Link> {
    let node = Box::new(Node {
        link: Link::new(),
        value: Cell::new(value),
    });
    NonNull::from(Box::leak(node)).cast()
}

/// Drops all there is, and says what that was.
fn empty(list: &List) -> Vec<u32> {
    list.take()
        .map(|link| {
            // SAFETY: It was made by `node`, and is ours.
            let node = unsafe { Box::from_raw(link.cast::<Node>().as_ptr()) };
            // SAFETY: As above.
            node.value.with(|value| unsafe { *value })
        })
        .collect()
}

#[test]
fn each_is_taken_once() {
    loom::model(|| {
        let list = Arc::new(List::new());
        let others: Vec<_> = [1, 2]
            .into_iter()
            .map(|value| {
                let list = list.clone();
                // SAFETY: It is on no list.
                thread::spawn(move || unsafe { list.push(node(value)) })
            })
            .collect();
        let mut taken = empty(&list);
        taken.extend(empty(&list));
        others.into_iter().for_each(|other| other.join().unwrap());
        taken.extend(empty(&list));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        assert!(list.take().is_empty());
    });
}

/// Exactly one is the last to go, all that was done before it goes is over, and nobody comes after it.
#[test]
fn one_is_the_last() {
    loom::model(|| {
        let shared = Arc::new((Users::new(), AtomicU32::new(0), List::new()));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (users, last, list) = &*shared;
                if users.enter() {
                    // SAFETY: It is on no list.
                    unsafe { list.push(node(1)) };
                    if users.leave() {
                        last.set(1);
                    }
                    return 1;
                }
                0
            })
        };
        let (users, last, list) = &*shared;
        let is_last = users.leave();
        let now = if is_last { empty(list).len() } else { 0 };
        let added = other.join().unwrap();
        assert_eq!(u32::from(is_last) + last.get(), 1);
        assert!(!users.enter());
        assert_eq!(now + empty(list).len(), added);
        // Who saw the last one go has seen all.
        if is_last {
            assert_eq!(now, added);
        }
    });
}
