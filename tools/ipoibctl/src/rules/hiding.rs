// SPDX-License-Identifier: GPL-2.0

//! Which of two causes on an interface is named if both are there. A rule looks at its own facts alone; what a cause has
//! to do with others is said here and nowhere else.
//!
//! Any two causes can be there at once, and both are named, with two exceptions: one of them hides the other ([`HIDING`]),
//! or they are values of one fact, which has one at a time (the tests list those).

use super::{Finding, Layer, Severity};

/// A cause, or whatever breaks a layer.
enum By {
    Cause(&'static str),
    /// Any that is broken in this layer or in one below.
    Broken(Layer),
}

/// Causes that hide others: those follow from them, cannot be seen with them, or cannot be mended before them.
const HIDING: &[(By, &[&str])] = &[
    // Nothing can get to a peer.
    (
        By::Broken(Layer::Link),
        &[
            "no-answer",
            "no-path",
            "group-refused",
            "connection-failed",
            "device-stuck",
            "device-errors",
            "peer-stuck",
            "lossy-fabric",
        ],
    ),
    // A port has to work before it can join a group.
    (By::Broken(Layer::Port), &["no-broadcast-group"]),
    // An interface that is down joins none, and answers no requests.
    (
        By::Cause("interface-down"),
        &["no-broadcast-group", "arp-flux"],
    ),
    // A child goes up with its parent.
    (
        By::Cause("parent-down"),
        &["interface-down", "no-broadcast-group", "arp-flux"],
    ),
    // One that is down has no carrier, and no link-local address.
    (By::Cause("ethernet-down"), &["no-cable", "no-gid-address"]),
    // Addresses come with the carrier.
    (By::Cause("no-cable"), &["no-gid-address"]),
    // There are no addresses then.
    (By::Cause("ethernet-ipv6-off"), &["no-gid-address"]),
    // A part of a bond has no addresses.
    (By::Cause("ethernet-enslaved"), &["no-gid-address"]),
    // The interface can have no more than Ethernet leaves, and no IPv6 with less.
    (By::Cause("ethernet-mtu"), &["mtu-below-ipv6", "ipv6-off"]),
    // No frame has a number then.
    (By::Cause("extensions-off"), &["lso-unordered"]),
    // The variable is gone until there is room for IPv6.
    (By::Cause("mtu-below-ipv6"), &["ipv6-off"]),
    // There is none that it could be.
    (
        By::Cause("no-roce-gid"),
        &[
            "gid-changed",
            "no-gid-address",
            "ethernet-duplicate-address",
        ],
    ),
    // One without an address is in no network.
    (By::Cause("no-address"), &["shared-network"]),
];

/// Returns true if a finding hides another one.
pub(super) fn hides(finding: &Finding, other: &Finding) -> bool {
    let is_in = |by: &By| match by {
        By::Cause(cause) => finding.cause == *cause,
        By::Broken(layer) => finding.severity == Severity::Broken && finding.layer <= *layer,
    };
    finding.subject == other.subject
        && finding.cause != other.cause
        && HIDING
            .iter()
            .any(|(by, hidden)| is_in(by) && hidden.contains(&other.cause))
}

#[cfg(test)]
mod tests {
    use super::super::{counters, ethernet, judge, link, path, port, speed};
    use super::*;
    use crate::facts::Facts;
    use crate::healthy::healthy;

    type Change = Box<dyn Fn(&mut Facts)>;
    type Case = (&'static str, Change);

    /// Values of one fact each: the test sets the later one.
    const ONE_OF: &[&[&str]] = &[
        &[
            "port-down",
            "port-disabled",
            "no-subnet-manager",
            "port-not-active",
        ],
        &["no-partition", "limited-member"],
        &["ethernet-mtu", "ethernet-port-mtu"],
        &["no-gid-address", "ethernet-duplicate-address"],
        &["window-off", "window-small"],
        // An interface is in one mode.
        &["lso-unordered", "arp-flux"],
        &["lso-unordered", "connection-failed"],
        &["lso-unordered", "connections-full"],
        &["lso-unordered", "senders-full"],
        &["lso-unordered", "peer-in-datagram-mode"],
        &["lso-unordered", "checksums-on"],
        &["lso-unordered", "large-frames-off"],
        &["no-address", "duplicate-address"],
    ];

    /// Each cause that needs an interface, and the changes that bring it. Without an interface, that is the only cause.
    fn all(roce: bool) -> Vec<Case> {
        let of_port = if roce {
            port::tests::ROCE
        } else {
            port::tests::INFINIBAND
        };
        let of_ethernet = if roce { ethernet::tests::CASES } else { &[] };
        let of_link = [link::tests::CASES, path::tests::CASES, speed::tests::CASES];
        let mut all: Vec<Case> = Vec::new();
        for (cause, change) in of_port
            .iter()
            .chain(of_ethernet)
            .chain(of_link.into_iter().flatten())
        {
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

    fn judged(roce: bool, cases: &[&Case]) -> Vec<Finding> {
        let mut facts = healthy(roce);
        for (_, change) in cases {
            change(&mut facts);
        }
        judge(&facts)
    }

    /// The finding that a single case brings.
    fn alone(roce: bool, case: &Case) -> Finding {
        let mut found = judged(roce, &[case]).into_iter();
        found.find(|one| one.cause == case.0).expect("a finding")
    }

    /// Which causes of a pair are to be named.
    fn expected<'a>(roce: bool, first: &'a Case, second: &'a Case) -> Vec<Vec<&'a str>> {
        let (a, b) = (first.0, second.0);
        let singles = (alone(roce, first), alone(roce, second));
        let is_pair = |states: &&&[&str]| states.contains(&a) && states.contains(&b);
        if hides(&singles.0, &singles.1) {
            vec![vec![a]]
        } else if hides(&singles.1, &singles.0) {
            vec![vec![b]]
        } else if ONE_OF.iter().any(|states| is_pair(&states)) {
            vec![vec![a], vec![b]]
        } else {
            vec![vec![a, b]]
        }
    }

    #[test]
    fn both_of_two_causes_are_named_or_the_one_that_hides_the_other() {
        let mut wrong = Vec::new();
        for roce in [false, true] {
            let all = all(roce);
            for first in &all {
                for second in all.iter().filter(|second| second.0 != first.0) {
                    let found = judged(roce, &[first, second]);
                    let is_named = |case: &&Case| {
                        let alone = alone(roce, case);
                        let is_it =
                            |one: &Finding| (one.cause, &one.subject) == (case.0, &alone.subject);
                        found.iter().any(is_it)
                    };
                    let named = [first, second].into_iter().filter(is_named);
                    let named: Vec<&str> = named.map(|case| case.0).collect();
                    let expected = expected(roce, first, second);
                    if !expected.contains(&named) {
                        let (a, b) = (first.0, second.0);
                        wrong.push(format!("{a} and {b}: {named:?}, not {expected:?}"));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_table_has_causes_that_there_are() {
        let known: Vec<&str> = [false, true]
            .iter()
            .flat_map(|roce| all(*roce))
            .map(|(cause, _)| cause)
            .collect();
        for (by, hidden) in HIDING {
            let by = match by {
                By::Cause(cause) => Some(cause),
                By::Broken(_) => None,
            };
            for cause in by.into_iter().chain(*hidden) {
                assert!(known.contains(cause), "{cause}");
            }
        }
    }
}
