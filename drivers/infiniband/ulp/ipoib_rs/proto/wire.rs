// SPDX-License-Identifier: GPL-2.0

//! Formats on the wire: addresses, headers, messages, and the checks of everything that arrives.

pub mod cm;
pub mod extended;
pub mod flow_label;
pub mod fragment;
pub mod gid;
pub mod header;
pub mod hwaddr;
pub mod lso;
pub mod mgid;
pub mod mtu;
pub mod pkey;
pub mod qkey;
pub mod rc;
pub mod resolution;
pub mod rx;
pub mod subnet;
