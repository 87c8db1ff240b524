// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of an adapter, by their numbers.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{Kind, Qp};

/// Queue pairs that an adapter has room for, the two special ones included.
pub(crate) const ROOM: usize = 1024;

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
        Ok(Self { places, next: 2 })
    }

    /// Place of a number.
    pub(crate) fn place(number: u32) -> usize {
        number as usize % ROOM
    }

    fn number(&self, place: usize) -> u32 {
        let uses = self.places[place].uses;
        let special = place < 2;
        let generation = if special { 0 } else { uses << PLACE_BITS };
        let number = generation | place as u32;
        number & NUMBER
    }

    /// Takes a number.
    pub(crate) fn reserve(&mut self, kind: Kind) -> Result<u32> {
        let place = match kind {
            Kind::Smi => 0,
            Kind::Gsi => 1,
            Kind::Ud => {
                let free = |place: &usize| !self.places[*place].taken;
                // The last place would have the number that means multicast, in time.
                let after = (self.next..ROOM - 1).find(free);
                let place = after.or_else(|| (2..self.next).find(free)).ok_or(ENOMEM)?;
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

    /// Puts a queue pair where its number is.
    pub(crate) fn add(&mut self, qp: &Arc<Qp>) {
        self.places[Self::place(qp.number())].qp = Some(qp.clone());
    }

    /// Gives a number back; the queue pair that had it, to be dropped without a lock.
    pub(crate) fn release(&mut self, number: u32) -> Option<Arc<Qp>> {
        let slot = &mut self.places[Self::place(number)];
        slot.taken = false;
        slot.qp.take()
    }

    /// The queue pair in a place.
    pub(crate) fn at(&self, place: usize) -> Option<Arc<Qp>> {
        self.places.get(place)?.qp.clone()
    }

    /// The queue pair with this number.
    pub(crate) fn find(&self, number: u32) -> Option<Arc<Qp>> {
        self.at(Self::place(number))
            .filter(|qp| qp.number() == number)
    }
}
