// SPDX-License-Identifier: GPL-2.0

//! A simulated channel adapter, as RDMA core sees it.

use ib_fabric::{Arrival, Lid, Verdict as Ruling};
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{
    Adapter, Capabilities, Handle, Kind, Later, Mad, MadSource, PortAttributes, Qp, Verdict,
};

use crate::groups::{GROUPS, MEMBERS};
use crate::node::Node;
use crate::qps::ROOM;

/// Constant properties of an adapter.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    /// Node GUID.
    pub(crate) node_guid: u64,
    /// Vendor.
    pub(crate) vendor_id: u32,
    /// Device of that vendor.
    pub(crate) device_id: u16,
    /// Hardware revision.
    pub(crate) revision: u32,
    /// Entries in the P_Key table.
    pub(crate) pkeys: u16,
    /// Entries in the GID table.
    pub(crate) gids: u8,
}

/// A channel adapter of one port.
pub(crate) struct Hca {
    identity: Identity,
    /// Sends what queue pairs have to send.
    sender: Later<Node>,
}

impl Hca {
    /// An adapter that acts by a node.
    pub(crate) fn new(identity: Identity, node: &Arc<Node>) -> Result<Arc<Self>> {
        let sender = Later::new(node.bell().clone(), node.clone())?;
        Ok(Arc::new(Self { identity, sender }, GFP_KERNEL)?)
    }

    /// Its node.
    pub(crate) fn node(&self) -> &Arc<Node> {
        self.sender.job()
    }
}

impl Adapter for Hca {
    const NAME: &'static CStr = c"hwsim%d";

    fn handle(&self) -> &Handle {
        &self.node().handle
    }

    fn ports(&self) -> u8 {
        1
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            node_guid: self.identity.node_guid,
            system_guid: self.identity.node_guid,
            vendor_id: self.identity.vendor_id,
            device_id: self.identity.device_id.into(),
            revision: self.identity.revision,
            firmware: (1, 0, 0),
            qps: ROOM as u32 - 3,
            work_requests: 16384,
            sges: 32,
            cqs: 65536,
            cqes: 65536,
            groups: GROUPS as u32,
            group_members: MEMBERS as u32,
            pkeys: self.identity.pkeys,
        }
    }

    fn port(&self, number: u8) -> Result<PortAttributes> {
        let hca = self.node().hca.lock();
        let port = hca.port(number).ok_or(EINVAL)?;
        Ok(PortAttributes {
            subnet_prefix: port.subnet_prefix(),
            state: port.state() as u8,
            phys_state: port.phys_state() as u8,
            max_mtu: port.max_mtu().code(),
            active_mtu: port.active_mtu().code(),
            gids: self.identity.gids,
            pkeys: self.identity.pkeys,
            capabilities: port.cap_mask(),
            bad_pkeys: port.bad_pkey_count(),
            bad_qkeys: port.qkey_violations(),
            lid: port.lid().get(),
            lmc: port.lmc(),
            sm_lid: port.sm_lid().get(),
            sm_sl: port.sm_sl(),
            subnet_timeout: port.subnet_timeout(),
            vl_cap: port.vl_cap(),
            width: port.active_width(),
            speed: port.active_speed().into(),
        })
    }

    fn gid(&self, number: u8, index: u32) -> Result<[u8; 16]> {
        let hca = self.node().hca.lock();
        let port = hca.port(number).ok_or(EINVAL)?;
        let index = u8::try_from(index).map_err(|_| EINVAL)?;
        Ok(*port.gid(index).ok_or(EINVAL)?.bytes())
    }

    fn pkey(&self, number: u8, index: u16) -> Result<u16> {
        let hca = self.node().hca.lock();
        let port = hca.port(number).ok_or(EINVAL)?;
        port.pkey(index).ok_or(EINVAL)
    }

    fn set_capabilities(&self, port: u8, set: u32, clear: u32) -> Result {
        let events = self.node().hca.lock().set_cap_mask(port, set, clear);
        self.node().tell(events);
        Ok(())
    }

    fn set_description(&self, text: &[u8; 64]) {
        self.node().hca.lock().set_description(text);
    }

    fn description(&self) -> [u8; 64] {
        *self.node().hca.lock().description()
    }

    fn process_mad(&self, port: u8, source: MadSource, request: &Mad, reply: &mut Mad) -> Verdict {
        let arrival = Arrival {
            local: source.trusted,
            slid: Lid::new(source.slid),
            src_qp: source.src_qp,
            pkey_index: source.pkey_index,
        };
        let node = self.node();
        let outcome = {
            let seconds = node.seconds_since();
            let mut hca = node.hca.lock();
            hca.elapse(seconds);
            hca.process_mad(port, &arrival, request, reply)
        };
        node.tell(outcome.events);
        // The link is there again before the reply leaves by it.
        if outcome.retrain.is_some() {
            node.retrain();
        }
        match outcome.verdict {
            Ruling::Pass => Verdict::Pass,
            Ruling::Consume => Verdict::Consume,
            Ruling::Reply => Verdict::Reply,
        }
    }

    fn reserve_qp(&self, kind: Kind, _port: u8) -> Result<u32> {
        self.node().reserve(kind)
    }

    fn release_qp(&self, number: u32) {
        let gone = self.node().qps.lock().release(number);
        drop(gone);
    }

    fn add_qp(&self, qp: &Arc<Qp>) {
        self.node().qps.lock().add(qp);
    }

    fn ready(&self, qp: &Arc<Qp>) {
        self.node().mark(qp);
    }

    fn attach(&self, qp: &Arc<Qp>, mgid: [u8; 16], mlid: u16) -> Result {
        self.node().groups.lock().attach(qp, mgid, mlid)
    }

    fn detach(&self, qp: &Arc<Qp>, mgid: [u8; 16], mlid: u16) -> Result {
        let gone = self.node().groups.lock().detach(qp, mgid, mlid);
        gone.map(drop).ok_or(EINVAL)
    }
}
