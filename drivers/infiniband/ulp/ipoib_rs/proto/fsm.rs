// SPDX-License-Identifier: GPL-2.0

//! State machines of the form `(state, event, now) -> actions`: paths, groups and connections.

pub mod connection;
pub mod ending;
pub mod group;
pub mod inbound;
pub mod multicast;
pub mod path;
pub mod queue;
pub mod ticket;
