// SPDX-License-Identifier: GPL-2.0

//! One direction of a cable: the fate of each packet.

use super::{Dice, Impairment, Impairments};
use crate::packet::{Packet, Transport};

/// The time at which a packet arrives; among those of one time, the order in which they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// The time in ns.
    pub at: u64,
    /// The place among all arrivals.
    pub serial: u64,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet is lost on the way.
    Lost,
    /// The packet finds the queue full, and is not sent.
    Discarded,
    /// The packet arrives.
    Arrives {
        /// The time of it.
        first: Arrival,
        /// The time at which it arrives once more.
        again: Option<Arrival>,
        /// True if its CRC is right. If not, the receiver drops it.
        intact: bool,
    },
}

/// The result of sending a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The fate of the packet.
    pub fate: Fate,
    /// The µs for which the port has, or will have, something to send that has to wait, and that
    /// have not been counted before (PortXmitWait).
    pub waited: u32,
}

/// The kinds of packets, of which each has an order and a sequence of fates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Connected,
    Datagram,
    /// Virtual lane 15.
    Management,
}

/// Results of the dice for a packet.
struct Luck {
    lost: bool,
    corrupt: bool,
    twice: bool,
    /// The additional delays of the packet and of its second copy, in ns.
    late: [u64; 2],
}

/// One direction of a cable.
#[derive(Clone, Debug)]
pub struct Pipe {
    impairments: Impairments,
    data: Dice,
    management: Dice,
    /// The time at which all that was sent has left, if a rate is kept.
    free: u64,
    /// The time up to which waiting has been counted, and the ns that are less than a µs.
    counted: u64,
    rest: u64,
    /// The latest arrivals: of connections, of datagrams, of subnet management.
    last: [u64; 3],
    serial: u64,
}

impl Pipe {
    /// Makes a direction of a cable of this name: 0 or 1.
    pub fn new(impairments: &Impairments, seed: u64, cable: &str, direction: u8) -> Pipe {
        let mut pipe = Pipe {
            impairments: *impairments,
            data: Dice::new(0),
            management: Dice::new(0),
            free: 0,
            counted: 0,
            rest: 0,
            last: [0; 3],
            serial: 0,
        };
        pipe.begin(seed, cable, direction);
        pipe
    }

    /// Begins the sequence of fates of a seed.
    pub fn begin(&mut self, seed: u64, cable: &str, direction: u8) {
        let number = (direction & 1).wrapping_mul(2);
        self.data = Dice::of(seed, cable, number);
        self.management = Dice::of(seed, cable, number.wrapping_add(1));
    }

    /// Returns the faults.
    pub fn impairments(&self) -> &Impairments {
        &self.impairments
    }

    /// Changes the faults. What has been sent keeps its fate.
    pub fn change(&mut self, impairments: &Impairments) {
        self.impairments = *impairments;
        if impairments.time_of(0).is_none() {
            self.free = 0;
        }
    }

    /// Sends a packet, which is a single one, or no packet at all
    /// ([`Resume`](crate::rc::Op::Resume)): that arrives in any case.
    ///
    /// `now` should not go back. If it does by a little, packets without jitter still leave in
    /// order.
    pub fn send(&mut self, now: u64, packet: &Packet) -> Passage {
        let kind = match packet.transport {
            _ if packet.management => Kind::Management,
            Transport::Ud { .. } => Kind::Datagram,
            Transport::Rc(_) => Kind::Connected,
        };
        let is_packet = packet.packets() > 0;
        // Also for one that is discarded: the time has no say in the fates of those behind it.
        let luck = is_packet.then(|| self.roll(kind));
        let mut waited = 0;
        let mut leaves = now;
        let rate = self.impairments.time_of(packet.wire_bytes());
        if let Some(time) = rate.filter(|_| is_packet && kind != Kind::Management) {
            let begins = self.free.max(now);
            let ends = begins.saturating_add(time);
            let longest = self.impairments.longest_wait().unwrap_or(0);
            if begins > now && ends.saturating_sub(now) > longest {
                let fate = Fate::Discarded;
                return Passage { fate, waited };
            }
            waited = self.wait(now, begins);
            self.free = ends;
            leaves = ends;
        }
        let reached = leaves.saturating_add(self.impairments.delay_ns());
        let fate = match luck {
            Some(Luck { lost: true, .. }) => Fate::Lost,
            Some(luck) => {
                let [late, later] = luck.late;
                Fate::Arrives {
                    first: self.arrive(kind, reached.saturating_add(late)),
                    again: luck
                        .twice
                        .then(|| self.arrive(kind, reached.saturating_add(later))),
                    intact: !luck.corrupt,
                }
            }
            None => Fate::Arrives {
                first: self.arrive(kind, reached),
                again: None,
                intact: true,
            },
        };
        Passage { fate, waited }
    }

    /// Rolls the dice for a packet, as often for each.
    fn roll(&mut self, kind: Kind) -> Luck {
        let dice = match kind {
            Kind::Management => &mut self.management,
            Kind::Connected | Kind::Datagram => &mut self.data,
        };
        let sides = self.impairments.get(Impairment::Jitter).saturating_add(1);
        Luck {
            lost: dice.draw(self.impairments.get(Impairment::Loss)),
            corrupt: dice.draw(self.impairments.get(Impairment::Corrupt)),
            twice: dice.draw(self.impairments.get(Impairment::Duplicate)),
            late: core::array::from_fn(|_| u64::from(dice.below(sides)).saturating_mul(1000)),
        }
    }

    /// A packet waits from `now` to `until`; returns the µs of it that are news.
    fn wait(&mut self, now: u64, until: u64) -> u32 {
        let news = until.saturating_sub(self.counted.max(now));
        self.counted = self.counted.max(until);
        let ns = self.rest.saturating_add(news);
        self.rest = ns % 1000;
        u32::try_from(ns / 1000).unwrap_or(u32::MAX)
    }

    /// Notes an arrival, which is put off if it would overtake another one and must not.
    fn arrive(&mut self, kind: Kind, at: u64) -> Arrival {
        let [connected, datagram, management] = &mut self.last;
        let (last, ordered) = match kind {
            Kind::Connected => (connected, true),
            Kind::Datagram => (datagram, self.impairments.get(Impairment::Jitter) == 0),
            Kind::Management => (management, self.impairments.get(Impairment::Jitter) == 0),
        };
        let at = if ordered { at.max(*last) } else { at };
        *last = at.max(*last);
        self.serial = self.serial.wrapping_add(1);
        Arrival {
            at,
            serial: self.serial,
        }
    }
}
