// SPDX-License-Identifier: GPL-2.0

//! Configuration: the `net_device`, its life, and every interface of the kernel that changes them.
//!
//! Process context, most of it under RTNL.

pub(crate) mod adapters;
mod answers;
pub(crate) mod changes;
pub(crate) mod children;
pub(crate) mod connect;
pub(crate) mod connected;
pub(crate) mod debugfs;
mod disconnect;
mod files;
mod functions;
pub(crate) mod health;
pub(crate) mod lifecycle;
#[cfg(CONFIG_KUNIT = "y")]
mod live;
mod members;
pub(crate) mod netdev;
pub(crate) mod netlink;
pub(crate) mod ports;
pub(crate) mod resolve;
mod subnet;
mod sysctl;
pub(crate) mod verbs;
