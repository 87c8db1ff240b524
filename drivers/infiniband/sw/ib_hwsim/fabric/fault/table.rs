// SPDX-License-Identifier: GPL-2.0

//! The rules of an adapter.

use core::fmt::{self, Write};

use super::cause::Errno;
use super::count::{Count, When};
use super::rule::{lines, Change, Direction, Item, Quirk, Setting};
use super::word::Verb;
use crate::completion::Status;

/// A rule that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule<C> {
    cause: C,
    count: Count,
}

impl<C: Copy> Rule<C> {
    const fn new(cause: C, when: When) -> Rule<C> {
        Rule {
            cause,
            count: Count::new(when),
        }
    }

    /// Counts a call. Returns how it fails, if it does.
    fn call(&mut self) -> Option<C> {
        self.count.call().then_some(self.cause)
    }
}

/// Kinds of rules that there are: nobody has to ask for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Active {
    /// There is a rule for a verb.
    pub verbs: bool,
    /// There is a rule for requests that complete.
    pub completions: bool,
    /// There is a quirk, with a number or without.
    pub quirks: bool,
    /// Completions are held back, or late.
    pub gate: bool,
}

/// The rules of an adapter, one for each item at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    verbs: [Option<Rule<Errno>>; Verb::COUNT],
    directions: [Option<Rule<Status>>; 2],
    quirks: [bool; Quirk::ALL.len()],
    settings: [Option<u32>; Setting::ALL.len()],
}

impl Table {
    /// Makes a table without rules.
    pub const fn new() -> Table {
        Table {
            verbs: [None; Verb::COUNT],
            directions: [None; 2],
            quirks: [false; Quirk::ALL.len()],
            settings: [None; Setting::ALL.len()],
        }
    }

    /// Takes a text of rules, a line each, which replace those for the same items and begin to count.
    ///
    /// `None`, and no change, if it has none, or a line is not one.
    pub fn change(&mut self, text: &str) -> Option<()> {
        let mut any = false;
        for line in lines(text) {
            Change::parse(line)?;
            any = true;
        }
        for change in lines(text).filter_map(Change::parse) {
            self.apply(change);
        }
        any.then_some(())
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Fail(verb, errno, when) => {
                put(&mut self.verbs, verb as usize, Some(Rule::new(errno, when)));
            }
            Change::Complete(direction, failure, when) => {
                put(
                    &mut self.directions,
                    direction as usize,
                    Some(Rule::new(failure, when)),
                );
            }
            Change::Have(quirk) => put(&mut self.quirks, quirk as usize, true),
            Change::Set(setting, number) => {
                put(&mut self.settings, setting as usize, Some(number));
            }
            Change::Clear(None) => *self = Table::new(),
            Change::Clear(Some(Item::Verb(verb))) => put(&mut self.verbs, verb as usize, None),
            Change::Clear(Some(Item::Direction(direction))) => {
                put(&mut self.directions, direction as usize, None)
            }
            Change::Clear(Some(Item::Quirk(quirk))) => {
                put(&mut self.quirks, quirk as usize, false);
            }
            Change::Clear(Some(Item::Setting(setting))) => {
                put(&mut self.settings, setting as usize, None);
            }
        }
    }

    /// Prints the rules in the syntax that is parsed, each with its counts in a comment; no newline at the end.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn print(&self, out: &mut dyn Write) -> fmt::Result {
        let mut end = "";
        let verbs = Verb::ALL.iter().zip(&self.verbs);
        for (verb, rule) in verbs.filter_map(|(verb, rule)| Some((verb, rule.as_ref()?))) {
            write!(out, "{end}{verb} {} {}", rule.cause, rule.count)?;
            end = "\n";
        }
        let directions = Direction::ALL.iter().zip(&self.directions);
        for (direction, rule) in
            directions.filter_map(|(direction, rule)| Some((direction, rule.as_ref()?)))
        {
            write!(out, "{end}{direction} {} {}", rule.cause, rule.count)?;
            end = "\n";
        }
        for (quirk, _) in Quirk::ALL.iter().zip(&self.quirks).filter(|(_, has)| **has) {
            write!(out, "{end}{quirk}")?;
            end = "\n";
        }
        for (setting, number) in Setting::ALL.iter().zip(&self.settings) {
            if let Some(number) = number {
                write!(out, "{end}{setting} {number}")?;
                end = "\n";
            }
        }
        Ok(())
    }

    /// Returns the kinds of rules that there are.
    pub fn active(&self) -> Active {
        let gate = self.has(Quirk::Hold) || self.number(Setting::Delay).is_some();
        Active {
            verbs: self.verbs.iter().any(Option::is_some),
            completions: self.directions.iter().any(Option::is_some),
            quirks: self.quirks.contains(&true) || self.settings.iter().any(Option::is_some),
            gate,
        }
    }

    /// Counts a call of a verb. Returns its error, if it is to fail.
    pub fn call(&mut self, verb: Verb) -> Option<Errno> {
        self.verbs.get_mut(verb as usize)?.as_mut()?.call()
    }

    /// Counts a request that completes. Returns its status, if it is to fail.
    pub fn complete(&mut self, direction: Direction) -> Option<Status> {
        self.directions
            .get_mut(direction as usize)?
            .as_mut()?
            .call()
    }

    /// Returns whether the adapter has a quirk.
    pub fn has(&self, quirk: Quirk) -> bool {
        self.quirks.get(quirk as usize) == Some(&true)
    }

    /// Returns the number of a quirk that the adapter has.
    pub fn number(&self, setting: Setting) -> Option<u32> {
        *self.settings.get(setting as usize)?
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

fn put<T>(list: &mut [T], at: usize, value: T) {
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}
