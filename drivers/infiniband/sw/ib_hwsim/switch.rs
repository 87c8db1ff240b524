// SPDX-License-Identifier: GPL-2.0

//! A switch, as the fabric sees it.

mod job;

use ib_fabric::impair::{Adaptive, Balancer, Routing};
use ib_fabric::topology::Name;
use ib_fabric::{Counted, Discard, Events, Forward, LinkOffer, Mad, Memory, Packet, Port};
use ib_fabric::{PortMask, SwitchConfig};
use kernel::prelude::*;
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use rdma_provider::{now, Trigger};

use crate::node::{Links, NextHop};
use crate::stats::Stats;
use crate::timers::Clock;

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
pub(crate) struct Managed {
    pub(crate) switch: ib_fabric::Switch<Tables>,
    pub(crate) links: Links,
    pub(crate) stats: Stats,
    /// Choices among parallel cables; none if the forwarding table alone decides.
    balancer: Option<KBox<Balancer>>,
}

impl Managed {
    /// Next hop of packets that leave by a port. Without a cable, they are lost.
    fn leave(&mut self, port: u8, packets: u32) -> Option<NextHop> {
        let way = self.links.next_hop(port);
        if way.is_none() {
            self.stats.of(port).lost(packets);
        }
        way
    }

    /// Sends a packet of an agent's by a port.
    fn send(&mut self, port: u8, packet: &Packet) -> Option<NextHop> {
        self.stats.of(port).own(packet);
        self.stats.sent(port, packet, None);
        self.leave(port, packet.packets())
    }
}

/// State of a switch. Its lock is taken under that of a cable, and no other one under it.
#[pin_data]
pub(crate) struct Switch {
    #[pin]
    pub(crate) managed: SpinLockIrq<Managed>,
    /// Schedules the job ([`job`]), which sends traps.
    pub(crate) trigger: Arc<Trigger>,
    clock: Clock,
}

/// Next step of a packet.
pub(crate) enum Step {
    /// By a cable.
    Out(NextHop),
    /// Out of several ports.
    Flood(PortMask),
    /// To the agents of the switch, see [`Switch::manage`].
    Manage,
    /// None: it is lost.
    Drop,
}

/// Next step of a management datagram.
pub(crate) struct Managing {
    /// Next hop, if it leaves, if it does.
    pub(crate) next: Option<NextHop>,
    /// Port to be trained anew once it has left.
    pub(crate) retrain: Option<u8>,
}

impl Switch {
    /// A switch without cables.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there cannot be such a switch; `ENOMEM`.
    pub(crate) fn new(
        config: &SwitchConfig,
        description: &[u8; 64],
        stats: Stats,
    ) -> Result<Arc<Self>> {
        if !config.is_possible() {
            return Err(EINVAL);
        }
        let mut ports = KVVec::with_capacity(config.port_count(), GFP_KERNEL)?;
        for number in 0..=config.ports {
            add_port(&mut ports, config, number)?;
        }
        let lanes = KVVec::from_elem(Default::default(), config.lane_count(), GFP_KERNEL)?;
        let routes = KVVec::from_elem(NO_ROUTE, ROUTES, GFP_KERNEL)?;
        let groups = KVVec::from_elem(0, GROUPS, GFP_KERNEL)?;
        let mut switch =
            ib_fabric::Switch::new(config, ports, routes, groups, lanes).ok_or(EINVAL)?;
        switch.set_description(description);
        let managed = Managed {
            switch,
            links: Links::new(config.ports)?,
            stats,
            balancer: None,
        };
        let trigger = Trigger::new()?;
        Arc::pin_init(
            pin_init!(Self {
                managed <- new_spinlock_irq!(managed, "ib_hwsim::switch"),
                trigger,
                clock: Clock::new(),
            }),
            GFP_KERNEL,
        )
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
        let managed = &mut *self.managed.lock();
        let before = managed.switch.port(port).map(Port::state);
        managed.stats.link_down(port, before);
        managed.switch.link_down(port);
        Events::NONE
    }

    /// Has the job look for a trap: a link has changed.
    pub(crate) fn tell(&self) {
        self.trigger.schedule();
    }

    /// Retrains a port's link.
    pub(crate) fn retrain(&self, port: u8) {
        let link = self.managed.lock().links.get(port).cloned();
        if let Some(link) = link {
            link.wire.retrain();
        }
    }

    /// Forwards a packet that came in by a port.
    pub(crate) fn forward(&self, port: u8, packet: &Packet) -> Step {
        let step = {
            let managed = &mut *self.managed.lock();
            let (forward, drops) = managed.forward(port, packet);
            match forward {
                Forward::Out(out) => {
                    managed.stats.sent(out, packet, None);
                    let way = managed.leave(out, packet.packets());
                    return way.map_or(Step::Drop, Step::Out);
                }
                Forward::Manage => {
                    managed.stats.of(port).delivered(packet);
                    return Step::Manage;
                }
                Forward::Flood(ports) => {
                    let mut ways = drops;
                    for out in ports {
                        ways += 1;
                        managed.stats.sent(out, packet, None);
                    }
                    managed.stats.of(port).copied(packet, ways);
                    Step::Flood(ports)
                }
                Forward::Drop => {
                    managed.stats.of(port).copied(packet, drops);
                    Step::Drop
                }
            }
        };
        // A port may have refused its P_Key, which is worth a trap.
        self.trigger.schedule();
        step
    }

    /// Next hop of a single packet that leaves by a port. Without a cable, it is lost.
    pub(crate) fn next_hop(&self, port: u8) -> Option<NextHop> {
        self.managed.lock().leave(port, 1)
    }

    /// Counts a packet that could not leave by a port.
    pub(crate) fn discard(&self, port: u8) {
        let managed = &mut *self.managed.lock();
        managed.switch.count(port, Counted::Discarded);
        managed.stats.of(port).lost(1);
    }

    /// Drops a packet that came in by a port with a wrong CRC.
    pub(crate) fn refuse(&self, port: u8, packet: &Packet) {
        let trap = {
            let managed = &mut *self.managed.lock();
            let state = managed.switch.port(port).map(Port::state);
            let reason = Discard::corrupt(state);
            managed.stats.received(port, packet);
            managed.stats.dropped(port, reason, packet);
            reason == Discard::Crc && managed.switch.count_corrupt(port)
        };
        if trap {
            self.trigger.schedule();
        }
    }

    /// Drops a packet that came in by a port, and that loops.
    pub(crate) fn give_up(&self, port: u8, packet: &Packet) {
        let managed = &mut *self.managed.lock();
        managed.switch.count(port, Counted::Discarded);
        managed.stats.received(port, packet);
        managed.stats.dropped(port, Discard::NoRoute, packet);
    }

    /// Sets adaptive routing. `name` is that of the switch.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing changes.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn route(&self, routing: &Routing, seed: u64, name: Name) -> Result {
        let mut balancer = match routing.mode() {
            Adaptive::Off => None,
            Adaptive::Packet | Adaptive::Flowlet => Some(self::balancer(routing, seed, name)?),
        };
        // The former one is dropped without the lock.
        core::mem::swap(&mut self.managed.lock().balancer, &mut balancer);
        Ok(())
    }

    /// Takes a management datagram, which came in by a port, a step further along its directed route, or answers
    /// it. Both it and its packet change.
    pub(crate) fn manage(&self, port: u8, packet: &mut Packet, mad: &mut Mad) -> Managing {
        let managed = &mut *self.managed.lock();
        managed.switch.elapse(self.clock.seconds_since());
        let done = managed.switch.manage(port, packet, mad);
        // A violation of a key may be worth a trap, and a trap may have been repressed.
        self.trigger.schedule();
        Managing {
            next: done.out.and_then(|port| managed.send(port, packet)),
            retrain: done.retrain,
        }
    }
}

impl Managed {
    /// Decides on a packet that came in by a port; and the number of ports that drop it.
    #[inline]
    fn forward(&mut self, ingress: u8, packet: &Packet) -> (Forward, u32) {
        let (stats, links, balancer) = (&mut self.stats, &self.links, &mut self.balancer);
        stats.received(ingress, packet);
        let mut drops = 0;
        let choose = |switch: &ib_fabric::Switch<Tables>, out| match balancer {
            None => out,
            Some(balancer) => {
                let ways = switch.active(links.parallel(out).without(ingress));
                balancer.choose(now(), packet, out, ways)
            }
        };
        let dropped = |port, reason| {
            drops += 1;
            stats.dropped(port, reason, packet);
        };
        let forward = self.switch.forward_by(ingress, packet, choose, dropped);
        (forward, drops)
    }
}

/// Makes the choices of a switch. They are on this function's stack before they are in their place.
#[inline(never)]
fn balancer(routing: &Routing, seed: u64, name: Name) -> Result<KBox<Balancer>> {
    Ok(KBox::new(
        Balancer::new(routing, seed, name.as_str()),
        GFP_KERNEL,
    )?)
}

/// Adds a port to a switch that is being made. It is on this function's stack before it is in its place.
#[inline(never)]
fn add_port(ports: &mut KVVec<Port>, config: &SwitchConfig, number: u8) -> Result {
    Ok(ports.push(
        ib_fabric::Switch::<Tables>::port_template(config, number),
        GFP_KERNEL,
    )?)
}
