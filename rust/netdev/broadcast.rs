// SPDX-License-Identifier: GPL-2.0

//! The broadcast address of a device.

use ipoib_sys::bindings;

use crate::device::{Device, Driver};
use crate::rtnl::Rtnl;

impl<T: Driver> Device<T> {
    /// Sets the broadcast address; before or during registration, and in [`Self::change_broadcast`].
    pub fn set_broadcast(&self, address: &T::Address, _rtnl: &mut Rtnl) {
        // SAFETY: RTNL is held, and there is room for any address.
        unsafe {
            (&raw mut (*self.as_raw()).broadcast)
                .cast::<T::Address>()
                .write(*address)
        };
    }

    /// Changes the broadcast address of a device that is registered. The stack makes the addresses of its multicast groups of
    /// it, and puts other ones into the list in their place.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn change_broadcast(&self, address: &T::Address, rtnl: &mut Rtnl) {
        if !self.is_registered(rtnl) {
            return;
        }
        let tell = |event: bindings::netdev_cmd| {
            // SAFETY: RTNL is held, and the device is registered. A listener that refuses stops nothing: the type of the
            // device stays as it is.
            unsafe { bindings::call_netdevice_notifiers(event as usize, self.as_raw()) };
        };
        tell(bindings::netdev_cmd_NETDEV_PRE_TYPE_CHANGE);
        self.set_broadcast(address, rtnl);
        tell(bindings::netdev_cmd_NETDEV_POST_TYPE_CHANGE);
    }
}
