// SPDX-License-Identifier: GPL-2.0

//! Two channel adapters and a cable.

use ib_fabric::{Config, Guid, Mtu, MAX_PORTS};
use kernel::device::Bound;
use kernel::faux;
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::Arc;
use rdma_provider::Registration;

use crate::adapter::{Hca, Identity};
use crate::node::Node;

/// First node GUID: a locally administered one, of which 256 follow for each node.
const FIRST_GUID: u64 = 0x0a1b_0000_0000_0100;

/// No vendor's company identifier.
const VENDOR: u32 = 0;

/// Entries in the P_Key table of a port.
const PKEYS: u16 = 128;

/// Entries in the GID table of a port.
const GIDS: u8 = 8;

/// An adapter that RDMA core knows.
struct Host {
    // Fields are dropped in this order: RDMA core goes first.
    registration: Registration<Hca>,
    _device: faux::Registration,
}

impl Host {
    fn new(number: u64, node: &Arc<Node>, module: &'static ThisModule) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("ib_hwsim.{number}"))?;
        let device = faux::Registration::new(&name, None)?;
        let identity = identity(number);
        let hca = Hca::new(identity, node)?;
        let parent: &faux::Device<Bound> = device.as_ref();
        let registration = Registration::new(hca, parent.as_ref(), module)?;
        Ok(Self {
            registration,
            _device: device,
        })
    }
}

fn identity(number: u64) -> Identity {
    Identity {
        node_guid: FIRST_GUID + number * 256,
        vendor_id: VENDOR,
        device_id: 1,
        revision: 1,
        pkeys: PKEYS,
        gids: GIDS,
    }
}

fn config(number: u64) -> Config {
    let identity = identity(number);
    let mut port_guids = [Guid::new(0); MAX_PORTS];
    port_guids[0] = Guid::new(identity.node_guid + 1);
    Config {
        node_guid: Guid::new(identity.node_guid),
        system_guid: Guid::new(identity.node_guid),
        port_guids,
        ports: 1,
        pkeys: identity.pkeys,
        guids: identity.gids,
        mtu: Mtu::B4096,
        vendor_id: identity.vendor_id,
        device_id: identity.device_id,
        revision: identity.revision,
    }
}

/// Two adapters back to back.
pub(crate) struct Pair {
    /// The last one that came goes first.
    hosts: KVec<Host>,
}

impl Pair {
    /// Makes them, with the link trained, and registers them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and what RDMA core says.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        let nodes = [Node::new(&config(0))?, Node::new(&config(1))?];
        let mut pair = Self {
            hosts: KVec::with_capacity(nodes.len(), GFP_KERNEL)?,
        };
        Node::connect(&nodes[0], &nodes[1])?;
        for (number, node) in (0..).zip(&nodes) {
            match Host::new(number, node, module) {
                Ok(host) => pair.hosts.push(host, GFP_KERNEL)?,
                Err(e) => {
                    nodes[0].disconnect();
                    return Err(e);
                }
            }
        }
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        while let Some(host) = self.hosts.pop() {
            // The nodes hold each other as long as there is a cable.
            host.registration.adapter().node().disconnect();
        }
    }
}
