// SPDX-License-Identifier: GPL-2.0

//! Address resolution, whose packets go by UD, whatever else a peer accepts (RFC 4755, sections 2.1 and 7).

use crate::wire::header::EtherType;

const IPV6_LEN: usize = 40;
const NEXT_HEADER: usize = 6;
const ICMPV6: u8 = 58;
/// Router Solicitation, the first type of neighbour discovery (RFC 4861, section 4).
const FIRST_TYPE: u8 = 133;
/// Redirect, the last one.
const LAST_TYPE: u8 = 137;

/// Returns true if a packet, of which at least the headers are given, is ARP, RARP or neighbour discovery.
#[inline]
pub fn is_resolution(ether_type: EtherType, packet: &[u8]) -> bool {
    match ether_type {
        EtherType::ARP | EtherType::RARP => true,
        EtherType::IPV6 => {
            // It has no extension headers: RFC 4861 allows some, and nobody sends any.
            packet.get(NEXT_HEADER) == Some(&ICMPV6)
                && matches!(packet.get(IPV6_LEN), Some(FIRST_TYPE..=LAST_TYPE))
        }
        _ => false,
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_resolution))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn rfc4755_2_1_arp() {
        assert!(is_resolution(EtherType::ARP, &[]) && is_resolution(EtherType::RARP, &[]));
        assert!(!is_resolution(EtherType::IPV4, &[0x45; 64]));
        assert!(!is_resolution(EtherType::TIPC, &[58; 64]));
    }

    #[test]
    fn rfc4755_2_1_neighbour_discovery() {
        let mut packet = [0; 64];
        packet[0] = 0x60;
        packet[6] = 58;
        for (kind, is) in [
            (128, false),
            (132, false),
            (133, true),
            (135, true),
            (136, true),
            (137, true),
            (138, false),
            (255, false),
        ] {
            packet[40] = kind;
            assert_eq!(is_resolution(EtherType::IPV6, &packet), is);
            assert!(!is_resolution(EtherType::IPV4, &packet));
        }
        packet[40] = 135;
        assert!(is_resolution(EtherType::IPV6, &packet[..41]));
        assert!(!is_resolution(EtherType::IPV6, &packet[..40]));
        // TCP from a port that looks like a type.
        packet[6] = 6;
        assert!(!is_resolution(EtherType::IPV6, &packet));
    }
}
