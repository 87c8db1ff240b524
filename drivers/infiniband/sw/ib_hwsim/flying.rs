// SPDX-License-Identifier: GPL-2.0

//! Packets that are on a cable with faults, in each direction.

use core::cmp::Ordering;

use ib_fabric::topology::Name;
use ib_fabric::weather::{heap, Arrival, Lane, Weather};
use ib_fabric::{Mtu, Packet};
use kernel::prelude::*;

/// Packets that a direction of a cable holds.
const ROOM: usize = 2048;

/// Room beside that for those of subnet management, which data does not take away.
const MANAGEMENT_ROOM: usize = 128;

/// Bytes of the longest payload.
const LONGEST: usize = Mtu::B4096.bytes() as usize;

/// A packet that was copied.
pub(crate) struct Cargo {
    pub(crate) packet: Packet,
    pub(crate) intact: bool,
    /// Cables with faults that it has passed before this one.
    pub(crate) passed: usize,
    /// Memory for the longest payload; that of the packet is at the beginning.
    pub(crate) bytes: KVec<u8>,
}

/// A packet that is under way.
pub(crate) struct Flying {
    pub(crate) arrival: Arrival,
    pub(crate) cargo: KBox<Cargo>,
}

impl PartialEq for Flying {
    fn eq(&self, other: &Self) -> bool {
        self.arrival == other.arrival
    }
}

impl Eq for Flying {}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flying {
    fn cmp(&self, other: &Self) -> Ordering {
        self.arrival.cmp(&other.arrival)
    }
}

/// One direction of a cable.
pub(crate) struct Direction {
    pub(crate) lane: Lane,
    /// A heap, in memory that is there from the first fault on.
    pub(crate) flying: KVVec<Flying>,
    /// Packets whose fate is sealed and whose payload is being copied.
    pub(crate) copied: usize,
    /// Cargoes for the next packets. There are as many as were ever under way.
    pub(crate) spare: KVVec<KBox<Cargo>>,
}

impl Direction {
    /// A direction without packets. What goes wrong on it is that of a seed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(weather: &Weather, seed: u64, cable: Name, number: u8) -> Result<Self> {
        Ok(Self {
            lane: Lane::new(weather, seed, cable.as_str(), number),
            flying: room(weather)?,
            copied: 0,
            spare: room(weather)?,
        })
    }

    /// Whether there is room for so many packets.
    pub(crate) fn has_room(&self, packets: usize, management: bool) -> bool {
        let most = if management {
            ROOM + MANAGEMENT_ROOM
        } else {
            ROOM
        };
        self.flying.len() + self.copied + packets <= most.min(self.flying.capacity())
    }

    /// Whether packets may pass it without a look.
    pub(crate) fn is_idle(&self) -> bool {
        self.lane.weather().is_fair() && self.flying.is_empty() && self.copied == 0
    }

    /// Adds a packet. Returns whether it is the next one to arrive.
    ///
    /// # Errors
    ///
    /// The packet, if there is no room.
    pub(crate) fn add(&mut self, flying: Flying) -> Result<bool, Flying> {
        let arrival = flying.arrival;
        self.flying
            .push_within_capacity(flying)
            .map_err(|error| error.0)?;
        heap::added(&mut self.flying);
        let first = self.flying.first();
        Ok(first.is_some_and(|first| first.arrival == arrival))
    }

    /// Takes the packet that arrives first, if its time has come.
    pub(crate) fn take(&mut self, now: u64) -> Option<KBox<Cargo>> {
        self.flying
            .first()
            .filter(|first| first.arrival.at <= now)?;
        heap::take(&mut self.flying);
        self.flying.pop().map(|flying| flying.cargo)
    }
}

/// Memory for all packets of a direction; none yet where there are no faults.
pub(crate) fn room<T>(weather: &Weather) -> Result<KVVec<T>> {
    if weather.is_fair() {
        return Ok(KVVec::new());
    }
    Ok(KVVec::with_capacity(ROOM + MANAGEMENT_ROOM, GFP_KERNEL)?)
}

impl Cargo {
    /// A cargo that is new; `None` without memory.
    fn empty(packet: &Packet) -> Option<KBox<Cargo>> {
        // The packet is discarded and counted then: no reason to warn.
        let flags = GFP_ATOMIC | __GFP_NOWARN;
        let cargo = Cargo {
            packet: *packet,
            intact: true,
            passed: 0,
            bytes: KVec::zeroed(LONGEST, flags).ok()?,
        };
        KBox::new(cargo, flags).ok()
    }

    /// A cargo of a packet, whose payload is still to be copied; `None` without memory.
    pub(crate) fn of(
        spare: Option<KBox<Cargo>>,
        packet: &Packet,
        intact: bool,
        passed: usize,
    ) -> Option<KBox<Cargo>> {
        let mut cargo = match spare {
            Some(cargo) => cargo,
            None => Cargo::empty(packet)?,
        };
        (cargo.packet, cargo.intact, cargo.passed) = (*packet, intact, passed);
        Some(cargo)
    }
}
