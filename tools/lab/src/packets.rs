// SPDX-License-Identifier: GPL-2.0

//! RoCEv2 frames and InfiniBand packets of a capture, taken apart.

use anyhow::{Result, ensure};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A UD datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Source GID as its IP address.
    pub source: IpAddr,
    /// Destination GID as its IP address; unspecified without a global route header.
    pub destination: IpAddr,
    /// Traffic class or type of service.
    pub traffic_class: u8,
    /// Flow label of the global route header; 0 for none, and in frames of Ethernet.
    pub flow_label: u32,
    /// Service level; 0 in frames of Ethernet.
    pub service_level: u8,
    /// UDP source port; 0 in an HCA's capture.
    pub source_port: u16,
    /// Destination QP number.
    pub qpn: u32,
    /// Partition key.
    pub pkey: u16,
    /// Queue key.
    pub qkey: u32,
    /// Source QP number.
    pub source_qpn: u32,
    /// From IPoIB's 4-byte header on, without padding and ICRC.
    pub payload: Vec<u8>,
}

/// A packet of a message on a reliable connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RcSend {
    /// Destination GID as its IP address.
    pub destination: IpAddr,
    /// Traffic class or type of service.
    pub traffic_class: u8,
    /// Service level; 0 in frames of Ethernet.
    pub service_level: u8,
    /// Bytes of the message that it carries, with padding.
    pub length: usize,
    /// True if it is the whole message.
    pub is_whole: bool,
    /// Destination QP number.
    pub qpn: u32,
    /// Packet sequence number.
    pub psn: u32,
}

/// IBA opcode of UD Send-only.
const UD_SEND_ONLY: u8 = 0x64;
/// The opcodes of RC Sends: first, middle, last, only, with or without immediate data.
const RC_SENDS: std::ops::RangeInclusive<u8> = 0x00..=0x05;
/// The first of those that are a whole message.
const RC_SEND_ONLY: u8 = 0x04;
/// UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
/// Bytes in front of a packet in an HCA's capture.
const ERF_HEADER: usize = 16;

fn be16(b: &[u8]) -> u16 {
    u16::from_be_bytes([b[0], b[1]])
}

fn be24(b: &[u8]) -> u32 {
    u32::from_be_bytes([0, b[0], b[1], b[2]])
}

impl Datagram {
    /// IPoIB's EtherType field.
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        be16(&self.payload)
    }

    /// IPoIB's reserved field.
    #[must_use]
    pub fn reserved(&self) -> u16 {
        be16(&self.payload[2..])
    }

    /// The UD Send in a packet, if it is one.
    #[must_use]
    pub fn parse(packet: &Packet<'_>) -> Option<Datagram> {
        // BTH is 12 bytes, DETH 8, the ICRC 4.
        let (bth, rest) = packet.transport.split_at_checked(12)?;
        let (deth, rest) = rest.split_at_checked(8)?;
        if bth[0] != UD_SEND_ONLY {
            return None;
        }
        let padding = usize::from((bth[1] >> 4) & 3);
        let payload = rest.get(..rest.len().checked_sub(4 + padding)?)?;
        // Shorter than IPoIB's header: hostile.rs sends such, nobody else.
        if payload.len() < 4 {
            return None;
        }
        Some(Datagram {
            source: packet.route.source,
            destination: packet.route.destination,
            traffic_class: packet.route.traffic_class,
            flow_label: packet.route.flow_label,
            service_level: packet.service_level,
            source_port: packet.source_port,
            pkey: be16(&bth[2..]),
            qpn: be24(&bth[5..]),
            qkey: u32::from_be_bytes(deth[..4].try_into().ok()?),
            source_qpn: be24(&deth[5..]),
            payload: payload.to_vec(),
        })
    }
}

impl RcSend {
    /// The RC Send in a packet, if it is one.
    #[must_use]
    pub fn parse(packet: &Packet<'_>) -> Option<RcSend> {
        // BTH is 12 bytes, the ICRC 4.
        let (bth, rest) = packet.transport.split_at_checked(12)?;
        RC_SENDS.contains(&bth[0]).then(|| RcSend {
            destination: packet.route.destination,
            traffic_class: packet.route.traffic_class,
            service_level: packet.service_level,
            length: rest.len().saturating_sub(4),
            is_whole: bth[0] >= RC_SEND_ONLY,
            qpn: be24(&bth[5..]),
            psn: be24(&bth[9..]),
        })
    }
}

/// The class of the IP packet in an Ethernet frame.
fn traffic_class(frame: &[u8]) -> Option<u8> {
    let ip = frame.get(14..16)?;
    Some(match ip[0] >> 4 {
        6 => (ip[0] << 4) | (ip[1] >> 4),
        _ => ip[1],
    })
}

/// Fields of a global route header, or of the IP header that stands for it.
struct Route {
    /// Source GID, and destination GID, as IP addresses; unspecified without such a header.
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    flow_label: u32,
}

impl Route {
    /// No header.
    const NONE: Route = Route {
        source: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        destination: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        traffic_class: 0,
        flow_label: 0,
    };

    /// The first 40 bytes of some.
    fn read(bytes: &[u8]) -> Option<Route> {
        let gid = |at: usize| -> Option<IpAddr> {
            let bytes = <[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?;
            Some(Ipv6Addr::from(bytes).into())
        };
        Some(Route {
            source: gid(8)?,
            destination: gid(24)?,
            traffic_class: (bytes[0] << 4) | (bytes[1] >> 4),
            flow_label: be24(&bytes[1..]) & 0xf_ffff,
        })
    }
}

/// A packet of the transport.
pub struct Packet<'a> {
    route: Route,
    /// 0 in frames of Ethernet.
    service_level: u8,
    /// 0 in an HCA's capture.
    source_port: u16,
    /// From the BTH to the ICRC.
    transport: &'a [u8],
}

impl Packet<'_> {
    /// That in a RoCEv2 frame.
    #[must_use]
    pub fn of_ethernet(frame: &[u8]) -> Option<Packet<'_>> {
        let (source, destination, udp) = udp(frame)?;
        let route = Route {
            source,
            destination,
            traffic_class: traffic_class(frame)?,
            ..Route::NONE
        };
        Some(Packet {
            route,
            service_level: 0,
            source_port: be16(udp),
            transport: udp.get(8..)?,
        })
    }

    /// That in a record of an HCA's capture.
    #[must_use]
    pub fn of_hca(record: &[u8]) -> Option<Packet<'_>> {
        // LRH is 8 bytes, GRH 40, the VCRC 2.
        let (local, rest) = record.get(ERF_HEADER..)?.split_at_checked(8)?;
        let rest = rest.get(..rest.len().checked_sub(2)?)?;
        let (route, transport) = match local[1] & 3 {
            3 => (Route::read(rest)?, rest.get(40..)?),
            2 => (Route::NONE, rest),
            _ => return None,
        };
        Some(Packet {
            route,
            service_level: local[1] >> 4,
            source_port: 0,
            transport,
        })
    }
}

/// The UDP datagram in a RoCEv2 frame, and the GIDs that it is between.
fn udp(frame: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let ip = frame.get(14..)?;
    let (source, destination, udp): (IpAddr, IpAddr, &[u8]) = match be16(frame.get(12..14)?) {
        0x86dd if *ip.get(6)? == 17 => {
            let address = |at: usize| -> Option<Ipv6Addr> {
                Some(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?.into())
            };
            (address(8)?.into(), address(24)?.into(), ip.get(40..)?)
        }
        0x0800 if *ip.get(9)? == 17 => {
            let address = |at: usize| -> Option<Ipv4Addr> {
                Some(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?.into())
            };
            let header = usize::from(ip[0] & 15) * 4;
            (address(12)?.into(), address(16)?.into(), ip.get(header..)?)
        }
        _ => return None,
    };
    let length = usize::from(be16(udp.get(4..6)?));
    let udp = udp.get(..length)?;
    if be16(udp.get(2..4)?) != ROCE_PORT {
        return None;
    }
    Some((source, destination, udp))
}

/// The frames in a pcap file.
///
/// # Errors
///
/// Bytes that are no pcap file of this byte order.
pub fn frames(pcap: &[u8]) -> Result<Vec<&[u8]>> {
    // With microseconds, or with nanoseconds.
    ensure!(
        matches!(
            pcap,
            [0xd4, 0xc3, 0xb2, 0xa1, ..] | [0x4d, 0x3c, 0xb2, 0xa1, ..]
        ),
        "no little-endian pcap file"
    );
    let mut rest = &pcap[24..];
    let mut found = Vec::new();
    while let Some(header) = rest.get(..16) {
        let length = u32::from_le_bytes(header[8..12].try_into()?) as usize;
        // The last record of a capture that was ended may be cut.
        let Some(frame) = rest.get(16..16 + length) else {
            break;
        };
        found.push(frame);
        rest = &rest[16 + length..];
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_apart() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 42, 17, 64]);
        frame.extend(
            "fe80::1"
                .parse::<Ipv6Addr>()
                .map(|a| a.octets())
                .unwrap_or_default(),
        );
        frame.extend(
            "ff12:401b:ffff::ffff:ffff"
                .parse::<Ipv6Addr>()
                .map(|a| a.octets())
                .unwrap_or_default(),
        );
        frame.extend([0xc0, 0, 0x12, 0xb7, 0, 42, 0, 0]);
        frame.extend([0x64, 0x30, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0, 0, 1]);
        frame.extend([0x80, 1, 0x0b, 0x1b, 0, 0, 0, 0x11]);
        frame.extend([8, 6, 0, 0, 1, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd]);
        frame.extend([0; 2]);
        let datagram =
            |frame: &[u8]| Packet::of_ethernet(frame).and_then(|packet| Datagram::parse(&packet));
        let send =
            |frame: &[u8]| Packet::of_ethernet(frame).and_then(|packet| RcSend::parse(&packet));
        let source_port = datagram(&frame).map(|d| d.source_port);
        assert_eq!(source_port, Some(0xc000));
        let got = datagram(&frame).map(|d| (d.qpn, d.source_qpn, d.qkey, d.pkey, d.payload));
        assert_eq!(
            got,
            Some((
                0xff_ffff,
                0x11,
                0x8001_0b1b,
                0xffff,
                vec![8, 6, 0, 0, 1, 0, 0]
            ))
        );
        assert_eq!(send(&frame), None);
        assert_eq!(datagram(&frame[..60]), None);
        frame[62] = 0x04;
        let got = send(&frame).map(|send| (send.qpn, send.psn, send.is_whole, send.length));
        assert_eq!(got, Some((0xff_ffff, 1, true, 18)));
        assert_eq!(datagram(&frame), None);
        assert_eq!(send(&frame[..70]), None);
    }

    #[test]
    fn packets_at_an_hca_are_taken_apart() {
        let transport = [0x64, 0x30, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0, 0, 1];
        let mut record = vec![0; ERF_HEADER];
        record.extend([0, 0x52, 0, 2, 0, 8, 0, 1]);
        record.extend(transport);
        record.extend([0; 8 + 8 + 4 + 2]);
        let got = Packet::of_hca(&record).and_then(|packet| Datagram::parse(&packet));
        let got = got.map(|d| (d.destination, d.qpn, d.payload.len()));
        assert_eq!(got, Some((IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0xff_ffff, 5)));
        record[ERF_HEADER + 1] = 0x53;
        let group: Ipv6Addr = "ff12:401b:ffff::1".parse().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let mut header = vec![0x62, 0x3a, 0xbc, 0xde];
        header.resize(24, 0);
        header.extend(group.octets());
        record.splice(ERF_HEADER + 8..ERF_HEADER + 8, header);
        let got = Packet::of_hca(&record).and_then(|packet| Datagram::parse(&packet));
        let got = got.map(|d| {
            let class = (d.traffic_class, d.flow_label, d.service_level);
            (d.destination, class, d.pkey)
        });
        assert_eq!(got, Some((group.into(), (0x23, 0xabcde, 5), 0xffff)));
        record[ERF_HEADER + 1] = 0x01;
        assert!(Packet::of_hca(&record).is_none());
        assert!(Packet::of_hca(&record[..20]).is_none());
    }
}
