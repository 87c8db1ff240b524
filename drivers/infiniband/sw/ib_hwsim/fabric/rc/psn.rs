// SPDX-License-Identifier: GPL-2.0

//! Packet sequence numbers (section 9.7.1).

/// A packet sequence number: 24 bits, the lowest one following the highest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Bits that a number has.
    const BITS: u32 = 24;

    /// Makes a number of the low 24 bits.
    #[inline]
    pub const fn new(raw: u32) -> Psn {
        Psn(raw & ((1 << Psn::BITS) - 1))
    }

    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number `n` packets further on.
    #[inline]
    pub const fn plus(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_add(n))
    }

    /// Returns the number before this one.
    #[inline]
    pub const fn before(self) -> Psn {
        Psn::new(self.0.wrapping_sub(1))
    }

    /// Returns by how many packets this number is after `other`, from -2^23 to 2^23 - 1.
    #[inline]
    pub const fn since(self, other: Psn) -> i32 {
        const UNUSED: u32 = u32::BITS - Psn::BITS;
        (self.0.wrapping_sub(other.0) << UNUSED) as i32 >> UNUSED
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_psn))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::Psn;

    #[test]
    fn numbers_wrap() {
        // number, packets further on, that number
        for (from, n, to) in [
            (0, 1, 1),
            (0xff_ffff, 1, 0),
            (0xff_fff0, 0x20, 0x10),
            (0x100_0005, 1, 6),
        ] {
            assert_eq!(Psn::new(from).plus(n), Psn::new(to));
            assert_eq!(Psn::new(to).since(Psn::new(from)), n as i32);
            assert_eq!(Psn::new(from).since(Psn::new(to)), -(n as i32));
        }
        assert_eq!(Psn::new(0).before(), Psn::new(0xff_ffff));
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0x7f_ffff).since(Psn::new(0)), 0x7f_ffff);
    }
}
