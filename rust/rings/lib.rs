// SPDX-License-Identifier: GPL-2.0

//! The lock-free parts of the RDMA layer, without any RDMA in them.
//!
//! A ring between one producer and one consumer ([`ring`]); generations of receive buffers ([`generations`]), and who
//! has which ([`shares`]); a completion queue that need not be polled ([`quiet`]); a list of values to be dropped, and
//! its users ([`deferred`]). Nothing here sleeps, allocates or calls out.
//!
//! One source is compiled three times, with three modules of atomics. Kbuild makes it a crate of
//! the kernel module, with the kernel's atomics. Cargo makes it a host crate, which is tested
//! against models in `tests/`. In `loom/`, Cargo makes it a crate whose atomics are those of loom,
//! and runs all interleavings of small cases.

#![crate_name = "ipoib_rings"]
// Kbuild passes `no_std` on the command line, and a second attribute would be an unused one.
#![cfg_attr(not(CONFIG_RUST), no_std)]

mod cell;
pub mod deferred;
pub mod generations;
pub mod line;
mod ops;
pub mod quiet;
pub mod ring;
pub mod shares;
pub mod unsent;

/// The atomics, and cells that two threads share.
pub mod sync {
    pub use crate::atomics::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
    pub use crate::cell::Cell;
    pub use crate::ops::{Add, Ops};
}

#[cfg(CONFIG_RUST)]
#[path = "atomics_kernel.rs"]
mod atomics;

#[cfg(not(CONFIG_RUST))]
mod atomics;
#[cfg(not(CONFIG_RUST))]
use core::sync::atomic;
