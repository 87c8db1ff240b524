// SPDX-License-Identifier: GPL-2.0

//! The fabric of `ib_hwsim`: InfiniBand channel adapters and switches as rules, without any I/O.
//!
//! A channel adapter ([`Hca`]) takes management datagrams, link changes and counted packets, and
//! answers with datagrams and [`Events`]. A [`Switch`] takes packets and says by which ports they
//! leave; the management datagrams that are for itself it answers. There is no clock, no
//! allocation, no lock and no `unsafe`: the driver serialises the calls, carries the packets and
//! tells RDMA core.
//!
//! Section numbers are those of the InfiniBand Architecture Specification, volume 1, release 1.4.
//!
//! One source is compiled twice. Kbuild makes it a crate of the kernel module, where the unit
//! tests are KUnit suites; Cargo makes it a host crate, where the same unit tests run under
//! `cargo test` next to those in `tests/`.
//!
//! No input makes this code panic: datagrams come from user space and from other hosts and are
//! handled as if hostile. The lints below keep out the operations that could.

#![crate_name = "ib_fabric"]
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

mod addr;
mod addresses;
mod agents;
mod bits;
pub mod capability;
pub mod completion;
mod config;
pub mod counters;
mod discard;
pub mod event;
pub mod fault;
pub mod grh;
pub mod hca;
pub mod impair;
mod keys;
pub mod limits;
pub mod link;
pub mod mad;
mod mkey;
pub mod moderation;
mod mtu;
mod nodeinfo;
mod notice;
pub mod offload;
mod opcode;
pub mod packet;
mod pma;
pub mod port;
mod portinfo;
pub mod rc;
mod retrain;
pub mod roce;
mod settings;
mod sma;
pub mod switch;
mod tables;
mod tally;
pub mod text;
pub mod topology;
mod transition;
pub mod trap;
pub mod trunk;
pub mod ud;
pub mod wire;

pub use addr::{Gid, Guid, Lid};
pub use config::{Config, LinkLayer, SwitchConfig};
pub use config::{MAX_GIDS, MAX_GUIDS, MAX_PKEYS, MAX_PORTS, MAX_SWITCH_PORTS};
pub use counters::{Counted, LinkError, Traffic};
pub use discard::Discard;
pub use event::{Event, Events};
pub use grh::Grh;
pub use hca::{Arrival, Hca, Outcome, Verdict};
pub use keys::{PKey, QKey, Qpn};
pub use limits::{Limit, Limits};
pub use link::{LinkOffer, PhysState, PortState};
pub use mad::Mad;
pub use moderation::Moderation;
pub use mtu::Mtu;
pub use packet::{Packet, Transport};
pub use port::Port;
pub use retrain::Retrains;
pub use switch::{Forward, Managed, Memory, PortMask, Switch};
pub use tally::Tally;
pub use trap::TrapDue;
