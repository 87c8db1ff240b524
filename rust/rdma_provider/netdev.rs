// SPDX-License-Identifier: GPL-2.0

//! The network devices of Ethernet ports, which lend them names, addresses and states. No frame passes them.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;

use crate::adapter::Adapter;

/// A network namespace, which need not exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Netns(u64);

impl Netns {
    /// That of the current task.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn current() -> Self {
        // SAFETY: The current task has namespaces, as it is not exiting.
        Self(unsafe { bindings::rdma_provider_netns() })
    }
}

/// A network device by its name.
#[derive(Clone, Copy, Debug)]
pub struct NetdevName {
    /// The name, with a zero behind it.
    pub name: [u8; 16],
    /// The network namespace in which it has that name.
    pub netns: Netns,
}

/// RTNL, until it is dropped.
struct Rtnl;

impl Rtnl {
    fn lock() -> Self {
        // SAFETY: The callers are in process context without RTNL.
        unsafe { bindings::rtnl_lock() };
        Self
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: It was taken when this was made.
        unsafe { bindings::rtnl_unlock() };
    }
}

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
pub(crate) struct Netdevs<A: Adapter>(Pin<KBox<Inner<A>>>);

/// # Invariants
///
/// `device` is there as long as this is, and `adapter` is its adapter.
#[pin_data]
struct Inner<A: Adapter> {
    #[pin]
    events: Opaque<bindings::notifier_block>,
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
        // INVARIANT: By the safety requirement.
        let inner = KBox::pin_init(
            try_pin_init!(Inner {
                events <- Opaque::ffi_init(|slot: *mut bindings::notifier_block| {
                    // SAFETY: `slot` is valid for writes.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(notified::<A>),
                            ..pin_init::zeroed()
                        });
                    }
                }),
                device,
                adapter,
            }? Error),
            GFP_KERNEL,
        )?;
        // From here on, nothing that happens to the network devices is missed.
        // SAFETY: The block is pinned until `Drop` has unregistered it.
        to_result(unsafe { bindings::register_netdevice_notifier(inner.events.get()) })?;
        let netdevs = Self(inner);
        netdevs.0.attach()?;
        Ok(netdevs)
    }
}

impl<A: Adapter> Drop for Netdevs<A> {
    fn drop(&mut self) {
        // SAFETY: It was registered when this was made.
        unsafe { bindings::unregister_netdevice_notifier(self.0.events.get()) };
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

    /// Follows an event of a network device, which may be that of a port.
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

/// # Safety
///
/// Called by the netdevice notifier chain under RTNL for the block of an [`Inner<A>`], with a valid
/// `netdev_notifier_info`.
unsafe extern "C" fn notified<A: Adapter>(
    block: *mut bindings::notifier_block,
    event: c_ulong,
    info: *mut c_void,
) -> c_int {
    let field = block.cast::<Opaque<bindings::notifier_block>>();
    // SAFETY: By this function's requirements; who unregisters the block waits for this.
    let inner = unsafe { &*kernel::container_of!(field, Inner<A>, events) };
    // SAFETY: By this function's requirements.
    let dev = unsafe { bindings::rdma_provider_notified(info) };
    inner.follow(event as bindings::netdev_cmd, dev);
    bindings::NOTIFY_DONE as c_int
}
