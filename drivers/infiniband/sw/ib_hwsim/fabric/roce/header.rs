// SPDX-License-Identifier: GPL-2.0

//! The headers of IP and UDP in front of a packet of RoCE v2, which a global route header stands for.

use crate::addr::Gid;
use crate::grh::Grh;
use crate::offload::Sum;

/// Bytes of a UDP header.
const UDP: u16 = 8;

/// Bytes of an IPv4 header.
const IPV4: u16 = 20;

/// The place of an IPv4 header in the bytes that a receive request gets.
const IPV4_AT: usize = Grh::LEN - IPV4 as usize;

/// The protocol number of UDP.
const PROTOCOL: u8 = 17;

/// The 96 bits in front of an IPv4 address in a GID (RFC 4291, section 2.5.5.2).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The header of IP as a receive request gets it: 40 bytes, of which IPv4 has the last 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version.
    pub network: Network,
    /// The bytes in wire order.
    pub bytes: [u8; Grh::LEN],
}

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// Returns the bytes in front of the base transport header, from the Ethernet header on.
pub(crate) fn route_bytes(grh: &Grh) -> u32 {
    let ip = match (ipv4(&grh.sgid), ipv4(&grh.dgid)) {
        (Some(_), Some(_)) => IPV4.into(),
        _ => Grh::LEN as u32,
    };
    ETHERNET.wrapping_add(ip).wrapping_add(UDP.into())
}

/// Returns the IPv4 address in a GID, if that is one.
fn ipv4(gid: &Gid) -> Option<[u8; 4]> {
    let (prefix, address) = gid.bytes().split_at(MAPPED.len());
    (*prefix == MAPPED).then_some(address)?.try_into().ok()
}

/// Returns true if a GID names a multicast group of IPv6 or IPv4.
pub(crate) fn is_group(gid: &Gid) -> bool {
    gid.is_multicast() || ipv4(gid).is_some_and(|[first, ..]| first & 0xf0 == 0xe0)
}

impl Header {
    /// Makes the header in front of `following` bytes from the base transport header to the ICRC.
    pub fn new(grh: &Grh, following: u16) -> Header {
        let following = following.saturating_add(UDP);
        match (ipv4(&grh.sgid), ipv4(&grh.dgid)) {
            (Some(from), Some(to)) => Header::v4(grh, from, to, following),
            _ => Header {
                network: Network::V6,
                bytes: grh.write_as(PROTOCOL, following),
            },
        }
    }

    fn v4(grh: &Grh, from: [u8; 4], to: [u8; 4], following: u16) -> Header {
        let [high, low] = following.saturating_add(IPV4).to_be_bytes();
        let [s0, s1, s2, s3] = from;
        let [d0, d1, d2, d3] = to;
        // Version and length, no identification, and not to be fragmented.
        let without_sum = [
            0x45,
            grh.traffic_class,
            high,
            low,
            0,
            0,
            0x40,
            0,
            grh.hop_limit,
            PROTOCOL,
            0,
            0,
            s0,
            s1,
            s2,
            s3,
            d0,
            d1,
            d2,
            d3,
        ];
        let mut sum = Sum::new();
        sum.add(&without_sum);
        let mut bytes = [0; Grh::LEN];
        let (_, header) = bytes.split_at_mut(IPV4_AT);
        header.copy_from_slice(&without_sum);
        if let [.., first, second, _, _, _, _, _, _, _, _] = header {
            [*first, *second] = sum.checksum().to_be_bytes();
        }
        Header {
            network: Network::V4,
            bytes,
        }
    }
}
