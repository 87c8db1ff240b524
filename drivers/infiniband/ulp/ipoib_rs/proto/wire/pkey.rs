// SPDX-License-Identifier: GPL-2.0

//! Partition keys: which partition a packet belongs to, and with which membership.

/// The bit that says full member; the other 15 name the partition.
const FULL: u16 = 0x8000;

/// A valid partition key in host byte order.
///
/// The 15-bit base 0 names no partition, so that 0x0000 and 0x8000 are not keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PKey(u16);

impl PKey {
    /// Full membership of the default partition.
    pub const DEFAULT: PKey = PKey(0xffff);

    /// Makes a partition key; `None` for 0x0000 and 0x8000.
    #[inline]
    pub const fn new(raw: u16) -> Option<PKey> {
        if raw & !FULL == 0 {
            None
        } else {
            Some(PKey(raw))
        }
    }

    /// Returns the key in host byte order.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the key of the same partition with the full-member bit set, which is the one that
    /// an IPoIB link uses (RFC 4391, section 4.1).
    #[inline]
    pub const fn to_full(self) -> PKey {
        PKey(self.0 | FULL)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_pkey))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::PKey;

    #[test]
    fn base_zero_is_no_key() {
        assert_eq!(PKey::new(0x0000), None);
        assert_eq!(PKey::new(0x8000), None);
        assert_eq!(PKey::new(0x8001).map(PKey::get), Some(0x8001));
        assert_eq!(PKey::new(0x0001).map(PKey::get), Some(0x0001));
    }

    /// RFC 4391, section 4.1: the key of a link has the full-membership bit.
    #[test]
    fn rfc4391_4_1_full_member() {
        assert_eq!(PKey::DEFAULT.to_full(), PKey::DEFAULT);
        assert_eq!(PKey::new(0x0123).map(|p| p.to_full().get()), Some(0x8123));
    }
}
