// SPDX-License-Identifier: GPL-2.0

//! The form in which a frame goes by a connection: as RFC 4391 has it, or with an extended header.

use ipoib_netdev::skb::{GsoKind, TxSkb};
use ipoib_proto::extended::{self, Extended, ExtendedHeader, Gso, PartialChecksum};
use ipoib_proto::header::{EtherType, Header};

use crate::base::ADDR_LEN;
use crate::rc::context::Negotiated;

/// Why a frame goes without an extended header.
pub(super) enum Unfit {
    /// The frame goes as RFC 4391 has it, with its checksum.
    Plain,
    /// The peer wants it segmented.
    Segment,
    /// The peer takes no packet of its length.
    TooBig,
}

/// The extended header of a frame like nearly all: TCP over IPv4 without options, which is not to be
/// segmented, and has its checksum computed by nobody. None: see [`extended_header`], which finds the same
/// for one that is.
#[inline(always)]
pub(crate) fn tcp_v4_header(terms: &Negotiated, skb: &TxSkb) -> Option<ExtendedHeader> {
    const FRONT: usize = ADDR_LEN + Header::LEN;
    let packet = skb.len().checked_sub(FRONT)?;
    let start = FRONT + extended::TCP_V4_CHECKSUM.start as usize;
    if skb.is_gso()
        || packet > terms.mtu as usize
        || !terms.icrc
        || !skb.has_partial_checksum(start, extended::TCP_V4_CHECKSUM.offset)
    {
        return None;
    }
    let (front, head) = skb.linear().split_first_chunk::<FRONT>()?;
    let [.., t0, t1, _, _] = *front;
    if EtherType(u16::from_be_bytes([t0, t1])) != EtherType::IPV4 {
        return None;
    }
    ExtendedHeader::for_tcp_v4(head, packet)
}

/// The extended header with which a frame goes to a peer.
///
/// # Errors
///
/// Why it goes without one.
pub(super) fn extended_header(terms: &Negotiated, skb: &TxSkb) -> Result<ExtendedHeader, Unfit> {
    let packet = skb.len().saturating_sub(ADDR_LEN + Header::LEN);
    if skb.is_gso() {
        return large_header(terms, skb, packet);
    }
    if packet > terms.mtu as usize {
        return Err(Unfit::TooBig);
    }
    if !terms.icrc {
        return Err(Unfit::Plain);
    }
    encode(skb, packet, None).ok_or(Unfit::Plain)
}

/// The extended header of a frame of several segments.
fn large_header(terms: &Negotiated, skb: &TxSkb, packet: usize) -> Result<ExtendedHeader, Unfit> {
    // Pieces that are too many for one request would be joined, in one block of 64 KiB.
    let fits = packet <= terms.max_large as usize && skb.nr_frags() < terms.max_pieces as usize;
    if !terms.icrc || !fits {
        return Err(Unfit::Segment);
    }
    let gso = skb.gso().ok_or(Unfit::Segment)?;
    let kind = match gso.kind {
        GsoKind::TcpV4 => extended::GsoKind::TcpV4,
        GsoKind::TcpV6 => extended::GsoKind::TcpV6,
        GsoKind::Udp => extended::GsoKind::Udp,
    };
    let gso = Gso {
        kind,
        ecn: gso.ecn,
        size: gso.size,
        segments: gso.segments,
    };
    encode(skb, packet, Some(gso)).ok_or(Unfit::Segment)
}

/// The extended header of a packet of so many bytes, whose checksum is to be computed.
// For every large frame; left to itself, the compiler calls it.
#[inline(always)]
fn encode(skb: &TxSkb, packet: usize, gso: Option<Gso>) -> Option<ExtendedHeader> {
    let partial = skb.partial_checksum(ADDR_LEN + Header::LEN)?;
    let head = skb.linear().get(ADDR_LEN..)?;
    let (wire, head) = head.split_first_chunk::<{ Header::LEN }>()?;
    let extended = Extended {
        ether_type: EtherType(u16::from_be_bytes([wire[0], wire[1]])),
        checksum: Some(PartialChecksum {
            start: partial.start,
            offset: partial.offset,
        }),
        gso,
    };
    extended.encode(head, packet).ok()
}
