// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the kernel's network device interfaces.
//!
//! A driver is a `net_device` by these, without `unsafe`: the device and its callbacks
//! ([`device`], [`ops`]), its queues ([`queue`]), link creation by netlink ([`link`]), NAPI ([`napi`]), socket buffers
//! ([`skb`], [`page_pool`], [`parts`]) and packets before they are frames ([`header`]), offloads
//! ([`features`]), ethtool ([`ethtool`]), virtual functions ([`vf`]), sysfs ([`files`]), notifiers ([`notifier`]), work that a
//! device or a module owns ([`task`]), and RTNL as a token ([`rtnl`]).
//!
//! Locks and contexts are types here: a callback that runs under RTNL gets a [`rtnl::Rtnl`], one
//! that runs under the transmit lock gets `&mut` to what that lock protects, a NAPI poll gets
//! `&mut` to its own state.

#![crate_name = "ipoib_netdev"]

pub mod address;
mod attributes;
pub mod clock;
pub mod debugfs;
pub mod device;
#[cfg(CONFIG_KUNIT = "y")]
mod dummy;
pub mod ethtool;
mod extack;
#[cfg(CONFIG_KUNIT = "y")]
pub mod faults;
pub mod features;
pub mod files;
pub mod header;
mod joined;
pub mod link;
#[cfg(CONFIG_KUNIT = "y")]
pub mod live;
pub mod log;
#[cfg(CONFIG_KUNIT = "y")]
pub mod mapper;
pub mod named;
pub mod napi;
pub mod net;
pub mod notifier;
mod ops;
mod optional;
mod own_address;
mod packet;
pub mod page_pool;
pub mod parts;
mod pool;
pub mod queue;
pub mod random;
mod raw_device;
pub mod relaxed;
pub mod rtnl;
mod sizes;
pub mod skb;
pub mod stats;
pub mod sysctl;
pub mod task;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
pub mod vf;

#[cfg(CONFIG_KUNIT = "y")]
use dummy::LocalModule;

/// The prefix of log lines, for the kernel crate's printing macros.
#[cfg(CONFIG_KUNIT = "y")]
const __LOG_PREFIX: &[u8] = b"ipoib_netdev\0";
