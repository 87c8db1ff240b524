// SPDX-License-Identifier: GPL-2.0

//! Addresses: of hardware (GUID), in a subnet (LID) and between subnets (GID). Section 4.1.

/// A global unique identifier: an EUI-64 that hardware is made with, or that a manager assigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Guid(u64);

impl Guid {
    /// The value that stands for no GUID.
    pub const NONE: Guid = Guid(0);

    /// Makes a GUID from its number in host byte order.
    #[inline]
    pub const fn new(raw: u64) -> Guid {
        Guid(raw)
    }

    /// Returns the number in host byte order.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the eight bytes in wire order.
    #[inline]
    pub const fn to_be_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// A global identifier in wire order: a subnet prefix and a GUID, or a multicast group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Gid([u8; 16]);

impl Gid {
    /// The prefix that every port answers to, whatever the subnet manager has assigned
    /// (section 4.1.1): fe80::/64.
    pub const DEFAULT_PREFIX: u64 = 0xfe80_0000_0000_0000;

    /// The absence of a GID.
    pub const NONE: Gid = Gid([0; 16]);

    /// Joins a subnet prefix (host byte order) and a GUID.
    #[inline]
    pub const fn from_parts(prefix: u64, guid: Guid) -> Gid {
        Gid((((prefix as u128) << 64) | guid.0 as u128).to_be_bytes())
    }

    /// Makes a GID from 16 bytes in wire order.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 16]) -> Gid {
        Gid(bytes)
    }

    /// Returns the 16 bytes in wire order.
    #[inline]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns true if the GID names a multicast group: its first byte is 0xff.
    #[inline]
    pub const fn is_multicast(&self) -> bool {
        self.0[0] == 0xff
    }

    /// Returns the upper half, the subnet prefix, in host byte order.
    #[inline]
    pub const fn prefix(&self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// Returns the lower half, the GUID of a unicast GID.
    #[inline]
    pub const fn guid(&self) -> Guid {
        Guid(u128::from_be_bytes(self.0) as u64)
    }
}

/// A local identifier: an address within one subnet (section 4.1.3). Zero stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Lid(u16);

impl Lid {
    /// The absence of a LID: a port that no subnet manager has configured.
    pub const NONE: Lid = Lid(0);

    /// The LID that any port takes for its own: that of directed routes.
    pub const PERMISSIVE: Lid = Lid(0xffff);

    /// Makes a LID from its number in host byte order.
    #[inline]
    pub const fn new(raw: u16) -> Lid {
        Lid(raw)
    }

    /// Returns the number in host byte order.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns true if the LID names a multicast group.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        matches!(self.0, 0xc000..=0xfffe)
    }

    /// Returns true if the LID can be that of one port.
    #[inline]
    pub const fn is_unicast(self) -> bool {
        matches!(self.0, 1..=0xbfff)
    }

    /// Returns this LID with the `lmc` low bits cleared: the base LID of the port's range.
    #[inline]
    pub(crate) const fn base(self, lmc: u8) -> Lid {
        Lid(self.0 & u16::MAX.wrapping_shl(lmc as u32))
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_addr))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn gid_is_prefix_then_guid() {
        let gid = Gid::from_parts(0xfe80_0000_0000_0000, Guid::new(0x0002_c903_0004_0506));
        let bytes = [
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0xc9, 0x03, 0x00, 0x04, 0x05, 0x06,
        ];
        assert_eq!(gid.bytes(), &bytes);
        assert_eq!(gid, Gid::from_bytes(bytes));
        assert_eq!(gid.prefix(), Gid::DEFAULT_PREFIX);
        assert_eq!(gid.guid().to_be_bytes(), [0, 2, 0xc9, 3, 0, 4, 5, 6]);
        assert!(!gid.is_multicast());
        assert!(Gid::from_parts(0xff12_401b_ffff_0000, Guid::new(1)).is_multicast());
    }

    /// Section 4.1.3: the LID space.
    #[test]
    fn lid_space() {
        // LID, unicast, multicast
        let cases = [
            (0x0000, false, false),
            (0x0001, true, false),
            (0xbfff, true, false),
            (0xc000, false, true),
            (0xfffe, false, true),
            (0xffff, false, false),
        ];
        for (raw, unicast, multicast) in cases {
            let lid = Lid::new(raw);
            assert_eq!((lid.is_unicast(), lid.is_multicast()), (unicast, multicast));
        }
    }

    #[test]
    fn base_clears_the_path_bits() {
        assert_eq!(Lid::new(0x1237).base(0), Lid::new(0x1237));
        assert_eq!(Lid::new(0x1237).base(3), Lid::new(0x1230));
        assert_eq!(Lid::new(0x12ff).base(7), Lid::new(0x1280));
    }
}
