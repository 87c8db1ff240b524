// SPDX-License-Identifier: GPL-2.0

//! Sets of external ports.

/// A set of external ports, 1 to 64. Port 0 is never in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PortMask(u64);

impl PortMask {
    /// Makes a set of bits: port 1 in bit 0.
    #[inline]
    pub const fn new(bits: u64) -> PortMask {
        PortMask(bits)
    }

    /// Returns the bits: port 1 in bit 0.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Makes the set of one port; the empty one for a number that is no external port.
    #[inline]
    pub const fn of(port: u8) -> PortMask {
        match port {
            1..=64 => PortMask(1 << (port.wrapping_sub(1) & 63)),
            _ => PortMask(0),
        }
    }

    /// Makes the set of the ports 1 to `last`.
    #[inline]
    pub const fn up_to(last: u8) -> PortMask {
        match last {
            0 => PortMask(0),
            1..=63 => PortMask(!(u64::MAX << last)),
            _ => PortMask(u64::MAX),
        }
    }

    /// Returns true if a port is in the set.
    #[inline]
    pub const fn contains(self, port: u8) -> bool {
        self.0 & PortMask::of(port).0 != 0
    }

    /// Returns true if the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set without a port.
    #[inline]
    pub const fn without(self, port: u8) -> PortMask {
        PortMask(self.0 & !PortMask::of(port).0)
    }
}

impl Iterator for PortMask {
    type Item = u8;

    /// Takes the lowest port out of the set.
    #[inline]
    fn next(&mut self) -> Option<u8> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.checked_sub(1)?;
        Some(bit.wrapping_add(1) as u8)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_switch_mask))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::PortMask;

    #[test]
    fn ports_are_1_to_64() {
        for port in 0..=u8::MAX {
            let exists = (1..=64).contains(&port);
            assert_eq!(PortMask::of(port).is_empty(), !exists);
            assert_eq!(PortMask::new(u64::MAX).contains(port), exists);
        }
        assert_eq!(PortMask::of(1).bits(), 1);
        assert_eq!(PortMask::of(64).bits(), 1 << 63);
    }

    #[test]
    fn ports_come_in_order() {
        let mask = PortMask::new((1 << 63) | 0b1011);
        assert!(mask.eq([1, 2, 4, 64]));
        assert!(mask.without(2).without(0).eq([1, 4, 64]));
        assert_eq!(PortMask::default().next(), None);
    }

    #[test]
    fn the_first_ports() {
        for (last, count) in [(0, 0), (1, 1), (36, 36), (63, 63), (64, 64), (255, 64)] {
            assert_eq!(PortMask::up_to(last).count(), count);
        }
    }
}
