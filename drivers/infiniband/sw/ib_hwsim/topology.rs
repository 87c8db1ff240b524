// SPDX-License-Identifier: GPL-2.0

//! The topology of a fabric: its nodes and cables, of which some are in use while it is live.

mod items;

use debugfs_files::Dir;
use ib_fabric::fault::Order;
use ib_fabric::topology::{check_cable, check_fabric, check_node, Fault};
use ib_fabric::topology::{CablePlan, CableSetting, Ends, FarEnd, Name};
use ib_fabric::topology::{NodeKind, NodePlan, NodeSetting};
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::Arc;
use rdma_provider::{Faults, Netns};

use crate::cable::Cable;
use crate::host::Host;
use crate::power::{HcaNode, Site, SwitchNode};
use crate::trunk::{Trunk, TrunkCable};
use items::{CableItem, Items, NodeItem, Plug, Power};

/// The nodes and cables of a fabric, in the order in which they were made.
///
/// While the fabric is not live, all nodes are switched off, and all cables are unplugged. The ends of a plugged
/// cable are at nodes that are switched on.
///
/// All that registers devices or plugs cables may sleep.
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

    /// Removes a node: it is switched off, and its cables are unplugged.
    pub(crate) fn remove_node(&mut self, name: Name) {
        self.switch_off(name);
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

    /// Removes a cable, which is unplugged.
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

    /// Whether the fabric is live.
    pub(crate) fn live(&self) -> bool {
        self.live
    }

    /// Whether a node is switched on.
    pub(crate) fn powered(&self, name: Name) -> Result<bool> {
        Ok(self.nodes.get(name)?.power.is_some())
    }

    /// Whether a cable is plugged.
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

    /// Makes the fabric live: switches all nodes on, and then plugs all cables. Where it is live already, nothing
    /// changes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if such a fabric cannot be, with a line in the log; and those of making devices. Nothing is
    /// switched on then.
    pub(crate) fn go_live(&mut self, module: &'static ThisModule) -> Result {
        if self.live() {
            return Ok(());
        }
        let nodes = self.nodes.0.iter().map(|item| &item.plan);
        let cables = self.cables.0.iter().map(|item| &item.plan);
        check_fabric(nodes, cables).map_err(|fault| self.refuse(fault))?;
        self.live = true;
        let done = self.raise(module);
        if done.is_err() {
            self.go_down();
        }
        done
    }

    fn raise(&mut self, module: &'static ThisModule) -> Result {
        let name = CString::try_from_fmt(fmt!("{}", self.fabric.as_str()))?;
        self.files = Some(Dir::new(&name, Some(&self.root))?);
        for at in 0..self.nodes.0.len() {
            self.switch_on(self.nodes.0[at].plan, module)?;
        }
        for at in 0..self.cables.0.len() {
            self.connect(self.cables.0[at].plan)?;
        }
        Ok(())
    }

    /// Ends the fabric: switches all nodes off, those that came last first.
    pub(crate) fn go_down(&mut self) {
        for at in (0..self.nodes.0.len()).rev() {
            self.switch_off(self.nodes.0[at].plan.name());
        }
        self.files = None;
        self.live = false;
    }

    /// Switches a node of a live fabric on or off.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it cannot be switched on now, with a line in the log; and those of making devices.
    pub(crate) fn set_power(
        &mut self,
        name: Name,
        on: bool,
        module: &'static ThisModule,
    ) -> Result {
        if on == self.powered(name)? {
            return Ok(());
        }
        if !on {
            self.switch_off(name);
            return Ok(());
        }
        self.must_be_live(name)?;
        let plan = *self.node_plan(name)?;
        let on = self.nodes.0.iter().filter(|item| item.power.is_some());
        check_node(&plan, on.map(|item| &item.plan)).map_err(|fault| self.refuse(fault))?;
        self.switch_on(plan, module)
    }

    /// Plugs a cable of a live fabric, or unplugs it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it cannot be plugged now, with a line in the log; and those of plugging.
    pub(crate) fn set_plugged(&mut self, name: Name, plugged: bool) -> Result {
        if plugged == self.plugged(name)? {
            return Ok(());
        }
        if !plugged {
            self.cables.get_mut(name)?.plugged = None;
            return Ok(());
        }
        self.must_be_live(name)?;
        let plan = *self.cable_plan(name)?;
        let nodes = self.nodes.0.iter();
        let nodes = nodes.map(|item| (&item.plan, item.power.is_some()));
        let others = self.cables.0.iter().filter(|item| item.plugged.is_some());
        check_cable(&plan, nodes, others.map(|item| &item.plan))
            .map_err(|fault| self.refuse(fault))?;
        self.connect(plan)
    }

    fn must_be_live(&self, name: Name) -> Result {
        if self.live() {
            return Ok(());
        }
        self.report(name, format_args!("the fabric is not live"));
        Err(EINVAL)
    }

    /// Switches a node on that has been checked.
    fn switch_on(&mut self, plan: NodePlan, module: &'static ThisModule) -> Result {
        let name = plan.name();
        let site = Site {
            fabric: self.fabric,
            node: name,
            files: self.files.as_ref().ok_or(EINVAL)?,
        };
        let power = match plan.kind() {
            NodeKind::Hca => {
                let item = self.nodes.get(name)?;
                let faults = item.faults.as_ref().ok_or(ENOENT)?;
                HcaNode::new(&site, &plan, item.netns, faults, module).map(Power::Hca)
            }
            NodeKind::Switch => SwitchNode::new(&site, &plan.switch()).map(Power::Switch),
        };
        let power = power.inspect_err(|e| {
            self.report(name, format_args!("cannot be switched on: {e:?}"));
        })?;
        power.route(plan.routing(), self.seed, name)?;
        self.nodes.get_mut(name)?.power = Some(power);
        Ok(())
    }

    /// Switches a node off, if it is on, and unplugs its cables.
    ///
    /// That comes second, since ULPs leave their multicast groups as RDMA core lets go of a device, and wait for
    /// an answer.
    fn switch_off(&mut self, name: Name) {
        if let Ok(item) = self.nodes.get_mut(name) {
            item.power = None;
        }
        for item in self.cables.0.iter_mut().filter(|item| item.ends_at(name)) {
            item.plugged = None;
        }
    }

    /// Plugs a cable that has been checked.
    fn connect(&mut self, plan: CablePlan) -> Result {
        let name = plan.name();
        let Ends(one, other) = plan.ends().ok_or(EINVAL)?;
        let at = |node| Ok::<_, Error>(self.nodes.get(node)?.power.as_ref().ok_or(EINVAL)?.node());
        let near = (at(one.node)?, one.port);
        let cable = match other {
            FarEnd::Port(other) => {
                let far = (at(other.node)?, other.port);
                Cable::plug([near, far], &plan, self.seed).map(Plug::Ports)
            }
            FarEnd::Device(device) => {
                let device = CStr::from_bytes_until_nul(device.bytes()).map_err(|_| EINVAL)?;
                TrunkCable::plug(near, device, &plan, self.seed).map(Plug::Device)
            }
        };
        let cable = cable.inspect_err(|e| {
            self.report(name, format_args!("cannot be plugged: {e:?}"));
        })?;
        self.cables.get_mut(name)?.plugged = Some(cable);
        Ok(())
    }

    fn refuse(&self, fault: Fault) -> Error {
        pr_err!("{}: {}\n", self.fabric.as_str(), format_args!("{fault}"));
        EINVAL
    }

    fn report(&self, name: Name, text: core::fmt::Arguments<'_>) {
        pr_err!("{}: {}: {}\n", self.fabric.as_str(), name.as_str(), text);
    }
}
