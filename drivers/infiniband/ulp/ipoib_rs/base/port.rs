// SPDX-License-Identifier: GPL-2.0

//! The ports of the system's RDMA devices, and what is known of each.
//!
//! `ib_query_port` takes RTNL on RoCE, so it is never called under RTNL: a port's attributes are
//! read by a work item ([`Refresh`]) when the device comes and at each of its events, and kept in
//! [`Port`]. The work item then tells the port's interfaces, under RTNL.

use ipoib_netdev::device::{Device, OwnedDevice, RawDevice};
use ipoib_netdev::notifier;
use ipoib_netdev::rtnl::{Rtnl, RtnlCell};
use ipoib_netdev::task::{Queue, Run, Task};
use ipoib_proto::gid::{self, Gid, Owner};
use ipoib_proto::mtu;
use ipoib_rdma::{Client, Device as RdmaDevice, Event, EventHandler, EventSink, GidOwner, GidRef};
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::base::quota::Quota;
use crate::base::shared::Shared;
use crate::ctl::netdev::Interface;

/// Milliseconds until what memory was short for is tried again.
const RETRY_MS: u32 = 1000;

/// All ports that an interface can stand on.
static PORTS: RtnlCell<KVec<Arc<Port>>> = RtnlCell::new(KVec::new());

/// The IB MTU of a port that has never been active.
const SMALLEST_IB_MTU: u32 = 256;

/// What is known of a port; changes as the port does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Whether it can send and receive.
    pub(crate) active: bool,
    /// The active IB MTU: octets of the largest UD message.
    pub(crate) ib_mtu: u32,
    /// The GID that we send from.
    pub(crate) gid: Gid,
    /// Link speed in Mbit/s.
    pub(crate) speed_mbps: u32,
}

impl Attributes {
    /// The largest IP packet in a UD message (RFC 4391, section 7).
    pub(crate) fn ip_mtu(&self) -> u32 {
        mtu::ip_mtu(self.ib_mtu)
    }
}

/// A port of an RDMA device, and its interfaces.
pub(crate) struct Port {
    device: RdmaDevice,
    number: u32,
    refresher: Arc<Refresher>,
    quota: Arc<Quota>,
    shared: Arc<Shared>,
    /// The index of the port's netdev, or 0: asked for from any context, where the RDMA core
    /// cannot be.
    lower_ifindex: Atomic<i32>,
    attributes: RtnlCell<Attributes>,
    interfaces: RtnlCell<KVec<OwnedDevice<Interface>>>,
}

impl Port {
    /// The RDMA device.
    pub(crate) fn device(&self) -> &RdmaDevice {
        &self.device
    }

    /// The port's number, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The index of the port's netdev when that was last looked at, or 0.
    pub(crate) fn lower_ifindex(&self) -> i32 {
        self.lower_ifindex.load(Relaxed)
    }

    /// The connections of all interfaces on its device.
    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// State shared by all ports of its device.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What was last read.
    pub(crate) fn attributes(&self, rtnl: &mut Rtnl) -> Attributes {
        *self.attributes.get(rtnl)
    }

    /// Adds an interface, which is told of changes until it is removed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add(&self, dev: &Device<Interface>, rtnl: &mut Rtnl) -> Result {
        self.quota.join(dev)?;
        self.interfaces
            .get(rtnl)
            .push(dev.get_typed(), GFP_KERNEL)
            .inspect_err(|_| self.quota.leave(dev))?;
        Ok(())
    }

    /// Removes an interface.
    pub(crate) fn remove(&self, dev: &Device<Interface>, rtnl: &mut Rtnl) {
        self.interfaces.get(rtnl).retain(|other| !other.is(dev));
        self.quota.leave(dev);
    }

    /// Calls `f` for each interface.
    pub(crate) fn for_each(&self, rtnl: &mut Rtnl, mut f: impl FnMut(&Device<Interface>)) {
        for dev in self.interfaces.get(rtnl).iter() {
            f(dev);
        }
    }

    /// Reads the attributes again, in `delay_ms`, and tells the interfaces.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn refresh(&self, delay_ms: u32) {
        self.refresher.task.queue(delay_ms);
    }

    /// # Context
    ///
    /// May sleep; never under RTNL.
    fn read(device: &RdmaDevice, number: u32) -> Result<Attributes> {
        let attributes = device.query_port(number)?;
        let gid = choose_gid(device, number)?;
        Ok(Attributes {
            active: attributes.active,
            ib_mtu: attributes.active_mtu_bytes,
            gid: Gid(gid.raw()),
            speed_mbps: attributes.speed_mbps,
        })
    }
}

/// The GID to send from.
///
/// # Errors
///
/// `ENODEV` if there is none that would do, or no such port.
///
/// # Context
///
/// Process context.
pub(crate) fn choose_gid(device: &RdmaDevice, port: u32) -> Result<GidRef> {
    let mut best = None;
    for gid in device.gids(port).filter(GidRef::is_rocev2) {
        let owner = match gid.owner() {
            GidOwner::Port => Owner::Port,
            GidOwner::Bond => Owner::Bond,
            GidOwner::Other => Owner::Other,
        };
        // Of equal ones the first in the table.
        if let Some(rank) = gid::rank(&Gid(gid.raw()), owner) {
            if best.as_ref().is_none_or(|(least, _)| rank > *least) {
                best = Some((rank, gid));
            }
        }
    }
    Ok(best.ok_or(ENODEV)?.1)
}

/// Finds the port that `lower` stands for: the netdev of a RoCE port, or an interface of ours,
/// whose port a P_Key child shares. The interface is the second of the pair then.
pub(crate) fn find(
    lower: &RawDevice,
    rtnl: &mut Rtnl,
) -> Option<(Arc<Port>, Option<OwnedDevice<Interface>>)> {
    let count = PORTS.get(rtnl).len();
    for i in 0..count {
        let port = PORTS.get(rtnl).get(i)?.clone();
        if port.device.is_netdev(port.number, lower) {
            return Some((port, None));
        }
        let mut parent = None;
        port.for_each(rtnl, |dev| {
            if dev.is(lower) {
                parent = Some(dev.get_typed());
            }
        });
        if parent.is_some() {
            return Some((port, parent));
        }
    }
    None
}

/// The work item that keeps a device's ports up to date.
pub(crate) struct Refresher {
    task: Task<Refresh>,
}

/// What [`Refresher`] runs.
struct Refresh {
    device: RdmaDevice,
}

impl Refresh {
    /// The device's ports.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn ports(&self, rtnl: &mut Rtnl) -> Result<KVec<Arc<Port>>> {
        let mut ports = KVec::new();
        for port in PORTS.get(rtnl).iter() {
            if port.device.same(&self.device) {
                ports.push(port.clone(), GFP_KERNEL)?;
            }
        }
        Ok(ports)
    }

    /// Reads all ports and tells their interfaces.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; some have not been told.
    fn refresh(&self) -> Result {
        let ports = self.ports(&mut Rtnl::lock())?;
        for port in ports {
            let read = Port::read(&port.device, port.number);
            let ifindex = port.device.netdev_ifindex(port.number).unwrap_or(0);
            port.lower_ifindex.store(ifindex, Relaxed);
            let mut rtnl = Rtnl::lock();
            match read {
                Ok(attributes) => *port.attributes.get(&mut rtnl) = attributes,
                // Without a GID nothing can be sent; the port says so itself when it has one.
                Err(_) => port.attributes.get(&mut rtnl).active = false,
            }
            let mut interfaces = KVec::new();
            let mut result = Ok(());
            port.for_each(&mut rtnl, |dev| {
                result = result.and(interfaces.push(dev.get_typed(), GFP_KERNEL));
            });
            for dev in interfaces {
                Interface::port_changed(&dev, &mut rtnl);
            }
            result?;
        }
        Ok(())
    }
}

impl Run for Refresh {
    fn run(&self, task: &Queue<'_>) {
        if self.refresh().is_err() {
            task.queue(RETRY_MS);
        }
    }
}

impl EventSink for Refresher {
    fn event(&self, event: Event) {
        match event {
            Event::Other => {}
            _ => self.task.queue(0),
        }
    }
}

/// Our side of an RDMA device.
#[pin_data]
pub(crate) struct Adapter {
    device: RdmaDevice,
    refresher: Arc<Refresher>,
    quota: Arc<Quota>,
    shared: Arc<Shared>,
    #[pin]
    _events: EventHandler<Refresher>,
}

/// The RDMA client.
pub(crate) struct Ports;

impl Client for Ports {
    type Data = Adapter;
    const NAME: &'static CStr = c"ipoib_rs";

    fn add(device: &RdmaDevice, name: &CStr) -> Result<Arc<Adapter>> {
        let refresher = Arc::new(
            Refresher {
                task: Task::new(Refresh {
                    device: device.clone(),
                })?,
            },
            GFP_KERNEL,
        )?;
        let quota = Quota::new()?;
        let shared = Shared::new(name)?;
        let (own, sink) = (refresher.clone(), refresher.clone());
        let own_quota = quota.clone();
        Self::add_ports(device, &refresher, &quota, &shared)
            .and_then(|()| {
                Arc::pin_init(
                    try_pin_init!(Adapter {
                        device: device.clone(),
                        refresher: own,
                        quota: own_quota,
                        shared,
                        _events <- EventHandler::new(device, sink),
                    }),
                    GFP_KERNEL,
                )
            })
            // What changed before the handler was there is seen now.
            .inspect(|_| refresher.task.queue(0))
            .inspect_err(|_| forget(device, &refresher, &quota))
    }

    fn renamed(adapter: &Adapter, name: &CStr) {
        adapter.shared.renamed(name);
    }

    fn remove(adapter: Arc<Adapter>) {
        forget(&adapter.device, &adapter.refresher, &adapter.quota);
    }
}

impl Ports {
    /// Adds the RoCE ports of `device` to the list.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: there is none; `ENOMEM`.
    fn add_ports(
        device: &RdmaDevice,
        refresher: &Arc<Refresher>,
        quota: &Arc<Quota>,
        shared: &Arc<Shared>,
    ) -> Result {
        let mut found = false;
        for number in device.ports().filter(|number| device.is_roce(*number)) {
            found = true;
            // A port without carrier may have no GID yet; it is read again at its events.
            let attributes = Port::read(device, number).unwrap_or(Attributes {
                active: false,
                ib_mtu: SMALLEST_IB_MTU,
                gid: Gid::ZERO,
                speed_mbps: 0,
            });
            let port = Arc::new(
                Port {
                    device: device.clone(),
                    number,
                    refresher: refresher.clone(),
                    quota: quota.clone(),
                    shared: shared.clone(),
                    lower_ifindex: Atomic::new(device.netdev_ifindex(number).unwrap_or(0)),
                    attributes: RtnlCell::new(attributes),
                    interfaces: RtnlCell::new(KVec::new()),
                },
                GFP_KERNEL,
            )?;
            PORTS.get(&mut Rtnl::lock()).push(port, GFP_KERNEL)?;
        }
        if found {
            Ok(())
        } else {
            Err(EOPNOTSUPP)
        }
    }
}

/// Drops the ports of `device`, unregisters all their interfaces, and ends their work items.
///
/// # Context
///
/// Without RTNL; sleeps.
fn forget(device: &RdmaDevice, refresher: &Refresher, quota: &Quota) {
    let mut rtnl = Rtnl::lock();
    loop {
        let ports = PORTS.get(&mut rtnl);
        let Some(i) = ports.iter().position(|port| port.device.same(device)) else {
            break;
        };
        let Ok(port) = ports.remove(i) else { break };
        // An interface takes itself off the list when it is unregistered.
        while let Some(dev) = port.interfaces.get(&mut rtnl).pop() {
            dev.unregister(&mut rtnl);
        }
    }
    let ports = PORTS.get(&mut rtnl);
    if ports.is_empty() {
        // Nobody drops a static when the module goes, nor the list's memory with it.
        *ports = KVec::new();
    }
    drop(rtnl);
    // It may hold the last reference to a port, and so to itself.
    refresher.task.end();
    quota.end();
}

/// Watches the MTU of the netdevs under RoCE ports, of which soft-RoCE tells nobody.
pub(crate) struct LowerMtu;

impl notifier::Listen for LowerMtu {
    fn event(dev: &RawDevice, event: notifier::Event, rtnl: &mut Rtnl) {
        if event != notifier::Event::MtuChanged {
            return;
        }
        for port in PORTS.get(rtnl).iter() {
            if port.device.is_netdev(port.number, dev) {
                port.refresh(0);
            }
        }
    }
}
