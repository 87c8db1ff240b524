// SPDX-License-Identifier: GPL-2.0

//! Messages from reliable connections, checked once, here, before anything else reads them.
//!
//! A message begins with the encapsulation header (RFC 4391, section 6; RFC 4755 has the same). Between
//! two of ours an extended header may follow. The connection tells the sender.

use crate::drop::DropReason;
use crate::wire::extended::{is_tcp_v4, Extended, ExtendedHeader};
use crate::wire::header::{EtherType, Header};

/// A packet that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The EtherType, one that the link carries.
    pub ether_type: EtherType,
    /// Bytes in front of it.
    pub offset: u16,
    /// The length in bytes, at least 1.
    pub len: usize,
}

/// Bytes in front of a packet that has an extended header.
pub const EXTENDED_HEADERS: usize = Header::LEN + ExtendedHeader::LEN;

/// Returns true if a message that begins with `head` is an extended frame. Nothing is one unless that was
/// `agreed` on.
#[inline]
pub fn is_extended(head: &[u8], agreed: bool) -> bool {
    let is_extended = |header: Header| {
        header.ether_type == EtherType::EXTENDED
            || ExtendedHeader::from_compact(header.ether_type).is_some()
    };
    agreed && Header::parse(head).is_ok_and(is_extended)
}

/// Checks a message of `len` bytes without an extended header, which begins with `head`.
///
/// # Errors
///
/// The reason to drop it, to be counted under its name.
#[inline]
pub fn parse(head: &[u8], len: usize) -> Result<Packet, DropReason> {
    let header = Header::parse(head)?;
    let len = len.checked_sub(Header::LEN).ok_or(DropReason::Short)?;
    if !header.ether_type.is_supported() {
        return Err(DropReason::EtherType);
    }
    if len == 0 {
        return Err(DropReason::Short);
    }
    Ok(Packet {
        ether_type: header.ether_type,
        offset: Header::LEN as u16,
        len,
    })
}

/// An extended frame, whose length alone was checked.
#[derive(Clone, Copy, Debug)]
pub struct ExtendedMessage<'a> {
    header: ExtendedHeader,
    /// Bytes in front of the packet: those of the encapsulation header alone in the compact form.
    offset: usize,
    head: &'a [u8],
    len: usize,
}

impl<'a> ExtendedMessage<'a> {
    /// Takes a message of `len` bytes, which begins with `head`.
    ///
    /// # Errors
    ///
    /// The reason to drop it.
    #[inline]
    pub fn new(head: &'a [u8], len: usize) -> Result<Self, DropReason> {
        let ether_type = Header::parse(head)?.ether_type;
        let rest = head.get(Header::LEN..).ok_or(DropReason::Short)?;
        let (header, offset, head) = match ExtendedHeader::from_compact(ether_type) {
            Some(header) => (header, Header::LEN, rest),
            None => {
                let (header, head) = rest.split_first_chunk().ok_or(DropReason::Short)?;
                (ExtendedHeader::from_bytes(header), EXTENDED_HEADERS, head)
            }
        };
        let len = len.checked_sub(offset).ok_or(DropReason::BadExtended)?;
        Ok(Self {
            header,
            offset,
            head,
            len,
        })
    }

    /// The credit limit, if the message carries nothing else: then it does not count, and has used no room.
    #[inline]
    pub const fn credit_only(&self) -> Option<u16> {
        if self.offset == EXTENDED_HEADERS {
            self.header.credit_only_limit(self.len)
        } else {
            None
        }
    }

    /// Checks its packet, and returns that with its metadata.
    ///
    /// # Errors
    ///
    /// The reason to drop it.
    pub fn packet(&self) -> Result<(Packet, Extended), DropReason> {
        let extended = Extended::parse(self.header, self.head, self.len)
            .map_err(|_| DropReason::BadExtended)?;
        let packet = Packet {
            ether_type: extended.ether_type,
            offset: self.offset as u16,
            len: self.len,
        };
        Ok((packet, extended))
    }
}

/// Checks a message of `len` bytes, which begins with `head`, and returns its packet if it is of the most frequent kind: an
/// extended frame in the compact form with a packet of TCP over IPv4 without options. None: it is of another kind, or
/// malformed; [`ExtendedMessage`] finds out.
#[inline(always)]
pub fn parse_tcp_v4(head: &[u8], len: usize) -> Option<Packet> {
    let (front, head) = head.split_first_chunk::<{ Header::LEN }>()?;
    let ether_type = Header::parse(front).ok()?.ether_type;
    let len = len.checked_sub(Header::LEN)?;
    let packet = Packet {
        ether_type: EtherType::IPV4,
        offset: Header::LEN as u16,
        len,
    };
    (ether_type == EtherType::COMPACT_TCP_V4 && is_tcp_v4(head, len)).then_some(packet)
}

/// The headers of a message with an extended one.
#[inline(always)]
pub fn extended_headers(header: ExtendedHeader) -> [u8; EXTENDED_HEADERS] {
    let mut headers = [0; EXTENDED_HEADERS];
    let (front, back) = headers.split_at_mut(Header::LEN);
    front.copy_from_slice(&Header::new(EtherType::EXTENDED).to_bytes());
    back.copy_from_slice(&header.to_bytes());
    headers
}

/// The message that carries nothing but a credit limit.
pub fn credit_only(limit: u16) -> [u8; EXTENDED_HEADERS] {
    extended_headers(ExtendedHeader::credit_only(limit))
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_rc))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::wire::extended::{PartialChecksum, TCP_V4_CHECKSUM};

    #[test]
    fn a_plain_frame() {
        let mut head = [0; 64];
        head[..4].copy_from_slice(&[0x86, 0xdd, 0x12, 0x34]);
        let wanted = Packet {
            ether_type: EtherType::IPV6,
            offset: 4,
            len: 65520,
        };
        assert!(!is_extended(&head, true));
        assert!(parse(&head, 65524) == Ok(wanted));
    }

    #[test]
    fn frames_without_a_packet() {
        for len in 0..4 {
            assert!(!is_extended(&[0x01, 0x01, 0][..len.min(3)], true));
            assert!(parse(&[0x08, 0, 0][..len.min(3)], len) == Err(DropReason::Short));
        }
        assert!(parse(&[0x08, 0, 0, 0], 4) == Err(DropReason::Short));
        // The device shows more than it says that there is.
        assert!(parse(&[0x08, 0, 0, 0, 0x45], 3) == Err(DropReason::Short));
        assert!(parse(&[0x88, 0xcc, 0, 0, 1], 5) == Err(DropReason::EtherType));
    }

    #[test]
    fn extended_frames_are_for_those_who_agreed() {
        let message = credit_only(77);
        assert!(!is_extended(&message, false) && is_extended(&message, true));
        assert!(parse(&message, 16) == Err(DropReason::EtherType));
        let parsed = ExtendedMessage::new(&message, 16);
        assert!(parsed.is_ok_and(|m| m.credit_only() == Some(77)));
        // A credit limit with something behind it, and one that is cut off.
        let mut more = [0; 20];
        more[..16].copy_from_slice(&message);
        let parsed = ExtendedMessage::new(&more, 20);
        assert!(parsed.is_ok_and(|m| m.credit_only().is_none()));
        assert!(parsed.and_then(|m| m.packet()) == Err(DropReason::BadExtended));
        for len in 0..16 {
            assert!(ExtendedMessage::new(&message[..len], len).err() == Some(DropReason::Short));
            let err = ExtendedMessage::new(&message, len).err();
            assert!(err == Some(DropReason::BadExtended));
        }
    }

    #[test]
    fn a_packet_with_its_checksum_to_be_computed() {
        let mut head = [0; 64];
        head[..4].copy_from_slice(&[0x01, 0x01, 0, 9]);
        head[4..16].copy_from_slice(&[1, 0, 0, 0, 0, 20, 0, 6, 0x08, 0, 0x01, 0x02]);
        // 100 bytes of UDP over IPv4.
        head[16] = 0x45;
        head[19] = 100;
        head[25] = 17;
        head[41] = 80;
        let message = ExtendedMessage::new(&head, 116);
        assert!(message.is_ok_and(|m| m.credit_only().is_none()));
        let packet = Packet {
            ether_type: EtherType::IPV4,
            offset: 16,
            len: 100,
        };
        let checksum = Some(PartialChecksum {
            start: 20,
            offset: 6,
        });
        let extended = Extended {
            ether_type: EtherType::IPV4,
            checksum,
            gso: None,
        };
        assert!(message.and_then(|m| m.packet()) == Ok((packet, extended)));
        let longer = ExtendedMessage::new(&head, 117);
        assert!(longer.and_then(|m| m.packet()) == Err(DropReason::BadExtended));
        // Three datagrams.
        head[5] = 5;
        head[7] = 28;
        let message = ExtendedMessage::new(&head, 116);
        let large = message.and_then(|m| m.packet()).map(|(_, e)| e.gso);
        assert!(large.is_ok_and(|gso| gso.is_some_and(|gso| gso.segments == 3)));
    }

    #[test]
    fn compact_frames() {
        let mut head = [0; 64];
        head[..4].copy_from_slice(&[0x01, 0x04, 0, 9]);
        // 100 bytes of UDP over IPv4.
        head[4] = 0x45;
        head[7] = 100;
        head[13] = 17;
        head[29] = 80;
        assert!(is_extended(&head, true) && !is_extended(&head, false));
        assert!(parse(&head, 104) == Err(DropReason::EtherType));
        let message = ExtendedMessage::new(&head, 104);
        assert!(message.is_ok_and(|m| m.credit_only().is_none()));
        let parsed = message.and_then(|m| m.packet());
        let extended = ExtendedHeader::from_compact(EtherType(0x0104));
        let wanted = Packet {
            ether_type: EtherType::IPV4,
            offset: 4,
            len: 100,
        };
        assert!(parsed.is_ok_and(|(packet, found)| {
            packet == wanted
                && found.gso.is_none()
                && extended.is_some_and(|header| header.checksum() == Ok(found.checksum))
        }));
        // Another type, another length, options, nothing at all.
        for (at, value) in [(1, 0x02), (1, 0x03), (1, 0x05), (7, 99), (4, 0x46)] {
            let mut wrong = head;
            wrong[at] = value;
            let parsed = ExtendedMessage::new(&wrong, 104).and_then(|m| m.packet());
            assert!(parsed == Err(DropReason::BadExtended));
        }
        let empty = ExtendedMessage::new(&head[..4], 4).and_then(|m| m.packet());
        assert!(empty == Err(DropReason::BadExtended));
        let short = ExtendedMessage::new(&head, 3);
        assert!(short.err() == Some(DropReason::BadExtended));
    }

    #[test]
    fn compact_tcp_over_ipv4_is_found_as_by_the_long_way() {
        let mut head = [0; 64];
        head[..4].copy_from_slice(&[0x01, 0x02, 0, 9]);
        head[4..14].copy_from_slice(&[0x45, 0, 3, 232, 0, 1, 0x40, 0, 64, 6]);
        head[36] = 0x80;
        let found = parse_tcp_v4(&head, 1004);
        assert!(found.is_some_and(|packet| packet.offset == 4));
        finds_the_same(&mut head, 1004);
    }

    /// Checks that both ways find the same in a message, and in those that differ from it in a byte.
    fn finds_the_same(head: &mut [u8], len: usize) {
        let agrees = |head: &[u8], len| {
            let short = parse_tcp_v4(head, len);
            let is_compact = head.starts_with(&EtherType::COMPACT_TCP_V4.0.to_be_bytes());
            match ExtendedMessage::new(head, len).and_then(|m| m.packet()) {
                Ok((packet, extended)) if is_compact => {
                    let is_common = extended.checksum == Some(TCP_V4_CHECKSUM)
                        && extended.ether_type == EtherType::IPV4
                        && extended.gso.is_none();
                    is_common && short == Some(packet)
                }
                _ => short.is_none(),
            }
        };
        assert!(agrees(head, len) && agrees(head, len - 1) && agrees(head, 3));
        for end in 0..head.len() {
            assert!(agrees(&head[..end], len) && agrees(&head[..end], end));
        }
        for at in 0..head.len() {
            let before = head[at];
            for change in [0x01, 0x02, 0x10, 0x20, 0x80, 0xff] {
                head[at] = before ^ change;
                assert!(agrees(head, len));
            }
            head[at] = before;
        }
    }
}
