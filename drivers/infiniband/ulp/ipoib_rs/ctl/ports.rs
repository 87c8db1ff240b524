// SPDX-License-Identifier: GPL-2.0

//! The ports that interfaces can use, and the interfaces on each.

use ipoib_netdev::device::{Device, OwnedDevice, RawDevice};
use ipoib_netdev::notifier;
use ipoib_netdev::rtnl::{Rtnl, RtnlCell};
use ipoib_netdev::task::{Queue, Run};
use ipoib_rdma::{Client, Device as RdmaDevice, EventHandler};
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::port::{LinkLayer, Port, Refresh, Refresher};
use crate::base::quota::Quota;
use crate::base::shared::Shared;

/// Milliseconds until what memory was short for is tried again.
const RETRY_MS: u32 = 1000;

/// A port, and its interfaces.
struct Entry {
    port: Arc<Port>,
    interfaces: KVec<OwnedDevice<Interface>>,
}

/// All ports that an interface can use.
static PORTS: RtnlCell<KVec<Entry>> = RtnlCell::new(KVec::new());

/// The interfaces on a port.
fn interfaces_of<'a>(
    port: &Arc<Port>,
    rtnl: &'a mut Rtnl,
) -> Option<&'a mut KVec<OwnedDevice<Interface>>> {
    let entries = PORTS.get(rtnl).iter_mut();
    let mut found = entries.filter(|entry| Arc::ptr_eq(&entry.port, port));
    found.next().map(|entry| &mut entry.interfaces)
}

/// Adds an interface to those of its port, which are told of changes.
///
/// # Errors
///
/// `ENOMEM`; `ENODEV` if the port is gone.
pub(crate) fn add(dev: &Device<Interface>, rtnl: &mut Rtnl) -> Result {
    let interfaces = interfaces_of(&dev.data().port, rtnl).ok_or(ENODEV)?;
    Ok(interfaces.push(dev.get_typed(), GFP_KERNEL)?)
}

/// Removes an interface from those of its port.
pub(crate) fn remove(dev: &Device<Interface>, rtnl: &mut Rtnl) {
    if let Some(interfaces) = interfaces_of(&dev.data().port, rtnl) {
        interfaces.retain(|other| !other.is(dev));
    }
}

/// Calls `f` for each interface on the port of `dev`.
pub(crate) fn for_each_beside(
    dev: &Device<Interface>,
    rtnl: &mut Rtnl,
    f: &mut dyn FnMut(&Device<Interface>),
) {
    if let Some(interfaces) = interfaces_of(&dev.data().port, rtnl) {
        interfaces.iter().for_each(|dev| f(dev));
    }
}

/// Walks over the interfaces on an RDMA device.
pub(crate) fn interfaces_on<'a>(
    device: &'a RdmaDevice,
    rtnl: &'a mut Rtnl,
) -> impl Iterator<Item = &'a OwnedDevice<Interface>> {
    let entries = PORTS.get(rtnl).iter();
    let entries = entries.filter(|entry| entry.port.device().same(device));
    entries.flat_map(|entry| entry.interfaces.iter())
}

/// Finds the port that `lower` stands for: the netdev of a RoCE port, an interface of ours, whose port a P_Key
/// child shares, or another driver's IPoIB interface. One of ours is the second of the pair then.
pub(crate) fn find(
    lower: &RawDevice,
    rtnl: &mut Rtnl,
) -> Option<(Arc<Port>, Option<OwnedDevice<Interface>>)> {
    for Entry { port, interfaces } in PORTS.get(rtnl).iter() {
        if port.device().is_netdev(port.number(), lower) {
            return Some((port.clone(), None));
        }
        if let Some(parent) = interfaces.iter().find(|dev| dev.is(lower)) {
            return Some((port.clone(), Some(parent.get_typed())));
        }
    }
    let carries = |entry: &&Entry| entry.port.device().carries(entry.port.number(), lower);
    let entry = PORTS.get(rtnl).iter().find(carries)?;
    Some((entry.port.clone(), None))
}

/// Reads the ports of a device, and tells their interfaces.
///
/// # Errors
///
/// `ENOMEM`; some have not been told.
fn refresh(device: &RdmaDevice) -> Result {
    let mut ports = KVec::new();
    for entry in PORTS.get(&mut Rtnl::lock()).iter() {
        if entry.port.device().same(device) {
            ports.push(entry.port.clone(), GFP_KERNEL)?;
        }
    }
    for port in ports {
        let moved = port.update();
        let mut rtnl = Rtnl::lock();
        let mut told = KVec::new();
        let interfaces = interfaces_of(&port, &mut rtnl);
        let mut interfaces = interfaces.into_iter().flat_map(|list| list.iter());
        let result: Result =
            interfaces.try_for_each(|dev| Ok(told.push(dev.get_typed(), GFP_KERNEL)?));
        for dev in told {
            Interface::port_changed(&dev, moved, &mut rtnl);
        }
        result?;
    }
    Ok(())
}

impl Run for Refresh {
    fn run(&self, task: &Queue<'_>) {
        if refresh(&self.device).is_err() {
            task.queue(RETRY_MS);
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
        let refresher = Refresher::new(device)?;
        let quota = Quota::new(device)?;
        let shared = Shared::new(name)?;
        let (own, sink) = (refresher.clone(), refresher.clone());
        let own_quota = quota.clone();
        add_ports(device, &refresher, &quota, &shared)
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
            // Changes from before the handler was there are seen now.
            .inspect(|_| refresher.queue(0))
            .inspect_err(|_| forget(device, &refresher, &quota))
    }

    fn renamed(adapter: &Adapter, name: &CStr) {
        adapter.shared.renamed(name);
    }

    fn remove(adapter: Arc<Adapter>) {
        forget(&adapter.device, &adapter.refresher, &adapter.quota);
    }
}

/// Adds the ports of `device` to the list.
///
/// # Errors
///
/// `EOPNOTSUPP`: there is none that interfaces can use; `ENOMEM`.
fn add_ports(
    device: &RdmaDevice,
    refresher: &Arc<Refresher>,
    quota: &Arc<Quota>,
    shared: &Arc<Shared>,
) -> Result {
    let mut found = false;
    let layers = device
        .ports()
        .filter_map(|number| Some((number, LinkLayer::of(device, number)?)));
    for port in layers {
        found = true;
        let port = Port::new(device, port, refresher, quota, shared)?;
        let entry = Entry {
            port,
            interfaces: KVec::new(),
        };
        PORTS.get(&mut Rtnl::lock()).push(entry, GFP_KERNEL)?;
    }
    if found {
        Ok(())
    } else {
        Err(EOPNOTSUPP)
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
        let entries = PORTS.get(&mut rtnl);
        let of_device = |entry: &Entry| entry.port.device().same(device);
        let Some(at) = entries.iter().position(of_device) else {
            break;
        };
        // An interface takes itself, and its children with it, off the list when it is unregistered.
        match entries.get_mut(at).and_then(|entry| entry.interfaces.pop()) {
            Some(dev) => dev.unregister(&mut rtnl),
            None => drop(entries.remove(at)),
        }
    }
    let entries = PORTS.get(&mut rtnl);
    if entries.is_empty() {
        // Nobody drops a static when the module goes, nor the list's memory with it.
        *entries = KVec::new();
    }
    drop(rtnl);
    // It may hold the last reference to a port, and so to itself.
    refresher.end();
    quota.end();
}

/// Watches the MTU of the netdevs under RoCE ports, of which soft-RoCE tells nobody.
pub(crate) struct LowerMtu;

impl notifier::Listen for LowerMtu {
    fn event(dev: &RawDevice, event: notifier::Event, rtnl: &mut Rtnl) {
        if event != notifier::Event::MtuChanged {
            return;
        }
        for Entry { port, .. } in PORTS.get(rtnl).iter() {
            if port.device().is_netdev(port.number(), dev) {
                port.refresh(0);
            }
        }
    }
}
