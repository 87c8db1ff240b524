// SPDX-License-Identifier: GPL-2.0

//! Management datagrams that RDMA core hands to a device first.

/// A management datagram of 256 bytes (IB specification, section 13.4.2), as it is on the wire.
pub type Mad = [u8; 256];

/// Source of a management datagram.
#[derive(Clone, Copy, Debug)]
pub struct MadSource {
    /// RDMA core itself asks, for sysfs, and not a subnet manager.
    pub trusted: bool,
    /// LID that it came from.
    pub slid: u16,
    /// Queue pair that it came from.
    pub src_qp: u32,
    /// Index of its P_Key.
    pub pkey_index: u16,
}

/// Decision on a management datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The datagram is none of the device's: agents of the host get it.
    Pass,
    /// The device has dealt with it, and there is no answer.
    Consume,
    /// The device has answered.
    Reply,
}
