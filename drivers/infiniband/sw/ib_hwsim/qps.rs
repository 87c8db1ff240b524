// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of an adapter, by their numbers.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{Kind, Qp};

/// Queue pairs that an adapter has room for, the special ones included.
pub(crate) const ROOM: usize = 1024;

/// Places of the special queue pairs, two for each port that an adapter may have.
const SPECIAL: usize = 2 * ib_fabric::MAX_PORTS;

// There is room for all queue pairs of ULPs: the last place is not used.
const _: () = assert!(ROOM - SPECIAL - 1 == ib_fabric::limits::MAX_QPS as usize);

/// Bits that a queue pair's number has (IB specification, section 3.5.1).
const NUMBER: u32 = 0xff_ffff;

/// Bits of a number that are the place in the table.
const PLACE_BITS: u32 = ROOM.ilog2();

/// A place in the table.
struct Place {
    /// Number of times that it was taken, which is the rest of the number: one that is gone is not mistaken
    /// for the next one.
    uses: u32,
    taken: bool,
    qp: Option<Arc<Qp>>,
}

/// Queue pairs by number.
pub(crate) struct Qps {
    places: KVVec<Place>,
    next: usize,
}

impl Qps {
    /// An empty table.
    pub(crate) fn new() -> Result<Self> {
        let mut places = KVVec::with_capacity(ROOM, GFP_KERNEL)?;
        for _ in 0..ROOM {
            let place = Place {
                uses: 0,
                taken: false,
                qp: None,
            };
            places.push(place, GFP_KERNEL)?;
        }
        Ok(Self {
            places,
            next: SPECIAL,
        })
    }

    /// Place of a queue pair with this number, as seen by a port: each has its own queue pairs 0 and 1.
    fn place(number: u32, port: u8) -> usize {
        if number < 2 {
            usize::from(port.saturating_sub(1)) * 2 + number as usize
        } else {
            number as usize % ROOM
        }
    }

    /// Place of a queue pair.
    pub(crate) fn place_of(qp: &Qp) -> usize {
        Self::place(qp.number(), qp.first_port())
    }

    fn number(&self, place: usize) -> u32 {
        if place < SPECIAL {
            return place as u32 % 2;
        }
        let generation = self.places[place].uses << PLACE_BITS;
        (generation | place as u32) & NUMBER
    }

    /// Reserves a number. `port` is that of a special queue pair.
    pub(crate) fn reserve(&mut self, kind: Kind, port: u8) -> Result<u32> {
        let place = match kind {
            Kind::Smi => Self::place(0, port),
            Kind::Gsi => Self::place(1, port),
            Kind::Ud | Kind::Rc => {
                let free = |place: &usize| !self.places[*place].taken;
                // The last place would have the number that means multicast, in time.
                let after = (self.next..ROOM - 1).find(free);
                let place = after
                    .or_else(|| (SPECIAL..self.next).find(free))
                    .ok_or(ENOMEM)?;
                self.next = place + 1;
                place
            }
        };
        let slot = &mut self.places[place];
        if slot.taken {
            return Err(EBUSY);
        }
        slot.taken = true;
        slot.uses = slot.uses.wrapping_add(1);
        Ok(self.number(place))
    }

    /// Adds a queue pair with a number that was reserved.
    pub(crate) fn add(&mut self, qp: &Arc<Qp>) {
        self.places[Self::place_of(qp)].qp = Some(qp.clone());
    }

    /// Releases a number, and returns the queue pair that had it: drop it without a lock.
    pub(crate) fn release(&mut self, number: u32, port: u8) -> Option<Arc<Qp>> {
        let slot = &mut self.places[Self::place(number, port)];
        slot.taken = false;
        slot.qp.take()
    }

    /// The queue pair in a place.
    pub(crate) fn at(&self, place: usize) -> Option<Arc<Qp>> {
        self.places.get(place)?.qp.clone()
    }

    /// The queue pair that a packet with this number is for, which came by a port.
    pub(crate) fn find(&self, number: u32, port: u8) -> Option<Arc<Qp>> {
        self.at(Self::place(number, port))
            .filter(|qp| qp.number() == number)
    }
}
