// SPDX-License-Identifier: GPL-2.0

//! Checks of packets that an interface sends, and that a stranger may have made: this host may be a router. The fuzz targets
//! in `tests/fuzz` use them as well.

use ipoib_proto::fragment::{is_allowed, split};
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::lso::{self, headers_len, segmentable};
use ipoib_proto::resolution::is_resolution;

/// The checksum of RFC 1071, written down as that has it.
pub(crate) fn checksum(header: &[u8]) -> u16 {
    let mut sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The length of the header of an IPv4 packet, as that says.
pub(crate) fn header_len(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0xf) * 4
}

/// Checks that fragments have nothing from beyond the packet and no more than the MTU, and that they come to an end.
pub(crate) fn is_split(head: &[u8], len: usize, mtu: usize, ignore_df: bool) {
    let Ok(fragments) = split(head, len, mtu, ignore_df) else {
        return;
    };
    let (mut bytes, mut count) = (0, 0);
    let offset =
        |header: &[u8]| usize::from(u16::from_be_bytes([header[6], header[7]]) & 0x1fff) * 8;
    for fragment in fragments {
        assert!(fragment.offset + fragment.len <= len);
        assert!(fragment.header.len() + fragment.len <= mtu);
        let header = fragment.header.as_bytes();
        assert_eq!(checksum(header), 0);
        assert_eq!(offset(header), offset(head) + bytes);
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        assert_eq!(total, header.len() + fragment.len);
        bytes += fragment.len;
        count += 1;
    }
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    assert_eq!(bytes, total - header_len(head));
    assert!(count == 1 || is_allowed(EtherType::IPV4, head, ignore_df));
}

/// Checks that a device is asked only for frames whose headers it has, and that a packet of resolution is none of these.
pub(crate) fn is_segmented(frame: &[u8], size: usize, max: usize) {
    let headers = headers_len(frame);
    if let Some(len) = headers {
        let least = Header::LEN + 20 + 20;
        assert!((least..=lso::MAX_HEADERS).contains(&len) && len <= frame.len());
        assert_eq!(headers_len(&frame[..len]), Some(len));
        assert_eq!(headers_len(&frame[..len - 1]), None);
        let header = Header::parse(frame).unwrap();
        assert!(!is_resolution(header.ether_type, &frame[Header::LEN..]));
    }
    let fits = headers.filter(|len| len.checked_add(size).is_some_and(|all| all <= max));
    assert_eq!(segmentable(frame, size, max), fits);
}
