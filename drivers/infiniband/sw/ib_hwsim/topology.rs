// SPDX-License-Identifier: GPL-2.0

//! The topology of a fabric: its nodes and cables, of which some are in use while it is live.

use ib_fabric::topology::{check_cable, check_fabric, check_node, Fault};
use ib_fabric::topology::{CablePlan, CableSetting, Ends, Name, NodeKind, NodePlan, NodeSetting};
use kernel::prelude::*;
use kernel::str::CString;

use crate::cable::Cable;
use crate::node::Node;
use crate::power::{HcaNode, SwitchNode};

/// A node that is switched on. Dropping it switches it off; its cables have to be unplugged then.
enum Power {
    Hca(HcaNode),
    Switch(SwitchNode),
}

impl Power {
    fn node(&self) -> &Node {
        match self {
            Power::Hca(hca) => hca.node(),
            Power::Switch(switch) => switch.node(),
        }
    }
}

/// A node that the user has made.
struct NodeItem {
    plan: NodePlan,
    power: Option<Power>,
}

/// A cable that the user has made.
struct CableItem {
    plan: CablePlan,
    plugged: Option<Cable>,
}

impl CableItem {
    fn ends_at(&self, node: Name) -> bool {
        let ends = self.plan.ends();
        ends.is_some_and(|Ends(ends)| ends.iter().any(|end| end.node == node))
    }
}

/// The nodes and cables of a fabric, in the order in which they were made.
///
/// While the fabric is not live, all nodes are switched off, and all cables are unplugged. The ends of a plugged
/// cable are at nodes that are switched on.
///
/// All that registers devices or plugs cables may sleep.
pub(crate) struct Topology {
    fabric: Name,
    // Fields are dropped in this order.
    cables: KVVec<CableItem>,
    nodes: KVVec<NodeItem>,
    live: bool,
}

impl Topology {
    /// The topology of a new fabric.
    pub(crate) fn new(fabric: Name) -> Self {
        Self {
            fabric,
            cables: KVVec::new(),
            nodes: KVVec::new(),
            live: false,
        }
    }

    /// Adds a node that is switched off.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is a node of that name, of whatever kind; `ENOMEM`.
    pub(crate) fn add_node(&mut self, plan: NodePlan) -> Result {
        if self
            .nodes
            .iter()
            .any(|item| item.plan.name() == plan.name())
        {
            return Err(EEXIST);
        }
        let item = NodeItem { plan, power: None };
        Ok(self.nodes.push(item, GFP_KERNEL)?)
    }

    /// Removes a node: it is switched off, and its cables are unplugged.
    pub(crate) fn remove_node(&mut self, name: Name) {
        self.switch_off(name);
        self.nodes.retain(|item| item.plan.name() != name);
    }

    /// Adds a cable that is not plugged.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is a cable of that name; `ENOMEM`.
    pub(crate) fn add_cable(&mut self, plan: CablePlan) -> Result {
        if self
            .cables
            .iter()
            .any(|item| item.plan.name() == plan.name())
        {
            return Err(EEXIST);
        }
        let item = CableItem {
            plan,
            plugged: None,
        };
        Ok(self.cables.push(item, GFP_KERNEL)?)
    }

    /// Removes a cable, which is unplugged.
    pub(crate) fn remove_cable(&mut self, name: Name) {
        self.cables.retain(|item| item.plan.name() != name);
    }

    fn node(&self, name: Name) -> Result<&NodeItem> {
        let mut items = self.nodes.iter();
        items.find(|item| item.plan.name() == name).ok_or(ENOENT)
    }

    fn node_mut(&mut self, name: Name) -> Result<&mut NodeItem> {
        let mut items = self.nodes.iter_mut();
        items.find(|item| item.plan.name() == name).ok_or(ENOENT)
    }

    fn cable(&self, name: Name) -> Result<&CableItem> {
        let mut items = self.cables.iter();
        items.find(|item| item.plan.name() == name).ok_or(ENOENT)
    }

    fn cable_mut(&mut self, name: Name) -> Result<&mut CableItem> {
        let mut items = self.cables.iter_mut();
        items.find(|item| item.plan.name() == name).ok_or(ENOENT)
    }

    /// The constants of a node.
    pub(crate) fn node_plan(&self, name: Name) -> Result<&NodePlan> {
        Ok(&self.node(name)?.plan)
    }

    /// The constants of a cable.
    pub(crate) fn cable_plan(&self, name: Name) -> Result<&CablePlan> {
        Ok(&self.cable(name)?.plan)
    }

    /// Sets a constant of a node.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is switched on; `EINVAL` if that cannot be its value.
    pub(crate) fn set_node(&mut self, name: Name, setting: NodeSetting, text: &str) -> Result {
        let item = self.node_mut(name)?;
        if item.power.is_some() {
            return Err(EBUSY);
        }
        item.plan.set(setting, text).ok_or(EINVAL)
    }

    /// Sets a constant of a cable.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is plugged; `EINVAL` if that cannot be its value.
    pub(crate) fn set_cable(&mut self, name: Name, setting: CableSetting, text: &str) -> Result {
        let item = self.cable_mut(name)?;
        if item.plugged.is_some() {
            return Err(EBUSY);
        }
        item.plan.set(setting, text).ok_or(EINVAL)
    }

    /// Whether the fabric is live.
    pub(crate) fn live(&self) -> bool {
        self.live
    }

    /// Whether a node is switched on.
    pub(crate) fn powered(&self, name: Name) -> Result<bool> {
        Ok(self.node(name)?.power.is_some())
    }

    /// Whether a cable is plugged.
    pub(crate) fn plugged(&self, name: Name) -> Result<bool> {
        Ok(self.cable(name)?.plugged.is_some())
    }

    /// The name of an adapter's RDMA device; `None` if it is switched off.
    pub(crate) fn device(&self, name: Name) -> Result<Option<CString>> {
        match &self.node(name)?.power {
            Some(Power::Hca(hca)) => Ok(Some(hca.device_name()?)),
            _ => Ok(None),
        }
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
        let nodes = self.nodes.iter().map(|item| &item.plan);
        let cables = self.cables.iter().map(|item| &item.plan);
        check_fabric(nodes, cables).map_err(|fault| self.refuse(fault))?;
        self.live = true;
        let done = self.raise(module);
        if done.is_err() {
            self.go_down();
        }
        done
    }

    fn raise(&mut self, module: &'static ThisModule) -> Result {
        for at in 0..self.nodes.len() {
            self.switch_on(self.nodes[at].plan, module)?;
        }
        for at in 0..self.cables.len() {
            self.connect(self.cables[at].plan)?;
        }
        Ok(())
    }

    /// Ends the fabric: switches all nodes off, those that came last first.
    pub(crate) fn go_down(&mut self) {
        for at in (0..self.nodes.len()).rev() {
            self.switch_off(self.nodes[at].plan.name());
        }
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
        let on = self.nodes.iter().filter(|item| item.power.is_some());
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
            self.cable_mut(name)?.plugged = None;
            return Ok(());
        }
        self.must_be_live(name)?;
        let plan = *self.cable_plan(name)?;
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|item| (&item.plan, item.power.is_some()));
        let others = self.cables.iter().filter(|item| item.plugged.is_some());
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
        let power = match plan.kind() {
            NodeKind::Hca => HcaNode::new(name.as_str(), &plan.adapter(), module).map(Power::Hca),
            NodeKind::Switch => SwitchNode::new(name.as_str(), &plan.switch()).map(Power::Switch),
        };
        let power = power.inspect_err(|e| {
            self.report(name, format_args!("cannot be switched on: {e:?}"));
        })?;
        self.node_mut(name)?.power = Some(power);
        Ok(())
    }

    /// Switches a node off, if it is on, and unplugs its cables.
    ///
    /// That comes second, since ULPs leave their multicast groups as RDMA core lets go of a device, and wait for
    /// an answer.
    fn switch_off(&mut self, name: Name) {
        if let Ok(item) = self.node_mut(name) {
            item.power = None;
        }
        for item in self.cables.iter_mut().filter(|item| item.ends_at(name)) {
            item.plugged = None;
        }
    }

    /// Plugs a cable that has been checked.
    fn connect(&mut self, plan: CablePlan) -> Result {
        let name = plan.name();
        let Ends([one, other]) = plan.ends().ok_or(EINVAL)?;
        let at = |node| Ok::<_, Error>(self.node(node)?.power.as_ref().ok_or(EINVAL)?.node());
        let ends = [(at(one.node)?, one.port), (at(other.node)?, other.port)];
        let cable = Cable::plug(ends, &plan.limits()).inspect_err(|e| {
            self.report(name, format_args!("cannot be plugged: {e:?}"));
        })?;
        self.cable_mut(name)?.plugged = Some(cable);
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
