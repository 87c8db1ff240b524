// SPDX-License-Identifier: GPL-2.0

//! A switch, as the fabric sees it.

use ib_fabric::{Counted, Events, Forward, LinkOffer, Mad, Memory, Packet, Port, PortMask};
use ib_fabric::{SwitchConfig, TrapDue};
use kernel::prelude::*;
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use kernel::time::{Delta, Instant, Monotonic};
use rdma_provider::{Again, Bell, Job, Payload, Wakeups};

use crate::carry::{carry, End};
use crate::node::{Link, Links};

/// Unicast LIDs that a switch has a route for: all there are.
const ROUTES: usize = ib_fabric::switch::MAX_ROUTES;

/// Multicast groups that a switch has members for.
const GROUPS: usize = 1024;

/// A port that a route does not lead to.
const NO_ROUTE: u8 = 0xff;

/// Tables of a switch, in the kernel's memory.
pub(crate) enum Tables {}

impl Memory for Tables {
    type Ports = KVVec<Port>;
    type Routes = KVVec<u8>;
    type Groups = KVVec<u64>;
    type Lanes = KVVec<ib_fabric::switch::Mapping>;
}

/// Part of a switch that subnet management sees, and its cables.
struct Managed {
    switch: ib_fabric::Switch<Tables>,
    links: Links,
    /// Seconds that the switch has been told of.
    told: i64,
}

/// State of a switch. Its lock is taken under that of a cable, and no other one under it.
#[pin_data]
pub(crate) struct Switch {
    #[pin]
    managed: SpinLockIrq<Managed>,
    /// Asks for [`Job::run`], which sends traps.
    bell: Arc<Bell>,
    made: Instant<Monotonic>,
}

/// Next step of a packet.
pub(crate) enum Step {
    /// To the other end of a cable.
    Out(End),
    /// Out of several ports.
    Flood(PortMask),
    /// To the agents of the switch, see [`Switch::manage`].
    Manage,
    /// None: it is lost.
    Drop,
}

/// Next step of a management datagram.
pub(crate) struct Managing {
    /// Other end of the cable that it leaves by, if it does.
    pub(crate) next: Option<End>,
    /// Port to be trained anew once it has left.
    pub(crate) retrain: Option<u8>,
}

/// Makes a vector of equal elements.
fn filled<T: Clone>(len: usize, value: &T) -> Result<KVVec<T>> {
    let mut list = KVVec::with_capacity(len, GFP_KERNEL)?;
    list.extend_with(len, value.clone(), GFP_KERNEL)?;
    Ok(list)
}

impl Switch {
    /// A switch without cables.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there cannot be such a switch; `ENOMEM`.
    pub(crate) fn new(config: &SwitchConfig, description: &[u8; 64]) -> Result<Arc<Self>> {
        config.check().map_err(|_| EINVAL)?;
        let mut ports = KVVec::with_capacity(config.port_count(), GFP_KERNEL)?;
        for number in 0..=config.ports {
            add_port(&mut ports, config, number)?;
        }
        let lanes = filled(config.lane_count(), &Default::default())?;
        let routes = filled(ROUTES, &NO_ROUTE)?;
        let groups = filled(GROUPS, &0)?;
        let mut switch =
            ib_fabric::Switch::new(config, ports, routes, groups, lanes).map_err(|_| EINVAL)?;
        switch.set_description(description);
        let managed = Managed {
            switch,
            links: Links::new(config.ports)?,
            told: 0,
        };
        let bell = Bell::new()?;
        Arc::pin_init(
            pin_init!(Self {
                managed <- new_spinlock_irq!(managed, "ib_hwsim::switch"),
                bell,
                made: Instant::now(),
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
        let trains = managed.switch.port(port)?.phys_state().can_train();
        trains.then(|| managed.switch.offer(port))
    }

    /// Trains a port's link. There are no events: a switch has no ULPs.
    pub(crate) fn link_up(&self, port: u8, peer: &LinkOffer) -> Events {
        self.managed.lock().switch.link_up(port, peer);
        Events::NONE
    }

    /// Takes a port's link down.
    pub(crate) fn link_down(&self, port: u8) -> Events {
        self.managed.lock().switch.link_down(port);
        Events::NONE
    }

    /// Has the subnet manager told of a link that has changed.
    pub(crate) fn tell(&self) {
        self.bell.ask();
    }

    /// Means to ask for [`Job::run`].
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Retrains a port's link.
    pub(crate) fn retrain(&self, port: u8) {
        let link = self.managed.lock().links.get(port).cloned();
        if let Some(link) = link {
            link.wire.retrain();
        }
    }

    /// Sends a packet on that came in by a port.
    pub(crate) fn forward(&self, port: u8, packet: &Packet) -> Step {
        let step = {
            let managed = &mut *self.managed.lock();
            match managed.switch.forward(port, packet) {
                Forward::Out(port) => {
                    return managed.links.ahead(port).map_or(Step::Drop, Step::Out)
                }
                Forward::Manage => return Step::Manage,
                Forward::Flood(ports) => Step::Flood(ports),
                Forward::Drop => Step::Drop,
            }
        };
        // A port may have refused its P_Key, which is worth a trap.
        self.bell.ask();
        step
    }

    /// Other end of the cable of a port.
    pub(crate) fn ahead(&self, port: u8) -> Option<End> {
        self.managed.lock().links.ahead(port)
    }

    /// Counts a packet that could not leave by a port.
    pub(crate) fn discard(&self, port: u8) {
        self.managed.lock().switch.count(port, Counted::Discarded);
    }

    /// Takes a management datagram, which came in by a port, a step further along its directed route, or answers
    /// it. Both it and its packet change.
    pub(crate) fn manage(&self, port: u8, packet: &mut Packet, mad: &mut Mad) -> Managing {
        let managed = &mut *self.managed.lock();
        self.pass_time(managed);
        let done = managed.switch.manage(port, packet, mad);
        // A violation of a key may be worth a trap, and a trap may have been repressed.
        self.bell.ask();
        Managing {
            next: done.out.and_then(|port| managed.links.ahead(port)),
            retrain: done.retrain,
        }
    }

    /// Lets the leases of the management key run.
    fn pass_time(&self, managed: &mut Managed) {
        let now = self.made.elapsed().as_millis() / 1000;
        let passed = u16::try_from(now - managed.told).unwrap_or(u16::MAX);
        managed.told = now;
        managed.switch.elapse(passed);
    }
}

/// Adds a port to a switch that is being made. It is on this function's stack before it is in its place.
#[inline(never)]
fn add_port(ports: &mut KVVec<Port>, config: &SwitchConfig, number: u8) -> Result {
    Ok(ports.push(
        ib_fabric::Switch::<Tables>::port_template(config, number),
        GFP_KERNEL,
    )?)
}

impl Job for Switch {
    /// Sends the traps that are due.
    fn run(&self) -> Again {
        let mut mad: Mad = [0; size_of::<Mad>()];
        let now = self.made.elapsed().as_millis();
        let (packet, end) = {
            let managed = &mut *self.managed.lock();
            match managed.switch.trap(now.unsigned_abs(), &mut mad) {
                TrapDue::Never => return Again::Asked,
                TrapDue::At(then) => {
                    let millis = i64::try_from(then).unwrap_or(i64::MAX).saturating_sub(now);
                    return Again::In(Delta::from_millis(millis));
                }
                TrapDue::Send { out, packet } => (packet, managed.links.ahead(out)),
            }
        };
        if let Some(end) = end {
            let mut wakeups = Wakeups::new();
            Payload::with(&mad, |payload| carry(end, &packet, payload, &mut wakeups));
        }
        Again::Now
    }
}
