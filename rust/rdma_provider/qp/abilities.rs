// SPDX-License-Identifier: GPL-2.0

//! Abilities of queue pairs.

/// Abilities that a queue pair was made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// The queue pair does not hear what it sends to a multicast group.
    pub(crate) block_loopback: bool,
    /// Checksums of IP datagrams are computed and checked.
    pub(crate) checksum: bool,
    /// Bytes of payload that one request can have segmented; 0 if none can.
    pub(crate) lso: u32,
}
