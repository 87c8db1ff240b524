// SPDX-License-Identifier: GPL-2.0

//! Events of network devices, in all namespaces.

use core::ops::Deref;

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;
use kernel::types::{NotThreadSafe, Opaque};

/// RTNL, until it is dropped, which the task does that took it.
pub struct Rtnl(NotThreadSafe);

impl Rtnl {
    /// Takes RTNL.
    ///
    /// # Context
    ///
    /// Process context without RTNL; may sleep.
    pub fn lock() -> Self {
        // SAFETY: By the context.
        unsafe { bindings::rtnl_lock() };
        Self(NotThreadSafe)
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: It was taken when this was made.
        unsafe { bindings::rtnl_unlock() };
    }
}

/// A listener to events of network devices.
pub trait Follow: Send + Sync + 'static {
    /// Something has happened to a network device, which is there as long as this runs.
    ///
    /// # Context
    ///
    /// Process context, under RTNL.
    fn follow(&self, event: bindings::netdev_cmd, dev: *mut bindings::net_device);
}

/// A registered listener. Dropping this ends that: devices that exist are reported as unregistered before.
pub struct Notifier<F: Follow>(Pin<KBox<Block<F>>>, TextRef);

#[pin_data]
struct Block<F: Follow> {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    #[pin]
    follower: F,
}

// SAFETY: The notifier chain does its own locking for the block; the listener is `Send` and `Sync`.
unsafe impl<F: Follow> Send for Block<F> {}
// SAFETY: As above.
unsafe impl<F: Follow> Sync for Block<F> {}

impl<F: Follow> Notifier<F> {
    /// Registers a listener, which is told of the devices that exist already, too.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context without RTNL.
    pub fn new(follower: impl PinInit<F>) -> Result<Self> {
        let block = KBox::pin_init(
            try_pin_init!(Block {
                block <- Opaque::ffi_init(|slot: *mut bindings::notifier_block| {
                    // SAFETY: `slot` is valid for writes.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(notified::<F>),
                            ..pin_init::zeroed()
                        });
                    }
                }),
                follower <- follower,
            }? Error),
            GFP_KERNEL,
        )?;
        // SAFETY: The block is pinned until `Drop` has unregistered it.
        to_result(unsafe { bindings::register_netdevice_notifier(block.block.get()) })?;
        Ok(Self(block, TextRef::new()))
    }
}

impl<F: Follow> Deref for Notifier<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0.follower
    }
}

impl<F: Follow> Drop for Notifier<F> {
    fn drop(&mut self) {
        // SAFETY: It was registered when this was made.
        unsafe { bindings::unregister_netdevice_notifier(self.0.block.get()) };
    }
}

/// # Safety
///
/// Called by the netdevice notifier chain under RTNL for the block of a [`Block<F>`], with a valid
/// `netdev_notifier_info`.
unsafe extern "C" fn notified<F: Follow>(
    block: *mut bindings::notifier_block,
    event: c_ulong,
    info: *mut c_void,
) -> c_int {
    let field = block.cast::<Opaque<bindings::notifier_block>>();
    // SAFETY: By this function's requirements; who unregisters the block waits for this.
    let block = unsafe { &*kernel::container_of!(field, Block<F>, block) };
    // SAFETY: By this function's requirements.
    let dev = unsafe { (*info.cast::<bindings::netdev_notifier_info>()).dev };
    block.follower.follow(event as bindings::netdev_cmd, dev);
    bindings::NOTIFY_DONE as c_int
}
