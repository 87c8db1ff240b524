// SPDX-License-Identifier: GPL-2.0

//! Packets as bytes: examples that were written out by hand from the figures of the specification,
//! and what every packet has in common.

#[path = "wire/any.rs"]
mod any;
#[path = "wire/examples.rs"]
mod examples;
mod manager;
#[path = "wire/oracle.rs"]
mod oracle;

use any::packet;
use ib_fabric::rc::{Aeth, Bth, Nak, Op, Part, Psn, Reth, Syndrome, Tail};
use ib_fabric::wire::{parse, Head, Malformed, MAX_PACKET};
use ib_fabric::{Gid, Grh, Guid, Lid, Packet, Transport};
use proptest::prelude::*;

/// A payload whose every byte tells its place.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

/// The bytes of a run's packet `n`.
fn bytes_of(packet: &Packet, n: u32, payload: &[u8]) -> Option<Vec<u8>> {
    let head = Head::new(packet, n)?;
    // Every byte has to be written.
    let mut bytes = vec![0xee; head.len()];
    let done = head.write(&mut bytes, |from, place| {
        place.copy_from_slice(&payload[from..from + place.len()]);
        true
    });
    assert!(done);
    Some(bytes)
}

#[test]
fn examples_by_hand() {
    for (name, packet, n, payload, expected) in examples::all() {
        let bytes = bytes_of(&packet, n, &payload).expect(name);
        assert_eq!(bytes, expected, "{name}");
        let parsed = parse(&bytes).expect(name);
        assert_eq!(parsed.len, bytes.len(), "{name}");
        if packet.packets() == 1 {
            assert_eq!(parsed.packet, packet, "{name}");
            assert_eq!(bytes[parsed.payload], payload, "{name}");
        }
    }
}

const SHORT: Packet = Packet {
    len: 4,
    ..Packet::new(
        Lid::new(1),
        Lid::new(2),
        0x48,
        Transport::datagram(0x49, 0x8001_0000),
    )
};

fn with_route(packet: Packet) -> Packet {
    let gid = |guid| Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(guid));
    let grh = Grh {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 1,
        sgid: gid(1),
        dgid: gid(2),
    };
    Packet {
        grh: Some(grh),
        ..packet
    }
}

fn connected(op: Op, bytes: u32) -> Packet {
    Packet {
        len: bytes,
        transport: Transport::Rc(Bth {
            bytes,
            ..Bth::bare(Psn::new(5), op)
        }),
        ..SHORT
    }
}

/// Bytes of a packet, a place in them and what is put there, and what that is.
#[test]
fn one_wrong_byte() {
    let ack = Op::Acknowledge(Aeth {
        syndrome: Syndrome::Nak(Nak::Sequence),
        msn: 0,
    });
    let response = Op::ReadResponse { part: Part::ONLY };
    let (plain, routed) = (SHORT, with_route(SHORT));
    let (ack, response) = (connected(ack, 0), connected(response, 4));
    let management = Packet {
        management: true,
        ..SHORT
    };
    let cases = [
        (&plain, 0, 0x01, Malformed::LinkVersion),
        (&plain, 1, 0x00, Malformed::Raw),
        (&plain, 1, 0x01, Malformed::Raw),
        (&plain, 4, 0x01, Malformed::Short),
        (&plain, 5, 0x00, Malformed::PacketLength),
        (&plain, 5, 0x02, Malformed::PacketLength),
        (&plain, 5, 0x07, Malformed::PacketLength),
        (&plain, 8, 0x15, Malformed::Opcode),
        (&plain, 8, 0x18, Malformed::Opcode),
        // Unreliable connections, reliable datagrams, raw and reserved services, CNP.
        (&plain, 8, 0x24, Malformed::Opcode),
        (&plain, 8, 0x44, Malformed::Opcode),
        (&plain, 8, 0x81, Malformed::Opcode),
        (&plain, 8, 0xff, Malformed::Opcode),
        (&plain, 9, 0x41, Malformed::TransportVersion),
        (&routed, 8, 0x40, Malformed::RouteVersion),
        (&routed, 13, 0x00, Malformed::RouteLength),
        (&routed, 14, 0x11, Malformed::NextHeader),
        (&ack, 9, 0x50, Malformed::Pad),
        // ACK, reserved kind, reserved NAK, invalid RD request.
        (&ack, 20, 0x40, Malformed::Syndrome),
        (&ack, 20, 0x80, Malformed::Syndrome),
        (&ack, 20, 0x65, Malformed::Syndrome),
        (&ack, 20, 0x64, Malformed::Syndrome),
        (&response, 20, 0x20, Malformed::Syndrome),
        (&response, 20, 0x60, Malformed::Syndrome),
        (&management, 8, 0x0c, Malformed::Lane),
    ];
    for (packet, at, byte, expected) in cases {
        let mut bytes = bytes_of(packet, 0, &payload(4)).unwrap();
        assert!(parse(&bytes).is_ok());
        bytes[at] = byte;
        assert_eq!(parse(&bytes), Err(expected), "{at}: {byte:#x}");
    }
}

#[test]
fn no_payload_where_there_is_none() {
    // A READ request that is a word longer.
    let from = Reth {
        address: 0,
        key: 0,
        len: 0,
    };
    let mut bytes = bytes_of(&connected(Op::Read(from), 0), 0, &[]).unwrap();
    assert!(parse(&bytes).is_ok());
    bytes.extend([0; 4]);
    bytes[5] += 1;
    assert_eq!(parse(&bytes), Err(Malformed::Payload));
}

#[test]
fn payload_beyond_every_mtu() {
    let mut bytes = bytes_of(&Packet { len: 4096, ..SHORT }, 0, &payload(4096)).unwrap();
    assert!(parse(&bytes).is_ok());
    bytes.extend([0; 4]);
    let words = u16::from_be_bytes([bytes[4], bytes[5]]) + 1;
    bytes[4..6].copy_from_slice(&words.to_be_bytes());
    assert_eq!(parse(&bytes), Err(Malformed::PacketLength));
    assert!(Head::new(&Packet { len: 4097, ..SHORT }, 0).is_none());
}

/// Section 9.2: pad bytes fill up a payload, and do not stand alone.
#[test]
fn padding() {
    for len in 0..9 {
        let packet = Packet { len, ..SHORT };
        let bytes = bytes_of(&packet, 0, &payload(len as usize)).unwrap();
        assert_eq!(bytes.len() % 4, 2);
        assert_eq!(u32::from((bytes[9] >> 4) & 3), (4 - len % 4) % 4);
        let parsed = parse(&bytes).unwrap();
        assert_eq!(parsed.packet.len, len);
    }
}

#[test]
fn reserved_bits_do_not_count() {
    let bytes = bytes_of(&SHORT, 0, &payload(4)).unwrap();
    let expected = parse(&bytes);
    // LRH, LRH's length, BTH's FECN and BECN, BTH before the PSN, DETH; then MigReq, ICRC, VCRC.
    for (at, bits) in [
        (1, 0x0c),
        (4, 0xf8),
        (12, 0xff),
        (16, 0x7f),
        (24, 0xff),
        (9, 0x40),
        (33, 0xff),
        (37, 0xff),
    ] {
        let mut changed = bytes.clone();
        changed[at] ^= bits;
        assert_eq!(parse(&changed), expected, "{at}");
    }
}

#[test]
fn what_is_no_packet_has_no_bytes() {
    let resume = Bth {
        packets: 0,
        ..Bth::bare(Psn::new(0), Op::Resume)
    };
    let inside = Op::Send {
        part: Part {
            first: true,
            last: false,
        },
        tail: Tail::Immediate(1),
    };
    let nowhere = Op::Write {
        part: Part::ONLY,
        to: None,
        tail: Tail::Plain,
    };
    for transport in [
        Transport::Rc(resume),
        connected(inside, 4).transport,
        connected(nowhere, 4).transport,
    ] {
        let packet = Packet { transport, ..SHORT };
        assert!(Head::new(&packet, 0).is_none(), "{packet:?}");
    }
    assert!(Head::new(&SHORT, 1).is_none());
    let head = Head::new(&SHORT, 0).unwrap();
    assert!(!head.write(&mut [0; 33], |_, _| true));
    assert!(!head.write(&mut [0; MAX_PACKET], |_, _| false));
    assert!(head.write(&mut [0; 38], |_, _| true));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// A run is its packets, one after the other, with all of the payload.
    #[test]
    fn there_and_back(packet in packet()) {
        let bytes = match packet.transport {
            Transport::Rc(bth) => bth.bytes,
            Transport::Ud { .. } => packet.len,
        };
        let sent = payload(bytes as usize);
        let mut received: Vec<u8> = Vec::new();
        let mut on_wire = 0;
        for n in 0..packet.packets() {
            let bytes = bytes_of(&packet, n, &sent).unwrap();
            prop_assert!(bytes.len() <= MAX_PACKET);
            let parsed = parse(&bytes).unwrap();
            prop_assert_eq!(parsed.len, bytes.len());
            prop_assert_eq!(parsed.payload.len(), parsed.packet.len as usize);
            received.extend(&bytes[parsed.payload]);
            on_wire += bytes.len() - 2;
            let single = match packet.transport {
                Transport::Rc(bth) => Packet {
                    len: parsed.packet.len,
                    transport: Transport::Rc(bth.nth(n, packet.len).unwrap()),
                    ..packet
                },
                Transport::Ud { .. } => packet,
            };
            prop_assert_eq!(parsed.packet, single);
        }
        prop_assert_eq!(received, sent);
        prop_assert_eq!(on_wire, packet.wire_bytes() as usize);
        prop_assert!(Head::new(&packet, packet.packets()).is_none());
    }

    /// Any bytes that parse are written as a packet that parses to the same one, and do no harm
    /// to the ports that get it.
    #[test]
    fn any_bytes(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..5)) {
        let mut nodes = oracle::Nodes::new();
        for bytes in packets {
            oracle::reads_as_written(&bytes);
            nodes.take(&bytes);
        }
    }

    /// As `any_bytes`, for packets to existing LIDs and queue pairs that are truncated or have a
    /// few bytes wrong.
    #[test]
    fn changed_bytes(packets in prop::collection::vec(changed(), 1..40)) {
        let mut nodes = oracle::Nodes::new();
        for bytes in packets {
            oracle::reads_as_written(&bytes);
            nodes.take(&bytes);
        }
    }
}

/// The bytes of a packet in which a few may be wrong.
fn changed() -> impl Strategy<Value = Vec<u8>> {
    let dlid = prop::sample::select(vec![2, 3, 0xc000, 0xffff]);
    let qp = prop::sample::select(vec![0, 1, 0x48, 0xff_ffff]);
    let to = prop::option::weighted(0.8, (dlid, qp));
    let changes = prop::collection::vec((0..64usize, any::<u8>()), 0..4);
    let cut = prop_oneof![3 => Just(usize::MAX), 1 => 0..200usize];
    (packet(), to, changes, cut).prop_map(|(mut packet, to, changes, cut)| {
        if let Some((dlid, qp)) = to {
            packet.dlid = Lid::new(dlid);
            packet.dest_qp = qp;
            if qp < 2 && matches!(packet.transport, Transport::Ud { .. }) {
                packet.len = 256;
            }
        }
        let mut bytes = bytes_of(&packet, 0, &payload(70_000)).unwrap();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(cut);
        bytes
    })
}
