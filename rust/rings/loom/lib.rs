// SPDX-License-Identifier: GPL-2.0

//! The sources of `ipoib_rings` on the atomics of loom, for `tests/`.

#![crate_name = "ipoib_rings_loom"]

mod cell;

#[path = "../deferred.rs"]
pub mod deferred;
#[path = "../generations.rs"]
pub mod generations;
#[path = "../line.rs"]
pub mod line;
#[path = "../quiet.rs"]
pub mod quiet;
#[path = "../ring.rs"]
pub mod ring;
#[path = "../unsent.rs"]
pub mod unsent;

#[path = "../atomics.rs"]
mod atomics;
use loom::sync::atomic;
#[path = "../ops.rs"]
mod ops;

/// The atomics, and cells that two threads share.
pub mod sync {
    pub use crate::atomics::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
    pub use crate::cell::Cell;
    pub use crate::ops::{Add, Ops};
}
