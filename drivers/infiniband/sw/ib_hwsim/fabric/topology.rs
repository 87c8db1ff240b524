// SPDX-License-Identifier: GPL-2.0

//! A topology as its user describes it: the texts, the constants of nodes and cables, and the
//! checks that all of it can be.
//!
//! Nodes and cables have names. Those of nodes are unique among the adapters and switches of a
//! fabric, since an end of a cable has nothing else to name its node by.

mod check;
mod plan;
mod text;

pub use check::{check_cable, check_fabric, check_node, Fault};
pub use plan::{CablePlan, CableSetting, Netdevs, NodeKind, NodePlan, NodeSetting};
pub use text::{guid, mtu, Device, End, Ends, FarEnd, Name, Speed, Width, MAX_NAME};
