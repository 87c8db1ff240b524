// SPDX-License-Identifier: GPL-2.0

//! Reasons why bytes are no packet.

/// A reason why bytes are no packet, or none that this fabric has. A table of counters has a place
/// for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Malformed {
    /// The bytes end before the packet does.
    Short,
    /// There are more bytes than the packet has.
    Long,
    /// The LRH has another version (section 7.7.2).
    LinkVersion,
    /// The packet is a raw one (section 7.7.5).
    Raw,
    /// The packet length is less than the headers have, or the payload longer than any MTU.
    PacketLength,
    /// The GRH has another version (section 8.3.1).
    RouteVersion,
    /// No BTH follows the GRH (section 8.3.5).
    NextHeader,
    /// The length in the GRH is not that in the LRH (section 8.3.4).
    RouteLength,
    /// The BTH has another version (section 9.2.4).
    TransportVersion,
    /// The opcode is reserved, or of a service that is not here.
    Opcode,
    /// There are pad bytes without a payload.
    Pad,
    /// A packet of a kind without payload has some.
    Payload,
    /// The syndrome is reserved, or not one of such an answer (section 9.7.5.1.2).
    Syndrome,
    /// A packet on virtual lane 15 is no datagram (section 7.6.3).
    Lane,
}

impl Malformed {
    /// All of them, each in the place of its [`Malformed::index`].
    pub const ALL: [Malformed; 14] = [
        Malformed::Short,
        Malformed::Long,
        Malformed::LinkVersion,
        Malformed::Raw,
        Malformed::PacketLength,
        Malformed::RouteVersion,
        Malformed::NextHeader,
        Malformed::RouteLength,
        Malformed::TransportVersion,
        Malformed::Opcode,
        Malformed::Pad,
        Malformed::Payload,
        Malformed::Syndrome,
        Malformed::Lane,
    ];

    /// Returns the place of its counter.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of its counter: lower-case letters and underscores.
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::Short => "short",
            Malformed::Long => "long",
            Malformed::LinkVersion => "link_version",
            Malformed::Raw => "raw",
            Malformed::PacketLength => "packet_length",
            Malformed::RouteVersion => "route_version",
            Malformed::NextHeader => "next_header",
            Malformed::RouteLength => "route_length",
            Malformed::TransportVersion => "transport_version",
            Malformed::Opcode => "opcode",
            Malformed::Pad => "pad",
            Malformed::Payload => "payload",
            Malformed::Syndrome => "syndrome",
            Malformed::Lane => "lane",
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_wire_malformed))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::Malformed;

    #[test]
    fn each_has_its_place() {
        for (place, reason) in Malformed::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), place);
            assert!(Malformed::ALL[..place]
                .iter()
                .all(|other| other.name() != reason.name()));
        }
    }
}
