// SPDX-License-Identifier: GPL-2.0

//! The stack goes on with a device behind a callback, so that none unregisters it.

use ipoib_netdev::device::OwnedDevice;
use ipoib_netdev::link::Link;
use ipoib_netdev::rtnl::Rtnl;

/// A callback, which has a token and no guard.
fn open<T: Link>(dev: OwnedDevice<T>, rtnl: &mut Rtnl) {
    #[cfg(misuse)]
    dev.unregister(rtnl); //~ E0308
    #[cfg(not(misuse))]
    let _ = (dev, rtnl);
}

fn end<T: Link>(dev: OwnedDevice<T>) {
    dev.unregister(&mut Rtnl::lock());
}
