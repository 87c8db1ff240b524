// SPDX-License-Identifier: GPL-2.0

//! Packets on cables that have faults.
//!
//! Such a packet is copied, and its sender goes on. The cable's job takes it to the other end when the rules
//! of [`ib_fabric::impair`] say that it arrives.

mod job;

use ib_fabric::impair::{Arrival, Fate, Impairments, Singles};
use ib_fabric::topology::Name;
use ib_fabric::{Counted, Packet};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use rdma_provider::{now, Payload, Trigger};

use crate::in_flight::{room, Direction, InFlight, PacketCopy};
use crate::node::{Link, MAX_HOPS};

/// The faults of a cable, and the packets that are on it.
#[pin_data]
pub(crate) struct Pipes {
    /// True if packets of each direction have to go by [`Link::send`].
    impaired: [Atomic<bool>; 2],
    /// No other lock is taken under its lock.
    #[pin]
    directions: SpinLockIrq<[Direction; 2]>,
    /// Schedules the cable's job.
    trigger: Arc<Trigger>,
}

impl Pipes {
    /// The two directions of a cable.
    pub(crate) fn new(
        impairments: &Impairments,
        seed: u64,
        cable: Name,
        trigger: Arc<Trigger>,
    ) -> Result<impl PinInit<Self>> {
        let direction = |number| Direction::new(impairments, seed, cable, number);
        let directions = [direction(0)?, direction(1)?];
        let impaired = !impairments.is_none();
        Ok(pin_init!(Self {
            impaired: [Atomic::new(impaired), Atomic::new(impaired)],
            directions <- new_spinlock_irq!(directions, "ib_hwsim::impairments"),
            trigger,
        }))
    }

    /// Returns true if packets that enter at an end have to go by [`Link::send`].
    #[inline]
    pub(crate) fn is_impaired(&self, side: usize) -> bool {
        self.impaired[side & 1].load(Relaxed)
    }

    /// Changes the faults.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing changes.
    ///
    /// # Context
    ///
    /// Process context; may sleep. One at a time.
    pub(crate) fn change(&self, impairments: &Impairments) -> Result {
        let mut rooms = [room(impairments)?, room(impairments)?];
        let mut spares = [room(impairments)?, room(impairments)?];
        let mut directions = self.directions.lock();
        for (i, direction) in directions.iter_mut().enumerate() {
            direction.pipe.change(impairments);
            if direction.in_flight.capacity() == 0 {
                core::mem::swap(&mut direction.in_flight, &mut rooms[i]);
                core::mem::swap(&mut direction.spare, &mut spares[i]);
            }
            if !impairments.is_none() {
                self.impaired[i].store(true, Relaxed);
            }
        }
        drop(directions);
        // It stops being impaired once nothing is under way.
        self.trigger.schedule();
        Ok(())
    }

    /// Begins the sequence of fates of a seed.
    pub(crate) fn begin(&self, seed: u64, cable: Name) {
        let mut directions = self.directions.lock();
        for (number, direction) in (0u8..).zip(directions.iter_mut()) {
            direction.pipe.begin(seed, cable.as_str(), number);
        }
    }

    /// Drops what is on the cable. Returns the numbers of packets from each end.
    pub(crate) fn clear(&self) -> [u32; 2] {
        [0, 1].map(|i| {
            let mut in_flight = KVVec::new();
            let mut spare = KVVec::new();
            let mut directions = self.directions.lock();
            core::mem::swap(&mut directions[i].in_flight, &mut in_flight);
            core::mem::swap(&mut directions[i].spare, &mut spare);
            // They are freed without the lock.
            drop(directions);
            let packets = in_flight
                .iter()
                .map(|in_flight| in_flight.copy.packet.packets());
            packets.sum()
        })
    }

    /// Decides on the fate of a packet, and gets buffers for its copies, as far as there are any.
    fn decide(&self, side: usize, packet: &Packet) -> (Decision, u32) {
        let directions = &mut self.directions.lock();
        let direction = &mut directions[side];
        let passage = direction.pipe.send(now(), packet);
        let decision = match passage.fate {
            Fate::Lost => Decision::Lost,
            Fate::Discarded => Decision::Discarded,
            Fate::Arrives {
                first,
                again,
                intact,
            } => {
                let copies = 1 + usize::from(again.is_some());
                if direction.has_room(copies, packet.management) {
                    // Packets behind it must not overtake it.
                    self.impaired[side].store(true, Relaxed);
                    direction.copied += copies;
                    let copies = [Some(first), again];
                    Decision::Arrives(
                        copies.map(|copy| copy.map(|arrival| (arrival, direction.spare.pop()))),
                        intact,
                    )
                } else {
                    Decision::Discarded
                }
            }
        };
        (decision, passage.waited)
    }
}

/// Decision on a packet that was sent.
enum Decision {
    Lost,
    Discarded,
    /// The copies of the run, and whether its CRC is right.
    Arrives([Option<(Arrival, Option<KBox<PacketCopy>>)>; 2], bool),
}

/// Of a cable that has faults.
impl Link {
    /// Sends a packet, or a run of packets, of which the payload is copied. Each packet may be lost. All are if they have
    /// passed so many cables with faults that they must be going round in circles. If the payload cannot be read,
    /// nothing leaves, and `Payload::is_cut_off` says so.
    ///
    /// # Context
    ///
    /// Any. Takes the lock of the sending port's node; hold none of a node's.
    pub(crate) fn send(&self, passed: usize, packet: &Packet, payload: &Payload<'_>) {
        if passed > MAX_HOPS {
            return self.discard(packet.packets());
        }
        for (single, from) in Singles::new(packet) {
            self.send_one(passed, &single, payload, from);
        }
    }

    fn send_one(&self, passed: usize, packet: &Packet, payload: &Payload<'_>, from: u32) {
        let pipes = self.wire.pipes();
        let (decision, waited) = pipes.decide(self.side, packet);
        if waited > 0 {
            self.count(Counted::Waited { ticks: waited });
        }
        let (copies, intact) = match decision {
            Decision::Lost => return self.lose(packet.packets()),
            Decision::Discarded => return self.discard(packet.packets()),
            Decision::Arrives(copies, intact) => (copies, intact),
        };
        if copies[1].is_some() {
            let (node, port) = self.wire.end(self.side);
            node.doubled(*port);
        }
        let mut soon = false;
        for (arrival, spare) in copies.into_iter().flatten() {
            let copy = match PacketCopy::of(spare, packet, intact, passed) {
                Some(mut copy) => copy
                    .bytes
                    .get_mut(..packet.len as usize)
                    // The receiver has no use for that of a corrupt one.
                    .is_some_and(|out| !intact || payload.copy_part(from as usize, out))
                    .then_some(copy),
                None => {
                    for _ in 0..packet.packets() {
                        self.count(Counted::Discarded);
                    }
                    None
                }
            };
            let in_flight = copy.map(|copy| InFlight { arrival, copy });
            let added = {
                let mut directions = pipes.directions.lock();
                let direction = &mut directions[self.side];
                direction.copied -= 1;
                // There is no room any more if the cable was pulled meanwhile.
                in_flight
                    .ok_or(None)
                    .and_then(|in_flight| direction.add(in_flight).map_err(Some))
            };
            match added {
                Ok(is_next) => soon |= is_next,
                Err(_) => self.lose(packet.packets()),
            }
        }
        if soon {
            pipes.trigger.schedule();
        }
    }

    /// Counts packets that have no room, and come to no other port.
    fn discard(&self, n: u32) {
        for _ in 0..n {
            self.count(Counted::Discarded);
        }
        self.lose(n);
    }

    /// Counts packets that come to no other port.
    pub(crate) fn lose(&self, n: u32) {
        let (node, port) = self.wire.end(self.side);
        node.lost(*port, n);
    }

    /// Counts something at the port that sends.
    fn count(&self, what: Counted) {
        let (node, port) = self.wire.end(self.side);
        node.count(*port, what);
    }
}
