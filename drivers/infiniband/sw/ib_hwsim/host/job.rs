// SPDX-License-Identifier: GPL-2.0

//! The job of an adapter: it sends what queue pairs have to send, and does what is due.

use ib_fabric::{Mad, TrapDue};
use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;
use rdma_provider::{Again, Job, Kind, Payload, Qp, Wakeups};

use super::Host;
use crate::carry::depart;
use crate::deliver::{arrive, Incoming};
use crate::timers::again_in;
use crate::{rc, send};

/// Messages that a queue pair sends in a row.
const BUDGET: usize = 64;

/// Queue pairs that are served in a row, before the job yields the CPU.
const VISITS: usize = 16;

impl Host {
    /// Retrains the links that have waited for too long. Returns when to call it again.
    #[inline(never)]
    fn retrain_overdue(&self) -> Again {
        let now = self.clock.millis();
        let (ports, deadline) = {
            let retrains = &mut self.managed.lock().retrains;
            let ports = retrains.take_overdue(now);
            let deadline = retrains.deadline();
            self.waits.store(deadline.is_some(), Relaxed);
            (ports, deadline)
        };
        ports.for_each(|port| self.retrain(port));
        deadline.map_or(Again::Idle, |then| again_in(then.saturating_sub(now)))
    }

    /// Sends the traps that are due. Returns when to call it again.
    #[inline(never)]
    fn send_traps(&self, wakeups: &mut Wakeups) -> Again {
        let mut mad: Mad = [0; size_of::<Mad>()];
        let now = self.clock.millis();
        let mut next: Option<u64> = None;
        let mut port = 1;
        loop {
            let (packet, way) = {
                let managed = &mut *self.managed.lock();
                if managed.hca.port(port).is_none() {
                    break;
                }
                match managed.hca.trap(port, now, &mut mad) {
                    TrapDue::Send { out, packet } => {
                        managed.stats.of(out).trap();
                        let sender = managed.hca.port(out);
                        if sender.is_some_and(|port| port.has_lid(packet.dlid)) {
                            (packet, None)
                        } else {
                            match managed.leave(out, &packet, None) {
                                Some(way) => (packet, Some(way)),
                                None => continue,
                            }
                        }
                    }
                    due => {
                        if let TrapDue::At(then) = due {
                            next = Some(next.map_or(then, |next| next.min(then)));
                        }
                        port += 1;
                        continue;
                    }
                }
            };
            Payload::with(&mad, |payload| match way {
                Some(way) => {
                    self.capture.take(&packet, payload);
                    depart(way, &packet, payload, wakeups);
                }
                None => arrive(self, Incoming::own(None, port, &packet, payload), wakeups),
            });
            wakeups.flush_if_many();
        }
        next.map_or(Again::Idle, |then| {
            self.traps.store(true, Relaxed);
            again_in(then.saturating_sub(now))
        })
    }

    /// Serves the queue pairs that have something to send, within the budget. True if there may be more.
    fn drain_all(&self, wakeups: &mut Wakeups) -> bool {
        for _ in 0..VISITS {
            let Some(place) = self.ready.take_from(self.next.load(Relaxed)) else {
                return false;
            };
            self.next.store(place + 1, Relaxed);
            let qp = self.qps.lock().at(place);
            if qp.is_some_and(|qp| self.drain(&qp, wakeups)) {
                self.ready.add(place);
            }
        }
        true
    }

    /// Sends the messages of a queue pair, within the budget. True if there are more.
    fn drain(&self, qp: &Arc<Qp>, wakeups: &mut Wakeups) -> bool {
        if qp.kind() == Kind::Rc {
            return rc::drain(self, qp, wakeups);
        }
        for _ in 0..BUDGET {
            let sent = qp.transmit(wakeups, |wakeups, request, payload| {
                send::send(self, qp, request, payload, wakeups)
            });
            wakeups.flush_if_many();
            if !sent {
                return false;
            }
        }
        true
    }
}

impl Job for Host {
    fn run(&self) -> Again {
        let mut wakeups = Wakeups::new();
        let mut again = Again::Idle;
        rc::expire(self, &mut wakeups);
        if self.traps.load(Relaxed) && self.traps.xchg(false, Full) {
            again = self.send_traps(&mut wakeups);
        }
        if self.waits.load(Relaxed) {
            again = again.or_sooner(self.retrain_overdue());
        }
        if self.drain_all(&mut wakeups) {
            again = Again::Now;
        }
        if self.faults.is_gated() {
            again = again.or_sooner(self.pass_turn(&mut wakeups));
        }
        again.or_sooner(self.deadlines.again())
    }
}
