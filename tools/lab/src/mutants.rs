// SPDX-License-Identifier: GPL-2.0

//! Changes of the driver's hot path, all of which are in one module at the same time.
//!
//! [`find`] finds the places in the sources at which a small change can be made, and [`weave`] writes a copy of the
//! sources that has all of them, each behind a condition: the module's parameter `mutant` names the one that is made.
//! So the module is built once, not once for each change. The module also tells the log which places were reached. [`sweep`] runs
//! the tests that reach a place with its change made.

pub(crate) mod find;
pub(crate) mod sweep;
pub(crate) mod weave;
