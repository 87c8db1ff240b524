// SPDX-License-Identifier: GPL-2.0

//! The mode of a device in sysfs: `/sys/class/net/<interface>/mode`.

use ipoib_sys::bindings;
use kernel::error::{from_result, VTABLE_DEFAULT_ERROR};
use kernel::ffi::{c_char, c_int};
use kernel::prelude::*;
use kernel::str::CStr;

use crate::device::{Device, Driver};
use crate::rtnl::Rtnl;

/// A driver whose devices may have a mode that can be read and written; without, there is no file.
#[vtable]
pub trait Modes: Driver {
    /// Returns the mode that the device is in.
    ///
    /// # Context
    ///
    /// Process context, without any lock. Must not wait for RTNL, whose holder may wait for this.
    fn mode(_dev: &Device<Self>) -> &'static CStr {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes the mode to `mode`: what was written, without the newline at its end.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no mode, and whatever forbids this one; nothing has changed then.
    fn set_mode(_dev: &Device<Self>, _mode: &[u8], _rtnl: &mut Rtnl) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// # Safety
///
/// Called for the file of a device of `T`'s that is registered.
pub(crate) unsafe extern "C" fn mode<T: Modes>(dev: *mut bindings::net_device) -> *const c_char {
    // SAFETY: By this function's requirements.
    T::mode(unsafe { Device::<T>::from_raw(dev) }).as_char_ptr()
}

/// # Safety
///
/// As [`mode`], in a system call that does not hold RTNL, with the `len` bytes written.
pub(crate) unsafe extern "C" fn set_mode<T: Modes>(
    dev: *mut bindings::net_device,
    text: *const c_char,
    len: usize,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let (dev, text) = unsafe {
            (
                Device::<T>::from_raw(dev),
                core::slice::from_raw_parts(text.cast::<u8>(), len),
            )
        };
        let mode = text.strip_suffix(b"\n").unwrap_or(text);
        // Waiting for RTNL would be waiting for one who may wait for us, to remove the file.
        let Some(mut rtnl) = Rtnl::try_lock() else {
            // SAFETY: We are in a system call.
            return Ok(unsafe { bindings::ipoib_rs_restart_syscall() });
        };
        // SAFETY: The device is valid.
        if !unsafe { bindings::ipoib_rs_netdev_registered(dev.as_raw()) } {
            return Err(ENODEV);
        }
        T::set_mode(dev, mode, &mut rtnl)?;
        Ok(0)
    })
}
