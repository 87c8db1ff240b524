// SPDX-License-Identifier: GPL-2.0

//! Nodes of a fabric, and how their ports are connected.

use ib_fabric::{Counted, Events, LinkOffer, Packet, PortMask};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::cable::Wire;
use crate::host::Host;
use crate::stats::{Stats, View};
use crate::switch::Switch;
use crate::trunk::Trunk;

/// Switches that a packet may pass before it is dropped as one that loops. A directed route has
/// at most 63 hops, and as many back; a multicast packet passes each switch of its tree.
pub(crate) const MAX_HOPS: usize = 1024;

/// End of a cable where a packet comes in: a node and its port.
pub(crate) type End = (Node, u8);

/// A node of a fabric.
#[derive(Clone)]
pub(crate) enum Node {
    /// A channel adapter.
    Host(Arc<Host>),
    /// A switch.
    Switch(Arc<Switch>),
    /// A network device, behind which there is a node in another kernel.
    Trunk(Arc<Trunk>),
}

/// A cable, as one of the ports that it connects sees it.
#[derive(Clone)]
pub(crate) struct Link {
    /// The cable.
    pub(crate) wire: Arc<Wire>,
    /// The end of it at that port, where packets enter the cable.
    pub(crate) side: usize,
}

impl Link {
    /// The other end.
    pub(crate) fn peer(&self) -> &End {
        self.wire.end(1 - self.side)
    }
}

/// The way of a packet that leaves by a port.
pub(crate) enum NextHop {
    /// To the other end of the cable, at once.
    End(End),
    /// By a cable that has faults.
    Impaired(Link),
}

/// Cables of a node, by the number of the port.
pub(crate) struct Links {
    ports: KVec<Option<Link>>,
}

impl Links {
    /// Ports 1 to `ports` without a cable.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(ports: u8) -> Result<Self> {
        let ports = KVec::from_elem(None, ports.into(), GFP_KERNEL)?;
        Ok(Self { ports })
    }

    fn place(&mut self, port: u8) -> Option<&mut Option<Link>> {
        self.ports.get_mut(usize::from(port).checked_sub(1)?)
    }

    /// Cable of a port.
    pub(crate) fn get(&self, port: u8) -> Option<&Link> {
        self.ports.get(usize::from(port).checked_sub(1)?)?.as_ref()
    }

    /// Next hop of packets that leave by a port.
    #[inline]
    pub(crate) fn next_hop(&self, port: u8) -> Option<NextHop> {
        let link = self.get(port)?;
        if link.wire.pipes().is_impaired(link.side) {
            return Some(NextHop::Impaired(link.clone()));
        }
        Some(NextHop::End(link.peer().clone()))
    }

    /// Ports whose cables lead to the switch that the cable of this one leads to, and this one. None if it leads to
    /// no switch.
    pub(crate) fn parallel(&self, port: u8) -> PortMask {
        let Some((Node::Switch(neighbour), _)) = self.get(port).map(Link::peer) else {
            return PortMask::new(0);
        };
        let leads_there = |link: &Option<Link>| match link.as_ref().map(Link::peer) {
            Some((Node::Switch(switch), _)) => Arc::ptr_eq(switch, neighbour),
            _ => false,
        };
        let bits = (1..)
            .zip(self.ports.iter())
            .filter(|(_, link)| leads_there(link))
            .map(|(number, _)| PortMask::of(number).bits());
        PortMask::new(bits.fold(0, |all, bit| all | bit))
    }

    /// Connects a port.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port; `EBUSY` if it has a cable.
    pub(crate) fn put(&mut self, port: u8, link: Link) -> Result {
        match self.place(port) {
            None => Err(EINVAL),
            Some(Some(_)) => Err(EBUSY),
            Some(free) => {
                *free = Some(link);
                Ok(())
            }
        }
    }

    /// Takes a port's cable away, to be dropped without a lock.
    pub(crate) fn take(&mut self, port: u8) -> Option<Link> {
        self.place(port)?.take()
    }
}

/// Calls a method that all kinds of nodes have.
macro_rules! each {
    ($node:expr, $inner:ident => $call:expr) => {
        match $node {
            Node::Host($inner) => $call,
            Node::Switch($inner) => $call,
            Node::Trunk($inner) => $call,
        }
    };
}

impl Node {
    /// Returns true if two are the same node.
    pub(crate) fn is(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::Host(one), Node::Host(other)) => Arc::ptr_eq(one, other),
            (Node::Switch(one), Node::Switch(other)) => Arc::ptr_eq(one, other),
            (Node::Trunk(one), Node::Trunk(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Connects a port. See [`Links::put`].
    pub(crate) fn connect(&self, port: u8, link: Link) -> Result {
        each!(self, node => node.managed.lock().links.put(port, link))
    }

    /// Takes a port's cable away.
    pub(crate) fn disconnect(&self, port: u8) {
        let link = each!(self, node => node.managed.lock().links.take(port));
        // Without the lock.
        drop(link);
    }

    /// Offer of a port that waits for training; `None` if it is up or disabled.
    pub(crate) fn offer(&self, port: u8) -> Option<LinkOffer> {
        each!(self, node => node.offer(port))
    }

    /// Trains a port's link. Tell the node of the events when no lock is held.
    pub(crate) fn link_up(&self, port: u8, peer: &LinkOffer) -> Events {
        each!(self, node => node.link_up(port, peer))
    }

    /// Takes a port's link down.
    pub(crate) fn link_down(&self, port: u8) -> Events {
        each!(self, node => node.link_down(port))
    }

    /// Counts something at a port.
    pub(crate) fn count(&self, port: u8, what: Counted) {
        match self {
            Node::Host(host) => host.managed.lock().hca.count(port, what),
            Node::Switch(switch) => switch.managed.lock().switch.count(port, what),
            // Faults are those of packets that leave, and are counted where they come from.
            Node::Trunk(_) => {}
        }
    }

    /// Counts packets that have left by a port, and come to no other.
    pub(crate) fn lost(&self, port: u8, n: u32) {
        self.stats(|stats| stats.of(port).lost(n));
    }

    /// Counts a packet that has left by a port, and comes to the other end twice.
    pub(crate) fn doubled(&self, port: u8) {
        self.stats(|stats| stats.of(port).doubled());
    }

    /// A port and its tallies; `None` if there is no such port.
    pub(crate) fn view(&self, port: u8) -> Option<View> {
        match self {
            Node::Host(host) => {
                let managed = host.managed.lock();
                managed.stats.view(managed.hca.port(port), port)
            }
            Node::Switch(switch) => {
                let managed = switch.managed.lock();
                managed.stats.view(managed.switch.port(port), port)
            }
            Node::Trunk(_) => None,
        }
    }

    /// Calls a function with the tallies, if there are any.
    fn stats(&self, count: impl FnOnce(&mut Stats)) {
        match self {
            Node::Host(host) => count(&mut host.managed.lock().stats),
            Node::Switch(switch) => count(&mut switch.managed.lock().stats),
            Node::Trunk(_) => {}
        }
    }

    /// Drops a packet that came in by a port with a wrong CRC.
    pub(crate) fn refuse(&self, port: u8, packet: &Packet) {
        match self {
            Node::Host(host) => host.refuse(port, packet),
            Node::Switch(switch) => switch.refuse(port, packet),
            Node::Trunk(trunk) => trunk.discard(packet),
        }
    }

    /// Tells of a port's link that has changed: ULPs of the events, or the subnet manager.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of a node's, nor a cable's.
    pub(crate) fn tell(&self, port: u8, events: Events) {
        match self {
            Node::Host(host) => host.tell(port, events),
            Node::Switch(switch) => switch.tell(),
            Node::Trunk(trunk) => trunk.tell(),
        }
    }
}
