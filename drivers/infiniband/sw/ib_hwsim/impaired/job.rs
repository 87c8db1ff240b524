// SPDX-License-Identifier: GPL-2.0

//! The job of a cable that has faults.

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::time::Delta;
use rdma_provider::{now, Again, Job, Payload, Wakeups};

use super::Pipes;
use crate::cable::Wire;
use crate::carry::enter;
use crate::in_flight::{Direction, PacketCopy};

/// Packets that are delivered in a row, before the job yields the CPU.
const BUDGET: usize = 64;

/// Next thing that a cable has to do.
enum Due {
    /// Take a packet to the other end, that entered at this one.
    Now(usize, KBox<PacketCopy>),
    /// Something, in so many ns.
    In(u64),
    /// Nothing.
    Never,
}

impl Pipes {
    /// Takes the next packet whose time has come.
    fn due(&self) -> Due {
        let now = now();
        let mut directions = self.directions.lock();
        for (i, direction) in directions.iter().enumerate() {
            if direction.is_idle() {
                self.impaired[i].store(false, Relaxed);
            }
        }
        let first = |direction: &Direction| direction.in_flight.first().map(|first| first.arrival);
        let [one, other] = &*directions;
        let (side, arrival) = match (first(one), first(other)) {
            (None, None) => return Due::Never,
            (Some(one), Some(other)) if other < one => (1, other),
            (Some(one), _) => (0, one),
            (None, Some(other)) => (1, other),
        };
        match directions[side].take(now) {
            Some(copy) => Due::Now(side, copy),
            None => Due::In(arrival.at.saturating_sub(now)),
        }
    }

    /// Keeps a buffer for the next packet.
    fn keep(&self, side: usize, copy: KBox<PacketCopy>) {
        // Dropped, if there is no room, without the lock.
        let _over = self.directions.lock()[side]
            .spare
            .push_within_capacity(copy);
    }
}

/// Delivers a packet to the other end of its cable.
fn arrive(wire: &Wire, side: usize, copy: &PacketCopy, wakeups: &mut Wakeups) {
    let (node, port) = wire.end(1 - side);
    if !copy.intact {
        return node.refuse(*port, &copy.packet);
    }
    let packet = &copy.packet;
    let Some(bytes) = copy.bytes.get(..packet.len as usize) else {
        return;
    };
    let end = (node.clone(), *port);
    let passed = copy.passed + 1;
    Payload::with(bytes, |payload| {
        enter(end, passed, packet, payload, wakeups);
    });
}

impl Job for Wire {
    /// Delivers the packets whose time has come.
    fn run(&self) -> Again {
        let pipes = self.pipes();
        let mut wakeups = Wakeups::new();
        for _ in 0..BUDGET {
            match pipes.due() {
                Due::Never => return Again::Idle,
                Due::In(nanos) => {
                    let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
                    return Again::Precisely(Delta::from_nanos(nanos));
                }
                Due::Now(side, copy) => {
                    arrive(self, side, &copy, &mut wakeups);
                    wakeups.flush_if_many();
                    pipes.keep(side, copy);
                }
            }
        }
        Again::Now
    }
}
