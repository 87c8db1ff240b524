// SPDX-License-Identifier: GPL-2.0

//! Global identifiers: the 128-bit network-layer address of an InfiniBand or RoCE port or group.

use core::net::Ipv6Addr;

/// A GID in network byte order. Every 16-byte value is a syntactically valid GID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The length of a GID in bytes.
    pub const LEN: usize = 16;

    /// The unspecified GID, which no port has.
    pub const ZERO: Gid = Gid([0; 16]);

    /// Returns the bytes in wire order.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns true if this is the all-zero GID.
    #[inline]
    pub const fn is_zero(&self) -> bool {
        u128::from_ne_bytes(self.0) == 0
    }

    /// The lower half, which on InfiniBand is a GUID of the port: its own or one that the subnet manager gave it.
    #[inline]
    pub const fn guid(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The GID in the same subnet with another GUID.
    #[inline]
    pub const fn with_guid(&self, guid: u64) -> Gid {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        let [i, j, k, l, m, n, o, p] = guid.to_be_bytes();
        Gid([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
    }

    /// Returns true if this GID names a group: its first byte is 0xff (RFC 4391, section 4).
    #[inline]
    pub const fn is_multicast(&self) -> bool {
        self.0[0] == 0xff
    }

    /// Returns true if this is the GID that RoCEv2 gives to an IPv4 address: `::ffff:a.b.c.d`.
    #[inline]
    pub const fn is_ipv4_mapped(&self) -> bool {
        let bits = u128::from_be_bytes(self.0);
        // Half by half: hardly any other GID begins with 64 zero bits.
        bits >> 64 == 0 && (bits as u64) >> 32 == 0xffff
    }

    /// Makes the GID that RoCEv2 gives to an IPv4 address (in network byte order).
    #[inline]
    pub const fn from_ipv4_mapped(addr: [u8; 4]) -> Gid {
        let [a, b, c, d] = addr;
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// Returns the IPv4 address (in network byte order) if this GID stands for one.
    #[inline]
    pub const fn to_ipv4(self) -> Option<[u8; 4]> {
        if self.is_ipv4_mapped() {
            let [.., a, b, c, d] = self.0;
            Some([a, b, c, d])
        } else {
            None
        }
    }

    /// Makes what stands for the GID of a port of whom only the LID is known. No port has it: its subnet prefix is 0.
    #[inline]
    pub const fn from_lid(lid: u16) -> Gid {
        let [high, low] = lid.to_be_bytes();
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low])
    }

    /// Returns true if the subnet prefix is the link-local one, fe80::/10.
    #[inline]
    const fn is_link_local(&self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }
}

impl_display!(Gid, |this, f| core::fmt::Display::fmt(
    &Ipv6Addr::from(this.0),
    f
));

/// The network device below that packets from a GID leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The port's own.
    Port,
    /// A bond that the port's own is part of, which has the addresses then.
    Bond,
    /// Anything else on top of it, such as a VLAN or a macvlan, maybe in another network namespace.
    Other,
}

/// Returns the rank of a RoCEv2 port's GID, which its network device has as an address, for sending IP over InfiniBand;
/// the greatest is the best. Returns `None` if the GID cannot be used, since
///
/// * an IPv4 address has no part in groups, which are IPv6 addresses;
/// * groups are joined on the port's own network device, and what comes by a VLAN or a macvlan is not that device's.
///
/// The one `in_use` stays for as long as it will do: peers know it. Else a link-local address is preferred, which stays when
/// a network is renumbered.
pub fn rank(gid: &Gid, owner: Owner, in_use: &Gid) -> Option<(bool, u8)> {
    if gid.is_zero() || gid.is_ipv4_mapped() {
        return None;
    }
    let rank = match (owner, gid.is_link_local()) {
        (Owner::Port, true) => 3,
        (Owner::Port, false) => 2,
        (Owner::Bond, true) => 1,
        (Owner::Bond, false) => 0,
        (Owner::Other, _) => return None,
    };
    Some((gid == in_use, rank))
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_gid))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::{rank, Gid, Owner};

    /// fe80::215:5dff:fe00:1, an EUI-64 GID as rxe makes it.
    const LINK_LOCAL: Gid = Gid([
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0x5d, 0xff, 0xfe, 0x00, 0x00, 0x01,
    ]);

    #[test]
    fn what_is_not_the_ports_own_is_passed_over() {
        let global = Gid([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let best_first = [
            (LINK_LOCAL, Owner::Port),
            (global, Owner::Port),
            (LINK_LOCAL, Owner::Bond),
            (global, Owner::Bond),
        ];
        let ranks = best_first.map(|(gid, owner)| rank(&gid, owner, &Gid::ZERO));
        assert!(ranks.is_sorted_by(|a, b| a > b) && ranks[3].is_some());
        for gid in [LINK_LOCAL, global] {
            assert_eq!(rank(&gid, Owner::Other, &gid), None);
        }
        for owner in [Owner::Port, Owner::Bond, Owner::Other] {
            let v4 = Gid::from_ipv4_mapped([10, 0, 0, 1]);
            assert_eq!(rank(&v4, owner, &v4), None);
            assert_eq!(rank(&Gid::ZERO, owner, &Gid::ZERO), None);
        }
    }

    /// No better one takes its place.
    #[test]
    fn the_one_in_use_stays() {
        let global = Gid([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let kept = rank(&global, Owner::Bond, &global);
        assert!(kept > rank(&LINK_LOCAL, Owner::Port, &global));
        assert!(kept.is_some() && rank(&global, Owner::Other, &global).is_none());
    }

    #[test]
    fn unicast_is_not_multicast() {
        assert!(!LINK_LOCAL.is_multicast());
        assert!(!Gid::ZERO.is_multicast());
    }

    /// RFC 4391, section 4: an MGID starts with 0xff.
    #[test]
    fn rfc4391_4_multicast_prefix() {
        let mut gid = Gid::ZERO;
        gid.0[0] = 0xff;
        assert!(gid.is_multicast());
        gid.0[0] = 0xfe;
        assert!(!gid.is_multicast());
    }

    #[test]
    fn link_local_is_a_ten_bit_prefix() {
        assert!(LINK_LOCAL.is_link_local());
        assert!(Gid([0xfe, 0xbf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_link_local());
        assert!(!Gid([0xfe, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_link_local());
    }

    #[test]
    fn ipv4_mapped() {
        let gid = Gid::from_ipv4_mapped([10, 1, 2, 3]);
        assert_eq!(
            gid.as_bytes(),
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]
        );
        assert!(gid.is_ipv4_mapped());
        assert_eq!(gid.to_ipv4(), Some([10, 1, 2, 3]));
        assert!(!LINK_LOCAL.is_ipv4_mapped());
        assert_eq!(LINK_LOCAL.to_ipv4(), None);
    }

    /// ::a.b.c.d (without the ffff) is the deprecated compatible form and not a RoCE GID.
    #[test]
    fn ipv4_compatible_is_not_mapped() {
        assert!(!Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 1, 2, 3]).is_ipv4_mapped());
    }
}
