// SPDX-License-Identifier: GPL-2.0

//! The management key that protects a port's settings (section 14.2.4).

/// The management key of a port, its protection level and its lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct MKey {
    /// The key; zero protects nothing.
    pub(crate) key: u64,
    /// M_KeyProtectBits, 0 to 3.
    pub(crate) protection: u8,
    /// The lease period in seconds; zero never ends.
    pub(crate) lease_period: u16,
    /// The number of refused requests; it stops at its maximum.
    pub(crate) violations: u16,
    /// The seconds that are left of the lease, while its timer runs.
    lease_left: Option<u16>,
}

impl MKey {
    /// Returns true if a request with this key is to be answered.
    ///
    /// A read needs the key at protection level 2 and above, a write always does. A refusal
    /// counts and starts the lease; the right key stops it (sections 14.2.4.1 and 14.2.4.2).
    pub(crate) fn check(&mut self, key: u64, is_set: bool) -> bool {
        if self.key == 0 || self.key == key {
            self.lease_left = None;
            return true;
        }
        if !is_set && self.protection < 2 {
            return true;
        }
        self.violations = self.violations.saturating_add(1);
        if self.lease_period != 0 && self.lease_left.is_none() {
            self.lease_left = Some(self.lease_period);
        }
        false
    }

    /// Returns the key as Get(PortInfo) with `key` may see it: at protection level 1 only those
    /// who have it. The requester of a Set knows the new key.
    pub(crate) fn visible_to(&self, key: u64, is_set: bool) -> u64 {
        if is_set || self.protection == 0 || self.key == key {
            self.key
        } else {
            0
        }
    }

    /// Lets time go by. A lease that ends opens the key to be read, so that a new subnet manager
    /// can take over (section 14.2.4.2).
    pub(crate) fn elapse(&mut self, seconds: u16) {
        let Some(left) = self.lease_left else {
            return;
        };
        self.lease_left = left.checked_sub(seconds).filter(|&left| left != 0);
        if self.lease_left.is_none() {
            self.protection = 0;
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_mkey))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::MKey;

    fn key(protection: u8) -> MKey {
        MKey {
            key: 7,
            protection,
            lease_period: 10,
            ..MKey::default()
        }
    }

    /// Section 14.2.4.1: the levels of protection.
    #[test]
    fn levels_of_protection() {
        // level, read without the key, key seen by such a read
        for (level, may_read, seen) in [(0, true, 7), (1, true, 0), (2, false, 0), (3, false, 0)] {
            assert_eq!(key(level).check(8, false), may_read);
            assert_eq!(key(level).visible_to(8, false), seen);
            assert_eq!(key(level).visible_to(8, true), 7);
            assert_eq!(key(level).visible_to(7, false), 7);
            assert!(key(level).check(7, false));
            assert!(key(level).check(7, true));
            assert!(!key(level).check(8, true));
        }
    }

    #[test]
    fn zero_protects_nothing() {
        let mut open = MKey {
            protection: 3,
            ..MKey::default()
        };
        assert!(open.check(8, true));
        assert_eq!(open.violations, 0);
    }

    #[test]
    fn violations_count_and_stop_at_the_maximum() {
        let mut key = key(1);
        key.check(8, false);
        assert_eq!(key.violations, 0);
        key.check(8, true);
        assert_eq!(key.violations, 1);
        key.violations = u16::MAX;
        key.check(8, true);
        assert_eq!(key.violations, u16::MAX);
    }

    #[test]
    fn lease_ends_and_opens_the_key() {
        let mut key = key(2);
        key.elapse(100);
        assert_eq!(key.protection, 2);
        key.check(8, true);
        key.elapse(6);
        key.check(8, true);
        assert!(key.lease_left.is_some());
        key.elapse(4);
        assert!(key.lease_left.is_none());
        assert_eq!((key.protection, key.key), (0, 7));
    }

    #[test]
    fn right_key_stops_the_lease() {
        let mut key = key(2);
        key.check(8, true);
        key.check(7, false);
        key.elapse(100);
        assert_eq!(key.protection, 2);
    }

    #[test]
    fn no_period_no_lease() {
        let mut key = key(2);
        key.lease_period = 0;
        key.check(8, true);
        assert!(key.lease_left.is_none());
    }
}
