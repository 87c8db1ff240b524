// SPDX-License-Identifier: GPL-2.0

//! A channel adapter, as the fabric sees it.

mod job;

use ib_fabric::mad::{class, DirectedRoute, Header};
use ib_fabric::ud::port_accepts;
use ib_fabric::{Arrival, Config, Counted, Discard, Events, Hca, LinkOffer, Mad, Packet};
use ib_fabric::{Port, Retrains};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use rdma_provider::{Faults, Handle, Qp, Trigger};

use crate::capture::Capture;
use crate::groups::Groups;
use crate::node::{Links, NextHop};
use crate::places::Places;
use crate::qps::{Qps, ROOM};
use crate::stats::Stats;
use crate::timers::{Clock, Deadlines, Turns};

/// Part of an adapter that subnet management sees, and its cables.
pub(crate) struct Managed {
    pub(crate) hca: KBox<Hca>,
    pub(crate) links: Links,
    pub(crate) stats: Stats,
    /// Links that wait for the answer to the subnet manager.
    pub(crate) retrains: Retrains,
}

impl Managed {
    /// Counts a packet that a port has dropped. True if there may be a trap for that.
    pub(crate) fn discard(&mut self, port: u8, reason: Discard, packet: &Packet) -> bool {
        self.stats.dropped(port, reason, packet);
        self.hca.discard(port, reason, packet)
    }

    /// Sends a packet, or a run of packets, by a port. Without a cable, it is lost. `src_qp` as for [`Stats::sent`].
    pub(crate) fn leave(
        &mut self,
        port: u8,
        packet: &Packet,
        src_qp: Option<u32>,
    ) -> Option<NextHop> {
        self.hca.count(port, packet.sent());
        self.stats.sent(port, packet, src_qp);
        let way = self.links.next_hop(port);
        if way.is_none() {
            self.stats.of(port).lost(packet.packets());
        }
        way
    }

    /// Counts packets that a port cannot send.
    pub(crate) fn unsent(&mut self, port: u8, n: u32) {
        self.hca.count(port, Counted::Discarded);
        self.stats.of(port).unsent(n);
    }
}

/// State of an adapter.
///
/// The locks are taken in the callbacks of queue pairs, and none of them under another; a cable's is taken
/// before those of its ends.
#[pin_data]
pub(crate) struct Host {
    #[pin]
    pub(crate) managed: SpinLockIrq<Managed>,
    #[pin]
    pub(crate) qps: SpinLockIrq<Qps>,
    #[pin]
    pub(crate) groups: SpinLockIrq<Groups>,
    /// Those of the queue pairs that have something to send.
    ready: Places,
    /// Place to continue from.
    next: Atomic<usize>,
    /// True if a trap may have to be sent.
    traps: Atomic<bool>,
    /// True if a link waits for an answer.
    waits: Atomic<bool>,
    /// Schedules the job ([`job`]).
    pub(crate) trigger: Arc<Trigger>,
    /// Deadlines of the queue pairs.
    pub(crate) deadlines: Deadlines,
    pub(crate) handle: Handle,
    #[pin]
    pub(crate) capture: Capture,
    pub(crate) faults: Arc<Faults>,
    /// Of completions that are late.
    pub(crate) turns: Turns,
    pub(crate) clock: Clock,
}

impl Host {
    /// An adapter without cables.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there cannot be such an adapter; `ENOMEM`.
    pub(crate) fn new(config: &Config, faults: Arc<Faults>, stats: Stats) -> Result<Arc<Self>> {
        let qps = Qps::new()?;
        let groups = Groups::new()?;
        let trigger = Trigger::new()?;
        let managed = Managed {
            hca: hca(config)?,
            links: Links::new(config.ports)?,
            stats,
            retrains: Retrains::default(),
        };
        Arc::pin_init(
            pin_init!(Self {
                managed <- new_spinlock_irq!(managed, "ib_hwsim::hca"),
                qps <- new_spinlock_irq!(qps, "ib_hwsim::qps"),
                groups <- new_spinlock_irq!(groups, "ib_hwsim::groups"),
                ready: Places::new(),
                next: Atomic::new(0),
                traps: Atomic::new(false),
                waits: Atomic::new(false),
                trigger,
                deadlines: Deadlines::new(),
                handle: Handle::new(),
                capture <- Capture::new(),
                faults,
                turns: Turns::new(),
                clock: Clock::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Offer of a port that waits for training.
    pub(crate) fn offer(&self, port: u8) -> Option<LinkOffer> {
        let managed = self.managed.lock();
        let trains = managed.hca.port(port)?.phys_state().can_train();
        trains.then(|| managed.hca.offer(port))
    }

    /// Trains a port's link.
    pub(crate) fn link_up(&self, port: u8, peer: &LinkOffer) -> Events {
        self.managed.lock().hca.link_up(port, peer)
    }

    /// Takes a port's link down.
    pub(crate) fn link_down(&self, port: u8) -> Events {
        let mut managed = self.managed.lock();
        managed.retrains.remove(port);
        let before = managed.hca.port(port).map(Port::state);
        managed.stats.link_down(port, before);
        managed.hca.link_down(port)
    }

    /// Tells ULPs of events. Hold no lock of a node's, nor a cable's.
    pub(crate) fn tell(&self, port: u8, events: Events) {
        for event in events.iter() {
            self.handle.dispatch(port, event);
        }
    }

    /// Retrains a port's link, now.
    pub(crate) fn retrain(&self, port: u8) {
        let link = self.managed.lock().links.get(port).cloned();
        if let Some(link) = link {
            link.wire.retrain();
        }
    }

    /// Returns true if a management datagram came from this host: by a directed route without hops, which RDMA core
    /// answers without a queue pair, or from the port's own LID.
    pub(crate) fn is_own(&self, port: u8, arrival: &Arrival, mad: &Mad) -> bool {
        let directed = Header::parse(mad).class == class::SUBNET_DIRECTED;
        if directed {
            return DirectedRoute::parse(mad).hop_count == 0;
        }
        let managed = self.managed.lock();
        let port = managed.hca.port(port);
        arrival.local || port.is_some_and(|port| port.has_lid(arrival.slid))
    }

    /// Retrains a port's link when the answer to the subnet manager has left, or has not for too long.
    pub(crate) fn retrain_later(&self, port: u8) {
        {
            let mut managed = self.managed.lock();
            managed.retrains.add(port, self.clock.millis());
            self.waits.store(true, Relaxed);
        }
        self.trigger.schedule();
    }

    /// Retrains the links that wait for an answer, which has left.
    pub(crate) fn answer_left(&self) {
        let ports = self.managed.lock().retrains.take();
        ports.for_each(|port| self.retrain(port));
    }

    /// Takes a packet, or a run of packets, that came to a port from this very node or by the cable. False if the port
    /// does not accept it.
    pub(crate) fn admit(&self, port: u8, by_wire: bool, packet: &Packet) -> bool {
        let events = {
            let managed = &mut *self.managed.lock();
            if by_wire {
                managed.stats.received(port, packet);
            } else {
                managed.stats.of(port).own(packet);
            }
            if let Err(reason) = port_accepts(&managed.hca, port, packet) {
                managed.discard(port, reason, packet);
                return false;
            }
            if !by_wire {
                return true;
            }
            managed.hca.count(port, packet.received());
            if packet.management {
                return true;
            }
            managed.hca.data_arrived(port)
        };
        self.tell(port, events);
        true
    }

    /// Drops a packet that came in by a port with a wrong CRC.
    pub(crate) fn refuse(&self, port: u8, packet: &Packet) {
        let trap = {
            let managed = &mut *self.managed.lock();
            let state = managed.hca.port(port).map(Port::state);
            managed.stats.received(port, packet);
            managed.discard(port, Discard::corrupt(state), packet)
        };
        if trap {
            self.check_traps();
        }
    }

    /// Counts a packet that a port, or a queue pair of it, has dropped.
    pub(crate) fn discard(&self, port: u8, reason: Discard, packet: &Packet) {
        let trap = self.managed.lock().discard(port, reason, packet);
        if trap {
            self.check_traps();
        }
    }

    /// Counts a packet that a queue pair had accepted, and could not complete.
    pub(crate) fn take_back(&self, port: u8, reason: Discard, packet: &Packet) {
        let managed = &mut *self.managed.lock();
        managed.stats.of(port).not_delivered(packet);
        managed.discard(port, reason, packet);
    }

    /// Has the job look for traps that are due.
    pub(crate) fn check_traps(&self) {
        self.traps.store(true, Relaxed);
        self.trigger.schedule();
    }

    /// Marks a queue pair as one that has something to send.
    pub(crate) fn mark(&self, qp: &Qp) {
        self.ready.add(Qps::place_of(qp));
        self.trigger.schedule();
    }

    /// Calls a function with each queue pair.
    pub(crate) fn each_qp(&self, mut act: impl FnMut(&Arc<Qp>)) {
        for place in 0..ROOM {
            let qp = self.qps.lock().at(place);
            if let Some(qp) = qp {
                act(&qp);
            }
        }
    }
}

/// Makes the management side of an adapter.
///
/// It is on this function's stack before it is in its place, and takes most of what a function may.
#[inline(never)]
fn hca(config: &Config) -> Result<KBox<Hca>> {
    let place = KBox::<Hca>::new_uninit(GFP_KERNEL)?;
    match Hca::new(config) {
        Some(hca) => Ok(KBox::write(place, hca)),
        None => Err(EINVAL),
    }
}
