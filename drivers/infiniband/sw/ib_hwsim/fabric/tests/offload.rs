// SPDX-License-Identifier: GPL-2.0

//! Checksums and segmentation against a plain computation: frames are built from scratch, one byte after the other, and
//! every checksum is computed over a copy of what RFC 768, 791, 2460 and 9293 say it is over.

use ib_fabric::offload::{Checksums, Segments, Sum, HEAD};
use proptest::prelude::*;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The checksum of RFC 1071, as its definition says.
fn naive(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for (place, &byte) in bytes.iter().enumerate() {
        sum += u64::from(byte) * if place % 2 == 0 { 256 } else { 1 };
    }
    while sum > 0xffff {
        sum = sum % 0x10000 + sum / 0x10000;
    }
    !(sum as u16)
}

/// A frame, whose checksums are right.
#[derive(Clone, Debug)]
struct Plain {
    v6: bool,
    source: [u8; 16],
    destination: [u8; 16],
    /// Whole words.
    options: Vec<u8>,
    id: u16,
    fragment: u16,
    protocol: u8,
    sequence: u32,
    flags: u8,
    /// Whole words.
    tcp_options: Vec<u8>,
    payload: Vec<u8>,
}

impl Plain {
    fn transport(&self) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 0xab, 0xcd];
        match self.protocol {
            TCP => {
                bytes.extend(self.sequence.to_be_bytes());
                bytes.extend([9, 8, 7, 6]);
                bytes.push(((20 + self.tcp_options.len()) / 4 * 16) as u8);
                bytes.extend([self.flags, 0x20, 0x21, 0, 0, 0, 0]);
                bytes.extend(&self.tcp_options);
            }
            UDP => {
                bytes.extend((8 + self.payload.len() as u16).to_be_bytes());
                bytes.extend([0, 0]);
            }
            _ => {}
        }
        bytes.extend(&self.payload);
        let mut pseudo = Vec::new();
        let address = if self.v6 { 16 } else { 4 };
        pseudo.extend(&self.source[..address]);
        pseudo.extend(&self.destination[..address]);
        if self.v6 {
            pseudo.extend((bytes.len() as u32).to_be_bytes());
            pseudo.extend([0, 0, 0, self.protocol]);
        } else {
            pseudo.extend([0, self.protocol]);
            pseudo.extend((bytes.len() as u16).to_be_bytes());
        }
        pseudo.extend(&bytes);
        let checksum = naive(&pseudo);
        match self.protocol {
            TCP => bytes[16..18].copy_from_slice(&checksum.to_be_bytes()),
            UDP if checksum == 0 => bytes[6..8].fill(0xff),
            UDP => bytes[6..8].copy_from_slice(&checksum.to_be_bytes()),
            _ => {}
        }
        bytes
    }

    fn bytes(&self) -> Vec<u8> {
        let transport = self.transport();
        let mut ip = Vec::new();
        if self.v6 {
            ip.extend([0x60, 1, 2, 3]);
            ip.extend((transport.len() as u16).to_be_bytes());
            ip.extend([self.protocol, 64]);
            ip.extend(self.source);
            ip.extend(self.destination);
        } else {
            let header = 20 + self.options.len();
            ip.extend([0x40 | (header / 4) as u8, 3]);
            ip.extend(((header + transport.len()) as u16).to_be_bytes());
            ip.extend(self.id.to_be_bytes());
            ip.extend(self.fragment.to_be_bytes());
            ip.extend([64, self.protocol, 0, 0]);
            ip.extend(&self.source[..4]);
            ip.extend(&self.destination[..4]);
            ip.extend(&self.options);
            let checksum = naive(&ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        let mut frame = if self.v6 {
            vec![0x86, 0xdd, 0, 0]
        } else {
            vec![8, 0, 0, 0]
        };
        frame.extend(ip);
        frame.extend(transport);
        frame
    }

    /// Where the header of IP ends in the frame.
    fn transport_at(&self) -> usize {
        4 + if self.v6 { 40 } else { 20 + self.options.len() }
    }

    /// Where in the frame the checksum of the transport is.
    fn field(&self) -> std::ops::Range<usize> {
        let at = self.transport_at() + if self.protocol == TCP { 16 } else { 6 };
        at..at + 2
    }
}

/// Whole words of options.
fn options() -> impl Strategy<Value = Vec<u8>> {
    (0..=10usize).prop_flat_map(|words| proptest::collection::vec(any::<u8>(), words * 4))
}

fn plain(protocol: impl Strategy<Value = u8>) -> impl Strategy<Value = Plain> {
    let addresses = (any::<bool>(), any::<[u8; 16]>(), any::<[u8; 16]>());
    let ip = (options(), any::<u16>(), protocol);
    let tcp = (any::<u32>(), any::<u8>(), options());
    let payload = proptest::collection::vec(any::<u8>(), 0..600);
    (addresses, ip, tcp, payload).prop_map(
        |(
            (v6, source, destination),
            (options, id, protocol),
            (sequence, flags, tcp_options),
            payload,
        )| {
            Plain {
                v6,
                source,
                destination,
                options,
                id,
                fragment: 0x4000,
                protocol,
                sequence,
                flags,
                tcp_options,
                payload,
            }
        },
    )
}

fn example(protocol: u8) -> Plain {
    Plain {
        v6: false,
        source: [192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        destination: [192, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        options: Vec::new(),
        id: 0xfffe,
        fragment: 0,
        protocol,
        sequence: 0xffff_ff00,
        flags: 0,
        tcp_options: Vec::new(),
        payload: b"payload".to_vec(),
    }
}

/// Adds what is behind the head to a sum, in blocks.
fn add_rest(sum: &mut Sum, frame: &[u8], rest: usize, blocks: &[usize]) {
    let mut bytes = &frame[frame.len().min(HEAD)..][..rest];
    for &block in blocks {
        let (first, others) = bytes.split_at(block.min(bytes.len()));
        sum.add(first);
        bytes = others;
    }
    sum.add(bytes);
}

/// Does what an adapter does as it sends.
fn fill(frame: &mut [u8], blocks: &[usize]) {
    let len = frame.len();
    let copy = frame.to_vec();
    let head = &mut frame[..len.min(HEAD)];
    if let Some(checksums) = Checksums::find(head, len) {
        let mut sum = checksums.begin(head);
        add_rest(&mut sum, &copy, checksums.rest(), blocks);
        checksums.fill(head, &sum);
    }
}

/// Does what an adapter does as it receives.
fn is_right(frame: &[u8]) -> bool {
    let head = &frame[..frame.len().min(HEAD)];
    let Some(checksums) = Checksums::find(head, frame.len()) else {
        return false;
    };
    checksums.check(head).is_some_and(|mut sum| {
        add_rest(&mut sum, frame, checksums.rest(), &[]);
        sum.is_right()
    })
}

proptest! {
    /// Whatever was in the fields, and in whatever blocks the payload lies, the checksums are those of the plain
    /// computation, and nothing else has changed.
    #[test]
    fn checksums_are_filled_in(
        plain in plain(prop_oneof![Just(TCP), Just(UDP)]),
        garbage in any::<[u8; 2]>(),
        blocks in proptest::collection::vec(0usize..100, 0..8),
        padding in 0usize..5,
    ) {
        let mut expected = plain.bytes();
        expected.resize(expected.len() + padding, 0xa5);
        let mut frame = expected.clone();
        frame[plain.field()].copy_from_slice(&garbage);
        if !plain.v6 {
            frame[14..16].copy_from_slice(&garbage);
        }
        fill(&mut frame, &blocks);
        prop_assert_eq!(frame, expected);
    }

    /// A frame whose checksums are right is one, and none is that differs in a bit that they are over.
    #[test]
    fn damage_is_seen(
        plain in plain(prop_oneof![Just(TCP), Just(UDP)]),
        place in any::<prop::sample::Index>(),
        bit in 0u32..8,
    ) {
        let mut frame = plain.bytes();
        prop_assert!(is_right(&frame));
        // Of IPv6, the header is checked in part: its addresses, its length and the protocol.
        let at = 4 + place.index(frame.len() - 4);
        let unchecked = plain.v6 && (at == 4 && bit < 4 || (5..8).contains(&at) || at == 11);
        frame[at] ^= 1 << bit;
        prop_assert_eq!(is_right(&frame), unchecked);
    }

    /// Other protocols, fragments and other frames have no checksum that is filled in or checked, but for that of
    /// IPv4's header.
    #[test]
    fn others_are_left_alone(mut plain in plain(any::<u8>()), fragment in 1u16..0x4000) {
        let known = plain.protocol == TCP || plain.protocol == UDP;
        if known {
            plain.v6 = false;
            plain.fragment = fragment;
        }
        let expected = plain.bytes();
        let mut frame = expected.clone();
        fill(&mut frame, &[]);
        prop_assert_eq!(&frame, &expected);
        prop_assert!(!is_right(&frame));
        if !plain.v6 {
            frame[14] ^= 0xff;
            fill(&mut frame, &[]);
            prop_assert_eq!(&frame, &expected);
        }
    }

    /// Any bytes, of any length: nothing panics, and what is right by the one way is right by the other.
    #[test]
    fn hostile_frames(
        mut frame in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 0u8..4,
        length in 0u16..320,
        protocol in prop_oneof![Just(TCP), Just(UDP), any::<u8>()],
    ) {
        let header: &[(usize, u8)] = match kind {
            0 => &[(0, 8), (1, 0), (4, 0x45), (10, 0), (11, 0)],
            1 => &[(0, 8), (1, 0), (4, 0x4f), (10, 0), (11, 0)],
            2 => &[(0, 0x86), (1, 0xdd), (4, 0x60)],
            _ => &[],
        };
        let [high, low] = length.to_be_bytes();
        let places = if kind == 2 {
            [(8, high), (9, low), (10, protocol)]
        } else {
            [(6, high), (7, low), (13, protocol)]
        };
        for &(place, byte) in header.iter().chain(&places) {
            if let Some(at) = frame.get_mut(place) {
                *at = byte;
            }
        }
        let _ = is_right(&frame);
        let before = frame.clone();
        fill(&mut frame, &[1, 2, 3]);
        prop_assert_eq!(frame.len(), before.len());
        let changed = frame.iter().zip(&before).filter(|(one, other)| one != other).count();
        prop_assert!(changed <= 4, "{changed} bytes changed");
        if is_right(&before) {
            // A sum can be written in two ways.
            prop_assert!(is_right(&frame));
        }
        let mss = usize::from(length);
        if let Some(segments) = Segments::new(&before[..before.len().min(HEAD)], mss, 1000) {
            let mut header = before[..before.len().min(HEAD)].to_vec();
            segments.write(segments.count() / 2, &mut header);
        }
    }

    /// Segments are the frames that a host would have made of each part, and nothing of the payload is missing.
    #[test]
    fn segments_are_those_of_a_host(
        plain in plain(Just(TCP)),
        mss in 1usize..400,
        garbage in any::<[u8; 2]>(),
        lengths in any::<[u8; 2]>(),
    ) {
        let whole = plain.bytes();
        let header = plain.transport_at() + 20 + plain.tcp_options.len();
        // Neither length nor checksums of the template count.
        let mut template = whole[..header].to_vec();
        template[plain.field()].copy_from_slice(&garbage);
        let length = if plain.v6 { 8 } else { 6 };
        template[length..length + 2].copy_from_slice(&lengths);
        let segments = Segments::new(&template, mss, plain.payload.len()).unwrap();
        let chunks: Vec<&[u8]> = match plain.payload.len() {
            0 => vec![&[]],
            _ => plain.payload.chunks(mss).collect(),
        };
        prop_assert_eq!(segments.count(), chunks.len());
        prop_assert_eq!(segments.range(chunks.len()), None);
        let mut sequence = plain.sequence;
        for (index, chunk) in chunks.iter().enumerate() {
            let range = segments.range(index).unwrap();
            prop_assert_eq!(&plain.payload[range], *chunk);
            let mut frame = template.clone();
            segments.write(index, &mut frame);
            frame.extend(*chunk);
            fill(&mut frame, &[]);
            let mut flags = plain.flags;
            if index > 0 {
                flags &= !0x80;
            }
            if index + 1 < chunks.len() {
                flags &= !0x09;
            }
            let expected = Plain {
                sequence,
                flags,
                id: plain.id.wrapping_add(index as u16),
                payload: chunk.to_vec(),
                ..plain.clone()
            };
            prop_assert_eq!(frame, expected.bytes(), "segment {}", index);
            sequence = sequence.wrapping_add(chunk.len() as u32);
        }
    }
}

#[test]
fn udp_without_a_checksum_is_not_checked() {
    let mut frame = example(UDP).bytes();
    assert!(is_right(&frame));
    frame[30..32].fill(0);
    assert!(!is_right(&frame));
}

#[test]
fn udp_has_no_checksum_of_zero() {
    let mut plain = example(UDP);
    plain.payload = vec![0; 2];
    let bytes = plain.bytes();
    // With this for a payload, the sum is 0xffff.
    let checksum = u16::from_be_bytes([bytes[30], bytes[31]]);
    plain.payload = checksum.to_be_bytes().to_vec();
    let expected = plain.bytes();
    assert_eq!(expected[30..32], [0xff, 0xff]);
    let mut frame = expected.clone();
    frame[30..32].fill(0);
    fill(&mut frame, &[]);
    assert_eq!(frame, expected);
    assert!(is_right(&frame));
    // Of the same sum, but there is none.
    frame[30..32].fill(0);
    assert!(!is_right(&frame));
}

#[test]
fn lengths_that_do_not_fit() {
    let good = example(TCP).bytes();
    let len = good.len();
    assert!(is_right(&good));
    // A byte less than the datagram says, and more.
    assert!(Checksums::find(&good[..len - 1], len - 1).is_none());
    assert!(Checksums::find(&good, len + 100).is_some());
    // A datagram of less than its header, and a header of less than one.
    for (place, byte) in [(7, 19), (4, 0x44), (4, 0x65), (0, 9)] {
        let mut frame = good.clone();
        frame[place] = byte;
        assert!(Checksums::find(&frame, len).is_none(), "{place}");
    }
    // Less than the header of TCP.
    let mut frame = good.clone();
    frame[7] = 20 + 19;
    assert!(!is_right(&frame));
    // UDP that is longer than the datagram, or has not all of its header.
    for length in [7, 16] {
        let mut frame = example(UDP).bytes();
        frame[29] = length;
        assert!(!is_right(&frame), "{length}");
    }
}

#[test]
fn templates_that_cannot_be() {
    let plain = example(TCP);
    let good = &plain.bytes()[..44];
    let possible = |template: &[u8], mss, payload| Segments::new(template, mss, payload).is_some();
    assert!(possible(good, 1000, 64000));
    assert!(possible(good, 65535 - 40, 1 << 18));
    assert!(!possible(good, 65535 - 39, 1 << 18));
    assert!(possible(good, 70000, 65535 - 40));
    assert!(!possible(good, 0, 1000));
    for len in 0..44 {
        assert!(!possible(&good[..len], 1000, 64000), "{len}");
    }
    // A byte of payload in the template; UDP; a fragment; 24 bytes of TCP; ARP.
    assert!(!possible(&plain.bytes()[..45], 1000, 64000));
    for (place, byte) in [(13, UDP), (10, 0x20), (36, 0x60), (36, 0x40), (1, 6)] {
        let mut template = good.to_vec();
        template[place] = byte;
        assert!(!possible(&template, 1000, 64000), "{place}");
    }
    let mut last = good.to_vec();
    let segments = Segments::new(good, 10, 25).unwrap();
    segments.write(3, &mut last);
    assert_eq!(last, good, "there is no such segment");
}
