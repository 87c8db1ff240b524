// SPDX-License-Identifier: GPL-2.0

//! The five sizes of an InfiniBand MTU (section 14.2.5.6, MTUCap).

/// A maximum transfer unit, the largest payload of one packet, by its code in management datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes, which every link can carry.
    #[default]
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// Returns the size in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// Makes an MTU from its code; `None` for a reserved one.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Mtu> {
        match code {
            1 => Some(Mtu::B256),
            2 => Some(Mtu::B512),
            3 => Some(Mtu::B1024),
            4 => Some(Mtu::B2048),
            5 => Some(Mtu::B4096),
            _ => None,
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_mtu))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::Mtu;

    #[test]
    fn codes_and_sizes() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            let mtu = Mtu::from_code(code);
            assert_eq!(mtu.map(Mtu::bytes), Some(bytes));
            assert_eq!(mtu.map(|mtu| mtu as u8), Some(code));
        }
        assert_eq!(Mtu::from_code(0), None);
        assert_eq!(Mtu::from_code(6), None);
    }
}
