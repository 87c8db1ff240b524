// SPDX-License-Identifier: GPL-2.0

//! Counts of frames, and users of what is to end.

use ipoib_rings::counts::Counts;
use ipoib_rings::deferred::Users;

#[test]
fn frames_in_flight() {
    let counts = Counts::new();
    assert!(counts.is_unused());
    counts.add_posted();
    counts.add_posted();
    assert_eq!((counts.in_flight(), counts.under_way()), (2, 2));
    assert!(!counts.is_unused());
    counts.take_back();
    assert_eq!((counts.in_flight(), counts.done()), (1, 0));
    counts.add_done();
    assert_eq!(
        (counts.in_flight(), counts.under_way(), counts.done()),
        (0, 0, 1)
    );
    assert!(!counts.is_unused());
}

#[test]
fn the_last_user_is_told_and_nobody_follows() {
    let users = Users::new();
    assert!(users.enter());
    assert!(!users.leave());
    assert!(users.leave());
    assert!(!users.enter());
}

/// Producers whose frames are never done with share a ring: the more of them, the less each gets.
#[test]
fn silent_producers_leave_room_to_others() {
    const MOST: u32 = 128;
    let mut free = 1024;
    let mut shares = Vec::new();
    for _ in 0..9 {
        let counts = Counts::new();
        while counts.has_share(MOST, free) {
            counts.add_posted();
            free -= 1;
        }
        shares.push(counts.under_way());
    }
    assert!(shares.iter().rev().is_sorted(), "{shares:?}");
    assert_eq!((shares[0], shares[8], free), (MOST, 32, 32));
}
