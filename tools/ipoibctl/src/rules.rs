// SPDX-License-Identifier: GPL-2.0

//! Causes: each has a name, a sentence about what is wrong, how that is known, and the command that mends it.
//!
//! Rules are functions of the facts alone, in a file for each layer.

mod counters;
mod device;
mod ethernet;
mod hiding;
mod link;
mod module;
mod path;
mod port;
mod speed;

use crate::facts::{Facts, Interface, Link};
use serde::Serialize;
use std::cmp::Reverse;

/// Severity of a finding. `Hint` is about speed and taste, and leaves the exit status at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Hint,
    Warning,
    Broken,
}

/// The layer that a cause is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layer {
    Module,
    Device,
    Port,
    Link,
    Path,
    Counters,
    Speed,
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Its name, which does not change: for programs.
    pub(crate) cause: &'static str,
    pub(crate) severity: Severity,
    pub(crate) layer: Layer,
    /// The interface, or "" for the host.
    pub(crate) subject: String,
    /// Description in a sentence.
    pub(crate) what: String,
    /// How that is known.
    pub(crate) how: String,
    /// The command that mends it, or "".
    pub(crate) fix: String,
    /// The command can be run as it is: it ends nothing that works, and leaves nobody a choice.
    pub(crate) safe: bool,
}

/// Remedy of a finding. Text is a command that can be run as it is, or nothing if it is empty.
struct Fix {
    command: String,
    safe: bool,
}

impl From<String> for Fix {
    fn from(command: String) -> Fix {
        Fix {
            safe: !command.is_empty(),
            command,
        }
    }
}

impl From<&str> for Fix {
    fn from(command: &str) -> Fix {
        Fix::from(command.to_owned())
    }
}

/// A command for people: it has a word to fill in, ends what may be in use, or is one of several ways.
fn by_hand(command: impl Into<String>) -> Fix {
    Fix {
        command: command.into(),
        safe: false,
    }
}

/// Findings of a family about one subject.
struct Out<'a> {
    layer: Layer,
    subject: &'a str,
    found: &'a mut Vec<Finding>,
}

impl Out<'_> {
    /// Adds a finding.
    fn add(
        &mut self,
        severity: Severity,
        cause: &'static str,
        what: impl Into<String>,
        how: impl Into<String>,
        fix: impl Into<Fix>,
    ) {
        let Fix { command, safe } = fix.into();
        self.found.push(Finding {
            cause,
            severity,
            layer: self.layer,
            subject: self.subject.to_owned(),
            what: what.into(),
            how: how.into(),
            fix: command,
            safe,
        });
    }
}

/// Returns true for an interface that `ib_ipoib` has made for a port, as it does for each, and that nobody uses.
fn is_idle(facts: &Facts, interface: &Interface, link: &Link) -> bool {
    let is_idle = !interface.ours && !link.up && link.addresses.is_empty();
    is_idle && facts.interfaces.iter().any(|other| other.ours)
}

/// Calls a family's rule for each interface of IPoIB that is a link as well.
fn each(
    facts: &Facts,
    layer: Layer,
    found: &mut Vec<Finding>,
    rule: fn(&Facts, &Interface, &Link, &mut Out<'_>),
) {
    for interface in &facts.interfaces {
        let link = facts.link(&interface.name);
        if let Some(link) = link.filter(|link| !is_idle(facts, interface, link)) {
            let mut out = Out {
                layer,
                subject: &interface.name,
                found,
            };
            rule(facts, interface, link, &mut out);
        }
    }
}

/// All findings, worst first, and the lowest layer first among those.
///
/// Leaves out those that others hide.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    module::check(facts, &mut found);
    device::check(facts, &mut found);
    each(facts, Layer::Port, &mut found, port::check);
    each(facts, Layer::Link, &mut found, link::check);
    each(facts, Layer::Path, &mut found, path::check);
    each(facts, Layer::Counters, &mut found, counters::check);
    each(facts, Layer::Speed, &mut found, speed::check);
    speed::check_host(facts, &mut found);
    let hidden: Vec<bool> = found
        .iter()
        .map(|one| found.iter().any(|other| hiding::hides(other, one)))
        .collect();
    let mut hidden = hidden.into_iter();
    found.retain(|_| hidden.next() == Some(false));
    found.sort_by_key(|f| (Reverse(f.severity), f.layer));
    // A shell runs the commands, and the kernel lets interfaces have nearly any name.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let names = facts.links.iter().map(|link| link.name.as_str());
    let names = names.chain(facts.ports.iter().map(|port| port.device.as_str()));
    for name in names.filter(|name| !name.chars().all(plain)) {
        for finding in found.iter_mut().filter(|f| f.fix.contains(name)) {
            finding.safe = false;
        }
    }
    found
}

/// Exit status: 0 well, 1 warnings, 2 broken.
pub(crate) fn status(found: &[Finding]) -> u8 {
    match found.iter().map(|f| f.severity).max() {
        Some(Severity::Broken) => 2,
        Some(Severity::Warning) => 1,
        Some(Severity::Hint) | None => 0,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::Neighbour;
    use crate::healthy::healthy;

    /// Gives a host one more neighbour, changed.
    pub(crate) fn neighbour(facts: &mut Facts, change: impl FnOnce(&mut Neighbour)) {
        let neighbours = &mut facts.interfaces[0].neighbours;
        let mut another = neighbours[0].clone();
        another.ip = "10.1.0.3".parse().expect("an address");
        (another.gid, another.qpn) = ("fe80::3".into(), 0x12);
        change(&mut another);
        neighbours.push(another);
    }

    /// Makes the interface the child of another one, which has no address.
    pub(crate) fn child(facts: &mut Facts) {
        let mut link = facts.links[1].clone();
        (link.index, link.name) = (9, "ibp".into());
        link.addresses.clear();
        facts.links.push(link);
        facts.links[1].below = Some(9);
        let mut parent = facts.interfaces[0].clone();
        parent.name = "ibp".into();
        facts.interfaces.push(parent);
    }

    /// A cause, and the change that brings it.
    pub(crate) type Case = (&'static str, fn(&mut Facts));

    /// A healthy host, changed: the first finding has to be of the cause, and there is a sentence, and a reason.
    pub(crate) fn names(roce: bool, cause: &str, change: impl FnOnce(&mut Facts)) {
        let mut facts = healthy(roce);
        change(&mut facts);
        let found = judge(&facts);
        let first = found
            .first()
            .unwrap_or_else(|| panic!("{cause}: nothing was found"));
        assert_eq!(first.cause, cause, "{found:#?}");
        assert!(
            first.what.ends_with('.') && !first.how.is_empty(),
            "{first:?}"
        );
    }

    #[test]
    fn nothing_is_wrong_with_the_healthy() {
        for roce in [false, true] {
            assert_eq!(judge(&healthy(roce)), []);
            let mut facts = healthy(roce);
            facts.interfaces[0].mode = "datagram".into();
            facts.interfaces[0]
                .tables
                .insert("connections".into(), Vec::new());
            assert_eq!(judge(&facts), []);
            // Without the right to read debugfs.
            facts.interfaces[0].tables.clear();
            facts.sysctls.clear();
            assert_eq!(judge(&facts), []);
        }
        assert_eq!(status(&[]), 0);
    }

    #[test]
    fn what_is_broken_explains_what_is_above() {
        let mut facts = healthy(true);
        facts.links[0].up = false;
        facts.interfaces[0].neighbours[0].state = "failed".into();
        let found = judge(&facts);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(status(&found), 2);
    }

    #[test]
    fn a_name_is_no_command() {
        for (name, safe) in [("ib0.8001", true), ("ib0;x", false), ("ib$(x)", false)] {
            let mut facts = healthy(true);
            facts.links[1].name = name.into();
            facts.links[1].up = false;
            facts.interfaces[0].name = name.into();
            let found = judge(&facts);
            assert_eq!(
                (found[0].cause, found[0].safe),
                ("interface-down", safe),
                "{name}"
            );
        }
    }

    #[test]
    fn an_interface_of_ib_ipoib_that_nobody_uses_is_left_alone() {
        let mut facts = healthy(false);
        let mut other = facts.links[1].clone();
        (other.index, other.name, other.up) = (5, "ib1".into(), false);
        other.addresses.clear();
        facts.links.push(other);
        let mut interface = facts.interfaces[0].clone();
        (interface.name, interface.ours) = ("ib1".into(), false);
        facts.interfaces.push(interface);
        assert_eq!(judge(&facts), []);
        // It is used, or the only one.
        let address = facts.links[1].addresses[0].clone();
        facts.links[2].addresses.push(address);
        assert_eq!(judge(&facts)[0].cause, "interface-down");
        facts.links[2].addresses.clear();
        facts.interfaces.remove(0);
        assert_eq!(judge(&facts)[0].cause, "interface-down");
    }
}
