// SPDX-License-Identifier: GPL-2.0

//! The 4-byte encapsulation header in front of every frame (RFC 4391, section 6).

use crate::drop::DropReason;

/// An EtherType in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 4391, section 6).
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP (RFC 4391, section 6).
    pub const ARP: EtherType = EtherType(0x0806);
    /// Reverse ARP (RFC 4391, section 6).
    pub const RARP: EtherType = EtherType(0x8035);
    /// IPv6 (RFC 4391, section 6).
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// TIPC: not in RFC 4391, carried by Linux's C driver too.
    pub const TIPC: EtherType = EtherType(0x88ca);

    /// An extended frame ([`crate::wire::extended`]): a number that is no EtherType (below 0x0600).
    pub const EXTENDED: EtherType = EtherType(0x0101);
    /// TCP over IPv4 in the compact form of an extended frame, which has four types.
    pub const COMPACT_TCP_V4: EtherType = EtherType(0x0102);
    /// TCP over IPv6 in that form.
    pub const COMPACT_TCP_V6: EtherType = EtherType(0x0103);
    /// UDP over IPv4 in that form.
    pub const COMPACT_UDP_V4: EtherType = EtherType(0x0104);
    /// UDP over IPv6 in that form.
    pub const COMPACT_UDP_V6: EtherType = EtherType(0x0105);

    /// Returns true if the link carries this protocol: the four of RFC 4391, section 6, and TIPC.
    #[inline]
    pub const fn is_supported(self) -> bool {
        const IPV4: u16 = EtherType::IPV4.0.to_be();
        const IPV6: u16 = EtherType::IPV6.0.to_be();
        // In the order of the wire, in which a received one is in a register already.
        matches!(self.0.to_be(), IPV4 | IPV6) || self.is_rare()
    }

    /// Returns true if it is one of those that few frames have.
    #[cold]
    #[inline(never)]
    const fn is_rare(self) -> bool {
        matches!(self, Self::ARP | Self::RARP | Self::TIPC)
    }
}

/// A parsed encapsulation header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the payload that follows.
    pub ether_type: EtherType,
    /// The 16 bits that RFC 4391, section 6, reserves, in host byte order.
    ///
    /// Plain RFC 4391 senders transmit 0; receivers must not reject a frame for its value.
    pub reserved: u16,
}

impl Header {
    /// The length of the header on the wire in bytes.
    pub const LEN: usize = 4;

    /// Makes the header that RFC 4391, section 6, asks for: the reserved field is 0.
    #[inline]
    pub const fn new(ether_type: EtherType) -> Header {
        Header {
            ether_type,
            reserved: 0,
        }
    }

    /// Reads the header from the start of `bytes`.
    ///
    /// # Errors
    ///
    /// [`DropReason::Short`] if there are fewer than [`Header::LEN`] bytes. The EtherType is not
    /// judged here; see [`EtherType::is_supported`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, DropReason> {
        match *bytes {
            [t0, t1, r0, r1, ..] => Ok(Header {
                ether_type: EtherType(u16::from_be_bytes([t0, t1])),
                reserved: u16::from_be_bytes([r0, r1]),
            }),
            _ => Err(DropReason::Short),
        }
    }

    /// Writes the reserved field of a header, given in host byte order.
    #[inline]
    pub fn set_reserved(header: &mut [u8; 4], reserved: u16) {
        if let Some(field) = header.last_chunk_mut() {
            *field = reserved.to_be_bytes();
        }
    }

    /// Returns the header as it goes on the wire.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 4] {
        // As one number, which is stored at once.
        (((self.ether_type.0 as u32) << 16) | self.reserved as u32).to_be_bytes()
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_header))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::{EtherType, Header};
    use crate::drop::DropReason;

    /// RFC 4391, section 6: type, then 16 reserved bits, both big endian, 0 when sent.
    #[test]
    fn rfc4391_6_layout() {
        assert_eq!(Header::new(EtherType::IPV4).to_bytes(), [0x08, 0x00, 0, 0]);
        assert_eq!(Header::new(EtherType::ARP).to_bytes(), [0x08, 0x06, 0, 0]);
        assert_eq!(Header::new(EtherType::RARP).to_bytes(), [0x80, 0x35, 0, 0]);
        assert_eq!(Header::new(EtherType::IPV6).to_bytes(), [0x86, 0xdd, 0, 0]);
    }

    /// RFC 4391, section 6: the reserved field is ignored on receipt.
    #[test]
    fn rfc4391_6_reserved_is_no_reason_to_reject() {
        assert_eq!(
            Header::parse(&[0x86, 0xdd, 0xff, 0xfe, 0x60]),
            Ok(Header {
                ether_type: EtherType::IPV6,
                reserved: 0xfffe,
            })
        );
    }

    #[test]
    fn reserved_is_written_in_place() {
        let mut bytes = Header::new(EtherType::IPV6).to_bytes();
        Header::set_reserved(&mut bytes, 0x1234);
        assert_eq!(bytes, [0x86, 0xdd, 0x12, 0x34]);
    }

    /// RFC 4391, section 6: the list of types.
    #[test]
    fn rfc4391_6_types() {
        assert!(EtherType(0x0800).is_supported());
        assert!(EtherType(0x0806).is_supported());
        assert!(EtherType(0x8035).is_supported());
        assert!(EtherType(0x86dd).is_supported());
        // Byte-swapped, VLAN, LLDP and the lengths of IEEE 802.3 frames are not.
        assert!(!EtherType(0x0008).is_supported());
        assert!(!EtherType(0x8100).is_supported());
        assert!(!EtherType(0x88cc).is_supported());
        for ours in 0x0101..=0x0105 {
            assert!(!EtherType(ours).is_supported());
        }
        assert!(!EtherType(0).is_supported());
    }

    #[test]
    fn short_header_is_refused() {
        assert_eq!(Header::parse(&[]), Err(DropReason::Short));
        assert_eq!(Header::parse(&[0x08, 0x00, 0]), Err(DropReason::Short));
    }
}
