// SPDX-License-Identifier: GPL-2.0

//! The network devices of Ethernet ports, which lend them names, addresses and states. No frame passes them.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;
use raw_ether::notifier::{Follow, Notifier, Rtnl};

use crate::adapter::Adapter;
use crate::netns::NetdevName;

/// A reference to a network device, until it is dropped.
struct Netdev(NonNull<bindings::net_device>);

impl Netdev {
    /// # Errors
    ///
    /// `ENODEV` if there is none of this name.
    fn find(name: &NetdevName) -> Result<Self> {
        let text = CStr::from_bytes_until_nul(&name.name).map_err(|_| EINVAL)?;
        // SAFETY: The name is a string.
        let dev = unsafe { bindings::rdma_provider_netdev_find(name.netns.0, text.as_char_ptr()) };
        NonNull::new(dev).map(Self).ok_or(ENODEV)
    }
}

impl Drop for Netdev {
    fn drop(&mut self) {
        // SAFETY: The reference was taken by `find`.
        unsafe { bindings::rdma_provider_netdev_put(self.0.as_ptr()) };
    }
}

/// The network devices of an adapter's ports, which has been told of them and hears of their changes. Dropping this ends
/// that; RDMA core lets go of the devices by itself.
pub(crate) struct Netdevs<A: Adapter> {
    _inner: Notifier<Inner<A>>,
}

/// # Invariants
///
/// `device` is there as long as this is, and `adapter` is its adapter.
struct Inner<A: Adapter> {
    device: *mut bindings::ib_device,
    adapter: Arc<A>,
}

// SAFETY: RDMA core and the network core do their own locking for what they are given; the rest is `Send` and `Sync`.
unsafe impl<A: Adapter> Send for Inner<A> {}
// SAFETY: As above.
unsafe impl<A: Adapter> Sync for Inner<A> {}

impl<A: Adapter> Netdevs<A> {
    /// Gives the ports of a device, which is not registered yet, their network devices.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such network device; `EINVAL` if it is not Ethernet, or is a VLAN; `EBUSY` if another RDMA
    /// device has it; `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The device has to stay until this is dropped, and `adapter` has to be its adapter.
    ///
    /// # Context
    ///
    /// Process context without RTNL.
    pub(crate) unsafe fn new(device: *mut bindings::ib_device, adapter: &Arc<A>) -> Result<Self> {
        let adapter = adapter.clone();
        // From here on, nothing that happens to the network devices is missed.
        // INVARIANT: By the safety requirement.
        let inner = Notifier::new(Inner { device, adapter })?;
        inner.attach()?;
        Ok(Self { _inner: inner })
    }
}

impl<A: Adapter> Inner<A> {
    fn attach(&self) -> Result {
        let _rtnl = Rtnl::lock();
        for port in 1..=self.adapter.ports() {
            let netdev = Netdev::find(&self.adapter.netdev(port).ok_or(EINVAL)?)?;
            let dev = netdev.0.as_ptr();
            // SAFETY: The device is there, by the reference.
            to_result(unsafe { bindings::rdma_provider_netdev_check(dev) })?;
            // SAFETY: By the type invariant; the port is one of the device's. RDMA core takes a reference of its own.
            to_result(unsafe { bindings::ib_device_set_netdev(self.device, dev, port.into()) })?;
            self.tell(port, dev);
        }
        Ok(())
    }

    /// Tells the adapter of the state of a port's network device.
    fn tell(&self, port: u8, dev: *mut bindings::net_device) {
        // SAFETY: The callers have the device, which is there.
        let mtu = unsafe { bindings::rdma_provider_netdev_mtu(dev) };
        self.adapter.netdev_changed(port, (mtu > 0).then_some(mtu));
    }
}

impl<A: Adapter> Follow for Inner<A> {
    fn follow(&self, event: bindings::netdev_cmd, dev: *mut bindings::net_device) {
        for port in 1..=self.adapter.ports() {
            // SAFETY: By the type invariant; the pointers are compared only.
            let ours = unsafe { bindings::rdma_provider_is_netdev(self.device, port.into(), dev) };
            if !ours {
                continue;
            }
            if event == bindings::netdev_cmd_NETDEV_UNREGISTER {
                // SAFETY: By the type invariant. RDMA core gives its reference back, for which the network core waits.
                unsafe {
                    bindings::ib_device_set_netdev(self.device, ptr::null_mut(), port.into())
                };
                self.adapter.netdev_changed(port, None);
            } else {
                self.tell(port, dev);
            }
        }
    }
}
