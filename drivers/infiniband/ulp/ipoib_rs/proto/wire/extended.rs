// SPDX-License-Identifier: GPL-2.0

//! The extended frame: a packet that crosses a connection with its checksum still to be computed, or
//! as one piece that is still to be segmented.
//!
//! It is no part of RFC 4391 or 4755, and goes only to peers that announced that they take it. Behind
//! the encapsulation header, whose EtherType is [`EtherType::EXTENDED`], stand 12 bytes, all numbers
//! big-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | flags: [`NEEDS_CSUM`] |
//! | 1 | what to segment into: a [`GsoKind`], or 0 |
//! | 2, 3 | payload of a segment |
//! | 4, 5 | where the checksum begins, counted from the packet's first byte |
//! | 6, 7 | where it is stored, counted from there |
//! | 8, 9 | EtherType of the packet |
//! | 10, 11 | 0, or a credit limit ([`crate::flow::credit`]) |
//!
//! A message in which all else is 0, with nothing behind it, advertises a credit limit. It goes the other way than packets:
//! from the end that was asked for the connection to the end that sends by it. In the header of a packet, receivers ignore
//! the field.
//!
//! If they would say no more than that the checksum of TCP or UDP, directly behind IPv6 or IPv4 without options, is still
//! to be computed, the *compact form* leaves the 12 bytes out, and the EtherType says so: [`EtherType::COMPACT_TCP_V4`]
//! and the three that follow.
//!
//! The fields are those of a `virtio_net_hdr`. A stack trusts them when it segments a packet or computes its
//! checksum, so that nothing is trusted here: they have to agree with the packet's own headers. The packet
//! has to be TCP or UDP directly behind IPv4 or IPv6, unfragmented and of the length that the frame has.

use crate::wire::header::EtherType;

mod header;

pub use header::ExtendedHeader;

/// Flag: the checksum is still to be computed, by whoever sends the packet on.
pub const NEEDS_CSUM: u8 = 1;

const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_LEN: usize = 8;
const MIN_TCP_LEN: usize = 20;
/// Offset of the byte whose upper half is the length of TCP's header in words.
const TCP_DOFF: usize = 12;
/// Of IPv4's flags and offset: more fragments, or not the first one.
const FRAGMENT: u16 = 0x3fff;
const IPV6_LEN: usize = 40;
const MIN_IPV4_LEN: usize = 20;
/// Offsets of the checksums of TCP and UDP.
const TCP_CHECK: u16 = 16;
const UDP_CHECK: u16 = 6;
/// Bits of the first 8 bytes of an IPv4 header that [`is_tcp_v4`] checks: version, header length, total length, fragment
/// bits.
const IPV4_CHECKED: u64 = 0xff00_ffff_0000_0000 | FRAGMENT as u64;
/// Version 4 and a header of 20 bytes, in place.
const IPV4_VERSION: u64 = 0x45 << 56;
/// As many datagrams as Linux makes one packet of.
pub const MAX_DATAGRAMS: usize = 128;
/// The least payload of a segment: the least MTU of IPv4 leaves as much for TCP without options. Smaller
/// segments would only keep a stack busy.
const MIN_GSO_SIZE: usize = 28;

/// Kind of segments that a packet is to be split into.
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

/// In the same byte: only the first TCP segment has the flag CWR (RFC 3168).
const ECN: u8 = 0x80;

/// How to segment a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Kind of its segments.
    pub kind: GsoKind,
    /// True if only the first segment has the flag CWR.
    pub ecn: bool,
    /// Bytes of payload in a segment, but for the last; at least one segment is full.
    pub size: u16,
    /// Number of segments.
    pub segments: u16,
}

/// A checksum that is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// The first byte that it covers, counted from the packet's first one.
    pub start: u16,
    /// Offset of the checksum, counted from `start`.
    pub offset: u16,
}

/// The checksum of TCP behind IPv4 without options.
pub const TCP_V4_CHECKSUM: PartialChecksum = PartialChecksum {
    start: MIN_IPV4_LEN as u16,
    offset: TCP_CHECK,
};

/// Metadata of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// The packet's type: IPv4 or IPv6.
    pub ether_type: EtherType,
    /// The checksum, if that is still to be computed.
    pub checksum: Option<PartialChecksum>,
    /// How to segment it, if that is still to be done. There is `checksum` then, too.
    pub gso: Option<Gso>,
}

/// Error in an extended frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedError {
    /// The packet ends within its headers, or they are not all in the part that was shown.
    Short,
    /// Flags, kinds or reserved bytes that are undefined, or that contradict each other.
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

/// Layout of a packet's headers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Layout {
    protocol: u8,
    is_ipv4: bool,
    /// Offset of the transport header.
    transport: usize,
    /// Offset of the payload.
    payload: usize,
}

impl Extended {
    /// Reads the metadata in the header of a frame that carries a packet of `len` bytes, whose headers
    /// are all in `head`.
    ///
    /// # Errors
    ///
    /// See [`ExtendedError`]; the frame is to be dropped.
    pub fn parse(header: ExtendedHeader, head: &[u8], len: usize) -> Result<Self, ExtendedError> {
        let (ether_type, checksum) = (header.ether_type(), header.checksum()?);
        let layout = check(ether_type, checksum, head, len)?;
        let gso = if header.is_large() {
            let (kind, size) = (header.kind(), header.size());
            Some(read_gso(kind, size, checksum.is_some(), layout, len)?)
        } else {
            None
        };
        Ok(Extended {
            ether_type,
            checksum,
            gso,
        })
    }

    /// Makes the header for a packet of `len` bytes, whose headers are in `head`. [`Extended::parse`] accepts it.
    ///
    /// # Errors
    ///
    /// The error that a receiver would find: the packet has to go another way.
    pub fn encode(&self, head: &[u8], len: usize) -> Result<ExtendedHeader, ExtendedError> {
        let layout = check(self.ether_type, self.checksum, head, len)?;
        let mut header = ExtendedHeader::new(self.ether_type, self.checksum);
        if let Some(gso) = self.gso {
            segments(&gso, self.checksum.is_some(), layout, len)?;
            let kind = gso.kind as u8 | if gso.ecn { ECN } else { 0 };
            header.front |= (u64::from(kind) << 48) | (u64::from(gso.size) << 32);
        }
        Ok(header)
    }
}

impl ExtendedHeader {
    /// The header of most packets: TCP over IPv4 without options, with a checksum to be computed, and not to
    /// be segmented.
    const TCP_V4: Self = Self::new(EtherType::IPV4, Some(TCP_V4_CHECKSUM));
    const TCP_V6: Self = Self::partial(EtherType::IPV6, IPV6_LEN, TCP_CHECK);
    const UDP_V4: Self = Self::partial(EtherType::IPV4, MIN_IPV4_LEN, UDP_CHECK);
    const UDP_V6: Self = Self::partial(EtherType::IPV6, IPV6_LEN, UDP_CHECK);

    const fn partial(ether_type: EtherType, transport: usize, offset: u16) -> Self {
        let start = transport as u16;
        Self::new(ether_type, Some(PartialChecksum { start, offset }))
    }

    /// The EtherType that stands for this header in the compact form.
    #[inline(always)]
    pub const fn compact(self) -> Option<EtherType> {
        match self {
            Self::TCP_V4 => Some(EtherType::COMPACT_TCP_V4),
            Self::TCP_V6 => Some(EtherType::COMPACT_TCP_V6),
            Self::UDP_V4 => Some(EtherType::COMPACT_UDP_V4),
            Self::UDP_V6 => Some(EtherType::COMPACT_UDP_V6),
            _ => None,
        }
    }

    /// The header for which an EtherType stands in the compact form.
    pub const fn from_compact(ether_type: EtherType) -> Option<Self> {
        match ether_type {
            EtherType::COMPACT_TCP_V4 => Some(Self::TCP_V4),
            EtherType::COMPACT_TCP_V6 => Some(Self::TCP_V6),
            EtherType::COMPACT_UDP_V4 => Some(Self::UDP_V4),
            EtherType::COMPACT_UDP_V6 => Some(Self::UDP_V6),
            _ => None,
        }
    }

    /// Makes the header for a packet of `len` bytes, whose headers are in `head`, if it is such a one, as
    /// [`Extended::encode`] would.
    #[inline(always)]
    pub fn for_tcp_v4(head: &[u8], len: usize) -> Option<Self> {
        is_tcp_v4(head, len).then_some(Self::TCP_V4)
    }
}

/// Returns true if a packet is TCP over IPv4 without options, and would pass [`check`].
#[inline(always)]
pub fn is_tcp_v4(head: &[u8], len: usize) -> bool {
    let Some(headers) = head.first_chunk::<{ MIN_IPV4_LEN + MIN_TCP_LEN }>() else {
        return false;
    };
    let Some((front, [_, TCP, ..])) = headers.split_first_chunk() else {
        return false;
    };
    // As one number, which is read at once: version and length of the header, packet's length, flags and offset.
    // Bits of the other fields are cleared, and what must be there is made the packet's length alone.
    let front = (u64::from_be_bytes(*front) & IPV4_CHECKED) ^ IPV4_VERSION;
    if front.rotate_right(32) != len as u64 {
        return false;
    }
    let payload = usize::from(headers[MIN_IPV4_LEN + TCP_DOFF] >> 4)
        .wrapping_mul(4)
        .wrapping_add(MIN_IPV4_LEN);
    MIN_IPV4_LEN + MIN_TCP_LEN <= payload && payload <= head.len().min(len)
}

/// Checks that a packet is of the type that it is said to be, and that its checksum is in its place.
#[inline(never)]
fn check(
    ether_type: EtherType,
    checksum: Option<PartialChecksum>,
    head: &[u8],
    len: usize,
) -> Result<Layout, ExtendedError> {
    let is_ipv4 = ether_type == EtherType::IPV4;
    let (transport, protocol) = match ether_type {
        EtherType::IPV4 => ipv4(head, len)?,
        EtherType::IPV6 => ipv6(head, len)?,
        _ => return Err(ExtendedError::Protocol),
    };
    let payload = payload(head, len, transport, protocol)?;
    if let Some(PartialChecksum { start, offset }) = checksum {
        let wanted = if protocol == TCP {
            TCP_CHECK
        } else {
            UDP_CHECK
        };
        if usize::from(start) != transport || offset != wanted {
            return Err(ExtendedError::Checksum);
        }
    }
    Ok(Layout {
        protocol,
        is_ipv4,
        transport,
        payload,
    })
}

/// Reads how to segment a packet.
#[inline(never)]
fn read_gso(
    kind: u8,
    size: u16,
    is_partial: bool,
    layout: Layout,
    len: usize,
) -> Result<Gso, ExtendedError> {
    let (kind, ecn) = match (kind & !ECN, kind & ECN != 0) {
        (1, ecn) => (GsoKind::TcpV4, ecn),
        (4, ecn) => (GsoKind::TcpV6, ecn),
        (5, false) => (GsoKind::Udp, false),
        _ => return Err(ExtendedError::Undefined),
    };
    let gso = Gso {
        kind,
        ecn,
        size,
        segments: 0,
    };
    let segments = segments(&gso, is_partial, layout, len)?;
    Ok(Gso { segments, ..gso })
}

/// Number of segments of a packet, if it can be segmented so.
fn segments(gso: &Gso, is_partial: bool, layout: Layout, len: usize) -> Result<u16, ExtendedError> {
    let fits = match gso.kind {
        GsoKind::TcpV4 => layout.protocol == TCP && layout.is_ipv4,
        GsoKind::TcpV6 => layout.protocol == TCP && !layout.is_ipv4,
        GsoKind::Udp => layout.protocol == UDP,
    };
    let payload = len.saturating_sub(layout.payload);
    let full = usize::from(gso.size);
    // Every segment gets a checksum of its own.
    if !fits || !is_partial || full < MIN_GSO_SIZE || payload < full {
        return Err(ExtendedError::Segments);
    }
    let segments = payload.div_ceil(full);
    if gso.kind == GsoKind::Udp && segments > MAX_DATAGRAMS {
        return Err(ExtendedError::Segments);
    }
    u16::try_from(segments).map_err(|_| ExtendedError::Segments)
}

/// RFC 791: where the transport header begins, and its protocol.
fn ipv4(head: &[u8], len: usize) -> Result<(usize, u8), ExtendedError> {
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
    if u16::from_be_bytes([f0, f1]) & FRAGMENT != 0 {
        return Err(ExtendedError::Protocol);
    }
    Ok((transport, protocol))
}

/// RFC 8200: where the transport header begins, and its protocol. There may be no extension headers, so no
/// jumbograms.
fn ipv6(head: &[u8], len: usize) -> Result<(usize, u8), ExtendedError> {
    let [first, _, _, _, l0, l1, next, ..] = *head else {
        return Err(ExtendedError::Short);
    };
    if first >> 4 != 6 {
        return Err(ExtendedError::Protocol);
    }
    if usize::from(u16::from_be_bytes([l0, l1])).wrapping_add(IPV6_LEN) != len {
        return Err(ExtendedError::Length);
    }
    Ok((IPV6_LEN, next))
}

/// Returns the offset of the payload of TCP or UDP.
fn payload(
    head: &[u8],
    len: usize,
    transport: usize,
    protocol: u8,
) -> Result<usize, ExtendedError> {
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
    Ok(payload)
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_extended))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    fn parse(header: &[u8; 12], head: &[u8], len: usize) -> Result<Extended, ExtendedError> {
        let parsed = Extended::parse(ExtendedHeader::from_bytes(header), head, len);
        // The short ways find the same, whatever the credit limit is.
        let mut bytes = *header;
        bytes[10..].fill(0);
        let compact = ExtendedHeader::from_bytes(&bytes).compact();
        let says_tcp_v4 = compact == Some(EtherType::COMPACT_TCP_V4);
        let is_tcp_v4 = parsed == Ok(WHOLE_TCP_V4);
        assert!((says_tcp_v4 && super::is_tcp_v4(head, len)) == is_tcp_v4);
        assert!(ExtendedHeader::for_tcp_v4(head, len) == WHOLE_TCP_V4.encode(head, len).ok());
        parsed
    }

    const WHOLE_TCP_V4: Extended = Extended {
        ether_type: EtherType::IPV4,
        checksum: Some(TCP_V4_CHECKSUM),
        gso: None,
    };

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
        let parsed = parse(&TCP_V4, &tcp_v4(), LEN);
        let wanted = Extended {
            ether_type: EtherType::IPV4,
            checksum: Some(PartialChecksum {
                start: 20,
                offset: 16,
            }),
            // 3948 bytes behind 20 of IP and 32 of TCP.
            gso: Some(Gso {
                kind: GsoKind::TcpV4,
                ecn: false,
                size: 1448,
                segments: 3,
            }),
        };
        assert!(parsed == Ok(wanted));
        assert!(wanted.encode(&tcp_v4(), LEN) == Ok(ExtendedHeader::from_bytes(&TCP_V4)));
    }

    #[test]
    fn udp_datagrams_in_one() {
        let parsed = parse(&UDP_V6, &udp_v6(), LEN);
        let gso = parsed.ok().and_then(|extended| extended.gso);
        assert!(gso.is_some_and(|gso| gso.kind == GsoKind::Udp && gso.segments == 4));
    }

    #[test]
    fn a_checksum_alone() {
        let mut header = UDP_V6;
        header[1..4].fill(0);
        let parsed = parse(&header, &udp_v6(), LEN);
        assert!(parsed.is_ok_and(|extended| extended.gso.is_none() && extended.checksum.is_some()));
        // Nor that: a packet like any other.
        header[..8].fill(0);
        let parsed = parse(&header, &udp_v6(), LEN);
        assert!(parsed.is_ok_and(|extended| extended.checksum.is_none()));
    }

    #[test]
    fn ecn_is_for_tcp() {
        let mut header = TCP_V4;
        header[1] |= ECN;
        let gso = parse(&header, &tcp_v4(), LEN).ok().and_then(|e| e.gso);
        assert!(gso.is_some_and(|gso| gso.ecn));
        let mut header = UDP_V6;
        header[1] |= ECN;
        assert!(parse(&header, &udp_v6(), LEN) == Err(ExtendedError::Undefined));
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
            assert!(parse(&header, &tcp_v4(), LEN) == Err(error));
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
            assert!(parse(&TCP_V4, &head, LEN) == Err(error));
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
            assert!(parse(&UDP_V6, &head, LEN) == Err(error));
        }
    }

    #[test]
    fn headers_that_are_cut_off() {
        for len in 0..52 {
            assert!(parse(&TCP_V4, &tcp_v4()[..len], LEN) == Err(ExtendedError::Short));
        }
        for len in 0..48 {
            assert!(parse(&UDP_V6, &udp_v6()[..len], LEN) == Err(ExtendedError::Short));
        }
    }

    #[test]
    fn datagrams_of_a_sensible_number() {
        // 3952 bytes of payload.
        for (size, fits) in [(30u16, false), (31, true)] {
            let mut header = UDP_V6;
            header[2..4].copy_from_slice(&size.to_be_bytes());
            assert!(parse(&header, &udp_v6(), LEN).is_ok() == fits);
        }
    }

    /// More is shown than the device says that there is.
    #[test]
    fn headers_longer_than_the_packet() {
        let header = [1, 0, 0, 0, 0, 20, 0, 16, 0x08, 0x00, 0, 0];
        let mut head = tcp_v4();
        for (len, fits) in [(51, false), (52, true)] {
            head[3] = len;
            head[2] = 0;
            assert!(parse(&header, &head, len.into()).is_ok() == fits);
        }
    }

    #[test]
    fn credit_goes_alone() {
        let mut header = TCP_V4;
        header[10..].copy_from_slice(&[0xfe, 0xdc]);
        let parsed = parse(&header, &tcp_v4(), LEN);
        assert!(parsed == parse(&TCP_V4, &tcp_v4(), LEN) && parsed.is_ok());
        let header = ExtendedHeader::from_bytes(&header);
        assert!(header
            .credit_only_limit(LEN)
            .or(header.credit_only_limit(0))
            .is_none());
        let header = ExtendedHeader::credit_only(0xfedc);
        assert!(header.credit_only_limit(0) == Some(0xfedc));
        assert!(header.credit_only_limit(1).is_none());
        // And that is no packet.
        assert!(parse(&header.to_bytes(), &[], 0) == Err(ExtendedError::Protocol));
        // No other byte may be set.
        for i in 0..10 {
            let mut bytes = header.to_bytes();
            bytes[i] = 1;
            let other = ExtendedHeader::from_bytes(&bytes);
            assert!(other.credit_only_limit(0).is_none());
        }
    }

    /// Segments of no bytes, of fewer than are worth a header, and more than there is.
    #[test]
    fn segments_of_a_sensible_size() {
        for size in [0u16, 1, 27, 3949, 65535] {
            let mut header = TCP_V4;
            header[2..4].copy_from_slice(&size.to_be_bytes());
            assert!(parse(&header, &tcp_v4(), LEN) == Err(ExtendedError::Segments));
        }
        for size in [28u16, 3948] {
            let mut header = TCP_V4;
            header[2..4].copy_from_slice(&size.to_be_bytes());
            assert!(parse(&header, &tcp_v4(), LEN).is_ok());
        }
    }

    /// RFC 791, RFC 8200: where TCP and UDP are, and the only headers that an EtherType stands for.
    #[test]
    fn headers_that_an_ether_type_stands_for() {
        for (ether_type, bytes) in [
            (0x0102, [1, 0, 0, 0, 0, 20, 0, 16, 0x08, 0x00, 0, 0]),
            (0x0103, [1, 0, 0, 0, 0, 40, 0, 16, 0x86, 0xdd, 0, 0]),
            (0x0104, [1, 0, 0, 0, 0, 20, 0, 6, 0x08, 0x00, 0, 0]),
            (0x0105, [1, 0, 0, 0, 0, 40, 0, 6, 0x86, 0xdd, 0, 0]),
        ] {
            let header = ExtendedHeader::from_bytes(&bytes);
            assert!(header.compact() == Some(EtherType(ether_type)));
            assert!(ExtendedHeader::from_compact(EtherType(ether_type)) == Some(header));
            // Nothing that says more, or something else.
            for at in 0..bytes.len() {
                let mut other = bytes;
                other[at] ^= 0x80;
                assert!(ExtendedHeader::from_bytes(&other).compact().is_none());
            }
        }
        for ether_type in [0, 0x0101, 0x0106, 0x0800, 0x86dd] {
            assert!(ExtendedHeader::from_compact(EtherType(ether_type)).is_none());
        }
    }

    /// A checksum that is not to be computed is nowhere.
    #[test]
    fn no_checksum_has_no_place() {
        for at in [5, 7] {
            let mut header = [0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x00, 0, 0];
            assert!(parse(&header, &tcp_v4(), LEN).is_ok());
            header[at] = 16;
            assert!(parse(&header, &tcp_v4(), LEN) == Err(ExtendedError::Undefined));
        }
        // Nor is a length of the packet behind the header part of that.
        let header = ExtendedHeader::from_bytes(&[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1]);
        assert!(header.credit_only_limit(5).is_none());
    }

    /// The kind of segments is that of the packet.
    #[test]
    fn segments_of_another_kind() {
        let mut udp_v4 = [0; 28];
        udp_v4[..20].copy_from_slice(&tcp_v4()[..20]);
        udp_v4[9] = UDP;
        udp_v4[24..26].copy_from_slice(&((LEN - 20) as u16).to_be_bytes());
        let mut tcp_v6 = [0; 60];
        tcp_v6[..40].copy_from_slice(&udp_v6()[..40]);
        tcp_v6[6] = TCP;
        tcp_v6[52] = 0x50;
        let packets: [(&[u8], [u8; 12], u8); 4] = [
            (&tcp_v4(), TCP_V4, 1),
            (&tcp_v6, [1, 0, 1, 0, 0, 40, 0, 16, 0x86, 0xdd, 0, 0], 4),
            (&udp_v4, [1, 0, 1, 0, 0, 20, 0, 6, 0x08, 0x00, 0, 0], 5),
            (&udp_v6(), UDP_V6, 5),
        ];
        for (head, mut header, right) in packets {
            for kind in [1, 4, 5] {
                header[1] = kind;
                let parsed = parse(&header, head, LEN);
                assert!(parsed.is_ok() == (kind == right));
                assert!(kind == right || parsed == Err(ExtendedError::Segments));
            }
        }
    }

    /// A TCP header without options, and one byte of payload or none.
    #[test]
    fn the_least_headers() {
        let header = [1, 0, 0, 0, 0, 20, 0, 16, 0x08, 0x00, 0, 0];
        let mut head = [0; 40];
        head.copy_from_slice(&tcp_v4()[..40]);
        head[32] = 0x50;
        for len in [40, 41] {
            head[2..4].copy_from_slice(&u16::to_be_bytes(len));
            assert!(parse(&header, &head, len.into()).is_ok());
        }
        head[32] = 0x4f;
        assert!(parse(&header, &head, 41) == Err(ExtendedError::Protocol));
    }
}
