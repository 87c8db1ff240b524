// SPDX-License-Identifier: GPL-2.0

//! Property tests of fragmentation: what is put together again is what there was.

#[path = "checks/packet.rs"]
mod checks;

use checks::{checksum, header_len};
use ipoib_proto::fragment::{split, Fragment};
use proptest::prelude::*;

const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

fn option() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(vec![1]),
        (2u8.., prop::collection::vec(any::<u8>(), 0..10)).prop_map(|(kind, data)| {
            let mut option = vec![kind, data.len() as u8 + 2];
            option.extend(data);
            option
        }),
    ]
}

fn options() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(option(), 0..6).prop_filter("no room", |options| {
        options.iter().map(Vec::len).sum::<usize>() <= 40
    })
}

fn packet(options: &[Vec<u8>], place: u16, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut options = options.concat();
    options.resize(options.len().next_multiple_of(4), 0);
    let len = 20 + options.len();
    let mut packet = vec![0x40 | (len / 4) as u8, 0xb8];
    packet.extend(((len + payload.len()) as u16).to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(place.to_be_bytes());
    packet.extend([64, 17, 0, 0, 192, 0, 2, 1, 233, 252, 0, 1]);
    packet.extend(options);
    let check = checksum(&packet);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend(payload);
    packet
}

/// The fragment as it goes on the wire.
fn on_the_wire(packet: &[u8], fragment: &Fragment) -> Vec<u8> {
    let mut bytes = fragment.header.as_bytes().to_vec();
    bytes.extend(&packet[fragment.offset..fragment.offset + fragment.len]);
    bytes
}

fn place(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[6], packet[7]])
}

/// RFC 791, section 3.2: what a receiver does. Gives the payload and whether it is complete.
fn reassemble(fragments: &[Vec<u8>], from: usize) -> Option<(Vec<u8>, bool)> {
    let mut sorted: Vec<_> = fragments.iter().collect();
    sorted.sort_by_key(|fragment| place(fragment) & OFFSET);
    let mut payload = Vec::new();
    let mut complete = false;
    for fragment in sorted {
        let at = usize::from(place(fragment) & OFFSET) * 8;
        if complete || at != from + payload.len() {
            return None;
        }
        payload.extend(&fragment[header_len(fragment)..]);
        complete = place(fragment) & MORE_FRAGMENTS == 0;
    }
    Some((payload, complete))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn is_put_together_again(
        options in options(),
        payload in prop::collection::vec(any::<u8>(), 0..5000),
        id: u16,
        reserved: bool,
        base in 0u16..1000,
        more: bool,
        mtu in 68usize..2100,
        again in 68usize..2100,
    ) {
        let mut payload = payload;
        if more {
            payload.truncate(payload.len() / 8 * 8);
        }
        let mut start = base | (u16::from(reserved) << 15);
        if more {
            start |= MORE_FRAGMENTS;
        }
        let original = packet(&options, start, id, &payload);

        // As two routers would do it.
        let mut fragments = Vec::new();
        for fragment in split(&original, original.len(), mtu, false).unwrap() {
            let fragment = on_the_wire(&original, &fragment);
            prop_assert!(fragment.len() <= mtu);
            for part in split(&fragment, fragment.len(), again, false).unwrap() {
                fragments.push(on_the_wire(&fragment, &part));
            }
        }

        for (number, fragment) in fragments.iter().enumerate() {
            let header = &fragment[..header_len(fragment)];
            prop_assert!(fragment.len() <= again.min(mtu));
            prop_assert_eq!(checksum(header), 0);
            prop_assert_eq!(usize::from(u16::from_be_bytes([header[2], header[3]])), fragment.len());
            prop_assert_eq!((header[1], &header[4..6]), (original[1], &original[4..6]));
            prop_assert_eq!((&header[8..10], &header[12..20]), (&original[8..10], &original[12..20]));
            prop_assert_eq!(place(fragment) & 0xc000, start & 0xc000);
            let mut expected: Vec<u8> = if number == 0 {
                options.concat()
            } else {
                options.iter().filter(|option| option[0] & 0x80 != 0).flatten().copied().collect()
            };
            expected.resize(expected.len().next_multiple_of(4), 0);
            prop_assert_eq!(&header[20..], &expected);
        }
        let (put_together, complete) = reassemble(&fragments, usize::from(base) * 8).unwrap();
        prop_assert_eq!(put_together, payload);
        prop_assert_eq!(complete, !more);
    }

    /// The longest packets, to where offsets end.
    #[test]
    fn the_longest(len in 60_000usize..=65_515, mtu in 68usize..65_535) {
        let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let original = packet(&[], 0, 1, &payload);
        let fragments: Vec<_> = split(&original, original.len(), mtu, false)
            .unwrap()
            .map(|fragment| on_the_wire(&original, &fragment))
            .collect();
        prop_assert_eq!(reassemble(&fragments, 0), Some((payload, true)));
    }

    /// Whatever it is given: no panic, nothing beyond the packet, no more than the MTU, and an end.
    #[test]
    fn hostile(
        mut head in prop::collection::vec(any::<u8>(), 0..80),
        sane: bool,
        ignore_df: bool,
        len in 0usize..70_000,
        mtu in 0usize..70_000,
    ) {
        if sane && head.len() >= 20 {
            head[0] = 0x40 | (head[0] & 0xf).max(5);
            head[6] &= 0x3f;
            head[10..12].fill(0);
            let end = header_len(&head).min(head.len()) & !1;
            let check = checksum(&head[..end]);
            head[10..12].copy_from_slice(&check.to_be_bytes());
        }
        checks::is_split(&head, len, mtu, ignore_df);
        checks::is_segmented(&head, len, mtu);
    }
}
