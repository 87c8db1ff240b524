// SPDX-License-Identifier: GPL-2.0

//! Interfaces that nobody made by netlink: those that ports get by themselves, and P_Key children that are made
//! and deleted in sysfs. And what an interface does because its parent does.

use ipoib_netdev::device::{Device, OwnedDevice, RawDevice};
use ipoib_netdev::link::{Home, Kind};
use ipoib_netdev::netdev_log;
use ipoib_netdev::rtnl::{retry, Rtnl, RtnlCell};
use ipoib_netdev::task::{Queue, Run, Task};
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::pkey::PKey;
use ipoib_proto::text;
use ipoib_rdma::Device as RdmaDevice;
use kernel::prelude::*;
use kernel::str::{BStr, CStr};
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::{Interface, Options, Origin};
use crate::base::port::Port;
use crate::ctl::{netlink, ports};

/// The kind of link that they are, while there is one.
static KIND: RtnlCell<Option<Kind<Interface>>> = RtnlCell::new(None);

/// The work item that tends to them later.
static TENDER: RtnlCell<Option<Arc<Task<Tend>>>> = RtnlCell::new(None);

/// Lets interfaces be made until it is dropped, which deletes none.
pub(crate) struct Making(Arc<Task<Tend>>);

impl Making {
    /// Makes none yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Task::new(Tend)?, GFP_KERNEL)?))
    }

    /// Makes interfaces of `kind` from now on; at once those of the ports that there are.
    ///
    /// # Context
    ///
    /// Process context without RTNL; sleeps.
    pub(crate) fn begin(&self, kind: Kind<Interface>) {
        let mut rtnl = Rtnl::lock();
        *KIND.get(&mut rtnl) = Some(kind);
        *TENDER.get(&mut rtnl) = Some(self.0.clone());
        serve(None, &mut rtnl);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut rtnl = Rtnl::lock();
        KIND.get(&mut rtnl).take();
        TENDER.get(&mut rtnl).take();
        drop(rtnl);
        self.0.end();
    }
}

/// Makes and deletes the interfaces that come and go by themselves. Apart from all other work, since whoever deletes
/// a network device waits for work of the system's.
struct Tend;

impl Run for Tend {
    const RECLAIMS: bool = false;

    fn run(&self, _task: &Queue<'_>) {
        bury();
        serve(None, &mut Rtnl::lock());
    }
}

/// Makes and deletes, soon, the interfaces that come and go by themselves.
pub(super) fn tend_soon(rtnl: &mut Rtnl) {
    if let Some(tender) = TENDER.get(rtnl) {
        tender.queue(0);
    }
}

/// Gives each port of `device`, or of all devices, its interface if it is to have one by itself.
pub(super) fn serve(device: Option<&RdmaDevice>, rtnl: &mut Rtnl) {
    if KIND.get(rtnl).is_none() {
        return;
    }
    while let Some(port) = ports::next_unserved(device, rtnl) {
        if let Err(error) = make(&port, rtnl) {
            let number = port.number();
            port.shared().with_name(|name| {
                let name = BStr::from_bytes(name);
                pr_warn!("no interface for port {number} of {name}: {error:?}\n");
            });
        }
    }
}

/// Makes the interface of a port, in the namespace of the RDMA device.
fn make(port: &Arc<Port>, rtnl: &mut Rtnl) -> Result {
    let device = port.device();
    netlink::check_device(device).map_err(|(_, error)| error)?;
    let options = Options {
        parent: None,
        pkey: None,
        mtu: None,
        umcast: false,
        connected: false,
        origin: Origin::Port,
    };
    add(c"ib%d", Home::Net(device.net()), port, &options, rtnl)?;
    Ok(())
}

/// Makes an interface.
pub(super) fn add(
    name: &CStr,
    home: Home<'_>,
    port: &Arc<Port>,
    options: &Options<'_>,
    rtnl: &mut Rtnl,
) -> Result<OwnedDevice<Interface>> {
    let kind = KIND.get(rtnl).clone().ok_or(ENODEV)?;
    let data = Interface::new(port.clone(), options)?;
    kind.make(name, home, data, rtnl)
}

/// The child of `dev` that was made in sysfs for a partition.
fn made_in_sysfs(
    dev: &Device<Interface>,
    pkey: PKey,
    rtnl: &mut Rtnl,
) -> Option<OwnedDevice<Interface>> {
    let mut found = None;
    ports::for_each_beside(dev, rtnl, &mut |other| {
        let data = other.data();
        if data.is_child_of(dev) && data.pkey() == pkey && data.origin == Origin::File {
            found = Some(other.get_typed());
        }
    });
    found
}

/// Makes a child of `dev`, which is named by the P_Key as the user wrote it.
///
/// # Errors
///
/// `ENOTUNIQ` if there is one in that partition, `dev` itself included: who deletes one names its P_Key only;
/// `EINVAL` if the port is not a member; those of [`Kind::make`].
pub(super) fn create(dev: &Device<Interface>, (raw, pkey): (u16, PKey), rtnl: &mut Rtnl) -> Result {
    let this = dev.data();
    if let Some(other) = made_in_sysfs(dev, pkey, rtnl) {
        // One that is about to go still has the name.
        return Err(if other.data().doomed.load(Relaxed) {
            retry()
        } else {
            ENOTUNIQ
        });
    }
    if this.pkey() == pkey {
        return Err(ENOTUNIQ);
    }
    if !netlink::may_be_member(&this.port, pkey) {
        return Err(EINVAL);
    }
    let options = Options {
        parent: Some(dev),
        pkey: Some(pkey),
        mtu: None,
        umcast: false,
        connected: false,
        origin: Origin::File,
    };
    let name = dev.with_name(|parent| text::child_name(parent, raw));
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| EINVAL)?;
    add(name, Home::Of(dev), &this.port, &options, rtnl)?;
    Ok(())
}

/// Deletes the child of `dev` that [`create`] made for a partition: a little later, since whoever deletes an
/// interface may have to wait for one who waits for the file that was written to.
///
/// # Errors
///
/// `ENODEV` if there is none.
pub(super) fn delete(dev: &Device<Interface>, pkey: PKey, rtnl: &mut Rtnl) -> Result {
    let child = made_in_sysfs(dev, pkey, rtnl).ok_or(ENODEV)?;
    if child.data().doomed.xchg(true, Relaxed) {
        return Err(ENODEV);
    }
    tend_soon(rtnl);
    Ok(())
}

/// Deletes the interfaces that are doomed.
///
/// # Context
///
/// Takes RTNL, for one after the other; sleeps.
fn bury() {
    ports::one_by_one(ports::next_doomed, |dev, rtnl| dev.unregister(rtnl));
}

/// Takes the children of `parent` up or down, as it is.
pub(super) fn follow(parent: &RawDevice, up: bool, rtnl: &mut Rtnl) {
    for child in ports::children_of(parent, rtnl) {
        if let Err(error) = child.set_up(up, rtnl) {
            netdev_log!(
                &child,
                Warn,
                limited,
                "cannot follow its parent: {error:?}\n"
            );
        }
    }
}

/// Gives an interface and its children a GUID that a user has chosen. Without it in the port's table, they wait
/// without a carrier until the subnet manager puts it there.
///
/// # Errors
///
/// `EOPNOTSUPP` on RoCE, where a GID is an address of the netdev, and on virtual functions; `EBUSY` while the
/// interface is up; `EINVAL` if more than the GUID is another one.
pub(super) fn set_guid(dev: &Device<Interface>, address: &HwAddr, rtnl: &mut Rtnl) -> Result {
    let this = dev.data();
    if !this.port.is_infiniband() || this.port.device().is_virtual_function() {
        return Err(EOPNOTSUPP);
    }
    if dev.is_running() {
        return Err(EBUSY);
    }
    let guid = HwAddr(dev.address()).change_guid(address).ok_or(EINVAL)?;
    let attributes = this.port.attributes(rtnl);
    this.set_guid(guid, &attributes);
    dev.set_address(address.as_bytes(), rtnl);
    // Peers would send to the address before as long as it seems to work.
    this.moved.store(true, Relaxed);
    for child in ports::children_of(dev, rtnl) {
        child.data().set_guid(guid, &attributes);
        child.data().moved.store(true, Relaxed);
    }
    // Its children take their addresses then.
    this.port.refresh(0);
    Ok(())
}
