// SPDX-License-Identifier: GPL-2.0

//! Tallies of a port: counters for whoever debugs it, which nobody clears.
//!
//! They tell of each packet where it went, as the counters of section 16.1.3 do not. At each port
//! of an adapter,
//!
//! ```text
//! received + own + copies = delivered + ignored + dropped
//! ```
//!
//! when no packet is under way, and of all ports of a switch together,
//!
//! ```text
//! received + own + copies = delivered + ignored + dropped + sent
//! ```
//!
//! The packets that a port has sent, less those lost and plus the duplicates, are those that the
//! port at the other end of the cable has received. Each packet of a run counts.

use core::fmt::{self, Write};

use crate::discard::Discard;
use crate::packet::Packet;

/// Packets, and their lengths from the first header to the ICRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    packets: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, packet: &Packet) {
        add(&mut self.packets, packet.packets());
        add(&mut self.bytes, packet.wire_bytes());
    }
}

/// Adds to a counter, which does not wrap in a lifetime.
pub(crate) fn add(counter: &mut u64, n: u32) {
    *counter = counter.wrapping_add(n.into());
}

/// The tallies of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    sent: Amount,
    received: Amount,
    own: u64,
    copies: u64,
    delivered: u64,
    ignored: u64,
    dropped: [u64; Discard::ALL.len()],
    vl15_dropped: u64,
    unsent: u64,
    lost: u64,
    doubled: u64,
    traps: u64,
    link_downs: u64,
}

impl Tally {
    /// A packet leaves by the port.
    #[inline]
    pub fn sent(&mut self, packet: &Packet) {
        self.sent.add(packet);
    }

    /// A packet comes in by the port.
    #[inline]
    pub fn received(&mut self, packet: &Packet) {
        self.received.add(packet);
    }

    /// The node itself has sent a packet: a queue pair to this port, or to a group with members
    /// here; or an agent of a switch by this port.
    #[inline]
    pub fn own(&mut self, packet: &Packet) {
        add(&mut self.own, packet.packets());
    }

    /// A packet goes to `n` receivers or ports, where one was to be expected.
    pub fn copied(&mut self, packet: &Packet, n: u32) {
        match n.checked_sub(1) {
            Some(more) => add(&mut self.copies, packet.packets().wrapping_mul(more)),
            None => add(&mut self.ignored, packet.packets()),
        }
    }

    /// A packet has reached a queue pair or an agent.
    #[inline]
    pub fn delivered(&mut self, packet: &Packet) {
        add(&mut self.delivered, packet.packets());
    }

    /// A packet, which has been counted as delivered, was not: to be counted as dropped.
    pub fn not_delivered(&mut self, packet: &Packet) {
        let n = u64::from(packet.packets());
        self.delivered = self.delivered.wrapping_sub(n);
    }

    /// A packet is dropped.
    pub fn dropped(&mut self, reason: Discard, packet: &Packet) {
        let n = packet.packets();
        if let Some(counter) = self.dropped.get_mut(reason as usize) {
            add(counter, n);
        }
        if reason == Discard::NoReceive && packet.management {
            add(&mut self.vl15_dropped, n);
        }
    }

    /// `n` packets could not be sent: there is no link, or no lane.
    pub fn unsent(&mut self, n: u32) {
        add(&mut self.unsent, n);
    }

    /// `n` packets have left and come to no other port: the cable is gone, loses them or is full, or
    /// there are too many switches to which a multicast packet has still to go.
    pub fn lost(&mut self, n: u32) {
        add(&mut self.lost, n);
    }

    /// A packet has left, and the cable brings it to the other port twice.
    pub fn doubled(&mut self) {
        add(&mut self.doubled, 1);
    }

    /// A trap was sent, for the first time or again.
    pub fn trap(&mut self) {
        add(&mut self.traps, 1);
    }

    /// The link went down.
    pub fn link_down(&mut self) {
        add(&mut self.link_downs, 1);
    }

    /// Prints a line for each, with a colon behind its name.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn print(&self, out: &mut impl Write) -> fmt::Result {
        let first = [
            ("sent_packets", self.sent.packets),
            ("sent_bytes", self.sent.bytes),
            ("received_packets", self.received.packets),
            ("received_bytes", self.received.bytes),
            ("own", self.own),
            ("copies", self.copies),
            ("delivered", self.delivered),
            ("ignored", self.ignored),
        ];
        for (name, n) in first {
            writeln!(out, "{name}: {n}")?;
        }
        let all = self
            .dropped
            .iter()
            .fold(0u64, |all, n| all.wrapping_add(*n));
        writeln!(out, "dropped: {all}")?;
        for (reason, n) in Discard::ALL.iter().zip(&self.dropped) {
            writeln!(out, "dropped_{reason}: {n}")?;
        }
        let last = [
            ("vl15_dropped", self.vl15_dropped),
            ("unsent", self.unsent),
            ("lost", self.lost),
            ("doubled", self.doubled),
            ("traps_sent", self.traps),
            ("link_downs", self.link_downs),
        ];
        for (name, n) in last {
            writeln!(out, "{name}: {n}")?;
        }
        Ok(())
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_tally))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Lid;
    use crate::packet::Transport;
    use crate::rc::{Bth, Op, Part, Psn, Tail};

    const DATAGRAM: Packet = Packet {
        len: 5,
        ..Packet::new(Lid::new(1), Lid::new(2), 0x48, Transport::datagram(0x49, 0))
    };

    /// Three packets of 256, 256 and 2 bytes.
    const RUN: Packet = Packet {
        transport: Transport::Rc(Bth {
            packets: 3,
            bytes: 514,
            ..Bth::bare(
                Psn::new(7),
                Op::Send {
                    part: Part::ONLY,
                    tail: Tail::Plain,
                },
            )
        }),
        ..DATAGRAM
    };

    #[test]
    fn runs_are_as_many_packets() {
        let mut tally = Tally::default();
        tally.sent(&DATAGRAM);
        tally.received(&RUN);
        let lengths = (DATAGRAM.wire_bytes().into(), RUN.wire_bytes().into());
        assert_eq!((tally.sent.packets, tally.received.packets), (1, 3));
        assert_eq!((tally.sent.bytes, tally.received.bytes), lengths);
        tally.own(&RUN);
        tally.delivered(&RUN);
        tally.dropped(Discard::NoQp, &RUN);
        assert_eq!((tally.own, tally.delivered), (3, 3));
        assert_eq!(tally.dropped.get(Discard::NoQp as usize), Some(&3));
    }

    #[test]
    fn each_way_of_a_packet_adds_up() {
        let mut tally = Tally::default();
        // To nobody, to one, to three of which one has no room.
        for (receivers, refused) in [(0, 0), (1, 0), (3, 1)] {
            tally.received(&DATAGRAM);
            tally.copied(&DATAGRAM, receivers);
            for _ in 0..receivers {
                tally.delivered(&DATAGRAM);
            }
            for _ in 0..refused {
                tally.not_delivered(&DATAGRAM);
                tally.dropped(Discard::NoReceive, &DATAGRAM);
            }
        }
        let dropped: u64 = tally.dropped.iter().sum();
        assert_eq!((tally.delivered, tally.ignored, dropped), (3, 1, 1));
        assert_eq!(tally.received.packets + tally.copies, 3 + 1 + 1);
    }

    #[test]
    fn each_reason_has_a_place_and_a_name() {
        for (i, reason) in Discard::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i);
            let mut tally = Tally::default();
            tally.dropped(*reason, &DATAGRAM);
            assert_eq!(tally.dropped.get(i), Some(&1));
            let same = Discard::ALL
                .iter()
                .filter(|o| o.as_str() == reason.as_str());
            assert_eq!(same.count(), 1);
        }
    }

    #[test]
    fn only_management_packets_are_on_lane_15() {
        let mut tally = Tally::default();
        let management = Packet {
            management: true,
            ..DATAGRAM
        };
        tally.dropped(Discard::NoReceive, &DATAGRAM);
        tally.dropped(Discard::NoQp, &management);
        assert_eq!(tally.vl15_dropped, 0);
        tally.dropped(Discard::NoReceive, &management);
        assert_eq!(tally.vl15_dropped, 1);
    }
}
