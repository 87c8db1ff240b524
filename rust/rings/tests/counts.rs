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
