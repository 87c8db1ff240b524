// SPDX-License-Identifier: GPL-2.0

//! Faults that a user gives to an adapter: verbs and completions that fail, completions that come late,
//! quirks of some hardware, and events.
//!
//! Rules are a text, a [`Table`] keeps them and counts what they are for, and an [`Order`] is an event that
//! the adapter is to report now.

mod cause;
mod count;
mod gate;
mod order;
mod rule;
mod table;
mod word;

pub use cause::Errno;
pub use count::{Count, When, MAX_CALL};
pub use gate::Gate;
pub use order::{EventName, Order, Target};
pub use rule::{Change, Direction, Item, Quirk, Setting};
pub use table::{Active, Table};
pub use word::Verb;
