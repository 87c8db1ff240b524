// SPDX-License-Identifier: GPL-2.0

//! The ports that interfaces can use, and the interfaces on each. The RDMA client that fills the list is in
//! `adapters.rs`.

use ipoib_netdev::device::{Device, OwnedDevice, RawDevice};
use ipoib_netdev::net::Net;
use ipoib_netdev::rtnl::{Rtnl, RtnlCell, RtnlGuard};
use ipoib_rdma::Device as RdmaDevice;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::{Interface, Origin};
use crate::base::params;
use crate::base::port::{LinkLayer, Port, Refresher};
use crate::base::shared::Shared;
use crate::ctl::members::Members;

/// Interfaces that a port may get.
#[derive(Clone, Copy, PartialEq)]
enum Service {
    /// The one that it gets by itself, and those of users.
    Due,
    /// Those of users; it has had its own.
    Served,
    /// None any more: its device goes.
    Closed,
}

/// A port, and its interfaces.
struct Entry {
    port: Arc<Port>,
    interfaces: KVec<OwnedDevice<Interface>>,
    /// All on its RDMA device.
    members: Arc<Members>,
    service: Service,
}

/// All ports that an interface can use.
static PORTS: RtnlCell<KVec<Entry>> = RtnlCell::new(KVec::new());

/// The entry of a port.
fn entry_of<'a>(port: &Arc<Port>, rtnl: &'a mut Rtnl) -> Option<&'a mut Entry> {
    let mut entries = PORTS.get(rtnl).iter_mut();
    entries.find(|entry| Arc::ptr_eq(&entry.port, port))
}

/// Walks over the interfaces on all ports.
fn interfaces(rtnl: &mut Rtnl) -> impl Iterator<Item = &OwnedDevice<Interface>> {
    let entries = PORTS.get(rtnl).iter();
    entries.flat_map(|entry| entry.interfaces.iter())
}

/// Adds an interface to those of its port, which are told of changes.
///
/// # Errors
///
/// `ENOMEM`; `ENODEV` if the port is gone.
pub(crate) fn add(dev: &Device<Interface>, rtnl: &mut Rtnl) -> Result {
    let entry = entry_of(&dev.data().get_ref().port, rtnl).ok_or(ENODEV)?;
    if entry.service == Service::Closed {
        return Err(ENODEV);
    }
    entry.interfaces.push(dev.get_typed(), GFP_KERNEL)?;
    entry.members.add(dev)
}

/// Removes an interface from those of its port. True: the port has got it by itself, and is to have another one, since
/// only the namespace that it was in goes away.
pub(crate) fn remove(dev: &Device<Interface>, rtnl: &mut Rtnl) -> bool {
    let this = dev.data();
    let ends = this.origin == Origin::Port && dev.net_ends(rtnl);
    let Some(entry) = entry_of(&this.port, rtnl) else {
        return false;
    };
    entry.interfaces.retain(|other| !other.is(dev));
    entry.members.remove(dev);
    if ends && entry.service == Service::Served {
        entry.service = Service::Due;
    }
    ends
}

/// Takes an interface that is to be deleted, each one once.
pub(crate) fn next_doomed(rtnl: &mut Rtnl) -> Option<OwnedDevice<Interface>> {
    let doomed = interfaces(rtnl).find(|dev| dev.data().doomed.xchg(false, Relaxed));
    doomed.map(|dev| dev.get_typed())
}

/// A port of `device`, or of any device, that is to have an interface by itself and has not had it; it counts as
/// one that has from now on.
pub(crate) fn next_unserved(device: Option<&RdmaDevice>, rtnl: &mut Rtnl) -> Option<Arc<Port>> {
    let selection = params::ports();
    let wanted = |entry: &&mut Entry| {
        let port = &entry.port;
        entry.service == Service::Due
            && device.is_none_or(|device| port.device().same(device))
            && port
                .shared()
                .with_name(|name| selection.has(name, port.number(), port.is_infiniband()))
    };
    let entry = PORTS.get(rtnl).iter_mut().find(wanted)?;
    entry.service = Service::Served;
    Some(entry.port.clone())
}

/// Reads the port again whose netdev `lower` is, if there is one.
pub(crate) fn refresh_on(lower: &RawDevice, rtnl: &mut Rtnl) {
    for Entry { port, .. } in PORTS.get(rtnl).iter() {
        if port.device().is_netdev(port.number(), lower) {
            port.refresh(0);
        }
    }
}

/// The interface that `dev` is, if it is one of ours.
pub(crate) fn own(dev: &RawDevice, rtnl: &mut Rtnl) -> Option<OwnedDevice<Interface>> {
    let own = interfaces(rtnl).find(|own| own.is(dev));
    own.map(|own| own.get_typed())
}

/// Tells the P_Key children of `parent`, if it has any, what its index is.
pub(crate) fn note_ifindex(parent: &RawDevice, rtnl: &mut Rtnl) {
    for child in interfaces(rtnl) {
        child.data().note_parent_ifindex(parent);
    }
}

/// The P_Key children of `parent`, if that is an interface of ours. Where memory is short, not all of them.
pub(crate) fn children_of(parent: &RawDevice, rtnl: &mut Rtnl) -> KVec<OwnedDevice<Interface>> {
    let mut children = KVec::new();
    for child in interfaces(rtnl).filter(|dev| dev.data().is_child_of(parent)) {
        if children.push(child.get_typed(), GFP_KERNEL).is_err() {
            break;
        }
    }
    children
}

/// Calls `f` for each interface on the port of `dev`.
pub(crate) fn for_each_beside(
    dev: &Device<Interface>,
    rtnl: &mut Rtnl,
    f: &mut dyn FnMut(&Device<Interface>),
) {
    if let Some(entry) = entry_of(&dev.data().get_ref().port, rtnl) {
        entry.interfaces.iter().for_each(|dev| f(dev));
    }
}

/// Finds the port that `lower` stands for: the netdev of a RoCE port, an interface of ours, whose port a P_Key
/// child shares, or another driver's IPoIB interface. One of ours is the second of the pair then.
pub(crate) fn find(
    lower: &RawDevice,
    rtnl: &mut Rtnl,
) -> Option<(Arc<Port>, Option<OwnedDevice<Interface>>)> {
    for Entry {
        port, interfaces, ..
    } in PORTS.get(rtnl).iter()
    {
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

/// A port of soft-RoCE, for tests.
#[cfg(CONFIG_KUNIT = "y")]
pub(super) fn soft_roce(rtnl: &mut Rtnl) -> Option<Arc<Port>> {
    let mut ports = PORTS.get(rtnl).iter().map(|entry| &entry.port);
    let port = ports.find(|port| ipoib_rdma::live::is_soft_roce(port.device()));
    port.cloned()
}

/// Why a port is not found by its name.
pub(crate) enum Missing {
    /// There is no such device, or it has no port that an interface can use.
    Device,
    /// The device has no such port, or none that an interface can use.
    Port,
    /// The device has several ports, and none was named.
    Ambiguous,
}

/// Finds a port by the name that its device has in `net`, and its number; without a number, the only one.
pub(crate) fn find_named(
    name: &CStr,
    number: Option<u32>,
    net: &Net,
    rtnl: &mut Rtnl,
) -> Result<Arc<Port>, Missing> {
    let ports = PORTS.get(rtnl).iter().map(|entry| &entry.port);
    let mut ports = ports
        .filter(|port| port.shared().is_called(name) && port.device().is_visible(net))
        .peekable();
    let Some(first) = ports.peek() else {
        return Err(Missing::Device);
    };
    let only = first.device().ports().count() == 1;
    let found = match number {
        Some(number) => ports.find(|port| port.number() == number),
        None if only => ports.next(),
        None => return Err(Missing::Ambiguous),
    };
    found.cloned().ok_or(Missing::Port)
}

/// Takes an interface on a port that is to be told of a change, each one once.
fn next_untold(port: &Arc<Port>, rtnl: &mut Rtnl) -> Option<OwnedDevice<Interface>> {
    let mut interfaces = entry_of(port, rtnl)?.interfaces.iter();
    let untold = interfaces.find(|dev| dev.data().untold.xchg(false, Relaxed));
    untold.map(|dev| dev.get_typed())
}

/// Reads the ports of a device, and tells their interfaces.
///
/// # Errors
///
/// `ENOMEM`; some have not been told.
///
/// # Context
///
/// Takes RTNL; sleeps.
pub(crate) fn refresh(device: &RdmaDevice) -> Result {
    let mut ports = KVec::new();
    for entry in PORTS.get(&mut Rtnl::lock()).iter() {
        if entry.port.device().same(device) {
            ports.push(entry.port.clone(), GFP_KERNEL)?;
        }
    }
    for port in ports {
        let moved = port.update();
        if let Some(entry) = entry_of(&port, &mut Rtnl::lock()) {
            for dev in entry.interfaces.iter() {
                dev.data().untold.store(true, Relaxed);
            }
        }
        one_by_one(
            |rtnl| next_untold(&port, rtnl),
            |dev, rtnl| Interface::port_changed(&dev, moved, rtnl),
        );
    }
    Ok(())
}

/// Adds the ports of `device` to the list.
///
/// # Errors
///
/// `EOPNOTSUPP`: there is none that interfaces can use; `ENOMEM`.
pub(crate) fn add_ports(
    device: &RdmaDevice,
    refresher: &Arc<Refresher>,
    shared: &Arc<Shared>,
    members: &Arc<Members>,
) -> Result {
    let mut found = false;
    let layers = device
        .ports()
        .filter_map(|number| Some((number, LinkLayer::of(device, number)?)));
    for port in layers {
        found = true;
        let port = Port::new(device, port, refresher, shared)?;
        let entry = Entry {
            port,
            interfaces: KVec::new(),
            members: members.clone(),
            service: Service::Due,
        };
        PORTS.get(&mut Rtnl::lock()).push(entry, GFP_KERNEL)?;
    }
    if found {
        Ok(())
    } else {
        Err(EOPNOTSUPP)
    }
}

/// Calls `act`, which may take seconds, with each interface that `next` finds. RTNL is released in between: there may be many,
/// and the next may be gone by then.
///
/// # Context
///
/// Without RTNL; sleeps.
pub(super) fn one_by_one(
    mut next: impl FnMut(&mut Rtnl) -> Option<OwnedDevice<Interface>>,
    mut act: impl FnMut(OwnedDevice<Interface>, &mut RtnlGuard),
) {
    loop {
        let mut rtnl = Rtnl::lock();
        let Some(dev) = next(&mut rtnl) else {
            return;
        };
        act(dev, &mut rtnl);
    }
}

/// Takes an interface on a device that goes, or drops its ports once there are none.
fn next_orphan(device: &RdmaDevice, rtnl: &mut Rtnl) -> Option<OwnedDevice<Interface>> {
    let entries = PORTS.get(rtnl);
    let of_device = |entry: &Entry| entry.port.device().same(device);
    let mut orphan = None;
    for entry in entries.iter_mut().filter(|entry| of_device(entry)) {
        entry.service = Service::Closed;
        orphan = orphan.or_else(|| entry.interfaces.pop());
    }
    if orphan.is_some() {
        return orphan;
    }
    entries.retain(|entry| !of_device(entry));
    if entries.is_empty() {
        // Nobody drops a static when the module goes, nor the list's memory with it.
        *entries = KVec::new();
    }
    None
}

/// Drops the ports of `device`, unregisters all their interfaces, and ends their work items.
///
/// # Context
///
/// Without RTNL; sleeps.
pub(crate) fn forget(device: &RdmaDevice, refresher: &Refresher) {
    // An interface takes itself, and its children with it, off the list when it is unregistered.
    one_by_one(
        |rtnl| next_orphan(device, rtnl),
        |dev, rtnl| dev.unregister(rtnl),
    );
    // It may hold the last reference to a port, and so to itself.
    refresher.end();
}
