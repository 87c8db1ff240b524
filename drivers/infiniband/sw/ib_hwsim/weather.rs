// SPDX-License-Identifier: GPL-2.0

//! Packets on cables that have faults.
//!
//! Such a packet is copied, and its sender goes on. The cable's job takes it to the other end when the rules
//! of [`ib_fabric::weather`] say that it arrives.

use ib_fabric::topology::Name;
use ib_fabric::weather::{Arrival, Fate, Singles, Weather};
use ib_fabric::{Counted, Packet};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use kernel::time::Delta;
use rdma_provider::{now, Again, Bell, Job, Payload, Wakeups};

use crate::cable::Wire;
use crate::carry::{enter, MOST_VISITS};
use crate::flying::{room, Cargo, Direction, Flying};

/// Packets in a row, before other work of the CPU's has its turn.
const BUDGET: usize = 64;

/// The faults of a cable, and the packets that are on it.
#[pin_data]
pub(crate) struct Sky {
    /// Whether packets of each direction have to go by [`Foul::send`].
    foul: [Atomic<bool>; 2],
    /// No other lock is taken under its lock.
    #[pin]
    directions: SpinLockIrq<[Direction; 2]>,
    /// Asks for the cable's job.
    bell: Arc<Bell>,
}

/// A direction of a cable that has faults.
#[derive(Clone)]
pub(crate) struct Foul {
    pub(crate) wire: Arc<Wire>,
    /// The end at which packets enter the cable.
    pub(crate) side: usize,
}

impl Sky {
    /// The weather on a cable.
    pub(crate) fn new(
        weather: &Weather,
        seed: u64,
        cable: Name,
        bell: Arc<Bell>,
    ) -> Result<impl PinInit<Self>> {
        let direction = |number| Direction::new(weather, seed, cable, number);
        let directions = [direction(0)?, direction(1)?];
        let foul = !weather.is_fair();
        Ok(pin_init!(Self {
            foul: [Atomic::new(foul), Atomic::new(foul)],
            directions <- new_spinlock_irq!(directions, "ib_hwsim::weather"),
            bell,
        }))
    }

    /// Whether packets that enter at an end have to go by [`Foul::send`].
    #[inline]
    pub(crate) fn is_foul(&self, side: usize) -> bool {
        self.foul[side & 1].load(Relaxed)
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
    pub(crate) fn change(&self, weather: &Weather) -> Result {
        let mut rooms = [room(weather)?, room(weather)?];
        let mut spares = [room(weather)?, room(weather)?];
        let mut directions = self.directions.lock();
        for (i, direction) in directions.iter_mut().enumerate() {
            direction.lane.change(weather);
            if direction.flying.capacity() == 0 {
                core::mem::swap(&mut direction.flying, &mut rooms[i]);
                core::mem::swap(&mut direction.spare, &mut spares[i]);
            }
            if !weather.is_fair() {
                self.foul[i].store(true, Relaxed);
            }
        }
        drop(directions);
        // For fair weather, if nothing is under way.
        self.bell.ask();
        Ok(())
    }

    /// Begins the sequence of fates of a seed.
    pub(crate) fn begin(&self, seed: u64, cable: Name) {
        let mut directions = self.directions.lock();
        for (number, direction) in (0u8..).zip(directions.iter_mut()) {
            direction.lane.begin(seed, cable.as_str(), number);
        }
    }

    /// Drops what is on the cable. Returns the numbers of packets from each end.
    pub(crate) fn clear(&self) -> [u32; 2] {
        [0, 1].map(|i| {
            let mut flying = KVVec::new();
            let mut spare = KVVec::new();
            let mut directions = self.directions.lock();
            core::mem::swap(&mut directions[i].flying, &mut flying);
            core::mem::swap(&mut directions[i].spare, &mut spare);
            // They are freed without the lock.
            drop(directions);
            let packets = flying.iter().map(|flying| flying.cargo.packet.packets());
            packets.sum()
        })
    }

    /// Seals the fate of a packet, and gets cargoes for its copies, as far as there are any.
    fn seal(&self, side: usize, packet: &Packet) -> (Sealed, u32) {
        let directions = &mut self.directions.lock();
        let direction = &mut directions[side];
        let passage = direction.lane.send(now(), packet);
        let sealed = match passage.fate {
            Fate::Lost => Sealed::Lost,
            Fate::Discarded => Sealed::Discarded,
            Fate::Arrives {
                first,
                again,
                intact,
            } => {
                let copies = 1 + usize::from(again.is_some());
                if direction.has_room(copies, packet.management) {
                    // Who comes behind it must not overtake it.
                    self.foul[side].store(true, Relaxed);
                    direction.copied += copies;
                    let copies = [Some(first), again];
                    Sealed::Arrives(
                        copies.map(|copy| copy.map(|arrival| (arrival, direction.spare.pop()))),
                        intact,
                    )
                } else {
                    Sealed::Discarded
                }
            }
        };
        (sealed, passage.waited)
    }
}

/// Fate of a packet that was sent.
enum Sealed {
    Lost,
    Discarded,
    /// Its copies, and whether its CRC is right.
    Arrives([Option<(Arrival, Option<KBox<Cargo>>)>; 2], bool),
}

impl Foul {
    /// Sends a packet, or a run of packets, of which the payload is copied. Each packet may be lost. All are if they have
    /// passed so many cables with faults that they must be going round in circles. If the payload cannot be read,
    /// nothing leaves, and `Payload::is_cut_off` says so.
    ///
    /// # Context
    ///
    /// Any. Takes the lock of the sending port's node; hold none of a node's.
    pub(crate) fn send(&self, passed: usize, packet: &Packet, payload: &Payload<'_>) {
        if passed > MOST_VISITS {
            return self.discard(packet.packets());
        }
        for (single, from) in Singles::new(packet) {
            self.send_one(passed, &single, payload, from);
        }
    }

    fn send_one(&self, passed: usize, packet: &Packet, payload: &Payload<'_>, from: u32) {
        let sky = self.wire.sky();
        let (sealed, waited) = sky.seal(self.side, packet);
        if waited > 0 {
            self.count(Counted::Waited { ticks: waited });
        }
        let (copies, intact) = match sealed {
            Sealed::Lost => return self.lose(packet.packets()),
            Sealed::Discarded => return self.discard(packet.packets()),
            Sealed::Arrives(copies, intact) => (copies, intact),
        };
        if copies[1].is_some() {
            let (node, port) = self.wire.end(self.side);
            node.doubled(*port);
        }
        let mut soon = false;
        for (arrival, spare) in copies.into_iter().flatten() {
            let cargo = match Cargo::of(spare, packet, intact, passed) {
                Some(mut cargo) => cargo
                    .bytes
                    .get_mut(..packet.len as usize)
                    // The receiver has no use for that of a corrupt one.
                    .is_some_and(|out| !intact || payload.copy_part(from as usize, out))
                    .then_some(cargo),
                None => {
                    for _ in 0..packet.packets() {
                        self.count(Counted::Discarded);
                    }
                    None
                }
            };
            let flying = cargo.map(|cargo| Flying { arrival, cargo });
            let added = {
                let mut directions = sky.directions.lock();
                let direction = &mut directions[self.side];
                direction.copied -= 1;
                // There is no room any more if the cable was pulled meanwhile.
                flying
                    .ok_or(None)
                    .and_then(|flying| direction.add(flying).map_err(Some))
            };
            match added {
                Ok(is_next) => soon |= is_next,
                Err(_) => self.lose(packet.packets()),
            }
        }
        if soon {
            sky.bell.ask();
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

/// Next thing that a cable has to do.
enum Due {
    /// Take a packet to the other end, that entered at this one.
    Now(usize, KBox<Cargo>),
    /// Something, in so many ns.
    In(u64),
    /// Nothing.
    Never,
}

impl Sky {
    /// Takes the next packet whose time has come.
    fn due(&self) -> Due {
        let now = now();
        let mut directions = self.directions.lock();
        for (i, direction) in directions.iter().enumerate() {
            if direction.is_idle() {
                self.foul[i].store(false, Relaxed);
            }
        }
        let first = |direction: &Direction| direction.flying.first().map(|first| first.arrival);
        let [one, other] = &*directions;
        let (side, arrival) = match (first(one), first(other)) {
            (None, None) => return Due::Never,
            (Some(one), Some(other)) if other < one => (1, other),
            (Some(one), _) => (0, one),
            (None, Some(other)) => (1, other),
        };
        match directions[side].take(now) {
            Some(cargo) => Due::Now(side, cargo),
            None => Due::In(arrival.at.saturating_sub(now)),
        }
    }

    /// Keeps a cargo for the next packet.
    fn keep(&self, side: usize, cargo: KBox<Cargo>) {
        // Dropped, if there is no room, without the lock.
        let _over = self.directions.lock()[side]
            .spare
            .push_within_capacity(cargo);
    }
}

/// Takes a packet to the end of a cable where it leaves.
fn arrive(wire: &Wire, side: usize, cargo: &Cargo, wakeups: &mut Wakeups) {
    let (node, port) = wire.end(1 - side);
    if !cargo.intact {
        return node.refuse(*port, &cargo.packet);
    }
    let packet = &cargo.packet;
    let Some(bytes) = cargo.bytes.get(..packet.len as usize) else {
        return;
    };
    let end = (node.clone(), *port);
    let passed = cargo.passed + 1;
    Payload::with(bytes, |payload| {
        enter(end, passed, packet, payload, wakeups);
    });
}

impl Job for Wire {
    /// Takes packets to their ends, those that have waited for long enough.
    fn run(&self) -> Again {
        let sky = self.sky();
        let mut wakeups = Wakeups::new();
        for _ in 0..BUDGET {
            match sky.due() {
                Due::Never => return Again::Asked,
                Due::In(nanos) => {
                    let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
                    return Again::Sharply(Delta::from_nanos(nanos));
                }
                Due::Now(side, cargo) => {
                    arrive(self, side, &cargo, &mut wakeups);
                    wakeups.flush_if_many();
                    sky.keep(side, cargo);
                }
            }
        }
        Again::Now
    }
}
