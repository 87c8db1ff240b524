// SPDX-License-Identifier: GPL-2.0

//! Nodes that are switched on.

use debugfs_files::Dir;
use ib_fabric::topology::{Name, NodePlan};
use ib_fabric::SwitchConfig;
use kernel::device::Bound;
use kernel::faux;
use kernel::module::this_module;
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use rdma_provider::{BhWork, Faults, Netns, Registration};

use crate::adapter::Hca;
use crate::debugfs::NodeFiles;
use crate::host::Host;
use crate::node::Node;
use crate::stats::Stats;
use crate::switch::Switch;
use crate::LocalModule;

/// Number of the next adapter's parent device.
static NEXT: Atomic<u32> = Atomic::new(0);

/// Names of a node, and its directory in debugfs.
pub(crate) struct Site {
    /// Name of the fabric.
    pub(crate) fabric: Name,
    /// Name of the node.
    pub(crate) node: Name,
    /// Directory of the fabric in debugfs.
    pub(crate) files: Arc<Dir>,
}

impl Site {
    fn stats(&self, ports: u8) -> Result<Stats> {
        let (fabric, node) = (self.fabric.as_str(), self.node.as_str());
        let name = CString::try_from_fmt(fmt!("{fabric}/{node}"))?;
        Stats::new(name, ports)
    }

    fn files(&self, node: &Node, ports: u8) -> Result<NodeFiles> {
        NodeFiles::new(&self.files, self.node.as_str(), node, ports)
    }
}

/// An adapter that RDMA core knows. Dropping this switches it off; its cables keep its
/// place in the fabric.
pub(crate) struct HcaNode {
    // Fields are dropped in this order: RDMA core goes first.
    registration: Registration<Hca>,
    _device: faux::Registration,
    _files: NodeFiles,
    node: Node,
}

/// Makes a NodeDescription (IB specification, section 14.2.5.2) of a name.
fn description(name: &str) -> [u8; 64] {
    let mut text = [0; 64];
    for (to, from) in text.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    text
}

impl HcaNode {
    /// Switches an adapter on, whose description is its name until software sets another one.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there cannot be such an adapter; `ENOMEM`, and what RDMA core says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    // Its caller's stack frame would have room for both kinds of nodes.
    #[inline(never)]
    pub(crate) fn new(
        site: &Site,
        plan: &NodePlan,
        netns: Netns,
        faults: &Arc<Faults>,
    ) -> Result<Self> {
        let config = &plan.adapter();
        let host = Host::new(config, faults.clone(), site.stats(config.ports)?)?;
        faults.begin(&host.trigger);
        let text = description(site.node.as_str());
        host.managed.lock().hca.set_description(&text);
        let node = Node::Host(host.clone());
        let files = site.files(&node, config.ports)?;
        let hca = Hca::new(plan, netns, &host)?;
        let number = NEXT.fetch_add(1, Relaxed);
        let parent = CString::try_from_fmt(fmt!("ib_hwsim.{number}"))?;
        let device = faux::Registration::new(&parent, None)?;
        let parent: &faux::Device<Bound> = device.as_ref();
        let registration = Registration::new(hca, parent.as_ref(), this_module::<LocalModule>())?;
        Ok(Self {
            registration,
            _device: device,
            _files: files,
            node,
        })
    }

    /// Its place in the fabric.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Its state.
    pub(crate) fn host(&self) -> &Arc<Host> {
        self.registration.adapter().host()
    }

    /// Name of its RDMA device.
    pub(crate) fn device_name(&self) -> Result<CString> {
        self.registration.name()
    }
}

impl Drop for HcaNode {
    fn drop(&mut self) {
        self.host().leave();
    }
}

/// A switch that is on. Dropping this switches it off; its cables keep its
/// place in the fabric.
pub(crate) struct SwitchNode {
    _files: NodeFiles,
    node: Node,
    _traps: BhWork<Switch>,
}

impl SwitchNode {
    /// Switches it on, with its name for a description.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there cannot be such a switch; `ENOMEM`.
    // As above.
    #[inline(never)]
    pub(crate) fn new(site: &Site, config: &SwitchConfig) -> Result<Self> {
        let text = description(site.node.as_str());
        let switch = Switch::new(config, &text, site.stats(config.ports)?)?;
        let traps = BhWork::new(switch.trigger.clone(), switch.clone())?;
        let node = Node::Switch(switch);
        Ok(Self {
            _files: site.files(&node, config.ports)?,
            node,
            _traps: traps,
        })
    }

    /// Its place in the fabric.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }
}
