// SPDX-License-Identifier: GPL-2.0

//! Multicast GIDs: how IP groups map to InfiniBand groups (RFC 4391, section 4).
//!
//! ```text
//!    8 bits   4      4       16 bits      16 bits       80 bits
//! | 0xff   | 0001 | scope | signature |   P_Key   |   group ID   |
//! ```

use crate::wire::gid::Gid;
use crate::wire::hwaddr::{Flags, HwAddr, Qpn};
use crate::wire::pkey::PKey;

/// The signature of IPv4 groups and of the broadcast group.
const SIGNATURE_IPV4: u16 = 0x401b;

/// The signature of IPv6 groups.
const SIGNATURE_IPV6: u16 = 0x601b;

/// The group ID of the broadcast group: 48 zero bits and 32 ones.
const BROADCAST_GROUP: [u8; 10] = [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// How far a group reaches: the scope bits of IPv6 multicast addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Scope(u8);

impl Scope {
    /// The InfiniBand subnet: recommended by RFC 4391, section 4.1.
    pub const LINK_LOCAL: Scope = Scope(0x2);

    /// Makes a scope; `None` for the reserved values 0 and 0xf and for more than 4 bits.
    #[inline]
    pub const fn new(raw: u8) -> Option<Scope> {
        match raw {
            0x1..=0xe => Some(Scope(raw)),
            _ => None,
        }
    }

    /// Returns the four bits.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The MGID of an IPoIB group: well formed by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Mgid(Gid);

impl Mgid {
    /// Recognises the MGID of an IPoIB group by the rules of RFC 4391, section 4: a transient multicast GID
    /// with a scope, a signature and a partition key that are valid, and for IPv4 with no more than 28 bits
    /// of group ID.
    pub const fn parse(gid: Gid) -> Option<Mgid> {
        let [prefix, flags_scope, s0, s1, p0, p1, group @ ..] = gid.0;
        let transient = flags_scope >> 4 == 0x1 && Scope::new(flags_scope & 0xf).is_some();
        if prefix != 0xff || !transient || PKey::new(u16::from_be_bytes([p0, p1])).is_none() {
            return None;
        }
        match (u16::from_be_bytes([s0, s1]), group) {
            (SIGNATURE_IPV6, _)
            | (
                SIGNATURE_IPV4,
                [0, 0, 0, 0, 0, 0, 0x00..=0x0f, _, _, _]
                | [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            ) => Some(Mgid(gid)),
            _ => None,
        }
    }

    /// Takes the group out of a link-layer address from the stack's list; `None` unless the queue
    /// pair number is the multicast one and the GID is that of an IPoIB group.
    pub const fn from_hwaddr(addr: &HwAddr) -> Option<Mgid> {
        if addr.qpn().get() != Qpn::MULTICAST.get() {
            return None;
        }
        Mgid::parse(addr.gid())
    }

    /// Returns the link-layer address of the group: no flags, the multicast queue pair number.
    #[inline]
    pub const fn to_hwaddr(self) -> HwAddr {
        HwAddr::new(Flags::NONE, Qpn::MULTICAST, self.0)
    }

    /// Returns the GID.
    #[inline]
    pub const fn gid(&self) -> Gid {
        self.0
    }

    /// Returns the scope.
    #[inline]
    pub const fn scope(&self) -> Scope {
        Scope(self.0 .0[1] & 0xf)
    }

    /// Returns the partition key.
    #[inline]
    pub const fn pkey(&self) -> PKey {
        match PKey::new(u16::from_be_bytes([self.0 .0[4], self.0 .0[5]])) {
            Some(pkey) => pkey,
            // Ruled out by both constructors.
            None => PKey::DEFAULT,
        }
    }

    /// Returns the same group in another partition (with the full-member bit set).
    #[inline]
    #[must_use]
    pub const fn set_pkey(mut self, pkey: PKey) -> Mgid {
        let [p0, p1] = pkey.to_full().get().to_be_bytes();
        self.0 .0[4] = p0;
        self.0 .0[5] = p1;
        self
    }

    /// Returns true if this is a broadcast group.
    #[inline]
    pub const fn is_broadcast(&self) -> bool {
        let [_, _, s0, s1, _, _, group @ ..] = self.0 .0;
        u16::from_be_bytes([s0, s1]) == SIGNATURE_IPV4 && matches!(group, BROADCAST_GROUP)
    }

    /// Returns true if this group belongs to the link that `broadcast` defines: all groups of a link have
    /// its scope (RFC 4391, section 4) and its partition key (section 10).
    #[inline]
    pub const fn matches_broadcast(&self, broadcast: &Mgid) -> bool {
        self.0 .0[1] == broadcast.0 .0[1]
            && self.0 .0[4] == broadcast.0 .0[4]
            && self.0 .0[5] == broadcast.0 .0[5]
    }
}

impl_display!(Mgid, |this, f| core::fmt::Display::fmt(&this.0, f));

/// Makes the broadcast GID of a link, to which 255.255.255.255 maps (RFC 4391, section 4).
#[inline]
pub const fn broadcast(pkey: PKey, scope: Scope) -> Mgid {
    let [s0, s1] = SIGNATURE_IPV4.to_be_bytes();
    let flags_scope = 0x10 | scope.0;
    Mgid(Gid([
        0xff,
        flags_scope,
        s0,
        s1,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0xff,
        0xff,
        0xff,
        0xff,
    ]))
    .set_pkey(pkey)
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_mgid))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const LINK: Scope = Scope::LINK_LOCAL;

    /// Partition 1 as a limited member: what is in use is the full member's key.
    fn limited() -> PKey {
        PKey::new(0x0001).unwrap_or(PKey::DEFAULT)
    }

    /// RFC 4391, section 4: figure 2; section 4.1: the key is the full member's.
    #[test]
    fn rfc4391_4_broadcast_gid() {
        let mut expected = [
            0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
        ];
        let mgid = broadcast(PKey::DEFAULT, LINK);
        assert_eq!(mgid.gid().as_bytes(), &expected);
        assert!(mgid.is_broadcast());
        assert_eq!(Mgid::parse(mgid.gid()), Some(mgid));
        (expected[4], expected[5]) = (0x80, 0x01);
        let mgid = broadcast(limited(), LINK);
        assert_eq!(mgid.gid().as_bytes(), &expected);
        assert_eq!(mgid.pkey().get(), 0x8001);
        assert_eq!(mgid.set_pkey(PKey::DEFAULT), broadcast(PKey::DEFAULT, LINK));
    }

    /// RFC 4391, section 4: 224.0.0.2 and ff02::2, as in its example.
    #[test]
    fn rfc4391_4_all_routers() {
        let ipv4 = [
            0xff, 0x12, 0x40, 0x1b, 0x80, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        ];
        let ipv6 = [
            0xff, 0x12, 0x60, 0x1b, 0x80, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        ];
        for gid in [ipv4, ipv6] {
            let group = Mgid::parse(Gid(gid));
            assert!(group.is_some_and(|group| !group.is_broadcast()));
            assert!(group.is_some_and(|group| group.matches_broadcast(&broadcast(limited(), LINK))));
        }
    }

    /// RFC 4391, section 9.1.1 with figure 2: the broadcast address as `ip link` shows it.
    #[test]
    fn rfc4391_9_1_1_broadcast_hwaddr() {
        let mgid = broadcast(PKey::DEFAULT, LINK);
        let mut addr = mgid.to_hwaddr();
        assert_eq!(
            addr.as_bytes(),
            &[
                0x00, 0xff, 0xff, 0xff, 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff,
                0xff, 0xff, 0xff
            ]
        );
        assert_eq!(Mgid::from_hwaddr(&addr), Some(mgid));
        // Only with the multicast queue pair it is a group.
        addr.0[3] = 0xfe;
        assert_eq!(Mgid::from_hwaddr(&addr), None);
    }

    /// RFC 4391, sections 4 and 10: one scope and one partition per link, any signature.
    #[test]
    fn rfc4391_10_groups_of_a_link() {
        let link = broadcast(PKey::DEFAULT, LINK);
        let with = |index: usize, value: u8| {
            let mut gid = link.gid();
            gid.0[index] = value;
            Mgid(gid)
        };
        assert!(link.matches_broadcast(&link));
        for index in [2, 6, 15] {
            let group = with(index, 0x60);
            assert!(group.matches_broadcast(&link) && !group.is_broadcast());
        }
        assert!(!with(4, 0x80).matches_broadcast(&link));
        assert!(!with(5, 0x01).matches_broadcast(&link));
        assert!(!with(1, 0x1e).matches_broadcast(&link));
    }

    /// RFC 4391, section 4: each field has few values.
    #[test]
    fn rfc4391_4_malformed_groups() {
        let good = broadcast(PKey::DEFAULT, LINK).gid();
        let with = |index: usize, value: u8| {
            let mut gid = good;
            gid.0[index] = value;
            Mgid::parse(gid)
        };
        let malformed = [
            (0, 0xfe),
            (1, 0x02),
            (1, 0x32),
            (1, 0x10),
            (1, 0x1f),
            (2, 0x80),
            (6, 0x01),
            (12, 0x10),
        ];
        for (index, value) in malformed {
            assert_eq!(with(index, value), None);
        }
        assert!(with(12, 0x0f).is_some() && with(1, 0x1e).is_some());
        let mut no_partition = good;
        (no_partition.0[4], no_partition.0[5]) = (0x80, 0x00);
        assert_eq!(Mgid::parse(no_partition), None);
    }

    #[test]
    fn reserved_scopes() {
        assert_eq!(Scope::new(0), None);
        assert_eq!(Scope::new(0xf), None);
        assert_eq!(Scope::new(0x12), None);
        assert_eq!(Scope::new(0x2), Some(LINK));
    }

    /// RFC 4391, section 4.1: the scope of a link is not always the recommended one.
    #[test]
    fn rfc4391_4_1_other_scopes() {
        for raw in 0x1..=0xe {
            let group = Scope::new(raw).map(|scope| broadcast(PKey::DEFAULT, scope));
            assert_eq!(group.map(|group| group.scope().get()), Some(raw));
            assert!(group.is_some_and(
                |group| group.is_broadcast() && Mgid::parse(group.gid()) == Some(group)
            ));
        }
    }
}
