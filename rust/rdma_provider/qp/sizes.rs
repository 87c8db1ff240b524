// SPDX-License-Identifier: GPL-2.0

//! Sizes and abilities of queue pairs.

/// Sizes of a queue pair's queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Send requests.
    pub(crate) sends: usize,
    /// Receive requests.
    pub(crate) receives: usize,
    /// Elements of a send request.
    pub(crate) send_sges: usize,
    /// Elements of a receive request.
    pub(crate) receive_sges: usize,
    /// Bytes that a send request can have in itself.
    pub(crate) inline_data: usize,
}

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
