// SPDX-License-Identifier: GPL-2.0

//! The interfaces on an RDMA device as the RDMA connection manager looks for them: by a lock of their own, since the
//! holder of RTNL may wait for the connection manager.

use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::pkey::PKey;
use ipoib_rdma::{Found, Sought};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};

use crate::base::interface::Interface;
use crate::base::params;

/// The interfaces on an RDMA device.
#[pin_data]
pub(crate) struct Members {
    #[pin]
    list: Mutex<KVec<OwnedDevice<Interface>>>,
}

impl Members {
    /// None.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds an interface, until [`Members::remove`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add(&self, dev: &Device<Interface>) -> Result {
        Ok(self.list.lock().push(dev.get_typed(), GFP_KERNEL)?)
    }

    /// Removes an interface.
    pub(crate) fn remove(&self, dev: &Device<Interface>) {
        self.list.lock().retain(|other| !other.is(dev));
    }

    /// The interface that a request came to.
    ///
    /// ib_ipoib takes any that has the P_Key and the GID if there is only one, and looks at its IP addresses if
    /// there are several. On a port that both drivers have interfaces on, each would take the other's: so what
    /// counts here is the address, unless ib_ipoib cannot be loaded.
    pub(crate) fn find(&self, sought: &Sought<'_>) -> Option<Found> {
        let list = self.list.lock();
        let mut fitting = list.iter().filter(|dev| fits(dev, sought));
        let by_address = fitting.clone().find_map(|dev| sought.with_address(dev));
        if by_address.is_some() || !params::replace() {
            return by_address;
        }
        let only = fitting.next()?;
        match fitting.next() {
            None => sought.with_any(only),
            Some(_) => None,
        }
    }
}

/// Returns true if an interface has the port, the partition and the GID that are sought.
fn fits(dev: &Device<Interface>, sought: &Sought<'_>) -> bool {
    let this = dev.data();
    let address = HwAddr(dev.address());
    this.port.number() == sought.port
        && PKey::new(sought.pkey).map(PKey::to_full) == Some(this.pkey())
        && sought.gid.is_none_or(|gid| Gid(gid) == address.gid())
}
