// SPDX-License-Identifier: GPL-2.0

//! Property tests of extended frames: whatever comes, what is believed can be relied on.

#[path = "checks/message.rs"]
mod message;

use ipoib_proto::extended::ExtendedHeader;
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// An accepted frame keeps a stack out of trouble: the checksum lies within the transport header,
    /// segments are neither empty nor too many, and what was parsed encodes to the same bytes.
    #[test]
    fn what_is_accepted_holds_together(header in header(), (head, len) in packet()) {
        message::holds_together(ExtendedHeader::from_bytes(&header), &head, len);
    }

    /// A message with such headers is read one way by all parsers, whatever EtherType it begins with.
    #[test]
    fn messages_are_read_one_way(
        header in header(),
        (head, len) in packet(),
        ether_type in prop_oneof![5 => 0x0101u16..0x0106, 1 => any::<u16>()],
    ) {
        let mut bytes = ether_type.to_be_bytes().to_vec();
        bytes.extend([0, 9]);
        if ether_type == EtherType::EXTENDED.0 {
            bytes.extend(header);
        }
        let len = bytes.len() + len;
        bytes.extend(head);
        message::read_one_way(&bytes, len);
    }

    /// Noise is refused or understood, and never makes it panic.
    #[test]
    fn noise(
        header in any::<[u8; 12]>(),
        head in proptest::collection::vec(any::<u8>(), 0..200),
        len in any::<usize>(),
    ) {
        message::short_ways_agree(ExtendedHeader::from_bytes(&header), &head, len);
        message::read_one_way(&head, len);
    }
}
