// SPDX-License-Identifier: GPL-2.0

//! Reasons to drop a packet.

use core::ffi::CStr;

use crate::counters::Counted;
use crate::link::PortState;
use crate::packet::Packet;

/// A reason to drop a packet. The sender does not learn of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discard {
    /// The port is not in a state to take it.
    PortDown,
    /// The addresses are not the port's, or do not go together.
    NotForUs,
    /// The payload is longer than the MTU.
    TooLong,
    /// The payload of a management datagram is not 256 bytes long.
    BadLength,
    /// The P_Key does not match.
    PKey,
    /// The Q_Key does not match.
    QKey,
    /// There is no such queue pair, or none that takes datagrams now.
    NoQp,
    /// The queue pair has no receive buffer posted.
    NoReceive,
    /// The receive buffer is too short.
    ShortBuffer,
    /// The memory of the sender or of the receiver is not its to use.
    Protection,
    /// The switch has no port for it, or only the one that it came in by; or it went round in
    /// circles.
    NoRoute,
    /// There is no virtual lane for its service level.
    NoLane,
    /// Its CRC is wrong.
    Crc,
}

impl Discard {
    /// All reasons, in the order of [`Discard::index`].
    pub const ALL: [Discard; 13] = [
        Discard::PortDown,
        Discard::NotForUs,
        Discard::TooLong,
        Discard::BadLength,
        Discard::PKey,
        Discard::QKey,
        Discard::NoQp,
        Discard::NoReceive,
        Discard::ShortBuffer,
        Discard::Protection,
        Discard::NoRoute,
        Discard::NoLane,
        Discard::Crc,
    ];

    /// Returns the reason for which a port in a state drops a packet with a wrong CRC.
    pub fn corrupt(state: Option<PortState>) -> Discard {
        match state {
            None | Some(PortState::Down) => Discard::PortDown,
            Some(_) => Discard::Crc,
        }
    }

    /// Returns its place in [`Discard::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns its name, in lower case and without spaces.
    pub const fn label(self) -> &'static CStr {
        match self {
            Discard::PortDown => c"port_down",
            Discard::NotForUs => c"not_for_us",
            Discard::TooLong => c"too_long",
            Discard::BadLength => c"bad_length",
            Discard::PKey => c"pkey",
            Discard::QKey => c"qkey",
            Discard::NoQp => c"no_qp",
            Discard::NoReceive => c"no_receive",
            Discard::ShortBuffer => c"short_buffer",
            Discard::Protection => c"protection",
            Discard::NoRoute => c"no_route",
            Discard::NoLane => c"no_lane",
            Discard::Crc => c"crc",
        }
    }

    /// Returns its name as a string of Rust's.
    pub fn name(self) -> &'static str {
        self.label().to_str().unwrap_or_default()
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
