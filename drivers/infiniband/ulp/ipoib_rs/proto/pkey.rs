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

    /// Returns the 15 bits that name the partition.
    #[inline]
    pub const fn base(self) -> u16 {
        self.0 & !FULL
    }

    /// Whether the full-member bit is set.
    #[inline]
    pub const fn is_full(self) -> bool {
        self.0 & FULL != 0
    }

    /// Returns the key of the same partition with the full-member bit set, which is the one that
    /// an IPoIB link uses (RFC 4391, section 4.1).
    #[inline]
    pub const fn to_full(self) -> PKey {
        PKey(self.0 | FULL)
    }

    /// Whether both keys name the same partition, whatever the membership.
    #[inline]
    pub const fn same_partition(self, other: PKey) -> bool {
        self.base() == other.base()
    }

    /// Whether ports with these two keys may talk: same partition, and at least one full member.
    #[inline]
    pub const fn may_talk(self, other: PKey) -> bool {
        self.same_partition(other) && (self.is_full() || other.is_full())
    }

    /// Finds this partition in a port's P_Key table, given as raw entries in index order.
    ///
    /// The low 15 bits have to match. An entry with full membership wins over an earlier one
    /// with limited membership.
    pub fn find_index(self, table: impl IntoIterator<Item = u16>) -> Option<u16> {
        let mut limited = None;
        // The index of a P_Key table has 16 bits: whatever lies beyond cannot be addressed.
        for (index, raw) in (0..=u16::MAX).zip(table) {
            let Some(entry) = PKey::new(raw) else {
                continue;
            };
            if !entry.same_partition(self) {
                continue;
            }
            if entry.is_full() {
                return Some(index);
            }
            limited = limited.or(Some(index));
        }
        limited
    }
}

impl_display!(PKey, |this, f| core::write!(f, "{:#06x}", this.0));

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
        assert!(PKey::DEFAULT.is_full());
        assert_eq!(PKey::new(0x0123).map(|p| p.to_full().get()), Some(0x8123));
    }

    #[test]
    fn two_limited_members_may_not_talk() {
        let full = PKey(0x8001);
        let limited = PKey(0x0001);
        assert!(full.may_talk(limited));
        assert!(limited.may_talk(full));
        assert!(full.may_talk(full));
        assert!(!limited.may_talk(limited));
        assert!(!full.may_talk(PKey(0x8002)));
    }

    #[test]
    fn index_prefers_full_membership() {
        let key = PKey(0x8001);
        assert_eq!(key.find_index([0xffff, 0x0001, 0x8001]), Some(2));
        assert_eq!(key.find_index([0xffff, 0x8001, 0x0001]), Some(1));
        assert_eq!(key.find_index([0xffff, 0x0001, 0x0001]), Some(1));
        assert_eq!(key.find_index([0xffff, 0x0000, 0x8002]), None);
        assert_eq!(key.find_index([]), None);
    }

    #[test]
    fn invalid_entries_match_nothing() {
        assert_eq!(PKey::DEFAULT.find_index([0x0000, 0x8000, 0xffff]), Some(2));
    }
}
