// SPDX-License-Identifier: GPL-2.0

//! Reasons to drop a packet.

use crate::counters::Counted;
use crate::link::PortState;
use crate::packet::Packet;
use crate::text::words;

words! {
    /// A reason to drop a packet. The sender does not learn of it.
    pub enum Discard {
        /// The port is not in a state to take it.
        PortDown = "port_down",
        /// The addresses are not the port's, or do not go together.
        NotForUs = "not_for_us",
        /// The payload is longer than the MTU.
        TooLong = "too_long",
        /// The payload of a management datagram is not 256 bytes long.
        BadLength = "bad_length",
        /// The P_Key does not match.
        PKey = "pkey",
        /// The Q_Key does not match.
        QKey = "qkey",
        /// There is no such queue pair, or none that takes datagrams now.
        NoQp = "no_qp",
        /// The queue pair has no receive buffer posted.
        NoReceive = "no_receive",
        /// The receive buffer is too short.
        ShortBuffer = "short_buffer",
        /// The memory of the sender or of the receiver is not its to use.
        Protection = "protection",
        /// The switch has no port for it, or only the one that it came in by; or it went round in
        /// circles.
        NoRoute = "no_route",
        /// There is no virtual lane for its service level.
        NoLane = "no_lane",
        /// Its CRC is wrong.
        Crc = "crc",
    }
}

impl Discard {
    /// Returns the reason for which a port in a state drops a packet with a wrong CRC.
    pub fn corrupt(state: Option<PortState>) -> Discard {
        match state {
            None | Some(PortState::Down) => Discard::PortDown,
            Some(_) => Discard::Crc,
        }
    }

    /// Returns what the port counts for it, besides the packet itself; a wrong CRC is counted apart.
    pub const fn counted(self, packet: &Packet) -> Option<Counted> {
        match self {
            Discard::PKey => Some(Counted::PKeyViolation),
            Discard::QKey => Some(Counted::QKeyViolation),
            Discard::TooLong | Discard::BadLength => Some(Counted::ReceiveError),
            Discard::NoReceive if packet.management => Some(Counted::VL15Dropped),
            _ => None,
        }
    }
}
