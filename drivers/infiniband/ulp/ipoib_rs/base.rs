// SPDX-License-Identifier: GPL-2.0

//! State that every layer reads: the port, settings, counters, and the reordering of received frames.

use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::hwaddr::HwAddr;

pub(crate) mod counters;
pub(crate) mod groups;
pub(crate) mod interface;
pub(crate) mod order;
pub(crate) mod params;
pub(crate) mod port;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod storage;
pub(crate) mod subnet;
pub(crate) mod trace;
pub(crate) mod work;

/// Bytes of the destination's address, with which the stack's frames begin.
pub(crate) const ADDR_LEN: usize = HwAddr::LEN;
/// Bytes in front of the packet in the stack's frames: the destination's address and the wire's header.
pub(crate) const HEADER_LEN: usize = ADDR_LEN + Header::LEN;

/// The link-layer header that the stack sees in front of a received packet: no address, and the wire's header with
/// nothing in its reserved field.
#[inline(always)]
pub(crate) fn link_header(ether_type: EtherType) -> [u8; HEADER_LEN] {
    let mut link = [0; HEADER_LEN];
    link[ADDR_LEN..].copy_from_slice(&Header::new(ether_type).to_bytes());
    link
}
