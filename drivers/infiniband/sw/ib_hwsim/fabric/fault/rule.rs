// SPDX-License-Identifier: GPL-2.0

//! The texts of rules: a line each, of which a `#` begins a comment.

use super::cause::Errno;
use super::count::When;
use super::word::Verb;
use crate::completion::Status;
use crate::text::{number, words};

/// The longest delay, in milliseconds.
const MAX_DELAY: u32 = 60_000;

/// The most scatter/gather elements that a send queue can be given.
const MAX_ELEMENTS: u32 = 1 << 20;

words! {
    /// A direction of messages, whose requests complete.
    pub enum Direction {
        /// Requests to send.
        Send = "send",
        /// Requests to receive.
        Receive = "receive",
    }
}

words! {
    /// A quirk, which an adapter has or has not.
    pub enum Quirk {
        /// Completions are held back until this is cleared.
        Hold = "hold",
        /// A queue pair leaves the state Reset once only.
        ResetOnce = "reset_once",
        /// A completion does not say that there is a global route header.
        NoGrhFlag = "no_grh_flag",
        /// A completion says that checksums are good, whatever the capabilities are.
        ChecksumFlag = "csum_flag",
        /// No queue pair reports that it takes no more requests from its shared receive queue.
        NoLastWqe = "no_last_wqe",
        /// A port says that it has one lane, whatever its cable has.
        OneLane = "one_lane",
    }
}

words! {
    /// A quirk that has a number.
    pub enum Setting {
        /// Milliseconds that completions are late, at least; twice as many at most.
        Delay = "delay",
        /// Milliseconds after which a queue pair reports that it takes no more requests from its
        /// shared receive queue.
        LastWqeDelay = "last_wqe_delay",
        /// Milliseconds that a change of a queue pair takes, during which nobody may begin another one.
        ModifyTime = "modify_time",
        /// Scatter/gather elements that a send queue has room for, over all its requests.
        SendElements = "send_elements",
    }
}

impl Setting {
    const fn most(self) -> u32 {
        match self {
            Setting::Delay | Setting::LastWqeDelay | Setting::ModifyTime => MAX_DELAY,
            Setting::SendElements => MAX_ELEMENTS,
        }
    }
}

/// Subject of a rule: the first word of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A verb, which fails.
    Verb(Verb),
    /// Requests, which complete in error.
    Direction(Direction),
    /// A quirk.
    Quirk(Quirk),
    /// A quirk that has a number.
    Setting(Setting),
}

impl Item {
    /// Parses a word.
    pub fn parse(word: &str) -> Option<Item> {
        let verb = Verb::parse(word).map(Item::Verb);
        verb.or_else(|| Direction::parse(word).map(Item::Direction))
            .or_else(|| Quirk::parse(word).map(Item::Quirk))
            .or_else(|| Setting::parse(word).map(Item::Setting))
    }
}

/// A change of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A verb fails: `VERB ERRNO at N` or `VERB ERRNO from N`.
    Fail(Verb, Errno, When),
    /// Requests complete in error: `send STATUS at N`, `receive STATUS from N`.
    Complete(Direction, Status, When),
    /// The adapter has a quirk: its word.
    Have(Quirk),
    /// The adapter has a quirk with a number: its word, and the number.
    Set(Setting, u32),
    /// A rule ends: `clear` and its first word. Without a word, all end.
    Clear(Option<Item>),
}

impl Change {
    /// Parses a line; `None` if it is not a rule.
    pub fn parse(line: &str) -> Option<Change> {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        let change = if first == "clear" {
            let item = match words.next() {
                Some(word) => Some(Item::parse(word)?),
                None => None,
            };
            Change::Clear(item)
        } else {
            match Item::parse(first)? {
                Item::Verb(verb) => {
                    let errno = Errno::parse(words.next()?)?;
                    Change::Fail(verb, errno, When::parse(words.next()?, words.next()?)?)
                }
                Item::Direction(direction) => {
                    let failure = Status::parse(words.next()?)?;
                    if failure == Status::Success {
                        return None;
                    }
                    Change::Complete(
                        direction,
                        failure,
                        When::parse(words.next()?, words.next()?)?,
                    )
                }
                Item::Quirk(quirk) => Change::Have(quirk),
                Item::Setting(setting) => {
                    Change::Set(setting, number(words.next()?, 1..=setting.most())?)
                }
            }
        };
        words.next().is_none().then_some(change)
    }
}

/// Returns the lines of a text without comments, and without those that have nothing else.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split_once('#').map_or(line, |(rule, _)| rule))
        .filter(|line| !line.trim_ascii().is_empty())
}
