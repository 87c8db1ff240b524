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

/// Producers whose frames are never done with share a ring: the more of them, the less each gets. The
/// reserve still lets that many more of them post one frame each.
#[test]
fn silent_producers_leave_room_to_others() {
    const MOST: u32 = 128;
    const RESERVE: u32 = 128;
    let mut free = 1024;
    let mut shares = Vec::new();
    for _ in 0..=RESERVE {
        let counts = Counts::new();
        while counts.has_share(MOST, free, RESERVE) {
            counts.add_posted();
            free -= 1;
        }
        shares.push(counts.under_way());
    }
    assert!(shares.iter().rev().is_sorted(), "{shares:?}");
    assert_eq!(shares[..9], [128, 128, 128, 128, 128, 128, 64, 32, 16]);
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
}

/// A ring that is full has no share for anybody, and no producer has more than it may.
#[test]
fn shares_have_an_end() {
    let counts = Counts::new();
    assert!(!counts.has_share(8, 0, 0) && !counts.has_share(8, 0, 128));
    assert!(!counts.has_share(0, 8, 0));
    assert!(counts.has_share(8, 1, 128) && counts.has_share(8, 1, u32::MAX));
    counts.add_posted();
    assert!(counts.has_share(8, 2, 0) && !counts.has_share(8, 1, 0));
    assert!(counts.has_share(8, 130, 128) && !counts.has_share(8, 129, 128));
    assert!(!counts.has_share(8, u32::MAX, u32::MAX));
}
