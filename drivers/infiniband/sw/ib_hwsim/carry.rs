// SPDX-License-Identifier: GPL-2.0

//! Forwarding of packets, from cable to cable.

use ib_fabric::{Mad, Packet, PortMask, Transport};
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{Payload, Wakeups};

use crate::deliver::{arrive, Incoming};
use crate::node::{End, NextHop, Node, MAX_HOPS};
use crate::rc;
use crate::switch::{Step, Switch};

/// Switches at which copies of a multicast packet may be pending.
const MAX_BRANCHES: usize = 16;

/// Pending copies of a multicast packet.
struct Branches {
    switches: [Option<(Arc<Switch>, PortMask)>; MAX_BRANCHES],
    len: usize,
}

impl Branches {
    const fn new() -> Self {
        Self {
            switches: [const { None }; MAX_BRANCHES],
            len: 0,
        }
    }

    /// Adds the ports of a switch. If there is no room, the packet is lost there.
    fn add(&mut self, switch: Arc<Switch>, ports: PortMask) {
        match self.switches.get_mut(self.len) {
            _ if ports.is_empty() => {}
            Some(place) => {
                *place = Some((switch, ports));
                self.len += 1;
            }
            None => ports.for_each(|port| switch.discard(port)),
        }
    }

    /// Takes the next copy. The last one of a switch frees its slot.
    fn next(&mut self) -> Option<NextHop> {
        while let Some((switch, ports)) = self
            .len
            .checked_sub(1)
            .and_then(|n| self.switches[n].as_mut())
        {
            let way = ports.next().and_then(|port| switch.next_hop(port));
            if ports.is_empty() {
                self.len -= 1;
                self.switches[self.len] = None;
            }
            if way.is_some() {
                return way;
            }
        }
        None
    }
}

/// Sends a packet by a cable, and forwards it to all adapters that it is for.
///
/// # Context
///
/// That of [`carry`].
pub(crate) fn depart(way: NextHop, packet: &Packet, payload: &Payload<'_>, wakeups: &mut Wakeups) {
    match way {
        NextHop::End(end) => carry(end, 0, packet, payload, wakeups),
        NextHop::Impaired(impaired) => impaired.send(0, packet, payload),
    }
}

/// Takes a packet to the other end of a cable, unless that is a switch: then it returns the switch, and the port where
/// it comes in.
#[inline]
fn cross(
    way: NextHop,
    passed: usize,
    packet: &Packet,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) -> Option<(Arc<Switch>, u8)> {
    match way {
        NextHop::End((Node::Switch(switch), port)) => return Some((switch, port)),
        NextHop::End((Node::Host(host), port)) => {
            arrive(&host, Incoming::by_wire(port, packet, payload), wakeups);
        }
        NextHop::End((Node::Trunk(trunk), _)) => trunk.send(packet, payload),
        NextHop::Impaired(impaired) => impaired.send(passed, packet, payload),
    }
    None
}

/// Forwards a packet, which comes in at `end`, to all adapters that it is for. It has passed `passed` cables with
/// faults before.
///
/// # Context
///
/// In the callback of [`rdma_provider::Qp::transmit`], or with a payload of the driver's own. Takes the locks of
/// nodes.
pub(crate) fn carry(
    end: End,
    passed: usize,
    packet: &Packet,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) {
    let mut branches = Branches::new();
    let mut next = Some(NextHop::End(end));
    let mut visits = 0;
    while let Some(way) = next.take().or_else(|| branches.next()) {
        let Some((switch, port)) = cross(way, passed, packet, payload, wakeups) else {
            continue;
        };
        visits += 1;
        if visits > MAX_HOPS {
            switch.give_up(port, packet);
            continue;
        }
        match switch.forward(port, packet) {
            Step::Out(way) => next = Some(way),
            Step::Flood(ports) => {
                let mut further = 0;
                for port in ports {
                    let way = switch.next_hop(port);
                    if way
                        .and_then(|way| cross(way, passed, packet, payload, wakeups))
                        .is_some()
                    {
                        further |= PortMask::of(port).bits();
                    }
                }
                branches.add(switch, PortMask::new(further));
            }
            Step::Manage => return manage((switch, port), passed, packet, payload, wakeups),
            Step::Drop => {}
        }
    }
}

/// Forwards a packet whose sender has gone on, or is in another kernel, and which now comes in at `end`. It has passed
/// `passed` cables with faults before.
///
/// # Context
///
/// Softirq, without any lock.
pub(crate) fn enter(
    end: End,
    passed: usize,
    packet: &Packet,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) {
    match &packet.transport {
        Transport::Ud { .. } => carry(end, passed, packet, payload, wakeups),
        Transport::Rc(_) => rc::enter(end, passed, packet, payload, wakeups),
    }
}

/// Hands a management datagram to the agents of a switch, and forwards it, or its answer, from there.
#[inline(never)]
fn manage(
    (mut switch, mut port): (Arc<Switch>, u8),
    passed: usize,
    packet: &Packet,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) {
    let mut mad: Mad = [0; size_of::<Mad>()];
    payload.read(&mut mad);
    let mut packet = *packet;
    let mut retrain = None;
    let mut next = None;
    for _ in 0..MAX_HOPS {
        let step = match next.take() {
            Some(way) => {
                let further = Payload::with(&mad, |payload| {
                    cross(way, passed, &packet, payload, wakeups)
                });
                let Some(further) = further else {
                    break;
                };
                (switch, port) = further;
                switch.forward(port, &packet)
            }
            None => Step::Manage,
        };
        next = match step {
            Step::Out(way) => Some(way),
            Step::Manage => {
                let managed = switch.manage(port, &mut packet, &mut mad);
                if let Some(port) = managed.retrain {
                    retrain = Some((switch.clone(), port));
                }
                managed.next
            }
            Step::Flood(_) | Step::Drop => None,
        };
        if next.is_none() {
            break;
        }
    }
    if let Some(NextHop::End((Node::Switch(switch), port))) = next {
        switch.give_up(port, &packet);
    }
    // The answer has left by then.
    if let Some((switch, port)) = retrain {
        switch.retrain(port);
    }
}
