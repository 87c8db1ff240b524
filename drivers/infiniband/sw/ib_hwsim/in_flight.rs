// SPDX-License-Identifier: GPL-2.0

//! Packets that are on a cable with faults, in each direction.

use ib_fabric::impair::{heap, Arrival, Impairments, Pipe};
use ib_fabric::topology::Name;
use ib_fabric::{Mtu, Packet};
use kernel::prelude::*;

/// Packets that a direction of a cable holds.
const ROOM: usize = 2048;

/// Room beside that for packets of subnet management, which data cannot use up.
const MANAGEMENT_ROOM: usize = 128;

/// Bytes of the longest payload.
const LONGEST: usize = Mtu::B4096.bytes() as usize;

/// A packet that was copied.
pub(crate) struct PacketCopy {
    pub(crate) packet: Packet,
    pub(crate) intact: bool,
    /// Cables with faults that it has passed before this one.
    pub(crate) passed: usize,
    /// Memory for the longest payload; that of the packet is at the beginning.
    pub(crate) bytes: KVec<u8>,
}

/// A packet that is under way.
pub(crate) struct InFlight {
    pub(crate) arrival: Arrival,
    pub(crate) copy: KBox<PacketCopy>,
}

/// One direction of a cable.
pub(crate) struct Direction {
    pub(crate) pipe: Pipe,
    /// A heap, in memory that is there from the first fault on.
    pub(crate) in_flight: KVVec<InFlight>,
    /// Packets whose payload is being copied, before they are in flight.
    pub(crate) copied: usize,
    /// Buffers for the next packets. There are as many as were ever under way.
    pub(crate) spare: KVVec<KBox<PacketCopy>>,
}

impl Direction {
    /// A direction without packets. Its faults are drawn from the seed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        impairments: &Impairments,
        seed: u64,
        cable: Name,
        number: u8,
    ) -> Result<Self> {
        Ok(Self {
            pipe: Pipe::new(impairments, seed, cable.as_str(), number),
            in_flight: room(impairments)?,
            copied: 0,
            spare: room(impairments)?,
        })
    }

    /// Returns true if there is room for so many packets.
    pub(crate) fn has_room(&self, packets: usize, management: bool) -> bool {
        let most = if management {
            ROOM + MANAGEMENT_ROOM
        } else {
            ROOM
        };
        self.in_flight.len() + self.copied + packets <= most.min(self.in_flight.capacity())
    }

    /// Returns true if packets need not pass by it: it has no faults, and nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.pipe.impairments().is_none() && self.in_flight.is_empty() && self.copied == 0
    }

    /// Adds a packet. Returns whether it is the next one to arrive.
    ///
    /// # Errors
    ///
    /// The packet, if there is no room.
    pub(crate) fn add(&mut self, in_flight: InFlight) -> Result<bool, InFlight> {
        let arrival = in_flight.arrival;
        self.in_flight
            .push_within_capacity(in_flight)
            .map_err(|error| error.0)?;
        heap::added(&mut self.in_flight, |one| one.arrival);
        let first = self.in_flight.first();
        Ok(first.is_some_and(|first| first.arrival == arrival))
    }

    /// Takes the packet that arrives first, if its time has come.
    pub(crate) fn take(&mut self, now: u64) -> Option<KBox<PacketCopy>> {
        self.in_flight
            .first()
            .filter(|first| first.arrival.at <= now)?;
        heap::take(&mut self.in_flight, |one| one.arrival);
        self.in_flight.pop().map(|in_flight| in_flight.copy)
    }
}

/// Memory for all packets of a direction; none yet where there are no faults.
pub(crate) fn room<T>(impairments: &Impairments) -> Result<KVVec<T>> {
    if impairments.is_none() {
        return Ok(KVVec::new());
    }
    Ok(KVVec::with_capacity(ROOM + MANAGEMENT_ROOM, GFP_KERNEL)?)
}

impl PacketCopy {
    /// A buffer for a packet; `None` without memory.
    fn empty(packet: &Packet) -> Option<KBox<PacketCopy>> {
        // The packet is discarded and counted then: no reason to warn.
        let flags = GFP_ATOMIC | __GFP_NOWARN;
        let copy = PacketCopy {
            packet: *packet,
            intact: true,
            passed: 0,
            bytes: KVec::zeroed(LONGEST, flags).ok()?,
        };
        KBox::new(copy, flags).ok()
    }

    /// A copy of a packet, whose payload is not there yet; `None` without memory.
    pub(crate) fn of(
        spare: Option<KBox<PacketCopy>>,
        packet: &Packet,
        intact: bool,
        passed: usize,
    ) -> Option<KBox<PacketCopy>> {
        let mut copy = match spare {
            Some(copy) => copy,
            None => PacketCopy::empty(packet)?,
        };
        (copy.packet, copy.intact, copy.passed) = (*packet, intact, passed);
        Some(copy)
    }
}
