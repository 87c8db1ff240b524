// SPDX-License-Identifier: GPL-2.0

//! The headers of IP in a frame.

use crate::bits::Field;

/// Bytes of the encapsulation header (RFC 4391, section 6): an Ethernet type and two that are reserved.
pub(super) const ENCAPSULATION: usize = 4;

/// Bytes of the header of IPv4 without options.
const V4_LEAST: usize = 20;

/// Bytes of the header of IPv6.
const V6_HEADER: usize = 40;

/// Protocol numbers.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// Bytes of a TCP header without options.
pub(super) const TCP_LEAST: usize = 20;

/// Bytes of a UDP header.
pub(super) const UDP_HEADER: usize = 8;

/// Fields of a frame, at their places in it.
mod field {
    use crate::bits::Field;

    pub(super) const TYPE: Field = Field::bytes(0, 2);
    pub(super) const VERSION: Field = Field::bits(4, 4, 4);
    pub(super) const V4_WORDS: Field = Field::bits(4, 0, 4);
    pub(super) const V4_TOTAL: Field = Field::bytes(6, 2);
    pub(super) const V4_ID: Field = Field::bytes(8, 2);
    /// The flag More Fragments, and the offset.
    pub(super) const V4_FRAGMENT: Field = Field::within(10, 2, 0, 14);
    pub(super) const V4_PROTOCOL: Field = Field::bytes(13, 1);
    pub(super) const V4_CHECKSUM: Field = Field::bytes(14, 2);
    pub(super) const V6_PAYLOAD: Field = Field::bytes(8, 2);
    pub(super) const V6_NEXT: Field = Field::bytes(10, 1);
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

/// The header of IP in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    version: Version,
    /// Place in the frame behind the header, which is within the bytes that it was parsed from.
    pub(super) end: usize,
    /// Protocol of the payload; that of an extension header, if there is one.
    pub(super) protocol: u8,
    /// The packet is not a whole datagram.
    pub(super) fragment: bool,
}

impl Network {
    /// Parses the beginning of a frame; `None` if it is no IP, or has not all of the header. Its lengths and checksum
    /// are not looked at.
    pub(super) fn parse(head: &[u8]) -> Option<Network> {
        let network = match (field::TYPE.u16(head), field::VERSION.u8(head)) {
            (0x0800, 4) => {
                let words = usize::from(field::V4_WORDS.u8(head));
                let header = words.checked_mul(4).filter(|&bytes| bytes >= V4_LEAST)?;
                Network {
                    version: Version::V4,
                    end: ENCAPSULATION.checked_add(header)?,
                    protocol: field::V4_PROTOCOL.u8(head),
                    fragment: field::V4_FRAGMENT.u32(head) != 0,
                }
            }
            (0x86dd, 6) => Network {
                version: Version::V6,
                end: ENCAPSULATION.saturating_add(V6_HEADER),
                protocol: field::V6_NEXT.u8(head),
                fragment: false,
            },
            _ => return None,
        };
        (network.end <= head.len()).then_some(network)
    }

    /// Returns the place in the frame behind the datagram, by its own length; `None` if that is shorter than the
    /// header, or longer than the frame.
    pub(super) fn datagram_end(&self, head: &[u8], len: usize) -> Option<usize> {
        let end = match self.version {
            Version::V4 => ENCAPSULATION.checked_add(field::V4_TOTAL.u32(head) as usize)?,
            // A jumbogram has 0, and its length in an extension header.
            Version::V6 => self.end.checked_add(field::V6_PAYLOAD.u32(head) as usize)?,
        };
        (self.end..=len).contains(&end).then_some(end)
    }

    /// Returns the length field of a datagram that has `bytes` behind the header; `None` if it cannot have so many.
    pub(super) fn length(&self, bytes: usize) -> Option<u16> {
        let header = match self.version {
            Version::V4 => self.end.saturating_sub(ENCAPSULATION),
            Version::V6 => 0,
        };
        u16::try_from(header.checked_add(bytes)?).ok()
    }

    /// Sets the length field.
    pub(super) fn set_length(&self, head: &mut [u8], length: u16) {
        let field = match self.version {
            Version::V4 => field::V4_TOTAL,
            Version::V6 => field::V6_PAYLOAD,
        };
        field.put(head, length);
    }

    /// Numbers a datagram that was made of one with others: IPv4 wants an identification for each.
    pub(super) fn advance_id(&self, head: &mut [u8], by: u16) {
        if self.version == Version::V4 {
            let id = field::V4_ID.u16(head);
            field::V4_ID.put(head, id.wrapping_add(by));
        }
    }

    /// Returns the bytes that the header's own checksum is over, and its place; `None` for IPv6, which has none.
    pub(super) fn checked<'a>(&self, head: &'a [u8]) -> Option<(&'a [u8], Field)> {
        match self.version {
            Version::V4 => Some((head.get(ENCAPSULATION..self.end)?, field::V4_CHECKSUM)),
            Version::V6 => None,
        }
    }

    /// Returns the addresses of source and destination, one behind the other.
    pub(super) fn addresses<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        match self.version {
            Version::V4 => head.get(16..24),
            Version::V6 => head.get(12..44),
        }
    }
}
