// SPDX-License-Identifier: GPL-2.0

//! Property tests of extended frames: whatever comes, what is believed can be relied on.

use ipoib_proto::extended::{is_tcp_v4, Extended, ExtendedHeader, GsoKind, TCP_V4_CHECKSUM};
use ipoib_proto::header::EtherType;
use proptest::prelude::*;

/// Headers that are mostly right, with some bytes changed.
fn packet() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let base = (any::<bool>(), any::<bool>(), 5usize..16, 0usize..60_000);
    let changes = proptest::collection::vec((0usize..120, any::<u8>()), 0..3);
    (base, changes).prop_map(|((v4, tcp, words, payload), changes)| {
        let transport = if v4 { 20 } else { 40 };
        let header = if tcp { words * 4 } else { 8 };
        let len = transport + header + payload;
        let mut head = vec![0; transport + header];
        let body = ((len - transport) as u16).to_be_bytes();
        let protocol = if tcp { 6 } else { 17 };
        if v4 {
            head[0] = 0x45;
            head[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            head[9] = protocol;
        } else {
            head[0] = 0x60;
            head[4..6].copy_from_slice(&body);
            head[6] = protocol;
        }
        if tcp {
            head[transport + 12] = (words as u8) << 4;
        } else {
            head[transport + 4..transport + 6].copy_from_slice(&body);
        }
        for (at, value) in changes {
            if let Some(byte) = head.get_mut(at) {
                *byte = value;
            }
        }
        (head, len)
    })
}

fn header() -> impl Strategy<Value = [u8; 12]> {
    let kinds = prop_oneof![
        Just(0u8),
        Just(1),
        Just(4),
        Just(5),
        Just(0x81),
        any::<u8>()
    ];
    let starts = prop_oneof![Just(20u16), Just(40), any::<u16>()];
    let offsets = prop_oneof![Just(6u16), Just(16), any::<u16>()];
    let types = prop_oneof![Just(0x0800u16), Just(0x86dd), any::<u16>()];
    (0u8..2, kinds, any::<u16>(), starts, offsets, types).prop_map(
        |(flags, kind, size, start, offset, ether_type)| {
            let mut header = [0; 12];
            header[0] = flags;
            header[1] = kind;
            header[2..4].copy_from_slice(&size.to_be_bytes());
            header[4..6].copy_from_slice(&start.to_be_bytes());
            header[6..8].copy_from_slice(&offset.to_be_bytes());
            header[8..10].copy_from_slice(&ether_type.to_be_bytes());
            header
        },
    )
}

/// The short ways for TCP over IPv4 without options find what the long ones find.
fn agree(header: &[u8; 12], head: &[u8], len: usize) -> Result<(), TestCaseError> {
    let tcp_v4 = Extended {
        ether_type: EtherType::IPV4,
        checksum: Some(TCP_V4_CHECKSUM),
        gso: None,
    };
    let header = ExtendedHeader::from_bytes(header);
    let parsed = Extended::parse(header, head, len);
    let says_and_is = header.says_tcp_v4() && is_tcp_v4(head, len);
    prop_assert_eq!(says_and_is, parsed == Ok(tcp_v4));
    let encoded = tcp_v4.encode(head, len).ok();
    prop_assert_eq!(ExtendedHeader::for_tcp_v4(head, len), encoded);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// An accepted frame keeps a stack out of trouble: the checksum lies within the transport header,
    /// segments are neither empty nor too many, and what was parsed encodes to the same bytes.
    #[test]
    fn what_is_accepted_holds_together(header in header(), (head, len) in packet()) {
        agree(&header, &head, len)?;
        if let Ok(extended) = Extended::parse(ExtendedHeader::from_bytes(&header), &head, len) {
            prop_assert!([EtherType::IPV4, EtherType::IPV6].contains(&extended.ether_type));
            if let Some(checksum) = extended.checksum {
                let stored = usize::from(checksum.start) + usize::from(checksum.offset) + 2;
                prop_assert!(stored <= head.len() && stored <= len);
            }
            if let Some(gso) = extended.gso {
                prop_assert!(extended.checksum.is_some());
                prop_assert!(gso.size >= 28 && gso.segments >= 1);
                let (full, payload) = (usize::from(gso.size), usize::from(gso.segments));
                prop_assert!(full * (payload - 1) < len && full <= len);
                prop_assert!(gso.kind != GsoKind::Udp || !gso.ecn);
            }
            prop_assert_eq!(extended.encode(&head, len).map(ExtendedHeader::to_bytes), Ok(header));
        }
    }

    /// Noise is refused or understood, and never makes it panic.
    #[test]
    fn noise(
        header in any::<[u8; 12]>(),
        head in proptest::collection::vec(any::<u8>(), 0..200),
        len in any::<usize>(),
    ) {
        agree(&header, &head, len)?;
    }
}
