// SPDX-License-Identifier: GPL-2.0

//! Queue keys: what a datagram has to carry for a UD queue pair to accept it.

/// A Q_Key in host byte order.
///
/// A *controlled* Q_Key has its highest bit set. The InfiniBand architecture lets a consumer put
/// only uncontrolled ones into a work request: for a controlled one the device uses the Q_Key of
/// the sending queue pair instead, and to give a queue pair a controlled Q_Key takes a privileged
/// owner (Linux asks user space for CAP_NET_RAW).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct QKey(pub u32);

impl QKey {
    /// Returns true if the highest bit is set (RFC 4391, section 4.1, recommends it).
    #[inline]
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_qkey))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::QKey;

    /// RFC 4391, section 4.1: a Q_Key with its highest bit set is recommended.
    #[test]
    fn rfc4391_4_1_controlled() {
        assert!(QKey(0x8000_0b1b).is_controlled());
        assert!(!QKey(0x7fff_ffff).is_controlled());
    }
}
