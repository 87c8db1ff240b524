// SPDX-License-Identifier: GPL-2.0

//! Nodes of a fabric, and how their ports are connected.

use ib_fabric::{Events, LinkOffer};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::cable::Wire;
use crate::carry::End;
use crate::host::Host;
use crate::switch::Switch;

/// A node of a fabric.
#[derive(Clone)]
pub(crate) enum Node {
    /// A channel adapter.
    Host(Arc<Host>),
    /// A switch.
    Switch(Arc<Switch>),
}

/// A cable, as one of the ports that it connects sees it.
#[derive(Clone)]
pub(crate) struct Link {
    /// Node at the other end.
    pub(crate) peer: Node,
    /// Port there.
    pub(crate) port: u8,
    /// The cable.
    pub(crate) wire: Arc<Wire>,
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
        let mut links = KVec::with_capacity(ports.into(), GFP_KERNEL)?;
        for _ in 0..ports {
            links.push(None, GFP_KERNEL)?;
        }
        Ok(Self { ports: links })
    }

    fn place(&mut self, port: u8) -> Option<&mut Option<Link>> {
        self.ports.get_mut(usize::from(port).checked_sub(1)?)
    }

    /// Cable of a port.
    pub(crate) fn get(&self, port: u8) -> Option<&Link> {
        self.ports.get(usize::from(port).checked_sub(1)?)?.as_ref()
    }

    /// End of the cable of a port, where packets from it come in.
    pub(crate) fn ahead(&self, port: u8) -> Option<End> {
        self.get(port).map(|link| (link.peer.clone(), link.port))
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

/// Calls a method that adapters and switches have.
macro_rules! either {
    ($node:expr, $inner:ident => $call:expr) => {
        match $node {
            Node::Host($inner) => $call,
            Node::Switch($inner) => $call,
        }
    };
}

impl Node {
    /// Whether two are the same node.
    pub(crate) fn is(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::Host(one), Node::Host(other)) => Arc::ptr_eq(one, other),
            (Node::Switch(one), Node::Switch(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Connects a port. See [`Links::put`].
    pub(crate) fn connect(&self, port: u8, link: Link) -> Result {
        either!(self, node => node.connect(port, link))
    }

    /// Takes a port's cable away.
    pub(crate) fn disconnect(&self, port: u8) {
        drop(either!(self, node => node.disconnect(port)));
    }

    /// Offer of a port that waits for training; `None` if it is up or disabled.
    pub(crate) fn offer(&self, port: u8) -> Option<LinkOffer> {
        either!(self, node => node.offer(port))
    }

    /// Trains a port's link. Tell the node of the events when no lock is held.
    pub(crate) fn link_up(&self, port: u8, peer: &LinkOffer) -> Events {
        either!(self, node => node.link_up(port, peer))
    }

    /// Takes a port's link down.
    pub(crate) fn link_down(&self, port: u8) -> Events {
        either!(self, node => node.link_down(port))
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
        }
    }
}
