// SPDX-License-Identifier: GPL-2.0

//! Histories: hosts on a simulated fabric, and what happens to them, in simulated time.
//!
//! A [`Plan`] says all that a history depends on. [`draw`] makes one from a seed, [`shrink`] makes one that fails smaller,
//! and the program of this crate, the first process of a guest, plays one.

mod asked;
pub mod draw;
pub mod plan;
pub mod shrink;

pub use plan::Plan;
