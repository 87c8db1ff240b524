// SPDX-License-Identifier: GPL-2.0

//! Tables, chains and sets as `nft list ruleset` prints them.

mod rule;

use super::{Base, Chain, Element, Family, Hook, Keeper, Rule, Table};
use rule::{Reader, rule};
use std::iter::Peekable;
use std::vec::IntoIter;

/// A token: a word, a text in quotes, a brace, or the end of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    Open,
    Close,
    Comma,
    End,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let mut take = first.len_utf8();
        match first {
            '\n' | ';' => found.push(Token::End),
            '{' => found.push(Token::Open),
            '}' => found.push(Token::Close),
            ',' => found.push(Token::Comma),
            '#' => take = rest.find('\n').unwrap_or(rest.len()),
            '"' => {
                let quoted = rest[1..].split('"').next().unwrap_or_default();
                found.push(Token::Quoted(quoted.to_owned()));
                take = (quoted.len() + 2).min(rest.len());
            }
            _ if first.is_whitespace() => {}
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || "{},;\"".contains(c));
                take = end.unwrap_or(rest.len());
                found.push(Token::Word(rest[..take].to_owned()));
            }
        }
        rest = &rest[take..];
    }
    found
}

/// The statement as it was, but for the space in it.
fn text(tokens: &[Token]) -> String {
    let words = tokens.iter().map(|token| match token {
        Token::Word(word) => format!(" {word}"),
        Token::Quoted(text) => format!(" \"{text}\""),
        Token::Open => " {".into(),
        Token::Close => " }".into(),
        Token::Comma => ",".into(),
        Token::End => String::new(),
    });
    words.collect::<String>().trim().to_owned()
}

/// Statements and blocks, one behind the other.
struct Listing {
    tokens: Peekable<IntoIter<Token>>,
}

impl Listing {
    /// Tokens up to the end of a statement or the end of the block, with all braces in between.
    fn statement(&mut self) -> Vec<Token> {
        let (mut taken, mut depth) = (Vec::new(), 0_usize);
        while let Some(token) = self.tokens.peek() {
            match token {
                Token::End if depth == 0 => break,
                Token::Close if depth == 0 => break,
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                _ => {}
            }
            taken.extend(self.tokens.next());
        }
        taken.retain(|token| *token != Token::End);
        taken
    }

    /// Words in front of a block, whose brace is passed.
    fn head(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(Token::Word(word) | Token::Quoted(word)) = self
            .tokens
            .next_if(|t| matches!(t, Token::Word(_) | Token::Quoted(_)))
        {
            words.push(word);
        }
        self.tokens.next_if_eq(&Token::Open);
        words
    }

    /// Passes ends of statements. Returns false at the end of the block, which it passes.
    fn goes_on(&mut self) -> bool {
        while self.tokens.next_if_eq(&Token::End).is_some() {}
        self.tokens.peek().is_some() && self.tokens.next_if_eq(&Token::Close).is_none()
    }

    fn next_is(&mut self, words: &[&str]) -> bool {
        matches!(self.tokens.peek(), Some(Token::Word(word)) if words.contains(&word.as_str()))
    }

    /// The block of a table. False behind it if a rule of it is in terms of iptables.
    fn table(&mut self, table: &mut Table) -> bool {
        let mut is_whole = true;
        while self.goes_on() {
            let (is_chain, is_set) = (self.next_is(&["chain"]), self.next_is(&["set", "map"]));
            if is_chain {
                let head = self.head();
                let chain = self.chain();
                let is_foreign = |rule: &Rule| rule.text.split(' ').any(|word| word == "xt");
                is_whole &= !chain.rules.iter().any(is_foreign);
                let name = head.get(1).cloned().unwrap_or_default();
                table.chains.insert(name, chain);
            } else if is_set {
                let head = self.head();
                let elements = self.set();
                table
                    .sets
                    .insert(head.get(1).cloned().unwrap_or_default(), elements);
            } else if self.statement().is_empty() {
                // No listing has one there.
                self.tokens.next();
            }
        }
        is_whole
    }

    fn chain(&mut self) -> Chain {
        let mut chain = Chain::default();
        while self.goes_on() {
            let statement = self.statement();
            match statement.first() {
                None => drop(self.tokens.next()),
                Some(Token::Word(first)) if first == "type" => chain.base = Some(base(&statement)),
                Some(Token::Word(first)) if first == "policy" => {
                    if let Some(base) = &mut chain.base {
                        base.drops = statement.get(1) == Some(&Token::Word("drop".into()));
                    }
                }
                Some(_) => chain.rules.push(rule(&statement)),
            }
        }
        chain
    }

    /// The elements of a set or a map.
    fn set(&mut self) -> Vec<Element> {
        let mut elements = Vec::new();
        while self.goes_on() {
            let statement = self.statement();
            if statement.is_empty() {
                self.tokens.next();
            } else if statement.first() == Some(&Token::Word("elements".into())) {
                let mut reader = Reader::new(&statement[1..]);
                reader.take_word("=");
                elements = reader.elements();
            }
        }
        elements
    }
}

fn base(statement: &[Token]) -> Base {
    let behind = |name: &str| {
        let at = statement
            .iter()
            .position(|t| *t == Token::Word(name.into()))?;
        match statement.get(at + 1)? {
            Token::Word(word) | Token::Quoted(word) => Some(word.as_str()),
            _ => None,
        }
    };
    let hook = match behind("hook") {
        Some("ingress") => Hook::Ingress,
        Some("prerouting") => Hook::Prerouting,
        Some("input") => Hook::Input,
        Some("output") => Hook::Output,
        Some("postrouting") => Hook::Postrouting,
        Some("egress") => Hook::Egress,
        _ => Hook::Other,
    };
    let at = |name: &str| {
        statement
            .iter()
            .position(|t| *t == Token::Word(name.into()))
    };
    let devices = at("device").or(at("devices")).zip(at("priority"));
    let devices = devices.and_then(|(from, to)| statement.get(from + 1..to));
    let devices = devices
        .into_iter()
        .flatten()
        .filter_map(|token| match token {
            Token::Quoted(name) => Some(name.clone()),
            Token::Word(word) if word != "=" => Some(word.clone()),
            _ => None,
        });
    let priority = match behind("priority") {
        Some("raw") => -300,
        Some("mangle") => -150,
        Some("dstnat") => -100,
        Some("security") => 50,
        Some("srcnat") => 100,
        Some(number) => number.parse().unwrap_or(0),
        None => 0,
    };
    // Behind a name, there may be a distance from it.
    let distance = at("priority").and_then(|at| match statement.get(at + 2..at + 4)? {
        [Token::Word(sign), Token::Word(number)] => format!("{sign}{number}").parse::<i32>().ok(),
        _ => None,
    });
    Base {
        hook,
        devices: devices.collect(),
        priority: priority + distance.unwrap_or(0),
        drops: false,
    }
}

/// The tables of a listing, each with whether all of it is in nft's own words. Rules outside of tables, as a wrapper may
/// print them, count as those of a chain for input.
pub(super) fn tables(listing: &str) -> Vec<(Table, bool)> {
    let mut listing = Listing {
        tokens: tokens(listing).into_iter().peekable(),
    };
    let (mut found, mut bare) = (Vec::new(), Chain::default());
    while listing.goes_on() || listing.tokens.peek().is_some() {
        if !listing.next_is(&["table"]) {
            let statement = listing.statement();
            match statement.first() {
                None => drop(listing.tokens.next()),
                Some(Token::Word(first)) if first == "type" => bare.base = Some(base(&statement)),
                Some(Token::Word(first)) if first == "policy" => {
                    if let Some(base) = &mut bare.base {
                        base.drops = statement.get(1) == Some(&Token::Word("drop".into()));
                    }
                }
                Some(_) => bare.rules.push(rule(&statement)),
            }
            continue;
        }
        let head = listing.head();
        let family = match head.get(1).map(String::as_str) {
            Some("inet") => Family::Inet,
            Some("ip") => Family::Ip,
            Some("ip6") => Family::Ip6,
            Some("netdev") => Family::Netdev,
            Some("bridge") => Family::Bridge,
            _ => Family::Other,
        };
        let name = head.get(2).cloned().unwrap_or_default();
        let mut table = Table::new(family, &name, Keeper::Nft);
        let is_whole = listing.table(&mut table);
        found.push((table, is_whole));
    }
    if !bare.rules.is_empty() || bare.base.is_some() {
        bare.base.get_or_insert(Base {
            hook: Hook::Input,
            devices: Vec::new(),
            priority: 0,
            drops: false,
        });
        let mut table = Table::new(Family::Inet, "TABLE", Keeper::Nft);
        table.chains.insert("CHAIN".into(), bare);
        found.push((table, true));
    }
    found
}
