// SPDX-License-Identifier: GPL-2.0

//! The job of a switch.

use ib_fabric::{Mad, TrapDue};
use kernel::time::Delta;
use rdma_provider::{Again, Job, Payload, Wakeups};

use super::Switch;
use crate::carry::depart;

impl Job for Switch {
    /// Sends the traps that are due.
    fn run(&self) -> Again {
        let mut mad: Mad = [0; size_of::<Mad>()];
        let now = self.made.elapsed().as_millis();
        let (packet, way) = {
            let managed = &mut *self.managed.lock();
            match managed.switch.trap(now.unsigned_abs(), &mut mad) {
                TrapDue::Never => return Again::Idle,
                TrapDue::At(then) => {
                    let millis = i64::try_from(then).unwrap_or(i64::MAX).saturating_sub(now);
                    return Again::In(Delta::from_millis(millis));
                }
                TrapDue::Send { out, packet } => {
                    managed.stats.trap(out);
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
