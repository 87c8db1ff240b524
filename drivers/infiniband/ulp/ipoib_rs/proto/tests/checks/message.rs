// SPDX-License-Identifier: GPL-2.0

//! Checks of messages that a peer sends on a connection. The fuzz targets in `tests/fuzz` use them as well.

use ipoib_proto::extended::{is_tcp_v4, Extended, ExtendedHeader, GsoKind, TCP_V4_CHECKSUM};
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::rc::{
    credit_only, is_extended, parse, parse_tcp_v4, ExtendedMessage, Packet, EXTENDED_HEADERS,
};

const TCP_V4: Extended = Extended {
    ether_type: EtherType::IPV4,
    checksum: Some(TCP_V4_CHECKSUM),
    gso: None,
};

/// Checks that the short ways for TCP over IPv4 without options find what the long ones find.
pub(crate) fn short_ways_agree(header: ExtendedHeader, head: &[u8], len: usize) {
    let parsed = Extended::parse(header, head, len);
    let mut bytes = header.to_bytes();
    bytes[10..].fill(0);
    let compact = ExtendedHeader::from_bytes(&bytes).compact();
    let says_and_is = compact == Some(EtherType::COMPACT_TCP_V4) && is_tcp_v4(head, len);
    assert_eq!(says_and_is, parsed == Ok(TCP_V4));
    let encoded = TCP_V4.encode(head, len).ok();
    assert_eq!(ExtendedHeader::for_tcp_v4(head, len), encoded);
}

/// Checks that a frame which is accepted keeps a stack out of trouble: the checksum lies within the transport header,
/// segments are neither empty nor too many, and what was parsed encodes to the same bytes.
pub(crate) fn holds_together(header: ExtendedHeader, head: &[u8], len: usize) {
    short_ways_agree(header, head, len);
    let Ok(extended) = Extended::parse(header, head, len) else {
        return;
    };
    assert!([EtherType::IPV4, EtherType::IPV6].contains(&extended.ether_type));
    if let Some(checksum) = extended.checksum {
        let stored = usize::from(checksum.start) + usize::from(checksum.offset) + 2;
        assert!(stored <= head.len() && stored <= len);
    }
    if let Some(gso) = extended.gso {
        assert!(extended.checksum.is_some());
        assert!(gso.size >= 28 && gso.segments >= 1);
        let (full, payload) = (usize::from(gso.size), usize::from(gso.segments));
        assert!(full * (payload - 1) < len && full <= len);
        assert!(gso.kind != GsoKind::Udp || !gso.ecn);
    }
    let encoded = extended.encode(head, len).map(|e| e.to_bytes());
    // The field of the credit limit is ignored.
    let mut expected = header.to_bytes();
    expected[10..].fill(0);
    assert_eq!(encoded, Ok(expected));
}

/// Checks a message of `len` bytes that begins with `head`: its packet is all that is behind the headers.
pub(crate) fn read_one_way(head: &[u8], len: usize) {
    let tcp_v4 = parse_tcp_v4(head, len);
    if let Ok(packet) = parse(head, len) {
        assert!(!is_extended(head, true) && packet.ether_type.is_supported());
        assert_eq!(usize::from(packet.offset) + packet.len, len);
        assert!(packet.len > 0 && tcp_v4.is_none());
    }
    assert!(!is_extended(head, false));
    if !is_extended(head, true) {
        assert!(tcp_v4.is_none());
        return;
    }
    let Ok(message) = ExtendedMessage::new(head, len) else {
        assert!(tcp_v4.is_none());
        return;
    };
    if let Some(limit) = message.credit_only() {
        assert_eq!(len, EXTENDED_HEADERS);
        // Whatever the reserved field is.
        assert_eq!(head[Header::LEN..len], credit_only(limit)[Header::LEN..]);
        assert!(message.packet().is_err());
    }
    let found = message.packet().ok();
    let is_short = |found: &(Packet, Extended)| {
        found.1 == TCP_V4 && usize::from(found.0.offset) == Header::LEN
    };
    assert_eq!(found.filter(is_short).map(|found| found.0), tcp_v4);
    let Some((packet, extended)) = found else {
        return;
    };
    let offset = usize::from(packet.offset);
    assert_eq!(offset + packet.len, len);
    assert_eq!(packet.ether_type, extended.ether_type);
    let header = match offset {
        Header::LEN => compact(head),
        _ => ExtendedHeader::from_bytes(head[Header::LEN..].first_chunk().unwrap()),
    };
    holds_together(header, &head[offset..], packet.len);
}

/// The header that the EtherType of a compact frame stands for.
fn compact(head: &[u8]) -> ExtendedHeader {
    let ether_type = Header::parse(head).unwrap().ether_type;
    let header = ExtendedHeader::from_compact(ether_type).unwrap();
    assert_eq!(header.compact(), Some(ether_type));
    header
}
