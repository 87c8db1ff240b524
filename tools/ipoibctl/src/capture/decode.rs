// SPDX-License-Identifier: GPL-2.0

//! Packets taken apart: where the transport begins, and what an IPoIB frame in it says, in words.

use ipoib_proto::extended::ExtendedHeader;
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::seq::MsgId;
use serde::Serialize;

/// UDP port of RoCEv2.
pub(super) const ROCE_PORT: u16 = 4791;
/// Length of the header of a record of the extensible record format.
const ERF: usize = 16;
/// Lengths of the headers of InfiniBand: local route, global route, base transport, datagram extended transport.
const LRH: usize = 8;
const GRH: usize = 40;
const BTH: usize = 12;
const DETH: usize = 8;
/// Length of the CRC that changes on the way.
const VCRC: usize = 2;
/// Length of the invariant CRC.
const ICRC: usize = 4;
/// Opcodes: a datagram, and the messages of reliable connections.
const UD_SEND_ONLY: u8 = 0x64;
const RC_SEND_FIRST: u8 = 0x00;
const RC_SEND_MIDDLE: u8 = 0x01;
const RC_SEND_LAST: u8 = 0x02;
const RC_SEND_ONLY: u8 = 0x04;

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// An IPoIB frame that is a datagram.
    Datagram,
    /// The first packet, or the only one, of an IPoIB frame on a connection.
    Connection,
    /// Another packet of a message on a connection.
    Rest,
    /// To a queue pair of management.
    Management,
    /// Anything else, such as acknowledgements.
    Other,
}

/// A packet in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) kind: Kind,
    /// The frame has a number.
    pub(super) numbered: bool,
    /// The frame has an extended header, or an EtherType that stands for one.
    pub(super) extended: bool,
    pub(super) words: String,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn qpn(bytes: &[u8], at: usize) -> Option<u32> {
    let [a, b, c] = *bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, a, b, c]))
}

/// The transport in a RoCEv2 frame, from the BTH to the payload's end.
pub(super) fn of_ethernet(frame: &[u8]) -> Option<&[u8]> {
    let ip = frame.get(14..)?;
    let (protocol, header) = match half(frame, 12)? {
        0x86dd => (*ip.get(6)?, 40),
        0x0800 => (*ip.get(9)?, usize::from(ip.first()? & 15) * 4),
        _ => return None,
    };
    let udp = ip.get(header..)?;
    if protocol != 17 || half(udp, 2)? != ROCE_PORT {
        return None;
    }
    let length = usize::from(half(udp, 4)?);
    udp.get(8..length.checked_sub(ICRC)?)
}

/// The transport in a record of an adapter of InfiniBand.
pub(super) fn of_erf(record: &[u8]) -> Option<&[u8]> {
    let packet = record.get(ERF..)?;
    let packet = packet.get(..packet.len().checked_sub(ICRC + VCRC)?)?;
    match packet.get(1)? & 3 {
        3 => packet.get(LRH + GRH..),
        2 => packet.get(LRH..),
        _ => None,
    }
}

/// A packet, from the BTH to the payload's end; none if it is too short for its headers.
pub(super) fn packet(transport: &[u8]) -> Option<Decoded> {
    let bth = transport.get(..BTH)?;
    let (to, psn) = (qpn(bth, 5)?, qpn(bth, 9)?);
    let padding = usize::from((bth[1] >> 4) & 3);
    let end = transport.len().checked_sub(padding)?;
    let plain = |kind, words: &str| Decoded {
        kind,
        numbered: false,
        extended: false,
        words: words.to_owned(),
    };
    if to <= 1 {
        return Some(plain(Kind::Management, "management"));
    }
    let (kind, head, begin) = match bth[0] {
        UD_SEND_ONLY => {
            let from = qpn(transport, BTH + 5)?;
            (
                Kind::Datagram,
                format!("datagram from QP {from:#08x} to {to:#08x}"),
                BTH + DETH,
            )
        }
        RC_SEND_FIRST | RC_SEND_ONLY => (
            Kind::Connection,
            format!("connection to QP {to:#08x}, PSN {psn}"),
            BTH,
        ),
        RC_SEND_MIDDLE | RC_SEND_LAST => return Some(plain(Kind::Rest, "rest of a message")),
        _ => return Some(plain(Kind::Other, "other")),
    };
    let payload = transport.get(begin..end)?;
    let Ok(header) = Header::parse(payload) else {
        return Some(plain(Kind::Other, &head));
    };
    let rest = payload.get(Header::LEN..).unwrap_or_default();
    let Some((extended, what)) = frame(header.ether_type, rest) else {
        return Some(plain(Kind::Other, &head));
    };
    let number = MsgId::new(header.reserved);
    let number_words = number.map_or_else(String::new, |id| format!(", number {}", id.get()));
    Some(Decoded {
        kind,
        numbered: number.is_some(),
        extended,
        words: format!("{head}{number_words}: {what}"),
    })
}

/// Name of a payload type that the link carries.
fn name(ether_type: EtherType) -> Option<&'static str> {
    Some(match ether_type {
        EtherType::IPV4 => "IPv4",
        EtherType::IPV6 => "IPv6",
        EtherType::ARP => "ARP",
        EtherType::RARP => "RARP",
        EtherType::TIPC => "TIPC",
        _ => return None,
    })
}

/// Contents of a frame, and whether it is an extended one; none if it is no frame of IPoIB.
fn frame(ether_type: EtherType, rest: &[u8]) -> Option<(bool, String)> {
    let compact = match ether_type {
        EtherType::COMPACT_TCP_V4 => "TCP over IPv4",
        EtherType::COMPACT_TCP_V6 => "TCP over IPv6",
        EtherType::COMPACT_UDP_V4 => "UDP over IPv4",
        EtherType::COMPACT_UDP_V6 => "UDP over IPv6",
        EtherType::EXTENDED => return Some((true, extended(rest)?)),
        other => return Some((false, name(other)?.to_owned())),
    };
    Some((true, format!("{compact} without a checksum")))
}

/// An extended header in words.
fn extended(rest: &[u8]) -> Option<String> {
    let header = ExtendedHeader::from_bytes(rest.first_chunk()?);
    if let Some(limit) = header.credit_only_limit(rest.len() - ExtendedHeader::LEN) {
        return Some(format!("credit limit {limit}"));
    }
    let mut words = name(header.ether_type())?.to_owned();
    match header.checksum() {
        Ok(Some(_)) => words += " without a checksum",
        Ok(None) => {}
        Err(_) => words += " with flags that are undefined",
    }
    // The kind of segments, and the payload of one.
    let [_, kind, high, low, ..] = header.to_bytes();
    let size = u16::from_be_bytes([high, low]);
    if kind != 0 || size != 0 {
        words += &format!(", to be segmented into {size} bytes");
    }
    Some(words)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A packet of an opcode to a queue pair.
    pub(in super::super) fn transport(opcode: u8, to: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![opcode, 0, 0xff, 0xff, 0, 0, 0, to, 0x80, 0, 0, 9];
        if opcode == UD_SEND_ONLY {
            bytes.extend([0x80, 1, 0x0b, 0x1b, 0, 0, 0, 0x11]);
        }
        bytes.extend(payload);
        bytes
    }

    /// A RoCEv2 frame over IPv6 with the packet.
    pub(in super::super) fn ethernet(transport: &[u8]) -> Vec<u8> {
        let length = u16::try_from(8 + transport.len() + ICRC).expect("it is short");
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend([0; 32]);
        frame.extend([0xc0, 0, 0x12, 0xb7]);
        frame.extend(length.to_be_bytes());
        frame.extend([0; 2]);
        frame.extend(transport);
        frame.extend([0; ICRC]);
        frame
    }

    fn words(opcode: u8, payload: &[u8]) -> Option<String> {
        packet(&transport(opcode, 0x12, payload)).map(|decoded| decoded.words)
    }

    #[test]
    fn frames_are_described() {
        for (opcode, payload, expected) in [
            (
                0x64,
                &[8, 0, 0, 0, 0x45][..],
                "datagram from QP 0x000011 to 0x000012: IPv4",
            ),
            (
                0x64,
                &[8, 6, 0, 7, 0],
                "datagram from QP 0x000011 to 0x000012, number 7: ARP",
            ),
            (
                0x04,
                &[0x86, 0xdd, 1, 0, 0x60],
                "connection to QP 0x000012, PSN 9, number 256: IPv6",
            ),
            (
                0x04,
                &[1, 4, 0, 0, 0x45],
                "connection to QP 0x000012, PSN 9: UDP over IPv4 without a checksum",
            ),
            (
                0x00,
                &[1, 1, 0, 5, 1, 1, 0x0f, 0xd4, 0, 20, 0, 16, 8, 0, 0, 0, 0x45],
                "connection to QP 0x000012, PSN 9, number 5: IPv4 without a checksum, to be segmented into 4052 bytes",
            ),
            (
                0x04,
                &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 44],
                "connection to QP 0x000012, PSN 9: credit limit 44",
            ),
            (0x01, &[0; 8], "rest of a message"),
            (0x11, &[0; 4], "other"),
        ] {
            assert_eq!(words(opcode, payload).as_deref(), Some(expected));
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        let kind = |opcode, to, payload: &[u8]| {
            packet(&transport(opcode, to, payload)).map(|decoded| decoded.kind)
        };
        assert_eq!(kind(0x64, 1, &[0; 256]), Some(Kind::Management));
        assert_eq!(kind(0x64, 2, &[8, 0, 0, 0]), Some(Kind::Datagram));
        assert_eq!(kind(0x64, 2, &[9, 9, 0, 0]), Some(Kind::Other));
        assert_eq!(kind(0x64, 2, &[8]), Some(Kind::Other));
        assert_eq!(kind(0x04, 2, &[8, 0, 0, 0]), Some(Kind::Connection));
        assert_eq!(kind(0x02, 2, &[]), Some(Kind::Rest));
    }

    #[test]
    fn padding_is_no_payload() {
        // Three bytes of padding leave one: too short for a header.
        let mut bytes = transport(0x04, 2, &[8, 0, 0, 0]);
        bytes[1] = 0x30;
        assert_eq!(
            packet(&bytes).map(|decoded| decoded.kind),
            Some(Kind::Other)
        );
    }

    #[test]
    fn both_links_are_taken_apart() {
        let inner = transport(0x64, 0x12, &[8, 6, 0, 0]);
        let frame = ethernet(&inner);
        assert_eq!(of_ethernet(&frame), Some(&inner[..]));
        let mut v4 = vec![0; 12];
        v4.extend([
            8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
        ]);
        v4.extend(&frame[54..]);
        assert_eq!(of_ethernet(&v4), Some(&inner[..]));
        for (lnh, header) in [(2, 0), (3, GRH)] {
            let mut record = vec![0; ERF];
            record.extend([0, lnh, 0, 2, 0, 8, 0, 1]);
            record.resize(record.len() + header, 0);
            record.extend(&inner);
            record.extend([0; ICRC + VCRC]);
            assert_eq!(of_erf(&record), Some(&inner[..]), "{lnh}");
        }
    }

    /// Whatever comes, and wherever it is cut, there is an answer.
    #[test]
    fn cut_and_wrong_packets_are_no_panic() {
        let payload = [1, 1, 0, 5, 1, 1, 0x0f, 0xd4, 0, 20, 0, 16, 8, 0, 1, 0, 0x45];
        let frame = ethernet(&transport(0x04, 0x12, &payload));
        for end in 0..=frame.len() {
            for wrong in [0, 0xff] {
                let mut bytes = frame[..end].to_vec();
                of_ethernet(&bytes).map(packet);
                of_erf(&bytes).map(packet);
                packet(&bytes);
                if let Some(last) = bytes.last_mut() {
                    *last = wrong;
                }
                of_ethernet(&bytes).map(packet);
                of_erf(&bytes).map(packet);
                packet(&bytes);
            }
        }
    }
}
