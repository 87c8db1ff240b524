// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over raw Ethernet: frames of one EtherType, sent and received by a network device that
//! somebody else has made.
//!
//! An [`Interface`] is the way to send [`Frame`]s. An [`Attachment`] connects it with a network device, and gives what
//! comes there to an implementation of [`Listen`]. The device can go at any time: then the interface sends nothing
//! any more.

#![crate_name = "raw_ether"]

mod attachment;
mod frame;
mod interface;
pub mod notifier;

pub use attachment::{Attachment, Listen};
pub use frame::Frame;
pub use interface::Interface;

/// Address of an Ethernet device.
pub type Address = [u8; 6];

/// Prefix of the kernel crate's log lines.
#[allow(dead_code)]
const __LOG_PREFIX: &[u8] = b"raw_ether\0";
