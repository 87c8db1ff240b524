// SPDX-License-Identifier: GPL-2.0

//! A device for the tests of what is mapped for devices.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::atomic::{Atomic, Relaxed};

/// A registered device that memory can be mapped for, all of it. It finds memory at other addresses than the CPU does.
///
/// # Invariants
///
/// The device is registered, and this is the only one that unregisters it.
pub struct Mapper(NonNull<bindings::device>);

impl Mapper {
    /// Registers one, with a name that is not used again: a test that fails leaves its device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        static MADE: Atomic<u32> = Atomic::new(0);

        let number = MADE.fetch_add(1, Relaxed);
        let name = CString::try_from_fmt(fmt!("kunit_dma{number}"))?;
        // SAFETY: The name is a string; there is no owner.
        let dev = unsafe { bindings::__root_device_register(name.as_char_ptr(), ptr::null_mut()) };
        let dev = NonNull::new(from_err_ptr(dev)?).ok_or(ENOMEM)?;
        // INVARIANT: It was just registered.
        let mapper = Self(dev);
        // SAFETY: As above, and nobody else uses it.
        to_result(unsafe {
            let dev = dev.as_ptr();
            (*dev).coherent_dma_mask = u64::MAX;
            (*dev).dma_mask = &raw mut (*dev).coherent_dma_mask;
            bindings::ipoib_rs_dma_move(dev)
        })?;
        Ok(mapper)
    }

    /// The device, which is registered until this is dropped.
    pub fn as_raw(&self) -> *mut bindings::device {
        self.0.as_ptr()
    }

    /// Returns where the CPU finds what the device finds at `addr`; None if there is no memory.
    pub fn find(&self, addr: u64) -> Option<NonNull<u8>> {
        // SAFETY: The device is registered by the type invariant, and was moved.
        let va = unsafe { bindings::ipoib_rs_dma_find(self.as_raw(), addr) };
        NonNull::new(va.cast())
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariant.
        unsafe { bindings::root_device_unregister(self.0.as_ptr()) };
    }
}
