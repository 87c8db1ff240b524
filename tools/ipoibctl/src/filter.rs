// SPDX-License-Identifier: GPL-2.0

//! The packet filter of the host: its rules, as nft and iptables list them, and what becomes of a packet among them.
//!
//! No input or output is in here. A rule that looks at more than is known about the packet may match or not, so there
//! are three answers: the packet passes, it is dropped, or that cannot be told.

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod checks;
mod iptables;
mod nft;
mod packet;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use packet::{Kind, Packet, Way};
pub(crate) use walk::{Answer, Culprit};

use std::collections::BTreeMap;

/// The family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Both versions of IP.
    Inet,
    Ip,
    Ip6,
    Netdev,
    Bridge,
    /// One that IP packets do not pass.
    Other,
}

/// A point on the way of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    Ingress,
    Prerouting,
    Input,
    Output,
    Postrouting,
    Egress,
    /// One that packets for or from the host do not pass.
    Other,
}

/// A program that keeps rules, and has a command of its own to let packets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    Nft,
    Iptables,
    Firewalld,
    Ufw,
}

/// A property of a packet that rules compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    In,
    Out,
    /// The version of IP, as the kernel numbers address families.
    Version,
    EtherType,
    Protocol,
    SourcePort,
    Port,
    Source,
    Destination,
    State,
    /// Status of connection tracking, which only connections that it changes or helps have.
    Status,
    Direction,
    Mark,
    HopLimit,
    IcmpType,
    PacketType,
    SourceType,
    DestinationType,
    /// The interface that a route back to the source leads by.
    Back,
    Unknown,
}

/// A value that a key is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Range(u128, u128),
    /// A word, or the beginning of one.
    Word(String),
    Prefix(String),
    /// Any values of any number of keys.
    Any,
}

/// An element of a set, of which a map gives a verdict: one value for each of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Element {
    values: Vec<Value>,
    verdict: Option<Verdict>,
}

/// A set of values that keys are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Among {
    Elements(Vec<Element>),
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
    /// The rule goes on.
    Continue,
    /// A program decides.
    Queue,
}

/// A part of a rule; those in front decide whether the next one is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Test {
        keys: Vec<Key>,
        /// Some bits are compared only.
        masked: bool,
        not: bool,
        among: Among,
    },
    Map {
        keys: Vec<Key>,
        among: Among,
    },
    /// The rule is for one version of IP.
    Version(u8),
    /// The rule is for other packets than ours.
    Never,
    /// The rule may be for ours.
    Maybe,
    Untrack,
    SetMark,
    Verdict(Verdict),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    text: String,
    terms: Vec<Term>,
}

/// The place of a chain that the kernel calls.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Base {
    hook: Hook,
    /// The interfaces that it is for, if it is not for all.
    devices: Vec<String>,
    priority: i32,
    drops: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Chain {
    base: Option<Base>,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    family: Family,
    name: String,
    keeper: Keeper,
    chains: BTreeMap<String, Chain>,
    sets: BTreeMap<String, Vec<Element>>,
}

impl Table {
    fn new(family: Family, name: &str, keeper: Keeper) -> Table {
        Table {
            family,
            name: name.to_owned(),
            keeper,
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
        }
    }

    /// Notes who keeps the rules, by the names that it gives its chains.
    fn recognise(&mut self) {
        let begins = |prefix: &str| self.chains.keys().any(|name| name.starts_with(prefix));
        if self.name == "firewalld" || begins("IN_public") || begins("INPUT_ZONES") {
            self.keeper = Keeper::Firewalld;
        } else if begins("ufw-") || begins("ufw6-") {
            self.keeper = Keeper::Ufw;
        }
    }
}

/// All rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    tables: Vec<Table>,
}

impl Rules {
    /// Reads what `nft list ruleset`, `iptables-save` and `ip6tables-save` have printed.
    pub(crate) fn read(nft: &str, iptables: &str, ip6tables: &str) -> Rules {
        let mut tables = iptables::tables(iptables, Family::Ip);
        tables.extend(iptables::tables(ip6tables, Family::Ip6));
        // nft lists what iptables keeps, too, and cannot show all of it.
        let lists = |table: &Table| {
            let same = |other: &Table| other.family == table.family && other.name == table.name;
            tables.iter().any(same)
        };
        let of_nft = nft::tables(nft).into_iter();
        let of_nft = of_nft.filter(|(table, is_whole)| *is_whole || !lists(table));
        let of_nft: Vec<Table> = of_nft.map(|(table, _)| table).collect();
        tables.extend(of_nft);
        tables.iter_mut().for_each(Table::recognise);
        Rules { tables }
    }
}

/// The number in a word: decimal, or hexadecimal behind 0x.
fn number(word: &str) -> Option<u128> {
    match word.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

/// A single number or address, and how many bits it has.
fn single(word: &str) -> Option<(u128, u32)> {
    if let Some(number) = number(word) {
        return Some((number, 128));
    }
    match word.parse().ok()? {
        std::net::IpAddr::V4(ip) => Some((u128::from(ip.to_bits()), 32)),
        std::net::IpAddr::V6(ip) => Some((ip.to_bits(), 128)),
    }
}

impl Value {
    /// A number, an address, a range or a prefix of them, or a word. `range` is between the ends of a range, and `any` is
    /// behind the beginning of a word.
    fn of(word: &str, range: char, any: char) -> Value {
        let ends = |word: &str| {
            if let Some((value, _)) = single(word) {
                return Some((value, value));
            }
            if let Some((address, length)) = word.split_once('/') {
                let (value, bits) = single(address)?;
                let host = bits.checked_sub(length.parse().ok()?)?;
                let mask = 1_u128.checked_shl(host).unwrap_or(0).wrapping_sub(1);
                return Some((value & !mask, value | mask));
            }
            let (low, high) = word.split_once(range)?;
            Some((single(low)?.0, single(high)?.0))
        };
        if let Some((low, high)) = ends(word) {
            return Value::Range(low, high);
        }
        match word.strip_suffix(any) {
            Some(begin) => Value::Prefix(begin.to_owned()),
            None => Value::Word(word.to_owned()),
        }
    }
}
