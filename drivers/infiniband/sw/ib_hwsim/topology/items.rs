// SPDX-License-Identifier: GPL-2.0

//! The nodes and cables that a user has made, in use or not.

use ib_fabric::impair::Routing;
use ib_fabric::topology::{CablePlan, Name, NodePlan};
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{Faults, Netns};

use crate::cable::Cable;
use crate::node::Node;
use crate::power::{HcaNode, SwitchNode};
use crate::trunk::TrunkCable;

/// A thing with a name.
pub(super) trait Item {
    fn name(&self) -> Name;
}

impl Item for NodeItem {
    fn name(&self) -> Name {
        self.plan.name()
    }
}

impl Item for CableItem {
    fn name(&self) -> Name {
        self.plan.name()
    }
}

/// Things with different names, in the order in which they were made.
pub(super) struct Items<T>(pub(super) KVVec<T>);

impl<T: Item> Items<T> {
    /// Adds one.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is one of that name; `ENOMEM`.
    pub(super) fn add(&mut self, item: T) -> Result {
        if self.get(item.name()).is_ok() {
            return Err(EEXIST);
        }
        Ok(self.0.push(item, GFP_KERNEL)?)
    }

    /// Removes one.
    pub(super) fn remove(&mut self, name: Name) {
        self.0.retain(|item| item.name() != name);
    }

    /// The one with a name.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none.
    pub(super) fn get(&self, name: Name) -> Result<&T> {
        let mut items = self.0.iter();
        items.find(|item| item.name() == name).ok_or(ENOENT)
    }

    /// The one with a name, to be changed.
    ///
    /// # Errors
    ///
    /// As for [`Items::get`].
    pub(super) fn get_mut(&mut self, name: Name) -> Result<&mut T> {
        let mut items = self.0.iter_mut();
        items.find(|item| item.name() == name).ok_or(ENOENT)
    }
}

/// A node that is switched on. Dropping it switches it off; its cables have to be unplugged then.
pub(crate) enum Power {
    Hca(HcaNode),
    Switch(SwitchNode),
}

impl Power {
    pub(super) fn node(&self) -> &Node {
        match self {
            Power::Hca(hca) => hca.node(),
            Power::Switch(switch) => switch.node(),
        }
    }

    /// Changes the adaptive routing of a switch.
    pub(crate) fn route(&self, routing: &Routing, seed: u64, name: Name) -> Result {
        match self.node() {
            Node::Host(_) | Node::Trunk(_) => Ok(()),
            Node::Switch(switch) => switch.route(routing, seed, name),
        }
    }
}

/// A node that the user has made.
pub(super) struct NodeItem {
    pub(super) plan: NodePlan,
    /// Network namespace of whoever has named the network devices.
    pub(super) netns: Netns,
    /// Of an adapter.
    pub(super) faults: Option<Arc<Faults>>,
    pub(super) power: Option<Power>,
}

/// A cable that is plugged in. Dropping it pulls it.
pub(crate) enum Plug {
    Ports(Cable),
    Device(TrunkCable),
}

impl Plug {
    /// The cable, without the device.
    pub(super) fn cable(&self) -> Option<&Cable> {
        match self {
            Plug::Ports(cable) => Some(cable),
            Plug::Device(through) => through.cable(),
        }
    }
}

/// A cable that the user has made.
pub(super) struct CableItem {
    pub(super) plan: CablePlan,
    pub(super) plugged: Option<Plug>,
}

impl CableItem {
    pub(super) fn ends_at(&self, node: Name) -> bool {
        let ends = self.plan.ends();
        ends.is_some_and(|ends| ends.ports().any(|end| end.node == node))
    }
}
