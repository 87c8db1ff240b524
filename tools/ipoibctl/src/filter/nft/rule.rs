// SPDX-License-Identifier: GPL-2.0

//! The rules of nft: keys, what they are compared with, verdicts.

use super::super::{Among, Element, Key, Rule, Term, Value, Verdict};
use super::{Token, text};

/// Tokens of a rule, one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [Token],
}

/// Words that the parts of a rule begin with.
const BEGIN: &[&str] = &[
    "accept",
    "drop",
    "reject",
    "return",
    "continue",
    "jump",
    "goto",
    "queue",
    "counter",
    "log",
    "limit",
    "comment",
    "ct",
    "meta",
    "ip",
    "ip6",
    "udp",
    "tcp",
    "th",
    "iif",
    "iifname",
    "oif",
    "oifname",
    "fib",
    "icmp",
    "icmpv6",
    "notrack",
    "mark",
    "pkttype",
    "add",
    "update",
    "xt",
    "vmap",
    "masquerade",
    "snat",
    "dnat",
    "redirect",
];
/// Second words of keys, by their first ones.
const META: &[(&str, Key)] = &[
    ("iif", Key::In),
    ("iifname", Key::In),
    ("oif", Key::Out),
    ("oifname", Key::Out),
    ("nfproto", Key::Version),
    ("protocol", Key::EtherType),
    ("l4proto", Key::Protocol),
    ("mark", Key::Mark),
    ("pkttype", Key::PacketType),
];
const TRACKING: &[(&str, Key)] = &[
    ("state", Key::State),
    ("status", Key::Status),
    ("helper", Key::Status),
    ("direction", Key::Direction),
    ("mark", Key::Mark),
];
const TRANSPORT: &[(&str, Key)] = &[("dport", Key::Port), ("sport", Key::SourcePort)];
const ICMPV6: &[(&str, Key)] = &[("type", Key::IcmpType)];
const NETWORK: &[(&str, Key)] = &[
    ("hoplimit", Key::HopLimit),
    ("saddr", Key::Source),
    ("daddr", Key::Destination),
    ("protocol", Key::Protocol),
    ("nexthdr", Key::Protocol),
];
/// Protocols of other packets than ours.
const OTHERS: &[&str] = &[
    "tcp", "icmp", "sctp", "dccp", "udplite", "esp", "ah", "comp", "igmp", "arp", "rt", "frag",
    "hbh", "dst", "mh", "gre", "vlan", "tproxy",
];

/// The test that a packet has a header, by its name.
fn protocol(name: &str) -> Term {
    Term::Test {
        keys: vec![Key::Protocol],
        masked: false,
        not: false,
        among: Among::Elements(vec![Element {
            values: vec![Value::Word(name.to_owned())],
            verdict: None,
        }]),
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(tokens: &'a [Token]) -> Reader<'a> {
        Reader { rest: tokens }
    }

    fn word(&self) -> Option<&'a str> {
        match self.rest.first()? {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }

    fn next(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn next_word(&mut self) -> Option<&'a str> {
        let word = self.word()?;
        self.next();
        Some(word)
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is_it = self.word() == Some(word);
        if is_it {
            self.next();
        }
        is_it
    }

    /// Passes what is in braces, if they are next.
    fn skip_braces(&mut self) {
        let mut depth = 0_usize;
        while let Some(token) = self.rest.first() {
            match token {
                Token::Open => depth += 1,
                Token::Close => depth = depth.saturating_sub(1),
                _ if depth == 0 => return,
                _ => {}
            }
            self.next();
            if depth == 0 {
                return;
            }
        }
    }

    /// Passes all up to the beginning of another part.
    fn skip(&mut self) {
        while let Some(token) = self.rest.first() {
            match token {
                Token::Open => self.skip_braces(),
                Token::Word(word) if BEGIN.contains(&word.as_str()) => return,
                _ => drop(self.next()),
            }
        }
    }

    /// A key that has two words, from the second.
    fn second(&mut self, keys: &[(&str, Key)]) -> Key {
        let word = self.next_word().unwrap_or_default();
        let found = keys.iter().find(|(name, _)| *name == word);
        found.map_or(Key::Unknown, |(_, key)| *key)
    }

    /// A key, from its first word. None if the part is something else.
    fn key(&mut self, first: &str) -> Option<Key> {
        let key = match first {
            "iif" | "iifname" => Key::In,
            "oif" | "oifname" => Key::Out,
            "mark" => Key::Mark,
            "pkttype" => Key::PacketType,
            "@th,16,16" => Key::Port,
            "fib" => self.fib(),
            "meta" => self.second(META),
            "ct" => self.second(TRACKING),
            "udp" | "th" => self.second(TRANSPORT),
            "icmpv6" => self.second(ICMPV6),
            "ip" | "ip6" => self.second(NETWORK),
            "ether" => self.second(&[("type", Key::EtherType)]),
            _ => return None,
        };
        Some(key)
    }

    /// The key behind `fib`: what is looked up, and what is asked for.
    fn fib(&mut self) -> Key {
        let is_source = self.word() == Some("saddr");
        let mut of_packet = true;
        loop {
            match self.next_word() {
                Some("type") if is_source && of_packet => return Key::SourceType,
                Some("type") if of_packet => return Key::DestinationType,
                Some("oif" | "oifname" | "check") if is_source => return Key::Back,
                // An address that only another interface has is not ours there, but then nothing comes to it.
                Some("saddr" | "daddr" | "." | "iif" | "mark") => {}
                Some("oif") => of_packet = false,
                _ => return Key::Unknown,
            }
        }
    }

    /// The comma of `@th,16,16` has a token of its own.
    fn raw(&mut self, first: &str) -> String {
        let mut all = first.to_owned();
        if first.starts_with('@') {
            while self.rest.first() == Some(&Token::Comma) {
                self.next();
                all += &format!(",{}", self.next_word().unwrap_or_default());
            }
        }
        all
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let word = self.word()?;
        let verdict = match word {
            "accept" | "masquerade" | "snat" | "dnat" | "redirect" => Verdict::Accept,
            "drop" | "reject" => Verdict::Drop,
            "return" => Verdict::Return,
            "continue" => Verdict::Continue,
            "queue" => Verdict::Queue,
            "jump" | "goto" => {
                self.next();
                let chain = self.next_word().unwrap_or_default().to_owned();
                let jumps = word == "jump";
                return Some(if jumps {
                    Verdict::Jump(chain)
                } else {
                    Verdict::Goto(chain)
                });
            }
            _ => return None,
        };
        self.next();
        Some(verdict)
    }

    /// One value, or the values of several keys.
    fn values(&mut self) -> Vec<Value> {
        let mut values = Vec::new();
        loop {
            match self.rest.first() {
                // The names of protocols and the like are compared as words.
                Some(Token::Word(word)) => values.push(Value::of(word, '-', '*')),
                Some(Token::Quoted(name)) => values.push(match name.strip_suffix('*') {
                    Some(begin) => Value::Prefix(begin.to_owned()),
                    None => Value::Word(name.clone()),
                }),
                _ => return values,
            }
            self.next();
            if !self.take_word(".") {
                return values;
            }
        }
    }

    /// Elements in braces, with verdicts if it is a map.
    pub(super) fn elements(&mut self) -> Vec<Element> {
        let mut elements = Vec::new();
        if self.rest.first() != Some(&Token::Open) {
            return elements;
        }
        self.next();
        while let Some(token) = self.rest.first() {
            match token {
                Token::Close => {
                    self.next();
                    break;
                }
                Token::Comma => {
                    self.next();
                    continue;
                }
                _ => {}
            }
            let values = self.values();
            // An element may also have a timeout, a counter and a comment.
            while !matches!(self.rest.first(), None | Some(Token::Comma | Token::Close))
                && self.word() != Some(":")
            {
                self.next();
            }
            let verdict = if self.take_word(":") {
                self.verdict()
            } else {
                None
            };
            let is_all = values == [Value::Prefix(String::new())];
            let values = if is_all { vec![Value::Any] } else { values };
            elements.push(Element { values, verdict });
            while !matches!(self.rest.first(), None | Some(Token::Comma | Token::Close)) {
                self.next();
            }
        }
        // The catch-all element is for what no other one has.
        elements.sort_by_key(|element| element.values == [Value::Any]);
        elements
    }

    /// Reads the values that a key is compared with: a set, or values with commas in between.
    fn among(&mut self) -> Among {
        if self.rest.first() == Some(&Token::Open) {
            return Among::Elements(self.elements());
        }
        if let Some(name) = self.word().and_then(|word| word.strip_prefix('@')) {
            self.next();
            return Among::Named(name.to_owned());
        }
        let mut elements = Vec::new();
        loop {
            let values = self.values();
            elements.push(Element {
                values,
                verdict: None,
            });
            if self.rest.first() != Some(&Token::Comma) {
                return Among::Elements(elements);
            }
            self.next();
        }
    }

    /// A comparison, from its first key, or a change of the packet.
    fn compared(&mut self, first: &str, terms: &mut Vec<Term>) {
        let mut keys = Vec::new();
        let mut name = first;
        loop {
            match name {
                "ip" => terms.push(Term::Version(4)),
                "ip6" => terms.push(Term::Version(6)),
                "udp" => terms.push(protocol("udp")),
                "icmpv6" => terms.push(protocol("ipv6-icmp")),
                _ => {}
            }
            if name == "udp" && self.word() == Some("length") {
                self.next();
                keys.push(Key::Unknown);
            } else {
                keys.push(self.key(name).unwrap_or(Key::Unknown));
            }
            if !self.take_word(".") {
                break;
            }
            name = self.next_word().unwrap_or_default();
        }
        if self.take_word("set") {
            if keys == [Key::Mark] {
                terms.push(Term::SetMark);
            }
            return self.skip();
        }
        if self.take_word("vmap") {
            let among = self.among();
            return terms.push(Term::Map { keys, among });
        }
        let masked = matches!(self.word(), Some("&" | "and"));
        if masked {
            self.next();
            self.next();
        }
        let (mut not, mut is_range) = (false, false);
        match self.word() {
            Some("!=") => not = true,
            Some("==") => {}
            Some("<" | ">" | "<=" | ">=") => is_range = true,
            _ => {
                let among = self.among();
                return terms.push(Term::Test {
                    keys,
                    masked,
                    not,
                    among,
                });
            }
        }
        self.next();
        let among = self.among();
        // Few rules compare so.
        if is_range {
            return terms.push(Term::Maybe);
        }
        terms.push(Term::Test {
            keys,
            masked,
            not,
            among,
        });
    }

    /// A part of iptables that nft has no words for.
    fn foreign(&mut self, terms: &mut Vec<Term>) {
        let (kind, name) = (self.next_word(), self.next());
        let name = match name {
            Some(Token::Quoted(name) | Token::Word(name)) => name.as_str(),
            _ => "",
        };
        match (kind, name) {
            (Some("target"), "REJECT") => terms.push(Term::Verdict(Verdict::Drop)),
            (Some("target"), "LOG" | "NFLOG") | (Some("match"), "comment") => {}
            (Some("target"), _) => terms.push(Term::Verdict(Verdict::Queue)),
            _ => terms.push(Term::Maybe),
        }
    }

    /// The packets that `reject` is for, which its answer tells: nft leaves out what follows from that.
    fn rejected(&self) -> Option<Term> {
        match self.rest {
            [
                Token::Word(first),
                Token::Word(with),
                Token::Word(answer),
                ..,
            ] if first == "reject" && with == "with" => match answer.as_str() {
                "icmp" => Some(Term::Version(4)),
                "icmpv6" => Some(Term::Version(6)),
                "tcp" => Some(Term::Never),
                _ => None,
            },
            _ => None,
        }
    }

    fn terms(&mut self) -> Vec<Term> {
        let mut terms = Vec::new();
        while !self.rest.is_empty() {
            terms.extend(self.rejected());
            if let Some(verdict) = self.verdict() {
                terms.push(Term::Verdict(verdict));
                break;
            }
            let Some(Token::Word(first)) = self.next() else {
                continue;
            };
            let first = self.raw(first);
            match first.as_str() {
                "counter" | "log" | "comment" | "add" | "update" | "delete" | "flow" => self.skip(),
                "notrack" => terms.push(Term::Untrack),
                "xt" => self.foreign(&mut terms),
                "iif" | "iifname" | "oif" | "oifname" | "mark" | "pkttype" | "meta" | "ct"
                | "udp" | "th" | "ip" | "ip6" | "icmpv6" | "fib" | "ether" | "@th,16,16" => {
                    self.compared(&first, &mut terms)
                }
                other if OTHERS.contains(&other) => {
                    terms.push(Term::Never);
                    break;
                }
                _ => {
                    terms.push(Term::Maybe);
                    self.skip();
                }
            }
        }
        terms
    }
}

pub(super) fn rule(statement: &[Token]) -> Rule {
    Rule {
        text: text(statement),
        terms: Reader::new(statement).terms(),
    }
}
