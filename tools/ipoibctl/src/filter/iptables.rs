// SPDX-License-Identifier: GPL-2.0

//! Rules as `iptables-save` and `ip6tables-save` print them.

use super::{Among, Base, Element, Family, Hook, Keeper, Key, Rule, Table, Term, Value, Verdict};

/// Words of a rule, with what is in quotes as one.
fn words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (n, part) in line.split('"').enumerate() {
        if n % 2 == 1 {
            found.push(part.to_owned());
        } else {
            found.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    found
}

/// The place at which the kernel calls a chain of a table.
fn base(table: &str, chain: &str, drops: bool) -> Option<Base> {
    let hook = match chain {
        "PREROUTING" => Hook::Prerouting,
        "INPUT" => Hook::Input,
        "OUTPUT" => Hook::Output,
        "POSTROUTING" => Hook::Postrouting,
        "FORWARD" => Hook::Other,
        _ => return None,
    };
    let priority = match (table, hook) {
        ("raw", _) => -300,
        ("mangle", _) => -150,
        ("nat", Hook::Prerouting | Hook::Output) => -100,
        ("nat", _) => 100,
        ("security", _) => 50,
        _ => 0,
    };
    Some(Base {
        hook,
        devices: Vec::new(),
        priority,
        drops,
    })
}

fn is_option(word: &str) -> bool {
    word == "!" || word.starts_with('-')
}

/// A rule's words, one after the other.
struct Reader<'a> {
    rest: &'a [String],
    terms: Vec<Term>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> &'a str {
        let Some((first, rest)) = self.rest.split_first() else {
            return "";
        };
        self.rest = rest;
        first
    }

    /// Passes the arguments of an option that is not known.
    fn skip(&mut self) {
        while self.rest.first().is_some_and(|word| !is_option(word)) {
            self.next();
        }
    }

    fn test(&mut self, key: Key, not: bool, range: char) {
        let (mut masked, mut elements) = (false, Vec::new());
        for word in self.next().split(',') {
            let mut word = word.to_ascii_lowercase();
            if key == Key::Mark {
                if let Some((value, _)) = word.clone().split_once('/') {
                    (masked, word) = (true, value.to_owned());
                }
            }
            elements.push(Element {
                values: vec![Value::of(&word, range, '+')],
                verdict: None,
            });
        }
        let among = Among::Elements(elements);
        self.terms.push(Term::Test {
            keys: vec![key],
            masked,
            not,
            among,
        });
    }

    /// Names of interfaces are as they are.
    fn interface(&mut self, key: Key, not: bool) {
        let name = self.next();
        let value = match name.strip_suffix('+') {
            Some(begin) => Value::Prefix(begin.to_owned()),
            None => Value::Word(name.to_owned()),
        };
        let values = vec![value];
        let among = Among::Elements(vec![Element {
            values,
            verdict: None,
        }]);
        self.terms.push(Term::Test {
            keys: vec![key],
            masked: false,
            not,
            among,
        });
    }

    fn protocol(&mut self, not: bool) {
        if self.rest.first().is_some_and(|word| word == "all") {
            self.next();
            return;
        }
        self.test(Key::Protocol, not, '-');
    }

    fn modules(&mut self) {
        match self.next() {
            // Its arguments only describe the rule.
            "comment" => {}
            "rt" | "frag" | "hbh" | "dst" | "mh" | "ah" | "esp" | "icmp" | "tcp" | "sctp"
            | "dccp" => {
                self.terms.push(Term::Never);
            }
            // Peers are on the link, so that there is a way back: what is inverted finds those without.
            "rpfilter" => {
                if self.rest.iter().any(|word| word == "--invert") {
                    self.terms.push(Term::Never);
                }
                self.skip_module();
            }
            _ => {}
        }
    }

    /// Passes all options of a module.
    fn skip_module(&mut self) {
        while self
            .rest
            .first()
            .is_some_and(|word| !["-j", "-g", "-m"].contains(&word.as_str()))
        {
            self.next();
        }
    }

    fn target(&mut self) {
        let target = self.next();
        let verdict = match target {
            "ACCEPT" | "MASQUERADE" | "SNAT" | "DNAT" | "REDIRECT" => Verdict::Accept,
            "DROP" | "REJECT" => Verdict::Drop,
            "RETURN" => Verdict::Return,
            "QUEUE" | "NFQUEUE" | "TPROXY" => Verdict::Queue,
            "NOTRACK" => return self.terms.push(Term::Untrack),
            "CT" if self.rest.iter().any(|word| word == "--notrack") => {
                return self.terms.push(Term::Untrack);
            }
            "MARK" | "CONNMARK" => return self.terms.push(Term::SetMark),
            // Targets of the kernel have capital letters, and these let the packet go on.
            "LOG" | "NFLOG" | "ULOG" | "CT" | "TCPMSS" | "DSCP" | "TOS" | "CLASSIFY" | "SET"
            | "TRACE" | "CHECKSUM" | "SECMARK" | "CONNSECMARK" | "AUDIT" | "TEE" | "RATEEST"
            | "HL" | "TTL" => return,
            chain => Verdict::Jump(chain.to_owned()),
        };
        self.terms.push(Term::Verdict(verdict));
    }

    fn read(mut self) -> Vec<Term> {
        let mut not = false;
        while !self.rest.is_empty() {
            let option = self.next();
            match option {
                "!" => {
                    not = true;
                    continue;
                }
                "-p" | "--protocol" => self.protocol(not),
                "-s" | "--source" => self.test(Key::Source, not, '-'),
                "-d" | "--destination" => self.test(Key::Destination, not, '-'),
                "-i" | "--in-interface" => self.interface(Key::In, not),
                "-o" | "--out-interface" => self.interface(Key::Out, not),
                "--dport" | "--dports" | "--destination-port" => self.test(Key::Port, not, ':'),
                "--sport" | "--sports" | "--source-port" => self.test(Key::SourcePort, not, ':'),
                "--icmpv6-type" => self.test(Key::IcmpType, not, '-'),
                "--hl-eq" => self.test(Key::HopLimit, not, '-'),
                "--ctstate" | "--state" => self.test(Key::State, not, '-'),
                "--ctstatus" => self.test(Key::Status, not, '-'),
                "--dst-type" => self.test(Key::DestinationType, not, '-'),
                "--src-type" => self.test(Key::SourceType, not, '-'),
                "--pkt-type" => self.test(Key::PacketType, not, '-'),
                "--mark" => self.test(Key::Mark, not, '-'),
                "--comment" => drop(self.next()),
                "-m" | "--match" => self.modules(),
                "-j" | "--jump" => {
                    self.target();
                    break;
                }
                "-g" | "--goto" => {
                    let chain = self.next().to_owned();
                    self.terms.push(Term::Verdict(Verdict::Goto(chain)));
                    break;
                }
                _ => {
                    self.terms.push(Term::Maybe);
                    self.skip();
                }
            }
            not = false;
        }
        self.terms
    }
}

/// The tables of a listing. One that begins without a heading is that of the filter.
pub(super) fn tables(listing: &str, family: Family) -> Vec<Table> {
    let mut found: Vec<Table> = Vec::new();
    for line in listing.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('*') {
            found.push(Table::new(family, name, Keeper::Iptables));
            continue;
        }
        let is_rule = line.starts_with(':') || line.starts_with("-A ");
        if is_rule && found.is_empty() {
            found.push(Table::new(family, "filter", Keeper::Iptables));
        }
        let Some(table) = found.last_mut().filter(|_| is_rule) else {
            continue;
        };
        let words = words(line);
        if let Some(chain) = words[0].strip_prefix(':') {
            let drops = words.get(1).is_some_and(|policy| policy == "DROP");
            let base = base(&table.name, chain, drops);
            table.chains.entry(chain.to_owned()).or_default().base = base;
        } else if let Some(chain) = words.get(1) {
            let reader = Reader {
                rest: &words[2..],
                terms: Vec::new(),
            };
            let rule = Rule {
                text: line.to_owned(),
                terms: reader.read(),
            };
            table
                .chains
                .entry(chain.clone())
                .or_default()
                .rules
                .push(rule);
        }
    }
    found
}
