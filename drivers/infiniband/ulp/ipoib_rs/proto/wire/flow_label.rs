// SPDX-License-Identifier: GPL-2.0

//! Flow labels, by which a fabric spreads packets over paths of equal cost.
//!
//! A RoCEv2 adapter derives the UDP source port of a datagram from the flow label of its address handle, and
//! switches choose a path by that port. Without labels, all datagrams between two hosts look alike, and often those
//! to all hosts.
//!
//! All frames for a peer have one label, those of all its flows. They are numbered in one sequence, which the
//! receiver puts in order: with several labels it would hold the frames of one path for those of another, and a
//! loss on one would delay them all. More paths between two hosts take more interfaces, or connections
//! (`rc_max_qps`), which have queue pairs of their own.

use crate::wire::hwaddr::HwAddr;

/// Bits of a flow label.
const BITS: u32 = 20;

/// The flow label of what one interface sends to a peer or group; never 0, which is none.
pub fn between(from: &HwAddr, to: &HwAddr) -> u32 {
    let mut hash: u64 = 0;
    for address in [from, to] {
        // Without the flags: the same peer with other features is the same peer.
        let (a, b, c) = address.words();
        for word in [a, b, u64::from(c)] {
            // 2^64 divided by the golden ratio.
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
        }
    }
    let folded = hash ^ (hash >> BITS) ^ (hash >> (2 * BITS));
    // No more than 20 bits.
    ((folded & ((1 << BITS) - 1)) as u32).max(1)
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_flow))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::wire::hwaddr::Flags;

    /// An interface of a host, as soft-RoCE or an adapter numbers them.
    fn address(host: u8, qpn: u8) -> HwAddr {
        HwAddr([
            0, 0, 0, qpn, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0x5e, 0xff, 0xfe, 0, 0x53, host,
        ])
    }

    /// The UDP source port that adapters make of a label (`rdma_flow_label_to_udp_sport`).
    fn port(label: u32) -> u32 {
        0xc000 | ((label & 0x3fff) ^ (label >> 14))
    }

    #[test]
    fn a_label_has_20_bits_and_is_not_0() {
        for host in 0..=255 {
            let label = between(&address(1, 17), &address(host, 17));
            assert!((1..1 << 20).contains(&label));
        }
    }

    #[test]
    fn a_peer_keeps_its_label_when_its_features_change() {
        let (ours, peer) = (address(1, 17), address(2, 17));
        assert_eq!(
            between(&ours, &peer),
            between(&ours.with_flags(Flags::RC), &peer.with_flags(Flags::SEQ))
        );
    }

    /// Peers, interfaces and directions differ, in the few low bits by which a switch picks one of some ports as
    /// well as in the port itself.
    #[test]
    fn ports_spread_over_all_paths() {
        const PATHS: usize = 8;
        for peers in [
            |n| (address(1, 17), address(n, 17)),
            |n| (address(1, n), address(2, 17)),
            |n| (address(n, 17), address(1, 17)),
        ] {
            let mut used = [0u32; PATHS];
            for n in 0..=255 {
                let (from, to) = peers(n);
                let port = port(between(&from, &to));
                assert!((0xc000..=0xffff).contains(&port));
                used[port as usize % PATHS] += 1;
            }
            for count in used {
                // 32 on the average.
                assert!((16..=48).contains(&count));
            }
        }
        assert_ne!(
            between(&address(1, 17), &address(2, 17)),
            between(&address(2, 17), &address(1, 17))
        );
    }

    /// A label that another version of the driver makes differently would move flows in the middle.
    #[test]
    fn labels_are_the_same_for_ever() {
        assert_eq!(between(&address(1, 17), &address(2, 17)), 370_286);
        assert_eq!(between(&address(200, 3), &address(7, 90)), 559_196);
    }
}
