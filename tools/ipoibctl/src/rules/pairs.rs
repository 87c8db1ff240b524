// SPDX-License-Identifier: GPL-2.0

//! Tests of all pairs of causes: both are named, unless one hides the other by its nature.

use super::tests::healthy;
use super::{EXPLAINED, Layer, Severity, counters, judge, link, path, port, speed};
use crate::facts::Facts;

type Change = Box<dyn Fn(&mut Facts)>;

/// Causes that hide others, and why.
const HIDING: &[(&str, &[&str], &str)] = &[
    (
        "ethernet-down",
        &["no-cable", "shared-network"],
        "one that is down has no carrier, and is in no network",
    ),
    (
        "no-roce-gid",
        &["gid-changed"],
        "there is none that it could be",
    ),
    (
        "ethernet-mtu",
        &["mtu-below-ipv6", "ipv6-off"],
        "the interface can have no more, and no IPv6 with less",
    ),
    (
        "mtu-below-ipv6",
        &["ipv6-off"],
        "that takes the variable away",
    ),
    (
        "parent-down",
        &["interface-down"],
        "a child goes up with its parent",
    ),
    (
        "window-off",
        &["window-small"],
        "there is none that could be larger",
    ),
    (
        "no-address",
        &["shared-network"],
        "one without an address is in no network",
    ),
];

/// States of which there is one at a time: the test brings the later one.
const ONE_OF: &[&[&str]] = &[
    &[
        "port-down",
        "port-disabled",
        "no-subnet-manager",
        "port-not-active",
    ],
    &["no-partition", "limited-member"],
    &["no-address", "duplicate-address"],
];

/// Each cause that needs an interface, and the changes that bring it. Without an interface, that is the only cause.
fn all(roce: bool) -> Vec<(&'static str, Change)> {
    let of_port = if roce {
        port::tests::ROCE
    } else {
        port::tests::INFINIBAND
    };
    let of_link = [link::tests::CASES, path::tests::CASES, speed::tests::CASES];
    let mut all: Vec<(&'static str, Change)> = Vec::new();
    for (cause, change) in of_port.iter().chain(of_link.into_iter().flatten()) {
        all.push((*cause, Box::new(*change)));
    }
    for (cause, path) in speed::tests::variables() {
        let change = move |facts: &mut Facts| speed::tests::set(facts, &path, "0");
        all.push((cause, Box::new(change)));
    }
    for (cause, counter, value) in counters::tests::counters() {
        let change = move |facts: &mut Facts| {
            facts.interfaces[0].counters.insert(counter.into(), value);
        };
        all.push((cause, Box::new(change)));
    }
    all
}

/// Returns true if the first cause hides the second: by its nature, or since it breaks a lower layer.
fn hides((first, change): &(&'static str, Change), second: &str, roce: bool) -> bool {
    let listed = HIDING
        .iter()
        .any(|(cause, hidden, _)| cause == first && hidden.contains(&second));
    let mut facts = healthy(roce);
    change(&mut facts);
    let found = judge(&facts);
    let is_broken = found[0].severity == Severity::Broken;
    // Whatever breaks a port leaves it without a carrier.
    let needs_more = second == "no-broadcast-group" && (is_broken && found[0].layer == Layer::Port);
    let is_down = second == "no-broadcast-group" && !facts.links[1].up;
    let explains = is_broken && found[0].layer <= Layer::Link && EXPLAINED.contains(&second);
    listed || needs_more || is_down || explains
}

fn are_exclusive(first: &str, second: &str) -> bool {
    ONE_OF
        .iter()
        .any(|states| states.contains(&first) && states.contains(&second))
}

/// The causes that are missing if both of a pair come about, in this order.
fn missing(first: &(&'static str, Change), second: &(&'static str, Change), roce: bool) -> String {
    let mut facts = healthy(roce);
    (first.1)(&mut facts);
    (second.1)(&mut facts);
    let found = judge(&facts);
    let is_named = |cause: &str| found.iter().any(|finding| finding.cause == cause);
    let mut missing: Vec<&str> = [first.0, second.0]
        .into_iter()
        .filter(|cause| !is_named(cause))
        .collect();
    let one_is_enough = are_exclusive(first.0, second.0);
    if missing.len() == 1 && one_is_enough
        || missing == [second.0] && hides(first, second.0, roce)
        || missing == [first.0] && hides(second, first.0, roce)
    {
        missing.clear();
    }
    missing.join(", ")
}

#[test]
fn both_of_two_causes_are_named() {
    let mut wrong = Vec::new();
    for roce in [false, true] {
        let all = all(roce);
        for first in &all {
            for second in all.iter().filter(|second| second.0 != first.0) {
                let missing = missing(first, second, roce);
                if !missing.is_empty() {
                    wrong.push(format!("{} and {}: not {missing}", first.0, second.0));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
