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
    not(any(test, CONFIG_KUNIT)),
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

pub mod admission;
pub mod backoff;
pub mod cm;
pub mod connection;
pub mod credit;
pub mod deadline;
pub mod drop;
pub mod ending;
pub mod extended;
pub mod flow;
pub mod fragment;
pub mod gid;
pub mod group;
pub mod header;
pub mod hwaddr;
pub mod mgid;
pub mod mtu;
pub mod multicast;
pub mod pace;
pub mod path;
pub mod patience;
pub mod pkey;
pub mod progress;
pub mod qkey;
pub mod queue;
pub mod rc;
pub mod reorder;
pub mod resolution;
pub mod rx;
pub mod seq;
pub mod share;
pub mod sizes;
pub mod source;
pub mod table;
pub mod thresholds;
pub mod ticket;
pub mod turn;
pub mod vectors;
pub mod watch;
