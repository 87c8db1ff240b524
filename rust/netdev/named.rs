// SPDX-License-Identifier: GPL-2.0

//! Objects that bear a device's name: sysctls and files in debugfs, which follow it through renaming
//! and from one network namespace to another.

use core::marker::PhantomData;

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;
use kernel::types::Opaque;

use crate::debugfs::{self, Dir, Inspect};
use crate::device::Device;
use crate::link::{self, Link};
use crate::netdev_log;
use crate::sysctl::{self, Tunable};

/// The directories of a device.
pub(crate) struct Named {
    _sysctls: Option<sysctl::Directory>,
    _files: Option<debugfs::Directory>,
}

impl Named {
    /// Creates those that can be created, and logs the others.
    ///
    /// # Safety
    ///
    /// The result must be dropped before the device is unregistered or moves to another namespace.
    unsafe fn new<T: Tunable + Inspect>(root: &Dir, dev: &Device<T>) -> Self {
        // SAFETY: By the requirements.
        let sysctls = unsafe { sysctl::Directory::new(dev) };
        if let Err(error) = &sysctls {
            netdev_log!(dev, Warn, "no sysctls: {error:?}\n");
        }
        let files = debugfs::Directory::new(root, dev);
        if let Err(error) = &files {
            netdev_log!(dev, Warn, "no files in debugfs: {error:?}\n");
        }
        Self {
            _sysctls: sysctls.ok(),
            _files: files.ok(),
        }
    }
}

/// Creates and removes the sysctls and debugfs files of a driver's devices. Dropping it removes all of
/// them, and then unregisters the kinds.
///
/// The order of the fields is that of their ends.
pub struct Registration<T: Tunable + Inspect + Link> {
    watch: Pin<KBox<Watch>>,
    kinds: KVec<link::Registration<T>>,
    _driver: PhantomData<T>,
}

#[pin_data]
struct Watch {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    /// The link kinds, which tell our devices from others.
    ops: KVec<*const bindings::rtnl_link_ops>,
    root: Dir,
}

// SAFETY: The notifier chain does its own locking, `ops` are only compared, and `root` is only used
// by the chain's callback.
unsafe impl Send for Watch {}
// SAFETY: As above.
unsafe impl Sync for Watch {}

impl<T: Tunable + Inspect + Link> Registration<T> {
    /// Registers the notifier for devices of `kinds`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of the notifier chain.
    ///
    /// # Context
    ///
    /// Process context without RTNL.
    pub fn new(kinds: KVec<link::Registration<T>>) -> Result<Self> {
        let mut ops = KVec::with_capacity(kinds.len(), GFP_KERNEL)?;
        for kind in &kinds {
            ops.push(kind.as_raw(), GFP_KERNEL)?;
        }
        let watch = KBox::pin_init(
            try_pin_init!(Watch {
                block <- Opaque::ffi_init(|slot: *mut bindings::notifier_block| {
                    // SAFETY: `slot` is valid for writes.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(call::<T>),
                            ..pin_init::zeroed()
                        });
                    }
                }),
                ops,
                root: Dir::new(T::NAME),
            }? Error),
            GFP_KERNEL,
        )?;
        // SAFETY: The block is pinned until `Drop` unregistered it.
        to_result(unsafe { bindings::register_netdevice_notifier(watch.block.get()) })?;
        Ok(Self {
            watch,
            kinds,
            _driver: PhantomData,
        })
    }
}

impl<T: Tunable + Inspect + Link> Registration<T> {
    /// The last of the kinds, for those who make devices of it.
    pub fn kind(&self) -> Option<link::Kind<T>> {
        Some(self.kinds.last()?.kind())
    }
}

impl<T: Tunable + Inspect + Link> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`. All devices that are left are reported as unregistered.
        unsafe { bindings::unregister_netdevice_notifier(self.watch.block.get()) };
    }
}

/// # Safety
///
/// Called by the netdevice notifier chain under RTNL for the block of a [`Watch`], with a valid
/// `netdev_notifier_info`.
unsafe extern "C" fn call<T: Tunable + Inspect>(
    block: *mut bindings::notifier_block,
    event: c_ulong,
    info: *mut c_void,
) -> c_int {
    let field = Opaque::cast_from(block);
    // SAFETY: By this function's requirements.
    let (watch, dev) = unsafe {
        (
            &*kernel::container_of!(field, Watch, block),
            (*info.cast::<bindings::netdev_notifier_info>()).dev,
        )
    };
    // SAFETY: The device is valid for the call.
    let ops = unsafe { (*dev).rtnl_link_ops };
    if !watch.ops.contains(&ops) {
        return bindings::NOTIFY_DONE as c_int;
    }
    // SAFETY: A device of a kind that `T` registered, between `init` and `uninit`, where its
    // private area is filled.
    let dev = unsafe { Device::<T>::from_raw(dev) };
    let (remove, make) = match event as bindings::netdev_cmd {
        bindings::netdev_cmd_NETDEV_REGISTER => (true, true),
        bindings::netdev_cmd_NETDEV_CHANGENAME => (true, true),
        bindings::netdev_cmd_NETDEV_UNREGISTER => (true, false),
        _ => (false, false),
    };
    // SAFETY: RTNL is held, which protects the slot, and nobody has a reference to its content.
    let slot = unsafe { &mut *dev.named() };
    if remove {
        *slot = None;
    }
    if make {
        // SAFETY: Removed above at the event that precedes either.
        let named = unsafe { Named::new(&watch.root, dev) };
        match KBox::new(named, GFP_KERNEL) {
            Ok(named) => *slot = Some(named),
            Err(error) => {
                netdev_log!(dev, Warn, "no sysctls and files in debugfs: {error:?}\n");
            }
        }
    }
    bindings::NOTIFY_DONE as c_int
}
