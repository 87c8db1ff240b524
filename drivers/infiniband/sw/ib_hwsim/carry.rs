// SPDX-License-Identifier: GPL-2.0

//! The way of a packet, from cable to cable.

use ib_fabric::{Mad, Packet, PortMask};
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{Payload, Wakeups};

use crate::deliver::{arrive, Origin};
use crate::node::Node;
use crate::switch::{Step, Switch};

/// Switches that a packet passes before it is taken for one that goes round in circles. A directed route has
/// at most 63 hops, and as many back; a multicast packet passes each switch of its tree.
pub(crate) const MOST_VISITS: usize = 1024;

/// Switches on the way of a multicast packet from which it has still to go to others.
const MOST_BRANCHES: usize = 16;

/// End of a cable where a packet comes in: a node and its port.
pub(crate) type End = (Node, u8);

/// Ways that a multicast packet has still to take.
struct Branches {
    switches: [Option<(Arc<Switch>, PortMask)>; MOST_BRANCHES],
    len: usize,
}

impl Branches {
    const fn new() -> Self {
        Self {
            switches: [const { None }; MOST_BRANCHES],
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

    /// Takes a way. A switch whose last one it is makes room.
    fn next(&mut self) -> Option<End> {
        while let Some((switch, ports)) = self
            .len
            .checked_sub(1)
            .and_then(|n| self.switches[n].as_mut())
        {
            let end = ports.next().and_then(|port| switch.ahead(port));
            if ports.is_empty() {
                self.len -= 1;
                self.switches[self.len] = None;
            }
            if end.is_some() {
                return end;
            }
        }
        None
    }
}

/// Takes a packet, which comes in at `end`, to all adapters that it is for.
///
/// # Context
///
/// In the callback of [`rdma_provider::Qp::transmit`]. Takes the locks of nodes.
pub(crate) fn carry(end: End, packet: &Packet, payload: &Payload<'_>, wakeups: &mut Wakeups) {
    let mut branches = Branches::new();
    let mut next = Some(end);
    let mut visits = 0;
    while let Some((node, port)) = next.take().or_else(|| branches.next()) {
        let switch = match node {
            Node::Host(host) => {
                arrive(&host, port, Origin::Wire, packet, payload, wakeups);
                continue;
            }
            Node::Switch(switch) => switch,
        };
        visits += 1;
        if visits > MOST_VISITS {
            return switch.discard(port);
        }
        match switch.forward(port, packet) {
            Step::Out(end) => next = Some(end),
            Step::Flood(ports) => {
                let mut further = 0;
                for port in ports {
                    match switch.ahead(port) {
                        Some((Node::Host(host), at)) => {
                            arrive(&host, at, Origin::Wire, packet, payload, wakeups);
                        }
                        Some((Node::Switch(_), _)) => further |= PortMask::of(port).bits(),
                        None => {}
                    }
                }
                branches.add(switch, PortMask::new(further));
            }
            Step::Manage => return manage(switch, port, packet, payload, wakeups),
            Step::Drop => {}
        }
    }
}

/// Takes a management datagram on from a switch that has something to do with it, to the adapter that the datagram
/// or its answer is for.
#[inline(never)]
fn manage(
    mut switch: Arc<Switch>,
    mut port: u8,
    packet: &Packet,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) {
    let mut mad: Mad = [0; size_of::<Mad>()];
    payload.read(&mut mad);
    let mut packet = *packet;
    let mut retrain = None;
    let mut next = None;
    for _ in 0..MOST_VISITS {
        let step = match next.take() {
            Some((Node::Host(host), at)) => {
                Payload::with(&mad, |payload| {
                    arrive(&host, at, Origin::Wire, &packet, payload, wakeups);
                });
                break;
            }
            Some((Node::Switch(other), at)) => {
                (switch, port) = (other, at);
                switch.forward(port, &packet)
            }
            None => Step::Manage,
        };
        next = match step {
            Step::Out(end) => Some(end),
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
    // The answer has left by then.
    if let Some((switch, port)) = retrain {
        switch.retrain(port);
    }
}
