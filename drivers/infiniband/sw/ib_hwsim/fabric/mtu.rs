// SPDX-License-Identifier: GPL-2.0

//! The five sizes of an InfiniBand MTU (section 14.2.5.6, MTUCap).

/// A maximum transfer unit: the largest payload of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes, which every link can carry.
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
    /// Returns the code that management datagrams use, 1 to 5.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the size in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        match self {
            Mtu::B256 => 256,
            Mtu::B512 => 512,
            Mtu::B1024 => 1024,
            Mtu::B2048 => 2048,
            Mtu::B4096 => 4096,
        }
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
            assert_eq!(mtu.map(Mtu::code), Some(code));
        }
        assert_eq!(Mtu::from_code(0), None);
        assert_eq!(Mtu::from_code(6), None);
    }
}
