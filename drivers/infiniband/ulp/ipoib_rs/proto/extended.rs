// SPDX-License-Identifier: GPL-2.0

//! The extended frame: a packet that crosses a connection with its checksum still to be computed, or
//! as one piece that is still to be segmented.
//!
//! It is no part of RFC 4391 or 4755, and goes only to peers that announced that they take it. Behind
//! the encapsulation header, whose EtherType is [`EtherType::EXTENDED`], stand 12 bytes, all numbers
//! big-endian:
//!
//! | octets | field |
//! |---|---|
//! | 0 | flags: [`NEEDS_CSUM`] |
//! | 1 | what to segment into: a [`GsoKind`], or 0 |
//! | 2, 3 | payload of a segment |
//! | 4, 5 | where the checksum begins, counted from the packet's first octet |
//! | 6, 7 | where it is stored, counted from there |
//! | 8, 9 | EtherType of the packet |
//! | 10, 11 | the sender's grant ([`crate::credit`]) |
//!
//! If all of it is 0 but the grant, and nothing follows, that is all there is.
//!
//! The fields mean what those of a `virtio_net_hdr` mean. A stack believes them when it segments a
//! packet or computes its checksum, so that nothing of them is believed here: they have to agree with
//! the packet's own headers, which has to be TCP or UDP directly behind IPv4 or IPv6, unfragmented and
//! of the length that the frame has.

use crate::header::EtherType;

/// The flag that says that the checksum is to be computed by whoever sends the packet on.
pub const NEEDS_CSUM: u8 = 1;

const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_LEN: usize = 8;
const MIN_TCP_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const MIN_IPV4_LEN: usize = 20;
/// Where TCP and UDP store their checksums.
const TCP_CHECK: u16 = 16;
const UDP_CHECK: u16 = 6;
/// More segments than a packet of 64 KiB with the smallest sensible payload has.
const MAX_SEGMENTS: usize = 65_535 / MIN_GSO_SIZE;
/// As many datagrams as Linux makes one packet of.
const MAX_DATAGRAMS: usize = 128;
/// A stack that segments into less has lost its way, and would be kept busy by it: the least MTU of
/// IPv4 leaves no less for TCP without options.
const MIN_GSO_SIZE: usize = 28;

/// What a packet is to be segmented into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4 = 1,
    /// TCP over IPv6.
    TcpV6 = 4,
    /// UDP datagrams, over either.
    Udp = 5,
}

/// In the same octet: only the first TCP segment has the flag CWR (RFC 3168).
const ECN: u8 = 0x80;

/// How to segment a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Into what.
    pub kind: GsoKind,
    /// Whether only the first segment has the flag CWR.
    pub ecn: bool,
    /// Octets of payload in a segment, but for the last; at least one segment is full.
    pub size: u16,
    /// Into how many.
    pub segments: u16,
}

/// Where a checksum is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// The first octet that it covers, counted from the packet's first one.
    pub start: u16,
    /// Where it is stored, counted from `start`.
    pub offset: u16,
}

/// What is known of a packet beyond its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// The packet's type: IPv4 or IPv6.
    pub ether_type: EtherType,
    /// Its checksum, if that is still to be computed.
    pub checksum: Option<PartialChecksum>,
    /// How to segment it, if that is still to be done. There is `checksum` then, too.
    pub gso: Option<Gso>,
}

/// What is wrong with an extended frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedError {
    /// It ends within its headers, or they are not all in the part that was shown.
    Short,
    /// Flags, kinds or reserved octets that nobody has defined, or that contradict each other.
    Undefined,
    /// The packet is neither TCP nor UDP directly behind IPv4 or IPv6, or a fragment.
    Protocol,
    /// The packet's headers do not say that it is as long as it is.
    Length,
    /// The checksum is not where the packet's protocol has it.
    Checksum,
    /// The packet cannot be segmented as it says.
    Segments,
}

/// The grant that a header carries.
#[inline]
pub const fn grant(header: &[u8; Extended::LEN]) -> u16 {
    u16::from_be_bytes([header[10], header[11]])
}

/// Puts a grant into a header.
#[inline]
pub fn set_grant(header: &mut [u8; Extended::LEN], grant: u16) {
    let [.., g0, g1] = header;
    [*g0, *g1] = grant.to_be_bytes();
}

/// Whether a frame carries nothing but a grant: its header, with `len` octets behind.
#[inline]
pub fn is_grant_alone(header: &[u8; Extended::LEN], len: usize) -> bool {
    let [rest @ .., _, _] = header;
    len == 0 && *rest == [0; 10]
}

/// A packet's headers, as far as they matter here.
struct Layout {
    protocol: u8,
    is_ipv4: bool,
    /// Where the transport header begins.
    transport: usize,
    /// Where its payload begins.
    payload: usize,
}

impl Extended {
    /// The length of the header in octets, without the encapsulation header.
    pub const LEN: usize = 12;

    /// Reads the header of a frame that carries a packet of `len` octets, whose headers are all in
    /// `head`.
    ///
    /// # Errors
    ///
    /// What is wrong with it; the frame is to be dropped.
    #[inline]
    pub fn parse(header: &[u8; Self::LEN], head: &[u8], len: usize) -> Result<Self, ExtendedError> {
        let [flags, kind, s0, s1, c0, c1, o0, o1, t0, t1, ..] = *header;
        let (size, start) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([c0, c1]));
        let offset = u16::from_be_bytes([o0, o1]);
        if flags & !NEEDS_CSUM != 0 {
            return Err(ExtendedError::Undefined);
        }
        let checksum = if flags & NEEDS_CSUM != 0 {
            Some(PartialChecksum { start, offset })
        } else if start != 0 || offset != 0 {
            return Err(ExtendedError::Undefined);
        } else {
            None
        };
        let this = Extended {
            ether_type: EtherType(u16::from_be_bytes([t0, t1])),
            checksum,
            gso: None,
        };
        let layout = this.check(head, len)?;
        let gso = match (kind & !ECN, kind & ECN != 0, size) {
            (0, false, 0) => return Ok(this),
            (1, ecn, _) => (GsoKind::TcpV4, ecn),
            (4, ecn, _) => (GsoKind::TcpV6, ecn),
            (5, false, _) => (GsoKind::Udp, false),
            _ => return Err(ExtendedError::Undefined),
        };
        this.segmented(&layout, gso, size, len)
    }

    /// Makes the header for a packet of `len` octets, whose headers are in `head`, with a grant of 0.
    /// What is returned is what [`Extended::parse`] accepts.
    ///
    /// # Errors
    ///
    /// What a receiver would find wrong with it: the packet has to go another way.
    #[inline]
    pub fn encode(&self, head: &[u8], len: usize) -> Result<[u8; Self::LEN], ExtendedError> {
        let layout = self.check(head, len)?;
        let (mut kind, mut size) = (0, 0);
        if let Some(gso) = self.gso {
            self.segmented(&layout, (gso.kind, gso.ecn), gso.size, len)?;
            kind = gso.kind as u8 | if gso.ecn { ECN } else { 0 };
            size = gso.size;
        }
        let (flags, start, offset) = match self.checksum {
            Some(PartialChecksum { start, offset }) => (NEEDS_CSUM, start, offset),
            None => (0, 0, 0),
        };
        let ([s0, s1], [c0, c1]) = (size.to_be_bytes(), start.to_be_bytes());
        let ([o0, o1], [t0, t1]) = (offset.to_be_bytes(), self.ether_type.0.to_be_bytes());
        Ok([flags, kind, s0, s1, c0, c1, o0, o1, t0, t1, 0, 0])
    }

    /// Whether the packet is what it says, and its checksum where it has to be.
    fn check(&self, head: &[u8], len: usize) -> Result<Layout, ExtendedError> {
        let layout = match self.ether_type {
            EtherType::IPV4 => ipv4(head, len)?,
            EtherType::IPV6 => ipv6(head, len)?,
            _ => return Err(ExtendedError::Protocol),
        };
        if let Some(PartialChecksum { start, offset }) = self.checksum {
            let wanted = if layout.protocol == TCP {
                TCP_CHECK
            } else {
                UDP_CHECK
            };
            if usize::from(start) != layout.transport || offset != wanted {
                return Err(ExtendedError::Checksum);
            }
        }
        Ok(layout)
    }

    /// Adds how to segment it, if that can be done.
    #[inline]
    fn segmented(
        self,
        layout: &Layout,
        (kind, ecn): (GsoKind, bool),
        size: u16,
        len: usize,
    ) -> Result<Self, ExtendedError> {
        let fits = match kind {
            GsoKind::TcpV4 => layout.protocol == TCP && layout.is_ipv4,
            GsoKind::TcpV6 => layout.protocol == TCP && !layout.is_ipv4,
            GsoKind::Udp => layout.protocol == UDP,
        };
        let payload = len.saturating_sub(layout.payload);
        let full = usize::from(size);
        // Every segment gets a checksum of its own.
        if !fits || self.checksum.is_none() || full < MIN_GSO_SIZE || payload < full {
            return Err(ExtendedError::Segments);
        }
        let segments = payload.div_ceil(full);
        let most = if kind == GsoKind::Udp {
            MAX_DATAGRAMS
        } else {
            MAX_SEGMENTS
        };
        if segments > most {
            return Err(ExtendedError::Segments);
        }
        let segments = u16::try_from(segments).map_err(|_| ExtendedError::Segments)?;
        Ok(Extended {
            gso: Some(Gso {
                kind,
                ecn,
                size,
                segments,
            }),
            ..self
        })
    }
}

/// RFC 791.
fn ipv4(head: &[u8], len: usize) -> Result<Layout, ExtendedError> {
    let [first, _, l0, l1, _, _, f0, f1, _, protocol, ..] = *head else {
        return Err(ExtendedError::Short);
    };
    let transport = usize::from(first & 0xf).wrapping_mul(4);
    if first >> 4 != 4 || transport < MIN_IPV4_LEN {
        return Err(ExtendedError::Protocol);
    }
    if usize::from(u16::from_be_bytes([l0, l1])) != len {
        return Err(ExtendedError::Length);
    }
    // More fragments, or not the first one.
    if u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
        return Err(ExtendedError::Protocol);
    }
    transport_layout(head, len, transport, protocol, true)
}

/// RFC 8200, without extension headers, jumbograms among them.
fn ipv6(head: &[u8], len: usize) -> Result<Layout, ExtendedError> {
    let [first, _, _, _, l0, l1, next, ..] = *head else {
        return Err(ExtendedError::Short);
    };
    if first >> 4 != 6 {
        return Err(ExtendedError::Protocol);
    }
    if usize::from(u16::from_be_bytes([l0, l1])).wrapping_add(IPV6_LEN) != len {
        return Err(ExtendedError::Length);
    }
    transport_layout(head, len, IPV6_LEN, next, false)
}

fn transport_layout(
    head: &[u8],
    len: usize,
    transport: usize,
    protocol: u8,
    is_ipv4: bool,
) -> Result<Layout, ExtendedError> {
    let header = head.get(transport..).ok_or(ExtendedError::Short)?;
    let header_len = match protocol {
        TCP => {
            let [_, _, _, _, _, _, _, _, _, _, _, _, offset, ..] = *header else {
                return Err(ExtendedError::Short);
            };
            let header_len = usize::from(offset >> 4).wrapping_mul(4);
            if header_len < MIN_TCP_LEN {
                return Err(ExtendedError::Protocol);
            }
            header_len
        }
        UDP => {
            let [_, _, _, _, l0, l1, ..] = *header else {
                return Err(ExtendedError::Short);
            };
            if usize::from(u16::from_be_bytes([l0, l1])) != len.wrapping_sub(transport) {
                return Err(ExtendedError::Length);
            }
            UDP_LEN
        }
        _ => return Err(ExtendedError::Protocol),
    };
    // The header is all there, in the part that was shown and in the packet.
    let payload = transport.wrapping_add(header_len);
    if header.len() < header_len || len < payload {
        return Err(ExtendedError::Short);
    }
    Ok(Layout {
        protocol,
        is_ipv4,
        transport,
        payload,
    })
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_extended))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const LEN: usize = 4000;

    /// A packet's headers: IPv4 with TCP.
    fn tcp_v4() -> [u8; 60] {
        let mut head = [0; 60];
        head[0] = 0x45;
        head[2..4].copy_from_slice(&(LEN as u16).to_be_bytes());
        head[6] = 0x40;
        head[9] = TCP;
        head[32] = 0x80;
        head
    }

    /// IPv6 with UDP.
    fn udp_v6() -> [u8; 48] {
        let mut head = [0; 48];
        head[0] = 0x60;
        let payload = (LEN - IPV6_LEN) as u16;
        head[4..6].copy_from_slice(&payload.to_be_bytes());
        head[6] = UDP;
        head[44..46].copy_from_slice(&payload.to_be_bytes());
        head
    }

    const TCP_V4: [u8; 12] = [1, 1, 0x05, 0xa8, 0, 20, 0, 16, 0x08, 0x00, 0, 0];
    const UDP_V6: [u8; 12] = [1, 5, 0x04, 0xb0, 0, 40, 0, 6, 0x86, 0xdd, 0, 0];

    #[test]
    fn a_tcp_packet_to_be_segmented() {
        let parsed = Extended::parse(&TCP_V4, &tcp_v4(), LEN);
        let wanted = Extended {
            ether_type: EtherType::IPV4,
            checksum: Some(PartialChecksum {
                start: 20,
                offset: 16,
            }),
            // 3948 octets behind 20 of IP and 32 of TCP.
            gso: Some(Gso {
                kind: GsoKind::TcpV4,
                ecn: false,
                size: 1448,
                segments: 3,
            }),
        };
        assert!(parsed == Ok(wanted));
        assert!(wanted.encode(&tcp_v4(), LEN) == Ok(TCP_V4));
    }

    #[test]
    fn udp_datagrams_in_one() {
        let parsed = Extended::parse(&UDP_V6, &udp_v6(), LEN);
        let gso = parsed.ok().and_then(|extended| extended.gso);
        assert!(gso.is_some_and(|gso| gso.kind == GsoKind::Udp && gso.segments == 4));
    }

    #[test]
    fn a_checksum_alone() {
        let mut header = UDP_V6;
        header[1..4].fill(0);
        let parsed = Extended::parse(&header, &udp_v6(), LEN);
        assert!(parsed.is_ok_and(|extended| extended.gso.is_none() && extended.checksum.is_some()));
        // Nor that: a packet like any other.
        header[..8].fill(0);
        let parsed = Extended::parse(&header, &udp_v6(), LEN);
        assert!(parsed.is_ok_and(|extended| extended.checksum.is_none()));
    }

    #[test]
    fn ecn_is_for_tcp() {
        let mut header = TCP_V4;
        header[1] |= ECN;
        let gso = Extended::parse(&header, &tcp_v4(), LEN)
            .ok()
            .and_then(|e| e.gso);
        assert!(gso.is_some_and(|gso| gso.ecn));
        let mut header = UDP_V6;
        header[1] |= ECN;
        assert!(Extended::parse(&header, &udp_v6(), LEN) == Err(ExtendedError::Undefined));
    }

    /// Each field of the header, made wrong.
    #[test]
    fn lies_in_the_header() {
        for (at, value, error) in [
            (0, 0, ExtendedError::Undefined),
            (0, 3, ExtendedError::Undefined),
            (1, 0, ExtendedError::Undefined),
            (1, 2, ExtendedError::Undefined),
            (1, 3, ExtendedError::Undefined),
            (1, 4, ExtendedError::Segments),
            (1, 5, ExtendedError::Segments),
            (2, 0xff, ExtendedError::Segments),
            (4, 1, ExtendedError::Checksum),
            (5, 21, ExtendedError::Checksum),
            (5, 0, ExtendedError::Checksum),
            (6, 1, ExtendedError::Checksum),
            (7, 6, ExtendedError::Checksum),
            (8, 0x86, ExtendedError::Protocol),
            (9, 0x06, ExtendedError::Protocol),
        ] {
            let mut header = TCP_V4;
            header[at] = value;
            assert!(Extended::parse(&header, &tcp_v4(), LEN) == Err(error));
        }
    }

    /// Each field of the packet that matters, made wrong.
    #[test]
    fn lies_in_the_packet() {
        for (at, value, error) in [
            (0, 0x65, ExtendedError::Protocol),
            (0, 0x44, ExtendedError::Protocol),
            (0, 0x4f, ExtendedError::Short),
            (2, 0, ExtendedError::Length),
            (3, 0, ExtendedError::Length),
            (6, 0x20, ExtendedError::Protocol),
            (7, 1, ExtendedError::Protocol),
            (9, 1, ExtendedError::Protocol),
            (9, UDP, ExtendedError::Length),
            (32, 0x40, ExtendedError::Protocol),
            (32, 0xf0, ExtendedError::Short),
        ] {
            let mut head = tcp_v4();
            head[at] = value;
            assert!(Extended::parse(&TCP_V4, &head, LEN) == Err(error));
        }
        for (at, value, error) in [
            (0, 0x45, ExtendedError::Protocol),
            (4, 0, ExtendedError::Length),
            (6, 0, ExtendedError::Protocol),
            (6, 44, ExtendedError::Protocol),
            (44, 0, ExtendedError::Length),
        ] {
            let mut head = udp_v6();
            head[at] = value;
            assert!(Extended::parse(&UDP_V6, &head, LEN) == Err(error));
        }
    }

    #[test]
    fn headers_that_are_cut_off() {
        for len in 0..52 {
            assert!(Extended::parse(&TCP_V4, &tcp_v4()[..len], LEN) == Err(ExtendedError::Short));
        }
        for len in 0..48 {
            assert!(Extended::parse(&UDP_V6, &udp_v6()[..len], LEN) == Err(ExtendedError::Short));
        }
    }

    #[test]
    fn datagrams_of_a_sensible_number() {
        // 3952 octets of payload.
        for (size, fits) in [(30u16, false), (31, true)] {
            let mut header = UDP_V6;
            header[2..4].copy_from_slice(&size.to_be_bytes());
            assert!(Extended::parse(&header, &udp_v6(), LEN).is_ok() == fits);
        }
    }

    #[test]
    fn a_grant_goes_with_any_packet_or_alone() {
        let mut header = TCP_V4;
        set_grant(&mut header, 0xfedc);
        assert!(grant(&header) == 0xfedc && grant(&TCP_V4) == 0);
        let parsed = Extended::parse(&header, &tcp_v4(), LEN);
        assert!(parsed == Extended::parse(&TCP_V4, &tcp_v4(), LEN) && parsed.is_ok());
        assert!(!is_grant_alone(&header, LEN) && !is_grant_alone(&header, 0));
        let mut header = [0; 12];
        set_grant(&mut header, 1);
        assert!(is_grant_alone(&header, 0) && !is_grant_alone(&header, 1));
        // And that is no packet.
        assert!(Extended::parse(&header, &[], 0) == Err(ExtendedError::Protocol));
    }

    /// Segments of no octets, of fewer than are worth a header, and more than there is.
    #[test]
    fn segments_of_a_sensible_size() {
        for size in [0u16, 1, 27, 3949, 65535] {
            let mut header = TCP_V4;
            header[2..4].copy_from_slice(&size.to_be_bytes());
            assert!(Extended::parse(&header, &tcp_v4(), LEN) == Err(ExtendedError::Segments));
        }
        for size in [28u16, 3948] {
            let mut header = TCP_V4;
            header[2..4].copy_from_slice(&size.to_be_bytes());
            assert!(Extended::parse(&header, &tcp_v4(), LEN).is_ok());
        }
    }
}
