// SPDX-License-Identifier: GPL-2.0

//! Received datagrams, and counts of receives that brought none.

use ipoib_netdev::page_pool::FilledBuf;
use ipoib_sys::bindings;
use kernel::ffi::c_int;

/// The first 40 bytes of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkHeader {
    /// A GRH of InfiniBand or RoCEv1.
    Grh,
    /// 20 undefined bytes and an IPv4 header.
    Ipv4,
    /// An IPv6 header, which has the layout of a GRH.
    Ipv6,
    /// Not known from the completion; on InfiniBand, a GRH.
    Unknown,
}

/// A datagram that was received.
#[must_use]
pub struct Received<'a, const LEAD: usize> {
    /// [`NetworkHeader`], 40 bytes, and the payload. The length is the device's word, and may be less than 40.
    pub buf: FilledBuf<LEAD>,
    /// The device's word on it.
    pub completion: Completion<'a>,
}

/// Receives the datagrams of a poll.
pub trait Receive<const LEAD: usize> {
    /// The poll begins, with so many completions.
    #[inline(always)]
    fn begin(&mut self, _completions: usize) {}

    /// Receives a datagram.
    fn receive(&mut self, datagram: Received<'_, LEAD>);
}

impl<const LEAD: usize, F: FnMut(Received<'_, LEAD>)> Receive<LEAD> for F {
    fn receive(&mut self, datagram: Received<'_, LEAD>) {
        self(datagram);
    }
}

/// The completion of a datagram that was received.
#[derive(Clone, Copy)]
pub struct Completion<'a>(&'a bindings::ib_wc);

/// Network headers by `enum rdma_network_type`.
const NETWORK_HEADERS: [NetworkHeader; 4] = {
    let mut headers = [NetworkHeader::Unknown; 4];
    headers[bindings::rdma_network_type_RDMA_NETWORK_IB as usize] = NetworkHeader::Grh;
    headers[bindings::rdma_network_type_RDMA_NETWORK_ROCE_V1 as usize] = NetworkHeader::Grh;
    headers[bindings::rdma_network_type_RDMA_NETWORK_IPV4 as usize] = NetworkHeader::Ipv4;
    headers[bindings::rdma_network_type_RDMA_NETWORK_IPV6 as usize] = NetworkHeader::Ipv6;
    headers
};

impl<'a, const LEAD: usize> Received<'a, LEAD> {
    #[inline(always)]
    pub(super) fn new(buf: FilledBuf<LEAD>, wc: &'a bindings::ib_wc) -> Self {
        Self {
            buf,
            completion: Completion(wc),
        }
    }
}

impl Completion<'_> {
    /// The number of the queue pair that sent it, as the sender says.
    #[inline]
    pub fn src_qp(&self) -> u32 {
        self.0.src_qp
    }

    /// The LID of the port that sent it, on InfiniBand.
    #[inline]
    pub fn slid(&self) -> u16 {
        // Without extensions, LIDs have 16 bits.
        self.0.slid as u16
    }

    /// The network header, as the device says; None if there is none.
    #[inline]
    pub fn network(&self) -> Option<NetworkHeader> {
        if self.0.wc_flags & WC_GRH == 0 {
            return None;
        }
        if self.0.wc_flags & WC_NETWORK == 0 {
            return Some(NetworkHeader::Unknown);
        }
        let header = NETWORK_HEADERS.get(usize::from(self.0.network_hdr_type));
        Some(header.copied().unwrap_or(NetworkHeader::Unknown))
    }

    /// Returns true if the device has verified the checksums of the IP datagram.
    #[inline]
    pub fn csum_ok(&self) -> bool {
        self.0.wc_flags & WC_CSUM_OK != 0
    }
}

/// Counts of receives that failed or were refused.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReceiveReport {
    /// Datagrams dropped because there was no memory for a new buffer.
    pub no_buffer: u32,
    /// Messages longer than their buffer, as the device says.
    pub malformed: u32,
    /// Receives that failed.
    pub errors: u32,
    /// Receives flushed by a queue pair in error. Those of a shared receive queue are posted again, others are
    /// not.
    pub flushed: u32,
    /// Completions that name no posted request; they are ignored.
    pub unknown: u32,
    /// Messages that came when the ring was being emptied, which were dropped.
    pub stopped: u32,
    /// Times that the device refused to take receives. They are posted again by the next poll, which the caller has to
    /// schedule: if the device has no others, no completion will.
    pub refused: u32,
    /// True if a count is not 0.
    some: bool,
}

impl ReceiveReport {
    /// Takes the counts since the last call; as a rule, there are none.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Self> {
        self.some.then(|| core::mem::take(self))
    }

    /// Counts a rare event, out of line.
    #[cold]
    #[inline(never)]
    pub(crate) fn count(&mut self, event: impl FnOnce(&mut Self) -> &mut u32) {
        self.some = true;
        let counter = event(self);
        *counter = counter.wrapping_add(1);
    }
}

const WC_GRH: c_int = bindings::ib_wc_flags_IB_WC_GRH as c_int;
const WC_CSUM_OK: c_int = bindings::ib_wc_flags_IB_WC_IP_CSUM_OK as c_int;
const WC_NETWORK: c_int = bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE as c_int;
