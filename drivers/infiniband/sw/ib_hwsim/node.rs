// SPDX-License-Identifier: GPL-2.0

//! A node of the fabric: what of an adapter others can reach.

use ib_fabric::{Config, Events, Hca};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use kernel::time::{Instant, Monotonic};
use rdma_provider::{Again, Bell, Handle, Job, Kind, Qp, Wakeups};

use crate::deliver;
use crate::groups::Groups;
use crate::qps::{Qps, ROOM};

/// The one port.
pub(crate) const PORT: u8 = 1;

/// Messages of one queue pair in a row.
const BUDGET: usize = 64;

/// Completion queues that wait to be told when there is a pause for that.
const ENOUGH_WAKEUPS: usize = 8;

/// A cable, as one end sees it.
#[derive(Clone)]
struct Link {
    /// Node at the other end.
    peer: Arc<Node>,
    /// Whether it is plugged in. The link changes under this lock, at both ends.
    cable: Arc<SpinLockIrq<bool>>,
}

/// State of an adapter.
///
/// The locks are taken in the callbacks of queue pairs, and none of them under another; a cable's is taken
/// before those of its ends.
#[pin_data]
pub(crate) struct Node {
    #[pin]
    pub(crate) hca: SpinLockIrq<KBox<Hca>>,
    #[pin]
    pub(crate) qps: SpinLockIrq<Qps>,
    #[pin]
    pub(crate) groups: SpinLockIrq<Groups>,
    #[pin]
    link: SpinLockIrq<Option<Link>>,
    /// Places of the queue pairs that have something to send, a bit each.
    ready: [Atomic<u64>; ROOM / 64],
    /// Asks for [`Job::run`].
    bell: Arc<Bell>,
    pub(crate) handle: Handle,
    made: Instant<Monotonic>,
    /// Seconds since then that leases of management keys have been told of.
    #[pin]
    told: SpinLockIrq<i64>,
}

impl Node {
    /// A node without a cable.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there cannot be such an adapter; `ENOMEM`.
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>> {
        let qps = Qps::new()?;
        let groups = Groups::new()?;
        let hca = managed(config)?;
        let bell = Bell::new()?;
        Arc::pin_init(
            pin_init!(Self {
                hca <- new_spinlock_irq!(hca, "ib_hwsim::hca"),
                qps <- new_spinlock_irq!(qps, "ib_hwsim::qps"),
                groups <- new_spinlock_irq!(groups, "ib_hwsim::groups"),
                link <- new_spinlock_irq!(None, "ib_hwsim::link"),
                ready: [const { Atomic::new(0) }; ROOM / 64],
                bell,
                handle: Handle::new(),
                made: Instant::now(),
                told <- new_spinlock_irq!(0, "ib_hwsim::told"),
            }),
            GFP_KERNEL,
        )
    }

    /// Connects two nodes by a cable, and trains the link.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn connect(one: &Arc<Node>, other: &Arc<Node>) -> Result {
        let cable = Arc::pin_init(new_spinlock_irq!(true, "ib_hwsim::cable"), GFP_KERNEL)?;
        for (node, peer) in [(one, other), (other, one)] {
            *node.link.lock() = Some(Link {
                peer: peer.clone(),
                cable: cable.clone(),
            });
        }
        one.retrain();
        Ok(())
    }

    /// Pulls the cable.
    pub(crate) fn disconnect(&self) {
        let link = self.link.lock().take();
        let Some(Link { peer, cable }) = link else {
            return;
        };
        peer.link.lock().take();
        let events = {
            let mut plugged = cable.lock();
            *plugged = false;
            [self.lose_link(), peer.lose_link()]
        };
        self.tell(events[0]);
        peer.tell(events[1]);
    }

    /// Node at the other end of the cable.
    pub(crate) fn peer(&self) -> Option<Arc<Node>> {
        self.link.lock().as_ref().map(|link| link.peer.clone())
    }

    /// Lets the link go down, and come up if neither end is disabled.
    pub(crate) fn retrain(&self) {
        let link = self.link.lock().clone();
        let Some(Link { peer, cable }) = link else {
            return;
        };
        let (lost, gained) = {
            let plugged = cable.lock();
            if !*plugged {
                return;
            }
            let lost = [self.lose_link(), peer.lose_link()];
            (lost, self.train(&peer))
        };
        for [ours, theirs] in [lost, gained] {
            self.tell(ours);
            peer.tell(theirs);
        }
    }

    /// Whether nobody has disabled the port.
    fn can_train(&self) -> bool {
        let hca = self.hca.lock();
        hca.port(PORT)
            .is_some_and(|port| port.phys_state().can_train())
    }

    /// Trains the link, with the cable's lock held; the events at both ends.
    fn train(&self, peer: &Node) -> [Events; 2] {
        if !self.can_train() || !peer.can_train() {
            return [Events::NONE; 2];
        }
        let ours = self.hca.lock().offer(PORT);
        let theirs = peer.hca.lock().offer(PORT);
        let here = self.hca.lock().link_up(PORT, &theirs);
        let there = peer.hca.lock().link_up(PORT, &ours);
        [here, there]
    }

    /// Takes the link down, with the cable's lock held; the events at this end.
    fn lose_link(&self) -> Events {
        self.hca.lock().link_down(PORT)
    }

    /// Tells ULPs of events. Hold no lock of a node's, nor a cable's.
    pub(crate) fn tell(&self, events: Events) {
        for event in events.iter() {
            self.handle.dispatch(PORT, deliver::event(event));
        }
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
        self.mark_place(Qps::place(qp.number()));
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

    /// Sends what a queue pair has, within the budget. True if there is more.
    fn drain(&self, qp: &Arc<Qp>, wakeups: &mut Wakeups) -> bool {
        for _ in 0..BUDGET {
            let sent = qp.transmit(wakeups, |wakeups, request, payload| {
                deliver::send(self, qp, request, payload, wakeups)
            });
            if !sent {
                return false;
            }
            if wakeups.len() >= ENOUGH_WAKEUPS {
                wakeups.flush();
            }
        }
        true
    }

    /// Number for a new queue pair.
    pub(crate) fn reserve(&self, kind: Kind) -> Result<u32> {
        self.qps.lock().reserve(kind)
    }
}

/// Makes the management side of an adapter.
///
/// It is on this function's stack before it is in its place, and takes most of what a function may.
#[inline(never)]
fn managed(config: &Config) -> Result<KBox<Hca>> {
    let place = KBox::<Hca>::new_uninit(GFP_KERNEL)?;
    match Hca::new(config) {
        Ok(hca) => Ok(KBox::write(place, hca)),
        Err(_) => Err(EINVAL),
    }
}

impl Job for Node {
    fn run(&self) -> Again {
        let mut wakeups = Wakeups::new();
        let mut again = Again::Asked;
        for (word, ready) in self.ready.iter().enumerate() {
            let mut bits = if ready.load(Relaxed) == 0 {
                0
            } else {
                ready.xchg(0, Full)
            };
            while bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let qp = self.qps.lock().at(place);
                if qp.is_some_and(|qp| self.drain(&qp, &mut wakeups)) {
                    self.mark_place(place);
                    again = Again::Now;
                }
            }
        }
        again
    }
}
