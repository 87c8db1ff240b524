// SPDX-License-Identifier: GPL-2.0

//! Metadata of packets, for the stack and from it.

use ipoib_sys::bindings;
use kernel::prelude::*;

pub(crate) const TCP_V4: u32 = bindings::SKB_GSO_TCPV4 as u32;
pub(crate) const TCP_V6: u32 = bindings::SKB_GSO_TCPV6 as u32;
pub(crate) const TCP_ECN: u32 = bindings::SKB_GSO_TCP_ECN as u32;
pub(crate) const UDP_L4: u32 = bindings::SKB_GSO_UDP_L4 as u32;
const ETH_P_IP: u16 = bindings::ETH_P_IP as u16;
const ETH_P_IPV6: u16 = bindings::ETH_P_IPV6 as u16;
const TCP: u8 = bindings::IPPROTO_TCP as u8;
const UDP: u8 = bindings::IPPROTO_UDP as u8;
/// Bits of an IPv4 header's field that only fragments have: the offset, and that more follow.
const IPV4_FRAGMENT: u16 = 0x3fff;
const MIN_IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const MIN_TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;
/// Offset of the byte whose upper half is a TCP header's length in words.
const TCP_DOFF: usize = 12;
const TCP_CHECK: u16 = 16;
const UDP_CHECK: u16 = 6;
/// As many datagrams as the stack makes of one (`UDP_MAX_SEGMENTS`).
const UDP_MAX_SEGMENTS: u16 = 128;

/// Kinds of segmentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4 = TCP_V4,
    /// TCP over IPv6.
    TcpV6 = TCP_V6,
    /// UDP datagrams, over either.
    Udp = UDP_L4,
}

/// How to segment a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gso {
    /// The kind of segmentation.
    pub kind: GsoKind,
    /// True if only the first TCP segment has the flag CWR.
    pub ecn: bool,
    /// Bytes of payload in a segment, but for the last.
    pub size: u16,
    /// Number of segments; one is no segmentation, but allowed.
    pub segments: u16,
}

/// Metadata of a received packet for the stack, in the two words that `helpers_skb.h` describes.
#[derive(Clone, Copy)]
pub struct Packet {
    pub(crate) link: u64,
    pub(crate) gso: u64,
}

impl Packet {
    /// A packet of a type (an EtherType, in host order) behind `strip` bytes of link headers, whose
    /// checksums are still to be verified.
    #[inline(always)]
    pub fn new(strip: u16, protocol: u16) -> Self {
        let link = u64::from(strip) << bindings::IPOIB_RS_LINK_STRIP
            | u64::from(protocol.to_be()) << bindings::IPOIB_RS_LINK_PROTOCOL;
        Self { link, gso: 0 }
    }

    /// Adds, once, a transport checksum that is yet to be computed by whoever forwards the packet: it begins at
    /// `start`, counted from the packet's first byte, and is stored at `offset`, counted
    /// from there; there stands the sum of the pseudo header. A `start` of 0 is none.
    #[inline(always)]
    pub fn with_partial(self, start: u16, offset: u16) -> Self {
        let link = self.link
            | u64::from(start) << bindings::IPOIB_RS_LINK_CSUM_START
            | u64::from(offset) << bindings::IPOIB_RS_LINK_CSUM_OFFSET;
        Self { link, ..self }
    }

    #[inline(always)]
    pub(crate) fn strip(&self) -> u16 {
        (self.link >> bindings::IPOIB_RS_LINK_STRIP) as u16
    }

    /// In host order.
    #[inline(always)]
    pub(crate) fn protocol(&self) -> u16 {
        u16::from_be((self.link >> bindings::IPOIB_RS_LINK_PROTOCOL) as u16)
    }

    #[inline(always)]
    pub(crate) fn csum_start(&self) -> u16 {
        (self.link >> bindings::IPOIB_RS_LINK_CSUM_START) as u16
    }

    #[inline(always)]
    pub(crate) fn csum_offset(&self) -> u16 {
        (self.link >> bindings::IPOIB_RS_LINK_CSUM_OFFSET) as u16
    }

    /// Returns true if the head of a message, which is all there is of it up to `head` bytes, holds the link
    /// headers and what the checksum needs.
    #[inline(always)]
    pub(crate) fn fits(&self, head: usize) -> bool {
        // Both are 0 if there is no checksum, whose bytes may be looked for all the same.
        let end = usize::from(self.csum_start()).wrapping_add(usize::from(self.csum_offset()));
        let checksum = if end > 0 { size_of::<u16>() } else { 0 };
        usize::from(self.strip())
            .wrapping_add(end)
            .wrapping_add(checksum)
            <= head
    }

    /// Adds how to segment a packet whose checksum is [partial](Self::with_partial).
    #[inline]
    pub fn with_gso(self, gso: &Gso) -> Self {
        // What fits one segment is not for the stack to segment: it would drop it.
        if gso.segments <= 1 {
            return self;
        }
        let ecn = if gso.ecn { TCP_ECN } else { 0 };
        let gso = u64::from(gso.size) << bindings::IPOIB_RS_GSO_SIZE
            | u64::from(gso.segments) << bindings::IPOIB_RS_GSO_SEGS
            | u64::from(gso.kind as u32 | ecn) << bindings::IPOIB_RS_GSO_TYPE;
        Self { gso, ..self }
    }

    pub(crate) fn gso_size(&self) -> u16 {
        (self.gso >> bindings::IPOIB_RS_GSO_SIZE) as u16
    }

    pub(crate) fn gso_segments(&self) -> u16 {
        (self.gso >> bindings::IPOIB_RS_GSO_SEGS) as u16
    }

    pub(crate) fn gso_type(&self) -> u32 {
        (self.gso >> bindings::IPOIB_RS_GSO_TYPE) as u32
    }

    /// Returns true if a message of `len` bytes, which begins with `head`, can be segmented as this says.
    ///
    /// Whoever segments a packet trusts all of it, unless the packet says that it is dodgy.
    pub(crate) fn can_be_segmented(&self, head: &[u8], len: usize) -> bool {
        let strip = usize::from(self.strip());
        let (Some(head), Some(len)) = (head.get(strip..), len.checked_sub(strip)) else {
            return false;
        };
        let protocol = self.protocol();
        let start = usize::from(self.csum_start());
        let transport = if self.gso_type() == UDP_L4 { UDP } else { TCP };
        if !has_network_header((protocol, len), head, start, transport) {
            return false;
        }
        let transport_len = if self.gso_type() == UDP_L4 {
            if self.gso_segments() > UDP_MAX_SEGMENTS || self.csum_offset() != UDP_CHECK {
                return false;
            }
            UDP_LEN
        } else {
            let is_v4 = self.gso_type() & !TCP_ECN == TCP_V4;
            let is_v6 = self.gso_type() & !TCP_ECN == TCP_V6;
            let fits = (is_v4 && protocol == ETH_P_IP) || (is_v6 && protocol == ETH_P_IPV6);
            let doff = head.get(start + TCP_DOFF).map_or(0, |byte| byte >> 4);
            if !fits || self.csum_offset() != TCP_CHECK || usize::from(doff) * 4 < MIN_TCP_LEN {
                return false;
            }
            usize::from(doff) * 4
        };
        let payload = start + transport_len;
        if payload > head.len() {
            return false;
        }
        // So many bytes fill all segments but the last, and what is left fits that. A size of
        // `u16::MAX` has a meaning of its own (`GSO_BY_FRAGS`).
        let size = usize::from(self.gso_size());
        let full = usize::from(self.gso_segments()).saturating_sub(1);
        let rest = (len - payload).checked_sub(full * size);
        self.gso_size() != u16::MAX && rest.is_some_and(|rest| 0 < rest && rest <= size)
    }
}

/// Returns true if a packet of a type and length begins with a header of that type, which says as much, behind which, at
/// `start`, there is a transport header of `transport`. It is no fragment, of which the stack would make a packet with a
/// list, nor does it have padding.
fn has_network_header(
    (protocol, len): (u16, usize),
    head: &[u8],
    start: usize,
    transport: u8,
) -> bool {
    let is = |high: u8, low: u8, len| usize::from(u16::from_be_bytes([high, low])) == len;
    match (protocol, head) {
        (ETH_P_IP, [first, _, l0, l1, _, _, f0, f1, _, next, ..]) => {
            let header = usize::from(first & 0xf).wrapping_mul(4);
            let is_whole = u16::from_be_bytes([*f0, *f1]) & IPV4_FRAGMENT == 0;
            let fits = header == start && header >= MIN_IPV4_LEN && is(*l0, *l1, len);
            first >> 4 == 4 && fits && is_whole && *next == transport
        }
        (ETH_P_IPV6, [first, _, _, _, l0, l1, next, ..]) => {
            let fits = start == IPV6_LEN && is(*l0, *l1, len.wrapping_sub(IPV6_LEN));
            first >> 4 == 6 && fits && *next == transport
        }
        _ => false,
    }
}

#[kunit_tests(rust_netdev_packet)]
mod tests {
    use super::*;

    const PAYLOAD: usize = 2500;

    /// Returns true if a packet of 2500 bytes of payload behind `head` can be segmented, as TCP or UDP.
    fn segments(protocol: u16, head: &[u8], start: u16, kind: GsoKind) -> bool {
        let offset = match kind {
            GsoKind::Udp => UDP_CHECK,
            _ => TCP_CHECK,
        };
        let gso = Gso {
            kind,
            ecn: false,
            size: 1000,
            segments: 3,
        };
        let packet = Packet::new(0, protocol)
            .with_partial(start, offset)
            .with_gso(&gso);
        packet.can_be_segmented(head, head.len() + PAYLOAD)
    }

    /// The stack finds the transport header by the network header, and the device's word is about another place.
    #[test]
    fn headers_are_what_they_are_said_to_be() {
        let mut v4 = [0u8; MIN_IPV4_LEN + MIN_TCP_LEN];
        v4[0] = 0x45;
        let len = (v4.len() + PAYLOAD) as u16;
        v4[2..4].copy_from_slice(&len.to_be_bytes());
        // It may not be cut up.
        v4[6] = 0x40;
        v4[9] = TCP;
        v4[MIN_IPV4_LEN + TCP_DOFF] = 0x50;
        assert!(segments(ETH_P_IP, &v4, 20, GsoKind::TcpV4));
        let others = [
            (0, 0x46),
            (0, 0x55),
            (0, 0x44),
            (3, 0),
            (6, 0x20),
            (7, 1),
            (9, UDP),
            (9, 0),
        ];
        for (at, byte) in others {
            let mut other = v4;
            other[at] = byte;
            assert!(!segments(ETH_P_IP, &other, 20, GsoKind::TcpV4));
        }
        assert!(!segments(ETH_P_IP, &v4, 16, GsoKind::TcpV4));
        assert!(!segments(ETH_P_IPV6, &v4, 20, GsoKind::TcpV6));
        assert!(!segments(ETH_P_IP, &v4, 20, GsoKind::TcpV6));

        let mut v6 = [0u8; IPV6_LEN + UDP_LEN];
        v6[0] = 0x60;
        let len = (UDP_LEN + PAYLOAD) as u16;
        v6[4..6].copy_from_slice(&len.to_be_bytes());
        v6[6] = UDP;
        assert!(segments(ETH_P_IPV6, &v6, 40, GsoKind::Udp));
        for (at, byte) in [(0, 0x45), (5, 0), (6, TCP), (6, 44)] {
            let mut other = v6;
            other[at] = byte;
            assert!(!segments(ETH_P_IPV6, &other, 40, GsoKind::Udp));
        }
    }
}
