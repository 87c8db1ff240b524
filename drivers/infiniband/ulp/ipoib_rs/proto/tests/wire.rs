// SPDX-License-Identifier: GPL-2.0

//! Property tests of the wire formats: nothing panics, and what is written is read back.

#[path = "checks/datagram.rs"]
mod datagram;

use ipoib_proto::drop::DropReason;
use ipoib_proto::gid::Gid;
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::hwaddr::{Flags, HwAddr, Qpn};
use ipoib_proto::mgid::{self, Mgid, Scope};
use ipoib_proto::mtu;
use ipoib_proto::pkey::PKey;
use ipoib_proto::rx::{classify, Local, Network, Route, RxMeta};
use proptest::prelude::*;

fn pkey() -> impl Strategy<Value = PKey> {
    any::<u16>().prop_filter_map("base 0", PKey::new)
}

fn scope() -> impl Strategy<Value = Scope> {
    (1u8..=0xe).prop_filter_map("reserved", Scope::new)
}

fn network() -> impl Strategy<Value = Network> {
    prop_oneof![
        Just(Network::Grh),
        Just(Network::Ipv4),
        Just(Network::Ipv6),
        Just(Network::Unknown),
    ]
}

/// The mapping of IPv4 groups written down as Linux's `ip_ib_mc_map()` does it, byte by byte from
/// the broadcast address.
fn kernel_ipv4_map(addr: [u8; 4], broadcast: [u8; 20]) -> [u8; 20] {
    let mut buf = [0; 20];
    buf[1..4].fill(0xff);
    buf[4] = 0xff;
    buf[5] = 0x10 | (broadcast[5] & 0xf);
    buf[6] = 0x40;
    buf[7] = 0x1b;
    buf[8..10].copy_from_slice(&broadcast[8..10]);
    buf[16..20].copy_from_slice(&addr);
    buf[16] &= 0x0f;
    buf
}

/// As [`kernel_ipv4_map`], for `ipv6_ib_mc_map()`.
fn kernel_ipv6_map(addr: [u8; 16], broadcast: [u8; 20]) -> [u8; 20] {
    let mut buf = [0; 20];
    buf[1..4].fill(0xff);
    buf[4] = 0xff;
    buf[5] = 0x10 | (broadcast[5] & 0xf);
    buf[6] = 0x60;
    buf[7] = 0x1b;
    buf[8..10].copy_from_slice(&broadcast[8..10]);
    buf[10..20].copy_from_slice(&addr[6..]);
    buf
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn header_round_trip(ether_type: u16, reserved: u16, tail: Vec<u8>) {
        let header = Header { ether_type: EtherType(ether_type), reserved };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(tail);
        prop_assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn hwaddr_round_trip(bytes: [u8; 20]) {
        let addr = HwAddr(bytes);
        prop_assert_eq!(HwAddr::new(addr.flags(), addr.qpn(), addr.gid()), addr);
        prop_assert!(addr.same_peer(&addr.with_flags(Flags(!bytes[0]))));
        prop_assert!(!(addr.is_unicast() && addr.is_multicast()));
    }

    #[test]
    fn same_peer_is_equality_of_the_rest(a: [u8; 20], at in 0usize..20, bit in 0u8..8) {
        let mut b = a;
        b[at] ^= 1 << bit;
        prop_assert_eq!(HwAddr(a).same_peer(&HwAddr(b)), a[1..] == b[1..]);
    }

    #[test]
    fn qpn_has_24_bits(raw: u32) {
        prop_assert_eq!(Qpn::new(raw).is_some(), raw < 1 << 24);
        prop_assert_eq!(Qpn::unicast(raw).is_some(), (2..0xff_ffff).contains(&raw));
    }

    #[test]
    fn the_kernels_groups_are_of_the_link(
        a: [u8; 4],
        b: [u8; 16],
        pkey in pkey(),
        scope in scope(),
    ) {
        let broadcast = mgid::broadcast(pkey, scope);
        let address = broadcast.to_hwaddr().0;
        for mapped in [kernel_ipv4_map(a, address), kernel_ipv6_map(b, address), address] {
            let group = Mgid::from_hwaddr(&HwAddr(mapped)).unwrap();
            prop_assert_eq!(group.to_hwaddr().0, mapped);
            prop_assert_eq!(Mgid::parse(group.gid()), Some(group));
            prop_assert_eq!(group.pkey(), pkey.to_full());
            prop_assert!(group.matches_broadcast(&broadcast));
            prop_assert_eq!(group.is_broadcast(), mapped == address);
        }
    }

    #[test]
    fn mtu_is_what_fits(requested: u32, active: u32) {
        let fits = requested >= mtu::MIN_IPV4 && u64::from(requested) + 4 <= u64::from(active);
        prop_assert_eq!(mtu::check(requested, active).is_ok(), fits);
    }

    /// Whatever a device and a peer say, what passes lies within the buffer.
    #[test]
    fn classify_stays_within_the_buffer(
        head in prop::collection::vec(any::<u8>(), 0..128),
        version in prop_oneof![Just(0x60u8), Just(0x45), any::<u8>()],
        ether_type in prop_oneof![Just(0x0800u16), Just(0x86dd), any::<u16>()],
        src_qp in prop_oneof![0u32..32, any::<u32>()],
        slid in 0u16..3,
        network in prop::option::of(network()),
        gid: [u8; 16],
        qpn in 2u32..32,
    ) {
        let mut head = head;
        if head.len() > 44 {
            head[0] = version;
            head[20] = version;
            head[40..42].copy_from_slice(&ether_type.to_be_bytes());
        }
        let local = Local {
            gid: Gid(gid),
            qpn: Qpn::unicast(qpn).unwrap(),
            broadcast: mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL),
        };
        let meta = RxMeta { src_qp, slid, network };
        datagram::stays_within_the_buffer(&head, meta, &local);
    }

    /// Packets of few kinds, in any order: each is judged as if nothing had gone before it.
    #[test]
    fn a_route_changes_no_verdict(packets in prop::collection::vec(
        (0usize..4, 0usize..4, 1u32..4, 0u16..3, prop::option::of(network()), 0u8..8),
        1..32,
    )) {
        // An byte of the second one is where an IPv4 header would begin.
        let gids: [[u8; 16]; 4] = [
            [0xfe; 16],
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 1],
            [0xff; 16],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1],
        ];
        let addrs = [[10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 0, 1], [239, 1, 2, 3]];
        let local = Local {
            gid: Gid(gids[0]),
            qpn: Qpn::unicast(2).unwrap(),
            broadcast: mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL),
        };
        let mut route = Route::NONE;
        for (source, destination, src_qp, slid, network, form) in packets {
            let mut bytes = [0u8; 64];
            if form & 1 == 0 {
                bytes[8..24].copy_from_slice(&gids[source]);
                bytes[24..40].copy_from_slice(&gids[destination]);
            } else {
                bytes[20] = 0x45;
                bytes[32..36].copy_from_slice(&addrs[source]);
                bytes[36..40].copy_from_slice(&addrs[destination]);
                let sum: u32 = bytes[20..40]
                    .chunks(2)
                    .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
                    .sum();
                let wrong = u16::from(form & 4 != 0);
                let checksum = !((sum & 0xffff) + (sum >> 16)) as u16 ^ wrong;
                bytes[30..32].copy_from_slice(&checksum.to_be_bytes());
            }
            // In front of an IPv4 header may stand anything.
            bytes[0] = if form & 2 == 0 { 0x60 } else { 0 };
            bytes[40] = 0x08;
            let meta = RxMeta { src_qp, slid, network };
            datagram::as_if_alone(&bytes, meta, &local, &mut route);
        }
    }

    #[test]
    fn own_multicast_never_passes(gid: [u8; 16], qpn in 2u32..0xff_ffff, group: [u8; 15]) {
        prop_assume!(gid[0] != 0xff);
        let mut bytes = [0u8; 64];
        bytes[0] = 0x60;
        bytes[8..24].copy_from_slice(&gid);
        bytes[24] = 0xff;
        bytes[25..40].copy_from_slice(&group);
        bytes[40] = 0x08;
        let local = Local {
            gid: Gid(gid),
            qpn: Qpn::unicast(qpn).unwrap(),
            broadcast: mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL),
        };
        let meta = RxMeta { src_qp: qpn, slid: 0, network: Some(Network::Grh) };
        let mut route = Route::NONE;
        let own = classify(&bytes, meta, &local, &mut route).err();
        // An IPv4-mapped multicast source is refused before it can be recognised as ours.
        prop_assert!(matches!(own, Some(DropReason::OwnMulticast | DropReason::BadSource)));
    }
}
