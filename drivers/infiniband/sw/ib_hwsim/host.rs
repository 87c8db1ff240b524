// SPDX-License-Identifier: GPL-2.0

//! A channel adapter, as the fabric sees it.

use ib_fabric::mad::{class, DirectedRoute, Header};
use ib_fabric::{Arrival, Config, Discard, Events, Hca, LinkOffer, Mad, Packet, TrapDue};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use kernel::time::{Delta, Instant, Monotonic};
use rdma_provider::{Again, Bell, Handle, Job, Kind, Payload, Qp, Wakeups};

use crate::carry::carry;
use crate::deliver::{self, arrive, Origin};
use crate::groups::Groups;
use crate::node::{Link, Links};
use crate::qps::{Qps, ROOM};
use crate::rc;

/// Messages of one queue pair in a row.
const BUDGET: usize = 64;

/// Queue pairs in a row, before other work of the CPU's has its turn.
const VISITS: usize = 16;

/// Part of an adapter that subnet management sees, and its cables.
pub(crate) struct Managed {
    pub(crate) hca: KBox<Hca>,
    pub(crate) links: Links,
    /// Ports that the subnet manager took down, a bit each: their links follow when the answer has left.
    pub(crate) retrain: u8,
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
    /// Places of the queue pairs that have something to send, a bit each.
    ready: [Atomic<u64>; ROOM / 64],
    /// Place at which to go on.
    next: Atomic<usize>,
    /// Whether a trap may have to be sent.
    traps: Atomic<bool>,
    /// Asks for [`Job::run`].
    bell: Arc<Bell>,
    /// Deadlines of the connections.
    pub(crate) deadlines: rc::Deadlines,
    pub(crate) handle: Handle,
    made: Instant<Monotonic>,
    /// Seconds since then that leases of management keys have been told of.
    #[pin]
    told: SpinLockIrq<i64>,
}

impl Host {
    /// An adapter without cables.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there cannot be such an adapter; `ENOMEM`.
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>> {
        let qps = Qps::new()?;
        let groups = Groups::new()?;
        let bell = Bell::new()?;
        let managed = Managed {
            hca: hca(config)?,
            links: Links::new(config.ports)?,
            retrain: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                managed <- new_spinlock_irq!(managed, "ib_hwsim::hca"),
                qps <- new_spinlock_irq!(qps, "ib_hwsim::qps"),
                groups <- new_spinlock_irq!(groups, "ib_hwsim::groups"),
                ready: [const { Atomic::new(0) }; ROOM / 64],
                next: Atomic::new(0),
                traps: Atomic::new(false),
                bell,
                deadlines: rc::Deadlines::new(),
                handle: Handle::new(),
                made: Instant::now(),
                told <- new_spinlock_irq!(0, "ib_hwsim::told"),
            }),
            GFP_KERNEL,
        )
    }

    /// See [`Links::put`].
    pub(crate) fn connect(&self, port: u8, link: Link) -> Result {
        self.managed.lock().links.put(port, link)
    }

    /// See [`Links::take`].
    pub(crate) fn disconnect(&self, port: u8) -> Option<Link> {
        self.managed.lock().links.take(port)
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
        managed.retrain &= !bit(port);
        managed.hca.link_down(port)
    }

    /// Tells ULPs of events. Hold no lock of a node's, nor a cable's.
    pub(crate) fn tell(&self, port: u8, events: Events) {
        for event in events.iter() {
            self.handle.dispatch(port, deliver::event(event));
        }
    }

    /// Retrains a port's link, now.
    pub(crate) fn retrain(&self, port: u8) {
        let link = self.managed.lock().links.get(port).cloned();
        if let Some(link) = link {
            link.wire.retrain();
        }
    }

    /// Whether a management datagram came from this host: by a directed route without hops, which RDMA core
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

    /// Retrains a port's link when the answer to the subnet manager has left.
    pub(crate) fn retrain_later(&self, port: u8) {
        self.managed.lock().retrain |= bit(port);
    }

    /// Retrains the links that wait for an answer, which has left.
    pub(crate) fn answer_left(&self) {
        let due = core::mem::take(&mut self.managed.lock().retrain);
        for port in (1..8).filter(|&port| due & bit(port) != 0) {
            self.retrain(port);
        }
    }

    /// Counts a packet that a port, or a queue pair of it, has dropped.
    pub(crate) fn discard(&self, port: u8, reason: Discard, packet: &Packet) {
        self.managed.lock().hca.discard(port, reason, packet);
        if matches!(reason, Discard::PKey | Discard::QKey) {
            self.check_traps();
        }
    }

    /// Has the subnet manager told of what has happened, if that is worth a trap.
    pub(crate) fn check_traps(&self) {
        self.traps.store(true, Relaxed);
        self.bell.ask();
    }

    /// Sends the traps that are due; when there is one again.
    #[inline(never)]
    fn send_traps(&self, wakeups: &mut Wakeups) -> Again {
        let mut mad: Mad = [0; size_of::<Mad>()];
        let now = self.made.elapsed().as_millis();
        let mut next: Option<i64> = None;
        let mut port = 1;
        loop {
            let (packet, end) = {
                let managed = &mut *self.managed.lock();
                if managed.hca.port(port).is_none() {
                    break;
                }
                match managed.hca.trap(port, now.unsigned_abs(), &mut mad) {
                    TrapDue::Send { out, packet } => {
                        let sender = managed.hca.port(out);
                        if sender.is_some_and(|port| port.has_lid(packet.dlid)) {
                            (packet, None)
                        } else {
                            match managed.links.ahead(out) {
                                Some(end) => (packet, Some(end)),
                                None => continue,
                            }
                        }
                    }
                    due => {
                        if let TrapDue::At(then) = due {
                            let then = i64::try_from(then).unwrap_or(i64::MAX);
                            next = Some(next.map_or(then, |next| next.min(then)));
                        }
                        port += 1;
                        continue;
                    }
                }
            };
            Payload::with(&mad, |payload| match end {
                Some(end) => carry(end, &packet, payload, wakeups),
                None => arrive(self, port, Origin::Own(None), &packet, payload, wakeups),
            });
            wakeups.flush_if_many();
        }
        next.map_or(Again::Asked, |then| {
            self.traps.store(true, Relaxed);
            Again::In(Delta::from_millis(then.saturating_sub(now)))
        })
    }

    /// Seconds since this was last asked.
    pub(crate) fn seconds_since(&self) -> u16 {
        let mut told = self.told.lock();
        let now = self.made.elapsed().as_millis() / 1000;
        let passed = now - *told;
        *told = now;
        u16::try_from(passed).unwrap_or(u16::MAX)
    }

    /// Has a queue pair sent from that has something to send.
    pub(crate) fn mark(&self, qp: &Qp) {
        self.mark_place(Qps::place_of(qp));
        self.bell.ask();
    }

    /// Means to ask for [`Job::run`].
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    fn mark_place(&self, place: usize) {
        let word = &self.ready[place / 64];
        let mut old = word.load(Relaxed);
        while let Err(now) = word.cmpxchg(old, old | 1 << (place % 64), Full) {
            old = now;
        }
    }

    /// Takes a queue pair's place that has something to send: the next one from a place on, round the table.
    fn take_ready(&self, from: usize) -> Option<usize> {
        let words = self.ready.len();
        // The word of the first place comes last once more, for the places before that one.
        for i in 0..=words {
            let at = (from / 64 + i) % words;
            let mask = if i == 0 {
                u64::MAX << (from % 64)
            } else {
                u64::MAX
            };
            let word = &self.ready[at];
            let mut old = word.load(Relaxed);
            while old & mask != 0 {
                let bit = (old & mask).trailing_zeros();
                match word.cmpxchg(old, old & !(1 << bit), Full) {
                    Ok(_) => return Some(at * 64 + bit as usize),
                    Err(now) => old = now,
                }
            }
        }
        None
    }

    /// Sends what the queue pairs have, within the budget. True if there may be more.
    fn drain_all(&self, wakeups: &mut Wakeups) -> bool {
        for _ in 0..VISITS {
            let Some(place) = self.take_ready(self.next.load(Relaxed)) else {
                return false;
            };
            self.next.store(place + 1, Relaxed);
            let qp = self.qps.lock().at(place);
            if qp.is_some_and(|qp| self.drain(&qp, wakeups)) {
                self.mark_place(place);
            }
        }
        true
    }

    /// Sends what a queue pair has, within the budget. True if there is more.
    fn drain(&self, qp: &Arc<Qp>, wakeups: &mut Wakeups) -> bool {
        if qp.kind() == Kind::Rc {
            return rc::drain(self, qp, wakeups);
        }
        for _ in 0..BUDGET {
            let sent = qp.transmit(wakeups, |wakeups, request, payload| {
                deliver::send(self, qp, request, payload, wakeups)
            });
            wakeups.flush_if_many();
            if !sent {
                return false;
            }
        }
        true
    }
}

/// Bit of a port.
pub(crate) fn bit(port: u8) -> u8 {
    1u8.checked_shl(port.into()).unwrap_or(0)
}

/// Makes the management side of an adapter.
///
/// It is on this function's stack before it is in its place, and takes most of what a function may.
#[inline(never)]
fn hca(config: &Config) -> Result<KBox<Hca>> {
    let place = KBox::<Hca>::new_uninit(GFP_KERNEL)?;
    match Hca::new(config) {
        Ok(hca) => Ok(KBox::write(place, hca)),
        Err(_) => Err(EINVAL),
    }
}

impl Job for Host {
    fn run(&self) -> Again {
        let mut wakeups = Wakeups::new();
        let mut again = Again::Asked;
        rc::expire(self, &mut wakeups);
        if self.traps.load(Relaxed) && self.traps.xchg(false, Full) {
            again = self.send_traps(&mut wakeups);
        }
        if self.drain_all(&mut wakeups) {
            again = Again::Now;
        }
        again.or_sooner(self.deadlines.again())
    }
}
