// SPDX-License-Identifier: GPL-2.0

//! The 20-byte link-layer address (RFC 4391, section 9.1.1; RFC 4755, section 3.1).

use crate::wire::gid::Gid;

/// A 24-bit queue pair number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Qpn(u32);

impl Qpn {
    /// The destination QP number of every multicast packet.
    pub const MULTICAST: Qpn = Qpn(MULTICAST_QPN);

    /// Makes a queue pair number; `None` if `qpn` has more than 24 bits.
    #[inline]
    pub const fn new(qpn: u32) -> Option<Qpn> {
        if qpn <= 0xff_ffff {
            Some(Qpn(qpn))
        } else {
            None
        }
    }

    /// Makes a queue pair number that a unicast packet can be sent to.
    ///
    /// `None` for more than 24 bits, for QP 0 and QP 1, which belong to subnet management and
    /// general services, and for 0xffffff, which means multicast.
    #[inline]
    pub const fn unicast(qpn: u32) -> Option<Qpn> {
        if qpn > 1 && qpn < MULTICAST_QPN {
            Some(Qpn(qpn))
        } else {
            None
        }
    }

    /// Returns true if a unicast packet can be sent to this number.
    #[inline]
    pub const fn is_unicast(self) -> bool {
        Self::unicast(self.0).is_some()
    }

    /// Returns the number in host byte order.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl_display!(Qpn, |this, f| core::write!(f, "{:#08x}", this.0));

/// The QP number in the address of a multicast group.
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// The first byte of a link-layer address: what the interface announces about itself.
///
/// RFC 4391 reserves the byte and RFC 4755, section 3.1, gives its two highest bits a meaning.
/// An interface that announces nothing sends 0, and a receiver takes no notice of the bits that it
/// does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// Nothing but unreliable datagrams.
    pub const NONE: Flags = Flags(0);
    /// Accepts reliable connections (RFC 4755, section 3.1).
    pub const RC: Flags = Flags(0x80);
    /// Understands sequence numbers in the reserved field and extended frames (our extension).
    pub const SEQ: Flags = Flags(0x20);
    /// Accepts frames whose L4 checksum was left to the fabric's ICRC (our extension).
    pub const ICRC: Flags = Flags(0x10);

    /// Returns true if all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits of both.
    #[inline]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A link-layer address as it stands in ARP, in neighbour discovery options and in the stack:
/// flags, a 24-bit QP number and a GID, all in network byte order.
///
/// The derived equality compares all 20 bytes. Use [`HwAddr::same_peer`] to ask whether two
/// addresses lead to the same queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct HwAddr(pub [u8; 20]);

impl HwAddr {
    /// The length of an address in bytes (RFC 4391, section 9.2: the ARP hardware length).
    pub const LEN: usize = 20;

    /// The ARP hardware type of InfiniBand (RFC 4391, section 9.2).
    pub const ARP_TYPE: u16 = 32;

    /// Puts an address together.
    #[inline]
    pub const fn new(flags: Flags, qpn: Qpn, gid: Gid) -> HwAddr {
        let [_, q0, q1, q2] = qpn.0.to_be_bytes();
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = gid.0;
        HwAddr([
            flags.0, q0, q1, q2, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p,
        ])
    }

    /// Returns the bytes in wire order.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// Returns what the owner announces.
    #[inline]
    pub const fn flags(&self) -> Flags {
        Flags(self.0[0])
    }

    /// Returns the same address with other flags.
    #[inline]
    pub const fn with_flags(mut self, flags: Flags) -> HwAddr {
        self.0[0] = flags.0;
        self
    }

    /// Returns the queue pair number.
    #[inline]
    pub const fn qpn(&self) -> Qpn {
        Qpn(u32::from_be_bytes(self.first()) & 0xff_ffff)
    }

    /// Returns the GID.
    #[inline]
    pub const fn gid(&self) -> Gid {
        let [_, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = self.0;
        Gid([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
    }

    /// Returns true if this is the address of a multicast group: its GID is a multicast one.
    #[inline]
    pub const fn is_multicast(&self) -> bool {
        self.0[4] == 0xff
    }

    /// Returns true if a unicast frame can be sent to this address: its queue pair number is not a
    /// reserved one and its GID is neither zero nor that of a group.
    #[inline]
    pub const fn is_unicast(&self) -> bool {
        self.qpn().is_unicast() && !self.is_multicast() && !self.gid().is_zero()
    }

    /// Returns true if both addresses lead to the same queue pair: equality without the flags.
    #[inline]
    pub const fn same_peer(&self, other: &HwAddr) -> bool {
        are_equal(self.words(), other.words())
    }

    /// Equality as of `==`, in line: to compare 20 bytes is a call otherwise.
    #[inline]
    pub const fn is(&self, other: &HwAddr) -> bool {
        are_equal(self.all_words(), other.all_words())
    }

    /// The GUID that would make this address the other one; `None` if they differ elsewhere or it is 0. An
    /// interface's flags, queue pair number and subnet are no user's to choose.
    pub fn change_guid(&self, to: &HwAddr) -> Option<u64> {
        let guid = to.gid().guid();
        let changed = HwAddr::new(self.flags(), self.qpn(), self.gid().with_guid(guid));
        (guid != 0 && changed == *to).then_some(guid)
    }

    /// The first four bytes, to be read as one word and masked: the three of the queue pair number
    /// by themselves would be several loads.
    #[inline]
    const fn first(&self) -> [u8; 4] {
        match self.0.first_chunk() {
            Some(first) => *first,
            None => [0; 4],
        }
    }

    /// Splits the address, less its flags, into integers (in native order) for hashing and
    /// comparison.
    #[inline]
    pub(crate) const fn words(&self) -> (u64, u64, u32) {
        let (a, b, c) = self.all_words();
        (a, b, c & u32::from_be(0xff_ffff))
    }

    /// Splits the address, flags included.
    #[inline]
    const fn all_words(&self) -> (u64, u64, u32) {
        let [_, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = self.0;
        (
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            u64::from_ne_bytes([i, j, k, l, m, n, o, p]),
            u32::from_ne_bytes(self.first()),
        )
    }
}

/// Compares words with one branch instead of three: this runs for every frame that is sent.
#[inline]
const fn are_equal((a0, a1, a2): (u64, u64, u32), (b0, b1, b2): (u64, u64, u32)) -> bool {
    (a0 ^ b0) | (a1 ^ b1) | (a2 ^ b2) as u64 == 0
}

// The form of `ip link` and of the kernel's %*phC.
impl_display!(HwAddr, |this, f| {
    let [first, rest @ ..] = &this.0;
    core::write!(f, "{first:02x}")?;
    for byte in rest {
        core::write!(f, ":{byte:02x}")?;
    }
    Ok(())
});

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_hwaddr))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::{Flags, HwAddr, Qpn, MULTICAST_QPN};
    use crate::wire::gid::Gid;

    const PEER: HwAddr = HwAddr([
        0x80, 0x00, 0x00, 0x11, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0x5d, 0xff, 0xfe, 0, 0, 1,
    ]);

    #[test]
    fn only_the_guid_can_be_changed() {
        let mut bytes = [0x20; 20];
        bytes[1] = 0;
        let address = HwAddr(bytes);
        for at in 0..20 {
            let mut other = address;
            other.0[at] ^= 1;
            let guid = u64::from_be_bytes([
                other.0[12],
                other.0[13],
                other.0[14],
                other.0[15],
                other.0[16],
                other.0[17],
                other.0[18],
                other.0[19],
            ]);
            assert_eq!(address.change_guid(&other), (at >= 12).then_some(guid));
        }
        assert_eq!(address.change_guid(&address), Some(0x2020_2020_2020_2020));
        bytes[12..].fill(0);
        assert_eq!(address.change_guid(&HwAddr(bytes)), None);
    }

    #[test]
    fn flags_of_both() {
        let both = Flags::RC.union(Flags::SEQ);
        assert!(both.union(Flags::SEQ) == both && both == Flags(0xa0));
        assert!(both.contains(Flags::RC) && !both.contains(Flags::RC.union(Flags(0x40))));
    }

    #[test]
    fn the_same_address_in_line() {
        let bytes: [u8; 20] = core::array::from_fn(|i| i as u8);
        let address = HwAddr(bytes);
        assert!(address.is(&address));
        for i in 0..bytes.len() {
            let mut other = bytes;
            other[i] ^= 0x80;
            assert!(!address.is(&HwAddr(other)));
            // The flags are no part of the peer.
            assert!(address.same_peer(&HwAddr(other)) == (i == 0));
        }
    }

    /// RFC 4391, section 9.1.1: reserved byte, 24-bit QPN, GID.
    #[test]
    fn rfc4391_9_1_1_layout() {
        let gid = Gid([
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0x5d, 0xff, 0xfe, 0, 0, 1,
        ]);
        assert_eq!(PEER.flags(), Flags::RC);
        assert_eq!(PEER.qpn().get(), 0x11);
        assert_eq!(PEER.gid(), gid);
        assert_eq!(HwAddr::new(PEER.flags(), PEER.qpn(), gid), PEER);
    }

    /// RFC 4755, section 3.1: RC and UC are the two highest bits; a UD-only sender sets none.
    #[test]
    fn rfc4755_3_1_flags() {
        assert_eq!(Flags::RC.0, 0x80);
        assert_eq!(Flags::NONE.0, 0);
        let both = Flags::RC.union(Flags(0x40));
        assert!(both.contains(Flags::RC));
        assert!(!Flags::RC.contains(both));
    }

    /// RFC 4391, section 9.1.1: the reserved byte says nothing about who the peer is.
    #[test]
    fn rfc4391_9_1_1_same_peer_ignores_flags() {
        assert!(PEER.same_peer(&PEER.with_flags(Flags::NONE)));
        assert!(PEER.with_flags(Flags::NONE) != PEER);
        for byte in 1..20 {
            let mut other = PEER;
            other.0[byte] ^= 0x01;
            assert!(!PEER.same_peer(&other));
        }
    }

    #[test]
    fn reserved_queue_pairs_are_no_destination() {
        assert_eq!(Qpn::unicast(0), None);
        assert_eq!(Qpn::unicast(1), None);
        assert_eq!(Qpn::unicast(2).map(Qpn::get), Some(2));
        assert_eq!(Qpn::unicast(0xff_fffe).map(Qpn::get), Some(0xff_fffe));
        assert_eq!(Qpn::unicast(MULTICAST_QPN), None);
        assert_eq!(Qpn::new(MULTICAST_QPN), Some(Qpn::MULTICAST));
        assert_eq!(Qpn::new(0x100_0000), None);
    }

    #[test]
    fn unicast_needs_a_queue_pair_and_a_port() {
        assert!(PEER.is_unicast());
        assert!(!HwAddr::new(Flags::NONE, PEER.qpn(), Gid::ZERO).is_unicast());
        assert!(!HwAddr::new(Flags::NONE, Qpn::MULTICAST, PEER.gid()).is_unicast());
        let mut group = PEER;
        group.0[4] = 0xff;
        assert!(group.is_multicast());
        assert!(!group.is_unicast());
        assert!(!HwAddr([0; 20]).is_unicast());
    }

    /// Differences in two words do not make up for each other.
    #[test]
    fn differences_add_up() {
        let zero = HwAddr([0; 20]);
        for (a, b) in [(4, 12), (5, 13), (5, 1), (13, 1)] {
            let mut other = zero;
            (other.0[a], other.0[b]) = (1, 1);
            assert!(!zero.same_peer(&other) && !zero.is(&other));
        }
        let mut all = zero;
        for at in [1, 4, 5, 6, 7, 12, 13, 14, 15] {
            all.0[at] = 0x40;
            assert!(!zero.same_peer(&all));
        }
    }
}
