// SPDX-License-Identifier: GPL-2.0

//! Objects that bear a device's name: sysctls and files in debugfs, which follow it through renaming
//! and from one network namespace to another.

use core::marker::PhantomData;

use ipoib_sys::bindings;
use kernel::prelude::*;

use crate::debugfs::{self, Dir, Inspect};
use crate::device::{Device, RawDevice};
use crate::link::{self, Link};
use crate::netdev_log;
use crate::notifier::{self, Event, Listen};
use crate::rtnl::Rtnl;
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
    _watch: notifier::Registration<Watch<T>>,
    kinds: KVec<link::Registration<T>>,
}

struct Watch<T> {
    /// The link kinds, which tell our devices from others.
    ops: KVec<*const bindings::rtnl_link_ops>,
    root: Dir,
    _driver: PhantomData<fn() -> T>,
}

// SAFETY: `ops` are only compared.
unsafe impl<T> Send for Watch<T> {}
// SAFETY: As above.
unsafe impl<T> Sync for Watch<T> {}

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
        let watch = notifier::Registration::new(Watch {
            ops,
            root: Dir::new(T::NAME),
            _driver: PhantomData,
        })?;
        Ok(Self {
            _watch: watch,
            kinds,
        })
    }

    /// The last of the kinds, for those who make devices of it.
    pub fn kind(&self) -> Option<link::Kind<T>> {
        Some(self.kinds.last()?.kind())
    }
}

impl<T: Tunable + Inspect + Link> Listen for Watch<T> {
    fn event(&self, dev: &RawDevice, event: Event, _rtnl: &mut Rtnl) {
        // SAFETY: The device is valid for the call.
        let ops = unsafe { (*dev.as_raw()).rtnl_link_ops };
        let make = matches!(event, Event::Registered | Event::Renamed);
        if !self.ops.contains(&ops) || !(make || event == Event::Unregistered) {
            return;
        }
        // SAFETY: A device of a kind that `T` registered, between `init` and `uninit`, where its
        // private area is filled.
        let dev = unsafe { Device::<T>::from_raw(dev.as_raw()) };
        // SAFETY: RTNL is held, which protects the slot, and nobody has a reference to its content.
        let slot = unsafe { &mut *dev.named() };
        *slot = None;
        if make {
            // SAFETY: They are removed above at the event that precedes either.
            let named = unsafe { Named::new(&self.root, dev) };
            match KBox::new(named, GFP_KERNEL) {
                Ok(named) => *slot = Some(named),
                Err(error) => {
                    netdev_log!(dev, Warn, "no sysctls and files in debugfs: {error:?}\n");
                }
            }
        }
    }
}
