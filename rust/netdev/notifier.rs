// SPDX-License-Identifier: GPL-2.0

//! Events of other network devices, in all namespaces.

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;
use kernel::types::Opaque;

use crate::device::RawDevice;
use crate::rtnl::Rtnl;

/// An event of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It was registered, or has arrived in another network namespace.
    Registered,
    /// It has another name.
    Renamed,
    /// It is being unregistered, or leaves its network namespace.
    Unregistered,
    /// Its MTU was changed.
    MtuChanged,
    /// It was taken up.
    Up,
    /// It was taken down.
    Down,
    /// Its carrier or its flags have changed.
    Changed,
    /// Its own address or its broadcast address was set.
    Readdressed,
}

/// Handler of a device's events.
pub trait Listen: Send + Sync + 'static {
    /// `dev` did `event`.
    ///
    /// # Context
    ///
    /// Under RTNL; may sleep, must not wait for one who takes RTNL.
    fn event(&self, dev: &RawDevice, event: Event, rtnl: &mut Rtnl);
}

/// A registered listener. Dropping it ends it; it is told then that the devices that are left are unregistered.
pub struct Registration<L: Listen>(Pin<KBox<Block<L>>>, TextRef);

#[pin_data]
struct Block<L> {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    listener: L,
}

// SAFETY: The notifier chain does its own locking.
unsafe impl<L: Listen> Send for Block<L> {}
// SAFETY: As above.
unsafe impl<L: Listen> Sync for Block<L> {}

impl<L: Listen> Registration<L> {
    /// Registers `listener`, which is told of the devices that exist already, too.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of the notifier chain.
    ///
    /// # Context
    ///
    /// Process context without RTNL.
    pub fn new(listener: L) -> Result<Self> {
        let block = KBox::pin_init(
            try_pin_init!(Block {
                block <- Opaque::ffi_init(|slot: *mut bindings::notifier_block| {
                    // SAFETY: `slot` is valid for writes.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(call::<L>),
                            ..pin_init::zeroed()
                        });
                    }
                }),
                listener,
            }? Error),
            GFP_KERNEL,
        )?;
        // SAFETY: The block is pinned until `Drop` unregistered it.
        to_result(unsafe { bindings::register_netdevice_notifier(block.block.get()) })?;
        Ok(Self(block, TextRef::new()))
    }
}

impl<L: Listen> Drop for Registration<L> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`.
        unsafe { bindings::unregister_netdevice_notifier(self.0.block.get()) };
    }
}

/// # Safety
///
/// Called by the netdevice notifier chain under RTNL for the block of a [`Block<L>`], with a valid
/// `netdev_notifier_info`.
unsafe extern "C" fn call<L: Listen>(
    block: *mut bindings::notifier_block,
    event: c_ulong,
    info: *mut c_void,
) -> c_int {
    let event = match event as bindings::netdev_cmd {
        bindings::netdev_cmd_NETDEV_REGISTER => Event::Registered,
        bindings::netdev_cmd_NETDEV_CHANGENAME => Event::Renamed,
        bindings::netdev_cmd_NETDEV_UNREGISTER => Event::Unregistered,
        bindings::netdev_cmd_NETDEV_CHANGEMTU => Event::MtuChanged,
        bindings::netdev_cmd_NETDEV_UP => Event::Up,
        bindings::netdev_cmd_NETDEV_DOWN => Event::Down,
        bindings::netdev_cmd_NETDEV_CHANGE => Event::Changed,
        bindings::netdev_cmd_NETDEV_CHANGEADDR => Event::Readdressed,
        _ => return bindings::NOTIFY_DONE as c_int,
    };
    let field = Opaque::cast_from(block);
    // SAFETY: By this function's requirements; the device is valid for the call.
    let (block, dev) = unsafe {
        (
            &*kernel::container_of!(field, Block<L>, block),
            RawDevice::from_raw((*info.cast::<bindings::netdev_notifier_info>()).dev),
        )
    };
    // SAFETY: The chain is called under RTNL, by someone whose token, if any, is passed on.
    let mut rtnl = unsafe { Rtnl::assume() };
    block.listener.event(dev, event, &mut rtnl);
    bindings::NOTIFY_DONE as c_int
}
