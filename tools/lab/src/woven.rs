// SPDX-License-Identifier: GPL-2.0

//! The driver's module with numbered places, each of which tells the log when it is first reached.
//!
//! [`weave`] writes a copy of the sources that has them. There are two kinds: [`changes`], small faults that can be made,
//! where the module's parameter `mutant` names the one that is made, so that the module is built once, not once for each;
//! and [`marks`], one for each statement, which change nothing.

mod build;
mod changes;
mod marks;
mod weave;

pub(crate) use build::{Woven, build};
pub(crate) use marks::lines;
pub(crate) use weave::{Places, reached};

use std::ops::Range;

/// Stands for the condition that a change is made.
const MADE: &str = "\0";

/// Line and column of a byte of a source, as "12:5".
fn position(source: &str, at: usize) -> String {
    let before = &source[..at];
    let line = before.matches('\n').count() + 1;
    let column = at - before.rfind('\n').map_or(0, |at| at + 1) + 1;
    format!("{line}:{column}")
}

/// A piece of a source that is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    range: Range<usize>,
    text: String,
}

/// A place of a source. Text is only added around it, and operators are replaced: places can be inside one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Name, such as "12:5: replace < with <= in post".
    name: String,
    /// Bytes of the source that it changes.
    pub(crate) range: Range<usize>,
    /// Text before and after the range; the text after may be empty.
    around: [String; 2],
    /// The operator inside of it that is replaced.
    operator: Option<Edit>,
}
