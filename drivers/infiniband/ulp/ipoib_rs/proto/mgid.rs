// SPDX-License-Identifier: GPL-2.0

//! Multicast GIDs: how IP groups map to InfiniBand groups (RFC 4391, section 4).
//!
//! ```text
//!    8 bits   4      4       16 bits      16 bits       80 bits
//! | 0xff   | 0001 | scope | signature |   P_Key   |   group ID   |
//! ```

use crate::gid::Gid;
use crate::hwaddr::{Flags, HwAddr, Qpn};
use crate::pkey::PKey;

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
    /// A site of several subnets.
    pub const SITE_LOCAL: Scope = Scope(0x5);
    /// An organisation.
    pub const ORGANISATION_LOCAL: Scope = Scope(0x8);
    /// Everywhere.
    pub const GLOBAL: Scope = Scope(0xe);

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

/// What an IPoIB group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The broadcast group, which defines the link.
    Broadcast,
    /// An IPv4 group, by the low 28 bits of its address.
    Ipv4(u32),
    /// An IPv6 group, by the low 80 bits of its address in network byte order.
    Ipv6([u8; 10]),
}

/// Why a GID is not the MGID of an IPoIB group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MgidError {
    /// It does not begin with 0xff.
    NotMulticast,
    /// The flags are not exactly T, which RFC 4391, section 4, demands.
    NotTransient,
    /// The scope is a reserved value.
    Scope,
    /// The signature is neither that of IPv4 nor that of IPv6.
    Signature,
    /// The partition key is invalid.
    PKey,
    /// The signature is that of IPv4, but the group ID has more than 28 bits.
    Group,
}

/// The MGID of an IPoIB group: well formed by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Mgid(Gid);

impl Mgid {
    #[inline]
    const fn compose(signature: u16, pkey: PKey, scope: Scope, group: [u8; 10]) -> Mgid {
        let [s0, s1] = signature.to_be_bytes();
        // RFC 4391, section 4.1: the key in use is always the full member's.
        let [p0, p1] = pkey.to_full().get().to_be_bytes();
        let [a, b, c, d, e, f, g, h, i, j] = group;
        Mgid(Gid([
            0xff,
            0x10 | scope.0,
            s0,
            s1,
            p0,
            p1,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            i,
            j,
        ]))
    }

    /// Recognises the MGID of an IPoIB group.
    ///
    /// # Errors
    ///
    /// Says which rule of RFC 4391, section 4, the GID breaks.
    pub const fn parse(gid: Gid) -> Result<Mgid, MgidError> {
        let [prefix, flags_scope, s0, s1, p0, p1, group @ ..] = gid.0;
        if prefix != 0xff {
            return Err(MgidError::NotMulticast);
        }
        if flags_scope >> 4 != 0x1 {
            return Err(MgidError::NotTransient);
        }
        if Scope::new(flags_scope & 0xf).is_none() {
            return Err(MgidError::Scope);
        }
        if PKey::new(u16::from_be_bytes([p0, p1])).is_none() {
            return Err(MgidError::PKey);
        }
        match u16::from_be_bytes([s0, s1]) {
            SIGNATURE_IPV6 => Ok(Mgid(gid)),
            SIGNATURE_IPV4 => match group {
                [0, 0, 0, 0, 0, 0, 0x00..=0x0f, _, _, _]
                | [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] => Ok(Mgid(gid)),
                _ => Err(MgidError::Group),
            },
            _ => Err(MgidError::Signature),
        }
    }

    /// Takes the group out of a link-layer address from the stack's list; `None` unless the queue
    /// pair number is the multicast one and the GID is that of an IPoIB group.
    pub const fn from_hwaddr(addr: &HwAddr) -> Option<Mgid> {
        if addr.qpn().get() != Qpn::MULTICAST.get() {
            return None;
        }
        match Mgid::parse(addr.gid()) {
            Ok(mgid) => Some(mgid),
            Err(_) => None,
        }
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

    /// Returns the 16-bit signature.
    #[inline]
    pub const fn signature(&self) -> u16 {
        u16::from_be_bytes([self.0 .0[2], self.0 .0[3]])
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

    /// Returns what the group is for.
    pub const fn kind(&self) -> Kind {
        let [_, _, _, _, _, _, group @ ..] = self.0 .0;
        match self.signature() {
            SIGNATURE_IPV6 => Kind::Ipv6(group),
            _ => {
                let [.., a, b, c, d] = group;
                match u32::from_be_bytes([a, b, c, d]) {
                    0xffff_ffff => Kind::Broadcast,
                    low28 => Kind::Ipv4(low28),
                }
            }
        }
    }

    /// Whether this is a broadcast group.
    #[inline]
    pub const fn is_broadcast(&self) -> bool {
        matches!(self.kind(), Kind::Broadcast)
    }

    /// Whether this group belongs to the link that `broadcast` defines: all groups of a link have
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
    Mgid::compose(SIGNATURE_IPV4, pkey, scope, BROADCAST_GROUP)
}

/// Makes the 20-byte broadcast address of a link.
#[inline]
pub const fn broadcast_hwaddr(pkey: PKey, scope: Scope) -> [u8; 20] {
    broadcast(pkey, scope).to_hwaddr().0
}

/// Maps an IPv4 group address (in network byte order).
///
/// The low 28 bits count; the limited broadcast address maps to the broadcast GID.
#[inline]
pub const fn from_ipv4(addr: [u8; 4], pkey: PKey, scope: Scope) -> Mgid {
    let [a, b, c, d] = addr;
    if u32::from_be_bytes(addr) == 0xffff_ffff {
        return broadcast(pkey, scope);
    }
    let group = [0, 0, 0, 0, 0, 0, a & 0x0f, b, c, d];
    Mgid::compose(SIGNATURE_IPV4, pkey, scope, group)
}

/// Maps an IPv6 group address (in network byte order).
///
/// The low 80 bits count; the scope is that of the link and not that of the address.
#[inline]
pub const fn from_ipv6(addr: [u8; 16], pkey: PKey, scope: Scope) -> Mgid {
    let [_, _, _, _, _, _, group @ ..] = addr;
    Mgid::compose(SIGNATURE_IPV6, pkey, scope, group)
}

/// Maps the solicited-node group of an IPv6 unicast address (RFC 4291, section 2.7.1): the
/// low 24 bits of the address behind `ff02::1:ff00:0/104`.
#[inline]
pub const fn solicited_node(addr: [u8; 16], pkey: PKey, scope: Scope) -> Mgid {
    let [.., a, b, c] = addr;
    let group = [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff, a, b, c];
    from_ipv6(group, pkey, scope)
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

    /// RFC 4391, section 4: figure 2.
    #[test]
    fn rfc4391_4_broadcast_gid() {
        let expected = [
            0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
        ];
        let mgid = broadcast(PKey::DEFAULT, LINK);
        assert_eq!(mgid.gid().as_bytes(), &expected);
        assert!(mgid.is_broadcast());
        assert_eq!(mgid.kind(), Kind::Broadcast);
        assert_eq!(from_ipv4([255, 255, 255, 255], PKey::DEFAULT, LINK), mgid);
    }

    /// RFC 4391, section 4: 224.0.0.2 and ff02::2, as in its example.
    #[test]
    fn rfc4391_4_all_routers() {
        let mut all_routers = [0; 16];
        (all_routers[0], all_routers[1], all_routers[15]) = (0xff, 0x02, 2);
        assert_eq!(
            from_ipv4([224, 0, 0, 2], limited(), LINK).gid(),
            Gid([0xff, 0x12, 0x40, 0x1b, 0x80, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2])
        );
        assert_eq!(
            from_ipv6(all_routers, limited(), LINK).gid(),
            Gid([0xff, 0x12, 0x60, 0x1b, 0x80, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2])
        );
    }

    /// RFC 4391, section 4: of an IPv4 group 28 bits count, the rest of the group ID is 0.
    #[test]
    fn rfc4391_4_ipv4_low_28_bits() {
        let mgid = from_ipv4([239, 255, 1, 2], PKey::DEFAULT, LINK);
        assert_eq!(mgid.kind(), Kind::Ipv4(0x0fff_0102));
        assert_eq!(
            mgid.gid().as_bytes()[6..],
            [0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0x01, 0x02]
        );
    }

    /// RFC 4391, section 4: of an IPv6 group 80 bits count, and the scope is the link's.
    #[test]
    fn rfc4391_4_ipv6_low_80_bits() {
        let group = [0xff, 0x0e, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        let mgid = from_ipv6(group, PKey::DEFAULT, LINK);
        assert_eq!(mgid.kind(), Kind::Ipv6([5, 6, 7, 8, 9, 10, 11, 12, 13, 14]));
        assert_eq!(mgid.scope(), LINK);
        assert_eq!(mgid.signature(), 0x601b);
    }

    /// RFC 4391, section 4: the T flag is set; section 4.1: so is the full-member bit.
    #[test]
    fn rfc4391_4_1_transient_and_full_member() {
        let mgid = broadcast(limited(), LINK);
        assert_eq!(mgid.gid().as_bytes()[1], 0x12);
        assert_eq!(mgid.pkey().get(), 0x8001);
        assert_eq!(mgid.set_pkey(PKey::DEFAULT), broadcast(PKey::DEFAULT, LINK));
    }

    /// RFC 4291, section 2.7.1: fe80::215:5dff:fe12:3456 solicits at ff02::1:ff12:3456.
    #[test]
    fn rfc4291_2_7_1_solicited_node() {
        let addr = [
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0x5d, 0xff, 0xfe, 0x12, 0x34, 0x56,
        ];
        assert_eq!(
            solicited_node(addr, PKey::DEFAULT, LINK).gid().as_bytes(),
            &[0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0x12, 0x34, 0x56]
        );
    }

    /// RFC 4391, section 9.1.1 with figure 2: the broadcast address as `ip link` shows it.
    #[test]
    fn rfc4391_9_1_1_broadcast_hwaddr() {
        assert_eq!(
            broadcast_hwaddr(PKey::DEFAULT, LINK),
            [
                0x00, 0xff, 0xff, 0xff, 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff,
                0xff, 0xff, 0xff
            ]
        );
        let addr = broadcast(PKey::DEFAULT, LINK).to_hwaddr();
        assert_eq!(
            Mgid::from_hwaddr(&addr),
            Some(broadcast(PKey::DEFAULT, LINK))
        );
    }

    /// RFC 4391, sections 4 and 10: one scope and one partition per link, any signature.
    #[test]
    fn rfc4391_10_groups_of_a_link() {
        let link = broadcast(PKey::DEFAULT, LINK);
        assert!(link.matches_broadcast(&link));
        assert!(from_ipv4([224, 0, 0, 1], PKey::DEFAULT, LINK).matches_broadcast(&link));
        assert!(from_ipv6([0xff; 16], PKey::DEFAULT, LINK).matches_broadcast(&link));
        assert!(!from_ipv4([224, 0, 0, 1], limited(), LINK).matches_broadcast(&link));
        let global = from_ipv4([224, 0, 0, 1], PKey::DEFAULT, Scope::GLOBAL);
        assert!(!global.matches_broadcast(&link));
    }

    #[test]
    fn parse_names_the_broken_rule() {
        let good = broadcast(PKey::DEFAULT, LINK).gid();
        let with = |index: usize, value: u8| {
            let mut gid = good;
            gid.0[index] = value;
            Mgid::parse(gid)
        };
        assert_eq!(Mgid::parse(good).map(|m| m.gid()), Ok(good));
        assert_eq!(with(0, 0xfe), Err(MgidError::NotMulticast));
        assert_eq!(with(1, 0x02), Err(MgidError::NotTransient));
        assert_eq!(with(1, 0x32), Err(MgidError::NotTransient));
        assert_eq!(with(1, 0x10), Err(MgidError::Scope));
        assert_eq!(with(2, 0x80), Err(MgidError::Signature));
        assert_eq!(with(6, 0x01), Err(MgidError::Group));
        assert_eq!(with(12, 0x10), Err(MgidError::Group));
        let mut no_partition = good;
        (no_partition.0[4], no_partition.0[5]) = (0x80, 0x00);
        assert_eq!(Mgid::parse(no_partition), Err(MgidError::PKey));
    }

    #[test]
    fn only_the_multicast_queue_pair_is_a_group() {
        let mut addr = broadcast(PKey::DEFAULT, LINK).to_hwaddr();
        addr.0[3] = 0xfe;
        assert_eq!(Mgid::from_hwaddr(&addr), None);
    }

    #[test]
    fn reserved_scopes() {
        assert_eq!(Scope::new(0), None);
        assert_eq!(Scope::new(0xf), None);
        assert_eq!(Scope::new(0x12), None);
        assert_eq!(Scope::new(0x2), Some(LINK));
    }
}
