// SPDX-License-Identifier: GPL-2.0

//! A simulated channel adapter, as RDMA core sees it.

use ib_fabric::topology::{Netdevs, NodePlan};
use ib_fabric::{Arrival, Config, Gid, Lid, Limits, LinkLayer, Mad, Verdict};
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{
    Adapter, BhWork, Capabilities, Faults, Handle, Kind, NetdevName, Netns, PortAttributes, Qp,
};

use crate::groups::{GROUPS, MEMBERS};
use crate::host::Host;

/// A channel adapter.
pub(crate) struct Hca {
    config: Config,
    limits: Limits,
    netdevs: Netdevs,
    /// Network namespace of those.
    netns: Netns,
    /// Sends what queue pairs have to send.
    sender: BhWork<Host>,
}

impl Hca {
    /// An adapter, as RDMA core sees it, for one of the fabric.
    pub(crate) fn new(plan: &NodePlan, netns: Netns, host: &Arc<Host>) -> Result<Arc<Self>> {
        let sender = BhWork::new(host.trigger.clone(), host.clone())?;
        let hca = Self {
            config: plan.adapter(),
            limits: *plan.limits(),
            netdevs: *plan.netdevs(),
            netns,
            sender,
        };
        Ok(Arc::new(hca, GFP_KERNEL)?)
    }

    /// LID of a multicast group; Ethernet has none, whatever a ULP says.
    fn mlid(&self, mlid: u16) -> u16 {
        match self.config.link_layer {
            LinkLayer::InfiniBand => mlid,
            LinkLayer::Ethernet => Lid::NONE.get(),
        }
    }

    /// The adapter's side in the fabric.
    pub(crate) fn host(&self) -> &Arc<Host> {
        self.sender.job()
    }
}

impl Adapter for Hca {
    const NAME: &'static CStr = c"hwsim%d";

    fn handle(&self) -> &Handle {
        &self.host().handle
    }

    fn faults(&self) -> &Arc<Faults> {
        &self.host().faults
    }

    fn ports(&self) -> u8 {
        self.config.ports
    }

    fn link_layer(&self) -> LinkLayer {
        self.config.link_layer
    }

    fn netdev(&self, port: u8) -> Option<NetdevName> {
        let name = *self.netdevs.of(port)?.bytes();
        let netns = self.netns;
        Some(NetdevName { name, netns })
    }

    fn netdev_changed(&self, port: u8, mtu: Option<u32>) {
        let trains = self.host().managed.lock().hca.set_netdev(port, mtu);
        if trains {
            self.host().retrain(port);
        }
    }

    fn set_gid(&self, port: u8, index: u16, gid: [u8; 16]) -> Result {
        let index = u8::try_from(index).map_err(|_| EINVAL)?;
        let hca = &mut self.host().managed.lock().hca;
        hca.set_gid(port, index, Gid::from_bytes(gid)).ok_or(EINVAL)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            node_guid: self.config.node_guid.get(),
            system_guid: self.config.system_guid.get(),
            vendor_id: self.config.vendor_id,
            device_id: self.config.device_id.into(),
            revision: self.config.revision,
            firmware: (1, 0, 0),
            limits: self.limits,
            groups: GROUPS as u32,
            group_members: MEMBERS as u32,
            pkeys: self.config.pkeys,
        }
    }

    fn port(&self, number: u8) -> Result<PortAttributes> {
        let managed = self.host().managed.lock();
        let port = managed.hca.port(number).ok_or(EINVAL)?;
        Ok(PortAttributes {
            subnet_prefix: port.prefix,
            state: port.state() as u8,
            phys_state: port.phys_state() as u8,
            max_mtu: port.mtu_cap as u8,
            active_mtu: port.active_mtu() as u8,
            gids: self.config.guids,
            pkeys: self.config.pkeys,
            capabilities: port.cap_mask,
            bad_pkeys: port.pkey_violations,
            bad_qkeys: port.qkey_violations,
            lid: port.lid().get(),
            lmc: port.lmc,
            sm_lid: port.sm_lid.get(),
            sm_sl: port.sm_sl,
            subnet_timeout: port.subnet_timeout,
            vl_cap: port.vl_cap(),
            width: port.width_active,
            speed: port.speed_active.into(),
            ip_gids: port.is_ethernet(),
        })
    }

    fn gid(&self, number: u8, index: u32) -> Result<[u8; 16]> {
        let managed = self.host().managed.lock();
        let port = managed.hca.port(number).ok_or(EINVAL)?;
        let index = u8::try_from(index).map_err(|_| EINVAL)?;
        Ok(*port.gid(index).ok_or(EINVAL)?.bytes())
    }

    fn pkey(&self, number: u8, index: u16) -> Result<u16> {
        let managed = self.host().managed.lock();
        let port = managed.hca.port(number).ok_or(EINVAL)?;
        port.pkey(index).ok_or(EINVAL)
    }

    fn set_capabilities(&self, port: u8, set: u32, clear: u32) -> Result {
        let mut managed = self.host().managed.lock();
        let events = managed.hca.set_cap_mask(port, set, clear);
        drop(managed);
        self.host().tell(port, events);
        self.host().check_traps();
        Ok(())
    }

    fn set_description(&self, text: &[u8; 64]) {
        self.host().managed.lock().hca.set_description(text);
        self.host().check_traps();
    }

    fn description(&self) -> [u8; 64] {
        *self.host().managed.lock().hca.description()
    }

    fn process_mad(&self, port: u8, arrival: &Arrival, request: &Mad, reply: &mut Mad) -> Verdict {
        let host = self.host();
        let outcome = {
            let hca = &mut host.managed.lock().hca;
            hca.elapse(host.clock.seconds_since());
            hca.process_mad(port, arrival, request, reply)
        };
        host.tell(outcome.port, outcome.events);
        host.check_traps();
        if let Some(target) = outcome.retrain {
            // The answer to the host itself needs no link.
            if host.is_own(port, arrival, request) {
                host.retrain(target);
            } else {
                host.retrain_later(target);
            }
        }
        outcome.verdict
    }

    fn reserve_qp(&self, kind: Kind, port: u8) -> Result<u32> {
        if kind == Kind::Smi && self.config.link_layer == LinkLayer::Ethernet {
            return Err(EINVAL);
        }
        self.host().qps.lock().reserve(kind, port)
    }

    fn release_qp(&self, number: u32, _kind: Kind, port: u8) {
        let gone = self.host().qps.lock().release(number, port);
        drop(gone);
    }

    fn add_qp(&self, qp: &Arc<Qp>) {
        self.host().qps.lock().add(qp);
    }

    fn ready(&self, qp: &Arc<Qp>) {
        self.host().mark(qp);
    }

    fn attach(&self, qp: &Arc<Qp>, mgid: [u8; 16], mlid: u16) -> Result {
        let mlid = self.mlid(mlid);
        self.host().groups.lock().attach(qp, mgid, mlid)
    }

    fn detach(&self, qp: &Arc<Qp>, mgid: [u8; 16], mlid: u16) -> Result {
        let mlid = self.mlid(mlid);
        let gone = self.host().groups.lock().detach(qp, mgid, mlid);
        gone.map(drop).ok_or(EINVAL)
    }

    fn abandon(&self) {
        self.host().each_qp(Qp::abandon);
    }
}
