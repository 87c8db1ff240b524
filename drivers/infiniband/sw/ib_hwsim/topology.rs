// SPDX-License-Identifier: GPL-2.0

//! The topology of a fabric: its nodes and cables, of which some are in use while it is live.

mod items;

use debugfs_files::Dir;
use ib_fabric::fault::Order;
use ib_fabric::topology::{check_cable, check_fabric, check_node, Fault};
use ib_fabric::topology::{CablePlan, CableSetting, Name};
use ib_fabric::topology::{NodeKind, NodePlan, NodeSetting};
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::Arc;
use rdma_provider::{Faults, Netns};

use crate::host::Host;
use crate::node::Node;
use crate::power::Site;
use crate::trunk::Trunk;
use items::{CableItem, Items, NodeItem};

pub(crate) use items::{Plug, Power};

/// The nodes and cables of a fabric, in the order in which they were made.
///
/// While the fabric is not live, nor going live, all nodes are switched off, and all cables are unplugged. The ends of a plugged
/// cable are at nodes that are switched on, or being switched off.
pub(crate) struct Topology {
    fabric: Name,
    // Fields are dropped in this order.
    cables: Items<CableItem>,
    nodes: Items<NodeItem>,
    /// Directory of a live fabric in debugfs.
    files: Option<Arc<Dir>>,
    /// Directory of all fabrics there.
    root: Arc<Dir>,
    live: bool,
    /// Of all that goes wrong.
    seed: u64,
}

impl Topology {
    /// The topology of a new fabric.
    pub(crate) fn new(fabric: Name, root: Arc<Dir>) -> Self {
        Self {
            fabric,
            cables: Items(KVVec::new()),
            nodes: Items(KVVec::new()),
            files: None,
            root,
            live: false,
            seed: 0,
        }
    }

    /// Adds a node that is switched off.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is a node of that name, of whatever kind; `ENOMEM`.
    pub(crate) fn add_node(&mut self, plan: NodePlan) -> Result {
        let faults = match plan.kind() {
            NodeKind::Hca => Some(Faults::new()?),
            NodeKind::Switch => None,
        };
        let item = NodeItem {
            plan,
            netns: Netns::current(),
            faults,
            power: None,
        };
        self.nodes.add(item)
    }

    /// Removes a node that is off, and whose cables are unplugged.
    pub(crate) fn remove_node(&mut self, name: Name) {
        self.nodes.remove(name);
    }

    /// Adds a cable that is not plugged.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is a cable of that name; `ENOMEM`.
    pub(crate) fn add_cable(&mut self, plan: CablePlan) -> Result {
        let item = CableItem {
            plan,
            plugged: None,
        };
        self.cables.add(item)
    }

    /// Removes a cable that is unplugged.
    pub(crate) fn remove_cable(&mut self, name: Name) {
        self.cables.remove(name);
    }

    /// The constants of a node.
    pub(crate) fn node_plan(&self, name: Name) -> Result<&NodePlan> {
        Ok(&self.nodes.get(name)?.plan)
    }

    /// The constants of a cable.
    pub(crate) fn cable_plan(&self, name: Name) -> Result<&CablePlan> {
        Ok(&self.cables.get(name)?.plan)
    }

    /// Sets a constant of a node.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is switched on, unless it can change then; `EINVAL` if that cannot be its value; `ENOMEM`.
    pub(crate) fn set_node(&mut self, name: Name, setting: NodeSetting, text: &str) -> Result {
        let seed = self.seed;
        let item = self.nodes.get_mut(name)?;
        if item.power.is_some() && !setting.is_live() {
            return Err(EBUSY);
        }
        let mut plan = item.plan;
        plan.set(setting, text).ok_or(EINVAL)?;
        if let Some(power) = &item.power {
            power.route(plan.routing(), seed, name)?;
        }
        if setting == NodeSetting::Netdev {
            item.netns = Netns::current();
        }
        item.plan = plan;
        Ok(())
    }

    /// Sets a constant of a cable.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is plugged, unless it can change then; `EINVAL` if that cannot be its value; `ENOMEM`.
    pub(crate) fn set_cable(&mut self, name: Name, setting: CableSetting, text: &str) -> Result {
        let item = self.cables.get_mut(name)?;
        if item.plugged.is_some() && !setting.is_live() {
            return Err(EBUSY);
        }
        let mut plan = item.plan;
        plan.set(setting, text).ok_or(EINVAL)?;
        if let Some(cable) = item.plugged.as_ref().and_then(Plug::cable) {
            cable.change(plan.impairments())?;
        }
        item.plan = plan;
        Ok(())
    }

    /// The seed of all that goes wrong.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Sets the seed. All cables and switches begin anew with it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, when some have not.
    pub(crate) fn set_seed(&mut self, seed: u64) -> Result {
        self.seed = seed;
        let plugs = self
            .cables
            .0
            .iter()
            .filter_map(|item| item.plugged.as_ref());
        for cable in plugs.filter_map(Plug::cable) {
            cable.begin(seed);
        }
        for item in self.nodes.0.iter() {
            if let Some(power) = &item.power {
                power.route(item.plan.routing(), seed, item.plan.name())?;
            }
        }
        Ok(())
    }

    /// Returns true if the fabric is live.
    pub(crate) fn live(&self) -> bool {
        self.live
    }

    /// Returns true if a node is switched on.
    pub(crate) fn powered(&self, name: Name) -> Result<bool> {
        Ok(self.nodes.get(name)?.power.is_some())
    }

    /// Returns true if a cable is plugged.
    pub(crate) fn plugged(&self, name: Name) -> Result<bool> {
        Ok(self.cables.get(name)?.plugged.is_some())
    }

    /// Calls `f` with the end of a cable that is a network device; `None` if there is no such end, or the cable is not
    /// plugged.
    pub(crate) fn trunk<R>(&self, name: Name, f: impl FnOnce(&Trunk) -> R) -> Result<Option<R>> {
        match &self.cables.get(name)?.plugged {
            Some(Plug::Device(cable)) => Ok(Some(f(cable.trunk()))),
            Some(Plug::Ports(_)) | None => Ok(None),
        }
    }

    /// The name of an adapter's RDMA device; `None` if it is switched off.
    pub(crate) fn device(&self, name: Name) -> Result<Option<CString>> {
        match &self.nodes.get(name)?.power {
            Some(Power::Hca(hca)) => Ok(Some(hca.device_name()?)),
            _ => Ok(None),
        }
    }

    /// The faults of an adapter.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is no such adapter.
    pub(crate) fn faults(&self, name: Name) -> Result<&Arc<Faults>> {
        self.nodes.get(name)?.faults.as_ref().ok_or(ENOENT)
    }

    /// An adapter that is switched on.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is off, or none.
    pub(crate) fn host(&self, name: Name) -> Result<Arc<Host>> {
        match &self.nodes.get(name)?.power {
            Some(Power::Hca(hca)) => Ok(hca.host().clone()),
            _ => Err(ENODEV),
        }
    }

    /// Gives rules to an adapter, which may be on or off (see [`Faults::change`]).
    ///
    /// # Errors
    ///
    /// `EINVAL` if that is no text of rules.
    pub(crate) fn set_faults(&self, name: Name, text: &str) -> Result {
        self.faults(name)?.change(text)?;
        if let Ok(host) = self.host(name) {
            host.faults_changed();
        }
        Ok(())
    }

    /// Has an adapter report an event.
    ///
    /// # Errors
    ///
    /// `EINVAL` if that is no text of an event; `ENODEV` if the adapter is off; those of [`Host::obey`].
    pub(crate) fn order(&self, name: Name, text: &str) -> Result {
        let order = Order::parse(text).ok_or(EINVAL)?;
        self.host(name)?.obey(&order)
    }

    /// Returns true if the fabric can be, and makes its directory in debugfs.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it cannot, with a line in the log; `ENOMEM`.
    pub(crate) fn begin(&mut self) -> Result {
        let nodes = self.nodes.0.iter().map(|item| &item.plan);
        let cables = self.cables.0.iter().map(|item| &item.plan);
        check_fabric(nodes, cables).map_err(|fault| self.refuse(fault))?;
        let name = CString::try_from_fmt(fmt!("{}", self.fabric.as_str()))?;
        self.files = Some(Dir::new(&name, Some(&self.root))?);
        Ok(())
    }

    /// Notes that the fabric is live.
    pub(crate) fn went_live(&mut self) {
        self.live = true;
    }

    /// Notes that the fabric is not live any more. Returns its directory in debugfs.
    pub(crate) fn end(&mut self) -> Option<Arc<Dir>> {
        self.live = false;
        self.files.take()
    }

    /// The number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.0.len()
    }

    /// The constants of a node, by its place in the order in which they were made.
    pub(crate) fn node_at(&self, place: usize) -> Option<NodePlan> {
        self.nodes.0.get(place).map(|item| item.plan)
    }

    /// The name of a cable, by its place in the order in which they were made.
    pub(crate) fn cable_at(&self, place: usize) -> Option<Name> {
        self.cables.0.get(place).map(|item| item.plan.name())
    }

    /// The constants of a node that is off and can be switched on.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it cannot, with a line in the log; `ENOENT`.
    pub(crate) fn may_be_on(&self, name: Name) -> Result<NodePlan> {
        self.must_be_live(name)?;
        let plan = *self.node_plan(name)?;
        let on = self.nodes.0.iter().filter(|item| item.power.is_some());
        check_node(&plan, on.map(|item| &item.plan)).map_err(|fault| self.refuse(fault))?;
        Ok(plan)
    }

    /// Returns true if a cable that is unplugged can be plugged.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it cannot, with a line in the log; `ENOENT`.
    pub(crate) fn may_be_plugged(&self, name: Name) -> Result {
        self.must_be_live(name)?;
        let plan = self.cable_plan(name)?;
        let nodes = self.nodes.0.iter();
        let nodes = nodes.map(|item| (&item.plan, item.power.is_some()));
        let others = self.cables.0.iter().filter(|item| item.plugged.is_some());
        check_cable(plan, nodes, others.map(|item| &item.plan)).map_err(|fault| self.refuse(fault))
    }

    fn must_be_live(&self, name: Name) -> Result {
        if self.live() {
            return Ok(());
        }
        self.report(name, format_args!("the fabric is not live"));
        Err(EINVAL)
    }

    /// The names of a node, and where its directory in debugfs goes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the fabric is not live.
    pub(crate) fn site(&self, node: Name) -> Result<Site> {
        Ok(Site {
            fabric: self.fabric,
            node,
            files: self.files.clone().ok_or(EINVAL)?,
        })
    }

    /// Network namespace of whoever has named the network devices of an adapter.
    pub(crate) fn netns(&self, name: Name) -> Result<Netns> {
        Ok(self.nodes.get(name)?.netns)
    }

    /// A node's place in the fabric.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is off; `ENOENT`.
    pub(crate) fn node(&self, name: Name) -> Result<Node> {
        let power = self.nodes.get(name)?.power.as_ref();
        Ok(power.ok_or(EINVAL)?.node().clone())
    }

    /// Notes that a node has been switched on.
    pub(crate) fn switched_on(&mut self, name: Name, power: Power) -> Result {
        self.nodes.get_mut(name)?.power = Some(power);
        Ok(())
    }

    /// Notes that a node is off. Dropping what this returns switches it off.
    pub(crate) fn switch_off(&mut self, name: Name) -> Option<Power> {
        self.nodes.get_mut(name).ok()?.power.take()
    }

    /// Notes that a cable has been plugged in.
    pub(crate) fn plugged_in(&mut self, name: Name, plug: Plug) -> Result {
        self.cables.get_mut(name)?.plugged = Some(plug);
        Ok(())
    }

    /// Notes that a cable is unplugged. Dropping what this returns pulls it.
    pub(crate) fn pull(&mut self, name: Name) -> Option<Plug> {
        self.cables.get_mut(name).ok()?.plugged.take()
    }

    /// Does that with one of the cables that end at a node, if any is plugged.
    pub(crate) fn pull_from(&mut self, node: Name) -> Option<Plug> {
        let mut cables = self.cables.0.iter_mut();
        cables.find_map(|item| item.ends_at(node).then(|| item.plugged.take()).flatten())
    }

    fn refuse(&self, fault: Fault) -> Error {
        pr_err!("{}: {}\n", self.fabric.as_str(), format_args!("{fault}"));
        EINVAL
    }

    /// Writes to the log what is wrong with a node or a cable.
    pub(crate) fn report(&self, name: Name, text: core::fmt::Arguments<'_>) {
        pr_err!("{}: {}: {}\n", self.fabric.as_str(), name.as_str(), text);
    }
}
