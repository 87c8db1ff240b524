// SPDX-License-Identifier: GPL-2.0

//! The protocol core of `ipoib_rs`: IP over InfiniBand (RFC 4391) without any I/O.
//!
//! Everything here is a pure function or a state machine of the form
//! `(state, event, now) -> actions`. There is no clock, no allocation, no lock and no `unsafe`:
//! the driver passes time in, provides the storage and carries out the actions.
//!
//! One source is compiled twice. Kbuild makes it a crate of the kernel module, where the unit
//! tests are KUnit suites; Cargo makes it a host crate, where the same unit tests run under
//! `cargo test` next to the property tests in `tests/`.
//!
//! No input makes this code panic: bytes from the wire, numbers from a device and arguments from
//! user space are all handled as if hostile. The lints below keep out the operations that could.

#![crate_name = "ipoib_proto"]
// Kbuild passes `no_std` on the command line, and a second attribute would be an unused one.
#![cfg_attr(not(CONFIG_RUST), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(test, CONFIG_KUNIT = "y")),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

#[macro_use]
mod fmt;

pub mod drop;
pub mod flow;
pub mod fsm;
pub mod seq;
pub mod table;
pub mod text;
pub mod wire;

// Users name the modules without the directories, which are the order of imports: `fsm` imports from `flow`
// and `seq`, all of them from `table` and `wire`, and these from `drop`, never the other way.
pub use flow::{
    admission, backlog, backoff, credit, pace, path_mtus, places, rest, sizes, stall, thresholds,
    turn, vectors,
};
pub use fsm::{connection, ending, group, inbound, multicast, path, queue, ticket};
pub use seq::{deadline, reorder, source};
pub use wire::{
    cm, extended, flow_label, fragment, gid, header, hwaddr, lso, mgid, mtu, pkey, qkey, rc,
    resolution, rx, subnet,
};
