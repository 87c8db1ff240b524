// SPDX-License-Identifier: GPL-2.0

//! Nodes that are switched on.

use ib_fabric::{Config, SwitchConfig};
use kernel::device::Bound;
use kernel::faux;
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::atomic::{Atomic, Relaxed};
use rdma_provider::{Later, Registration};

use crate::adapter::Hca;
use crate::host::Host;
use crate::node::Node;
use crate::switch::Switch;

/// Number of the next adapter's parent device.
static NEXT: Atomic<u32> = Atomic::new(0);

/// An adapter that RDMA core knows. Dropping this switches it off; its cables keep its
/// place in the fabric.
pub(crate) struct HcaNode {
    // Fields are dropped in this order: RDMA core goes first.
    registration: Registration<Hca>,
    _device: faux::Registration,
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
    pub(crate) fn new(name: &str, config: &Config, module: &'static ThisModule) -> Result<Self> {
        let host = Host::new(config)?;
        host.managed.lock().hca.set_description(&description(name));
        let hca = Hca::new(config, &host)?;
        let number = NEXT.fetch_add(1, Relaxed);
        let parent = CString::try_from_fmt(fmt!("ib_hwsim.{number}"))?;
        let device = faux::Registration::new(&parent, None)?;
        let parent: &faux::Device<Bound> = device.as_ref();
        let registration = Registration::new(hca, parent.as_ref(), module)?;
        Ok(Self {
            registration,
            _device: device,
            node: Node::Host(host),
        })
    }

    /// Its place in the fabric.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Name of its RDMA device.
    pub(crate) fn device_name(&self) -> Result<CString> {
        self.registration.name()
    }
}

/// A switch that is on. Dropping this switches it off; its cables keep its
/// place in the fabric.
pub(crate) struct SwitchNode {
    node: Node,
    _traps: Later<Switch>,
}

impl SwitchNode {
    /// Switches it on, with its name for a description.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there cannot be such a switch; `ENOMEM`.
    // As above.
    #[inline(never)]
    pub(crate) fn new(name: &str, config: &SwitchConfig) -> Result<Self> {
        let switch = Switch::new(config, &description(name))?;
        let traps = Later::new(switch.bell().clone(), switch.clone())?;
        Ok(Self {
            node: Node::Switch(switch),
            _traps: traps,
        })
    }

    /// Its place in the fabric.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }
}
