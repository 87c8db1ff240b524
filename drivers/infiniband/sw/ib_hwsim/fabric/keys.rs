// SPDX-License-Identifier: GPL-2.0

//! Queue pair numbers and the keys that a packet shows: P_Key (section 10.9) and Q_Key (10.2.5).

/// A partition key in host byte order: 15 bits that name the partition, and the membership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PKey(u16);

impl PKey {
    /// The bit of a full member.
    const FULL: u16 = 0x8000;

    /// Full membership of the default partition: entry 0 of a table at power-on (10.9.1.2).
    pub const DEFAULT: PKey = PKey(0xffff);

    /// Makes a key from its number in host byte order, valid or not.
    #[inline]
    pub const fn new(raw: u16) -> PKey {
        PKey(raw)
    }

    /// Returns the number in host byte order.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns true if the key names a partition: 0x0000 and 0x8000 do not.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.0 & !PKey::FULL != 0
    }

    /// Returns true if the key is that of a full member.
    #[inline]
    pub const fn is_full(self) -> bool {
        self.0 & PKey::FULL != 0
    }

    /// Returns true if a packet with one key may meet a queue pair with the other (section 10.9.3): one
    /// valid partition, and not two limited members.
    #[inline]
    pub const fn matches(self, other: PKey) -> bool {
        self.is_valid()
            && (self.0 ^ other.0) & !PKey::FULL == 0
            && (self.0 | other.0) & PKey::FULL != 0
    }
}

/// A queue key in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct QKey(u32);

impl QKey {
    /// The well-known key of queue pair 1 (section 13.5).
    pub const GSI: QKey = QKey(0x8001_0000);

    /// Makes a key from its number in host byte order.
    #[inline]
    pub const fn new(raw: u32) -> QKey {
        QKey(raw)
    }

    /// Returns the number in host byte order.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Qpn(u32);

impl Qpn {
    /// The subnet management interface, which alone uses virtual lane 15.
    pub const SMI: Qpn = Qpn(0);

    /// The general services interface.
    pub const GSI: Qpn = Qpn(1);

    /// The destination of multicast packets: each queue pair attached to the group.
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);

    /// Makes a number; `None` above 24 bits.
    #[inline]
    pub const fn new(raw: u32) -> Option<Qpn> {
        if raw <= Qpn::MULTICAST.0 {
            Some(Qpn(raw))
        } else {
            None
        }
    }

    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_keys))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// Section 10.9.3, P_Key matching.
    #[test]
    fn pkeys_match_by_partition_and_membership() {
        // one key, the other, whether they match
        let cases = [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0x7fff, false),
            (0x8001, 0x0001, true),
            (0x8001, 0x8002, false),
            (0x8000, 0x8000, false),
            (0x8000, 0x0000, false),
            (0x0000, 0x0000, false),
        ];
        for (a, b, expected) in cases {
            assert_eq!(PKey::new(a).matches(PKey::new(b)), expected);
            assert_eq!(PKey::new(b).matches(PKey::new(a)), expected);
        }
    }

    #[test]
    fn qpn_has_24_bits() {
        assert_eq!(Qpn::new(0xff_ffff), Some(Qpn::MULTICAST));
        assert_eq!(Qpn::new(0x100_0000), None);
    }
}
