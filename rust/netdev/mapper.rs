// SPDX-License-Identifier: GPL-2.0

//! A device for the tests of what is mapped for devices.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::from_err_ptr;
use kernel::prelude::*;

/// A registered device that memory can be mapped for, all of it.
///
/// # Invariants
///
/// The device is registered, and this is the only one that unregisters it.
pub struct Mapper(NonNull<bindings::device>);

impl Mapper {
    /// Registers one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EEXIST` if there is one.
    pub fn new() -> Result<Self> {
        // SAFETY: The name is a string; there is no owner.
        let dev = unsafe {
            bindings::__root_device_register(c"ipoib_kunit_dma".as_char_ptr(), ptr::null_mut())
        };
        let dev = NonNull::new(from_err_ptr(dev)?).ok_or(ENOMEM)?;
        // SAFETY: It was just registered, and nobody else uses it.
        unsafe {
            let dev = dev.as_ptr();
            (*dev).coherent_dma_mask = u64::MAX;
            (*dev).dma_mask = &raw mut (*dev).coherent_dma_mask;
        }
        // INVARIANT: It was just registered.
        Ok(Self(dev))
    }

    /// The device, which is registered until this is dropped.
    pub fn as_raw(&self) -> *mut bindings::device {
        self.0.as_ptr()
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariant.
        unsafe { bindings::root_device_unregister(self.0.as_ptr()) };
    }
}
