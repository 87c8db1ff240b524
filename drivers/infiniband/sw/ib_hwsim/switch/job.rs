// SPDX-License-Identifier: GPL-2.0

//! The job of a switch.

use ib_fabric::{Mad, TrapDue};
use rdma_provider::{Again, Job, Payload, Wakeups};

use super::Switch;
use crate::carry::depart;
use crate::timers::again_in;

impl Job for Switch {
    /// Sends the traps that are due.
    fn run(&self) -> Again {
        let mut mad: Mad = [0; size_of::<Mad>()];
        let now = self.clock.millis();
        let (packet, way) = {
            let managed = &mut *self.managed.lock();
            match managed.switch.trap(now, &mut mad) {
                TrapDue::Never => return Again::Idle,
                TrapDue::At(then) => return again_in(then.saturating_sub(now)),
                TrapDue::Send { out, packet } => {
                    managed.stats.of(out).trap();
                    (packet, managed.send(out, &packet))
                }
            }
        };
        if let Some(way) = way {
            let mut wakeups = Wakeups::new();
            Payload::with(&mad, |payload| depart(way, &packet, payload, &mut wakeups));
        }
        Again::Now
    }
}
