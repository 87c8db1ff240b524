// SPDX-License-Identifier: GPL-2.0

//! A device's own address, and that of its broadcast group.

use ipoib_sys::bindings;

use crate::device::{Device, Driver};
use crate::rtnl::Rtnl;

impl<T: Driver> Device<T> {
    /// Sets the device's own address; before or during registration, and in [`Driver::take_address`].
    pub fn set_address(&self, address: &T::Address, _rtnl: &mut Rtnl) {
        // SAFETY: RTNL is held, and `addr_len` is the address's by `setup`.
        unsafe {
            bindings::ipoib_rs_netdev_set_addr(self.as_raw(), core::ptr::from_ref(address).cast())
        };
    }

    /// The device's own address. Without RTNL, somebody may just be giving it another one.
    pub fn address(&self) -> T::Address {
        // SAFETY: The device is allocated, and an array of bytes, of whatever values, is an address.
        unsafe {
            (*self.as_raw())
                .dev_addr
                .cast::<T::Address>()
                .read_volatile()
        }
    }

    /// Changes the device's own address, if it is another one, and tells the stack, if the device is registered. A bond
    /// that has the address of this device gets the new one.
    pub fn change_address(&self, address: &T::Address, rtnl: &mut Rtnl) {
        let before = self.address();
        if before == *address {
            return;
        }
        self.set_address(address, rtnl);
        if !self.is_registered(rtnl) {
            return;
        }
        // SAFETY: RTNL is held, and the device is registered, so that its namespace is there; `addr_len` is the
        // address's by `setup`.
        unsafe {
            bindings::call_netdevice_notifiers(
                bindings::netdev_cmd_NETDEV_CHANGEADDR as usize,
                self.as_raw(),
            );
            bindings::ipoib_rs_netdev_bond_follows(
                self.as_raw(),
                core::ptr::from_ref(&before).cast(),
            );
        }
    }

    /// Has IPv6 make interface identifiers of the GUID in the device's own address, or at random where another interface on
    /// the link makes them of the same GUID. Returns true if they are at random for that. `random` is what was returned
    /// the last time, or false if IPv6 has begun on the device since then: what a user has chosen since then stays.
    ///
    /// For devices of type `ARPHRD_INFINIBAND`.
    pub fn distinguish(&self, random: bool, _rtnl: &mut Rtnl) -> bool {
        // SAFETY: RTNL is held.
        unsafe { bindings::ipoib_rs_ipv6_distinguish(self.as_raw(), random) }
    }

    /// Lets the stack announce our address to the neighbours, if the device is registered.
    pub fn notify_peers(&self, rtnl: &mut Rtnl) {
        if self.is_registered(rtnl) {
            // SAFETY: As above.
            unsafe { bindings::__netdev_notify_peers(self.as_raw()) };
        }
    }

    /// The broadcast address, which a user may have changed.
    pub fn broadcast(&self, _rtnl: &mut Rtnl) -> T::Address {
        // SAFETY: RTNL is held, there is room for any address, and bytes of whatever values are one.
        unsafe {
            (&raw const (*self.as_raw()).broadcast)
                .cast::<T::Address>()
                .read()
        }
    }

    /// Sets the broadcast address; before or during registration, when a user has set another one
    /// ([`Event::Readdressed`](crate::notifier::Event::Readdressed)), and in [`Self::change_broadcast`].
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
        // Neighbours of multicast groups that were made since the first event have addresses made of the old broadcast address.
        tell(bindings::netdev_cmd_NETDEV_CHANGEADDR);
    }
}
