// SPDX-License-Identifier: GPL-2.0

//! What arrived on a reliable connection: checked once, here, before anything else looks at it.
//!
//! A message begins with the encapsulation header (RFC 4391, section 6; RFC 4755 has the same). Between
//! two of ours an extended header may follow. Who sent it is known from the connection.

use crate::drop::DropReason;
use crate::extended::{self, Extended};
use crate::header::{EtherType, Header};

/// What a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The packet, if there is one.
    pub packet: Option<Packet>,
    /// The sender's grant, if it says one.
    pub grant: Option<u16>,
}

/// A packet that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its type, one that the link carries.
    pub ether_type: EtherType,
    /// The reserved field of the encapsulation header, in host byte order.
    pub reserved: u16,
    /// Octets in front of it.
    pub offset: usize,
    /// Its length in octets, at least 1.
    pub len: usize,
    /// What is known of it beyond its octets.
    pub extended: Option<Extended>,
}

/// How many octets of a message have to be shown at least, or all of a shorter one: the headers, and
/// behind them IPv4 and TCP with all their options.
pub const HEAD_LEN: usize = Header::LEN + Extended::LEN + 120;

/// Checks a message of `len` octets, which begins with `head`. Extended frames are taken only if they
/// were agreed on.
///
/// # Errors
///
/// The reason to drop it, to be counted under its name.
#[inline]
pub fn parse(head: &[u8], len: usize, extended: bool) -> Result<Message, DropReason> {
    let header = Header::parse(head)?;
    let rest = len.checked_sub(Header::LEN).ok_or(DropReason::Short)?;
    if header.ether_type == EtherType::EXTENDED && extended {
        return parse_extended(head, rest, header.reserved);
    }
    if !header.ether_type.is_supported() {
        return Err(DropReason::EtherType);
    }
    if rest == 0 {
        return Err(DropReason::Short);
    }
    Ok(Message {
        packet: Some(Packet {
            ether_type: header.ether_type,
            reserved: header.reserved,
            offset: Header::LEN,
            len: rest,
            extended: None,
        }),
        grant: None,
    })
}

#[inline]
fn parse_extended(head: &[u8], rest: usize, reserved: u16) -> Result<Message, DropReason> {
    let (header, head) = head
        .get(Header::LEN..)
        .and_then(|head| head.split_first_chunk::<{ Extended::LEN }>())
        .ok_or(DropReason::Short)?;
    let len = rest
        .checked_sub(Extended::LEN)
        .ok_or(DropReason::BadExtended)?;
    let grant = Some(extended::grant(header));
    if extended::is_grant_alone(header, len) {
        return Ok(Message {
            packet: None,
            grant,
        });
    }
    let extended = Extended::parse(header, head, len).map_err(|_| DropReason::BadExtended)?;
    Ok(Message {
        packet: Some(Packet {
            ether_type: extended.ether_type,
            reserved,
            offset: Header::LEN.wrapping_add(Extended::LEN),
            len,
            extended: Some(extended),
        }),
        grant,
    })
}

/// The message that carries nothing but a grant.
pub fn grant_alone(grant: u16) -> [u8; Header::LEN + Extended::LEN] {
    let mut message = [0; Header::LEN + Extended::LEN];
    let (header, rest) = message.split_at_mut(Header::LEN);
    header.copy_from_slice(&Header::new(EtherType::EXTENDED).to_bytes());
    if let Some(rest) = rest.first_chunk_mut() {
        extended::set_grant(rest, grant);
    }
    message
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_rc))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn a_plain_frame() {
        let mut head = [0; 64];
        head[..4].copy_from_slice(&[0x86, 0xdd, 0x12, 0x34]);
        let packet = parse(&head, 65524, false).ok().and_then(|m| m.packet);
        assert!(packet.is_some_and(|p| {
            p.ether_type == EtherType::IPV6
                && (p.reserved, p.offset, p.len) == (0x1234, 4, 65520)
                && p.extended.is_none()
        }));
    }

    #[test]
    fn frames_without_a_packet() {
        for len in 0..4 {
            assert!(parse(&[0x08, 0, 0][..len.min(3)], len, true) == Err(DropReason::Short));
        }
        assert!(parse(&[0x08, 0, 0, 0], 4, true) == Err(DropReason::Short));
        // The device shows more than it says that there is.
        assert!(parse(&[0x08, 0, 0, 0, 0x45], 3, true) == Err(DropReason::Short));
        assert!(parse(&[0x88, 0xcc, 0, 0, 1], 5, true) == Err(DropReason::EtherType));
    }

    #[test]
    fn extended_frames_are_for_those_who_agreed() {
        let message = grant_alone(77);
        assert!(parse(&message, 16, false) == Err(DropReason::EtherType));
        let parsed = parse(&message, 16, true);
        assert!(parsed.is_ok_and(|m| m.packet.is_none() && m.grant == Some(77)));
        // A grant with something behind it, and one that is cut off.
        let mut more = [0; 20];
        more[..16].copy_from_slice(&message);
        assert!(parse(&more, 20, true) == Err(DropReason::BadExtended));
        assert!(parse(&message[..15], 15, true) == Err(DropReason::Short));
        assert!(parse(&message, 15, true) == Err(DropReason::BadExtended));
    }

    #[test]
    fn a_packet_with_its_checksum_to_be_computed() {
        let mut head = [0; 64];
        head[..4].copy_from_slice(&[0x01, 0x01, 0, 9]);
        head[4..16].copy_from_slice(&[1, 0, 0, 0, 0, 20, 0, 6, 0x08, 0, 0x01, 0x02]);
        // 100 octets of UDP over IPv4.
        head[16] = 0x45;
        head[19] = 100;
        head[25] = 17;
        head[41] = 80;
        let message = parse(&head, 116, true);
        assert!(message.is_ok_and(|m| m.grant == Some(0x0102)
            && m.packet.is_some_and(|p| p.ether_type == EtherType::IPV4
                && (p.reserved, p.offset, p.len) == (9, 16, 100)
                && p.extended.is_some_and(|e| e.checksum.is_some()))));
        assert!(parse(&head, 117, true) == Err(DropReason::BadExtended));
    }
}
