// SPDX-License-Identifier: GPL-2.0

//! The way of a packet along hooks, chains and rules.

use super::packet::{Changed, Holds, Packet};
use super::{
    Among, Base, Chain, Element, Family, Hook, Keeper, Key, Rule, Rules, Table, Term, Value,
    Verdict,
};

/// The kernel allows no more jumps within each other.
const DEPTH: usize = 16;
/// Priority of connection tracking.
const TRACKING: i32 = -200;
/// Rules that are looked at, at most. A fuzzer finds chains that call each other again and again, and learns no more from the
/// last of these calls than from the first.
const STEPS: usize = if cfg!(feature = "fuzz") {
    2_000
} else {
    200_000
};

/// Fate of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Passes,
    /// It may pass.
    Unknown(Culprit),
    Dropped(Culprit),
}

/// The rule, or the policy, that drops a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Culprit {
    pub(crate) keeper: Keeper,
    pub(crate) family: &'static str,
    pub(crate) table: String,
    /// The chain that the kernel calls.
    pub(crate) base: String,
    pub(crate) hook: Hook,
    /// The chain that the rule is in.
    pub(crate) chain: String,
    pub(crate) rule: String,
}

/// The ways on which a packet can leave a chain.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    accepted: bool,
    dropped: bool,
    /// It comes to the end, or returns.
    falls: bool,
}

/// A chain that is gone along, and where that leads.
struct Walk<'a> {
    packet: &'a Packet<'a>,
    names: &'a [&'a str],
    table: &'a Table,
    changed: Changed,
    steps: usize,
    /// The chain and the rule that drop it; true if no rule in front of that had to be guessed.
    blamed: Option<(String, String, bool)>,
}

impl Walk<'_> {
    fn holds_element(&self, keys: &[Key], masked: bool, element: &Element) -> Holds {
        if element.values == [Value::Any] {
            return Holds::Yes;
        }
        if keys.len() != element.values.len() {
            return Holds::Maybe;
        }
        let mut holds = Holds::Yes;
        for (key, value) in keys.iter().zip(&element.values) {
            // Of zero, each part is zero.
            let is_plain = !masked || (*key == Key::Mark && !self.changed.mark);
            let one = if is_plain {
                self.packet.fact(*key, &self.changed, self.names).is(value)
            } else {
                Holds::Maybe
            };
            holds = holds.min(one);
        }
        holds
    }

    fn elements<'b>(&'b self, among: &'b Among) -> Option<&'b [Element]> {
        match among {
            Among::Elements(elements) => Some(elements),
            Among::Named(name) => self.table.sets.get(name).map(Vec::as_slice),
        }
    }

    fn holds(&self, keys: &[Key], masked: bool, among: &Among) -> Holds {
        let Some(elements) = self.elements(among) else {
            return Holds::Maybe;
        };
        let each = elements.iter().map(|e| self.holds_element(keys, masked, e));
        each.max().unwrap_or(Holds::No)
    }

    /// Carries a verdict out. Returns the ways on which the packet leaves this chain; `falls` if it goes on to the next rule.
    fn carry_out(
        &mut self,
        verdict: &Verdict,
        at: (&str, &Rule),
        sure: bool,
        depth: usize,
    ) -> (Ends, bool) {
        let mut ends = Ends::default();
        match verdict {
            Verdict::Accept => ends.accepted = true,
            Verdict::Drop => {
                ends.dropped = true;
                self.blame(at.0, &at.1.text, sure);
            }
            Verdict::Queue => {
                (ends.accepted, ends.dropped) = (true, true);
                self.blame(at.0, &at.1.text, false);
            }
            Verdict::Return => ends.falls = true,
            Verdict::Continue => return (ends, true),
            Verdict::Jump(chain) => {
                let inner = self.called(chain, at, sure, depth);
                (ends.accepted, ends.dropped) = (inner.accepted, inner.dropped);
                return (ends, inner.falls);
            }
            Verdict::Goto(chain) => ends = self.called(chain, at, sure, depth),
        }
        (ends, false)
    }

    /// Goes along a chain that a rule names. If it is not known which of its rules drops the packet, that one does.
    fn called(&mut self, chain: &str, at: (&str, &Rule), sure: bool, depth: usize) -> Ends {
        let ends = self.chain(chain, sure, depth + 1);
        if ends.dropped && self.blamed.is_none() {
            self.blame(at.0, &at.1.text, false);
        }
        ends
    }

    fn blame(&mut self, chain: &str, rule: &str, sure: bool) {
        if self
            .blamed
            .as_ref()
            .is_none_or(|(.., known)| sure && !known)
        {
            self.blamed = Some((chain.to_owned(), rule.to_owned(), sure));
        }
    }

    /// Goes along a map: each element that may match is one way to go.
    fn map(
        &mut self,
        (keys, among): (&[Key], &Among),
        at: (&str, &Rule),
        sure: bool,
        depth: usize,
    ) -> (Ends, bool) {
        let Some(elements) = self.elements(among) else {
            self.blame(at.0, &at.1.text, false);
            return (
                Ends {
                    accepted: true,
                    dropped: true,
                    falls: true,
                },
                true,
            );
        };
        let hits = elements
            .iter()
            .map(|e| (self.holds_element(keys, false, e), e.verdict.clone()));
        let hits: Vec<(Holds, Option<Verdict>)> = hits.filter(|(h, _)| *h != Holds::No).collect();
        let (mut all, mut goes_on) = (Ends::default(), true);
        for (holds, verdict) in hits {
            let is_sure = sure && holds == Holds::Yes;
            let verdict = verdict.unwrap_or(Verdict::Continue);
            let (ends, next) = self.carry_out(&verdict, at, is_sure, depth);
            all.accepted |= ends.accepted;
            all.dropped |= ends.dropped;
            all.falls |= ends.falls;
            if holds == Holds::Yes {
                goes_on = next;
                break;
            }
        }
        (all, goes_on)
    }

    /// Goes along a rule. Returns the ways on which the packet leaves the chain, and whether it may come to the next rule.
    fn rule(&mut self, chain: &str, rule: &Rule, mut sure: bool, depth: usize) -> (Ends, bool) {
        let mut all = Ends::default();
        // A guess was needed: it may also come to the next rule.
        let mut guessed = false;
        for term in &rule.terms {
            let holds = match term {
                Term::Test {
                    keys,
                    masked,
                    not,
                    among,
                } => {
                    let holds = self.holds(keys, *masked, among);
                    if *not { holds.not() } else { holds }
                }
                Term::Version(version) => (*version == self.packet.version()).into(),
                Term::Never => Holds::No,
                Term::Maybe => Holds::Maybe,
                Term::Untrack => {
                    if guessed {
                        self.changed.perhaps_untracked = true;
                    } else {
                        self.changed.untracked = true;
                    }
                    Holds::Yes
                }
                Term::SetMark => {
                    self.changed.mark = true;
                    Holds::Yes
                }
                Term::Verdict(verdict) => {
                    let (ends, goes_on) = self.carry_out(verdict, (chain, rule), sure, depth);
                    return (all.and(ends), goes_on || guessed);
                }
                Term::Map { keys, among } => {
                    let (ends, goes_on) = self.map((keys, among), (chain, rule), sure, depth);
                    all = all.and(ends);
                    if !goes_on {
                        return (all, guessed);
                    }
                    Holds::Yes
                }
            };
            match holds {
                Holds::No => return (all, true),
                Holds::Maybe => (guessed, sure) = (true, false),
                Holds::Yes => {}
            }
        }
        (all, true)
    }

    fn chain(&mut self, name: &str, sure: bool, depth: usize) -> Ends {
        let table = self.table;
        let found = table.chains.get(name).filter(|_| depth <= DEPTH);
        let Some(chain) = found else {
            return Ends {
                accepted: true,
                dropped: true,
                falls: true,
            };
        };
        let mut all = Ends::default();
        for rule in &chain.rules {
            self.steps += 1;
            if self.steps > STEPS {
                self.blame(name, &rule.text, false);
                return Ends {
                    accepted: true,
                    dropped: true,
                    falls: true,
                };
            }
            let (ends, goes_on) = self.rule(name, rule, sure, depth);
            all = all.and(ends);
            if !goes_on {
                return all;
            }
        }
        all.falls = true;
        all
    }

    /// Returns the fate of the packet in a chain that the kernel calls.
    fn base(&mut self, name: &str, base: &Base) -> Answer {
        self.blamed = None;
        let ends = self.chain(name, true, 0);
        let drops = ends.dropped || (ends.falls && base.drops);
        if ends.falls && base.drops {
            self.blame(name, "policy drop", !ends.dropped && !ends.accepted);
        }
        let passes = ends.accepted || (ends.falls && !base.drops);
        let (chain, rule, _) = self.blamed.take().unwrap_or_default();
        let culprit = Culprit {
            keeper: self.table.keeper,
            family: self.table.family.name(),
            table: self.table.name.clone(),
            base: name.to_owned(),
            hook: base.hook,
            chain,
            rule,
        };
        match (passes, drops) {
            (_, false) => Answer::Passes,
            (true, true) => Answer::Unknown(culprit),
            (false, true) => Answer::Dropped(culprit),
        }
    }
}

impl Ends {
    fn and(self, other: Ends) -> Ends {
        Ends {
            accepted: self.accepted || other.accepted,
            dropped: self.dropped || other.dropped,
            falls: self.falls || other.falls,
        }
    }
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Family::Inet => "inet",
            Family::Ip => "ip",
            Family::Ip6 => "ip6",
            Family::Netdev => "netdev",
            Family::Bridge => "bridge",
            Family::Other => "",
        }
    }
}

impl Rules {
    /// The chains that a packet passes, in order.
    fn on_the_way<'a>(&'a self, packet: &Packet<'_>) -> Vec<(&'a Table, &'a str, &'a Base)> {
        let mut found = Vec::new();
        for hook in packet.hooks() {
            let mut here = Vec::new();
            for table in self
                .tables
                .iter()
                .filter(|table| packet.is_of(table.family))
            {
                let base = |(name, chain): (&'a String, &'a Chain)| {
                    let base = chain.base.as_ref()?;
                    let has = base.devices.iter().any(|device| device == packet.interface);
                    let is_passed = base.hook == *hook && (base.devices.is_empty() || has);
                    is_passed.then_some((table, name.as_str(), base))
                };
                here.extend(table.chains.iter().filter_map(base));
            }
            here.sort_by_key(|(.., base)| base.priority);
            found.extend(here);
        }
        found
    }

    /// Returns the fate of a packet.
    pub(crate) fn judge(&self, packet: &Packet<'_>) -> Answer {
        let mut answer = Answer::Passes;
        let names: Vec<&str> = [Some(packet.interface), packet.master]
            .into_iter()
            .flatten()
            .collect();
        let mut changed = Changed::default();
        for (table, name, base) in self.on_the_way(packet) {
            let is_first = matches!(base.hook, Hook::Prerouting | Hook::Output);
            changed.early = base.hook == Hook::Ingress || (is_first && base.priority < TRACKING);
            let mut walk = Walk {
                packet,
                names: &names,
                table,
                changed,
                steps: 0,
                blamed: None,
            };
            match walk.base(name, base) {
                Answer::Dropped(culprit) => return Answer::Dropped(culprit),
                Answer::Unknown(culprit) if answer == Answer::Passes => {
                    answer = Answer::Unknown(culprit)
                }
                _ => {}
            }
            changed = walk.changed;
        }
        answer
    }
}
