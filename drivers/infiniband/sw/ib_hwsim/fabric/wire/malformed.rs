// SPDX-License-Identifier: GPL-2.0

//! Reasons why bytes are no packet.

use crate::text::words;

words! {
    /// A reason why bytes are no packet, or none that this fabric has. A table of counters has a place
    /// for each.
    #[repr(u8)]
    pub enum Malformed {
        /// The bytes end before the packet does.
        Short = "short",
        /// There are more bytes than the packet has.
        Long = "long",
        /// The LRH has another version (section 7.7.2).
        LinkVersion = "link_version",
        /// The packet is a raw one (section 7.7.5).
        Raw = "raw",
        /// The packet length is less than the headers have, or the payload longer than any MTU.
        PacketLength = "packet_length",
        /// The GRH has another version (section 8.3.1).
        RouteVersion = "route_version",
        /// No BTH follows the GRH (section 8.3.5).
        NextHeader = "next_header",
        /// The length in the GRH is not that in the LRH (section 8.3.4).
        RouteLength = "route_length",
        /// The BTH has another version (section 9.2.4).
        TransportVersion = "transport_version",
        /// The opcode is reserved, or of a service that is not here.
        Opcode = "opcode",
        /// There are pad bytes without a payload.
        Pad = "pad",
        /// A packet of a kind without payload has some.
        Payload = "payload",
        /// The syndrome is reserved, or not one of such an answer (section 9.7.5.1.2).
        Syndrome = "syndrome",
        /// A packet on virtual lane 15 is no datagram (section 7.6.3).
        Lane = "lane",
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_wire_malformed))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::Malformed;

    #[test]
    fn each_has_its_place() {
        for (place, &reason) in Malformed::ALL.iter().enumerate() {
            assert_eq!(reason as usize, place);
            assert!(Malformed::ALL[..place]
                .iter()
                .all(|other| other.as_str() != reason.as_str()));
        }
    }
}
