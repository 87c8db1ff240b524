// SPDX-License-Identifier: GPL-2.0

//! Parameters of the module that `module!` cannot declare: one that can be written while it runs, under
//! `/sys/module/ipoib_rs/parameters`, and a string.

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::str::CStr;

/// How many connections all interfaces on an RDMA device may have together: 1 to 65536.
///
/// # Context
///
/// Any; costs one load.
#[inline]
pub fn rc_max_device_connections() -> u32 {
    // SAFETY: Reads a variable that is always there.
    unsafe { bindings::ipoib_rs_rc_max_device_connections() }
}

/// The ports that get an interface by themselves, if the parameter was given.
// In line, so that a module without the parameter can link this crate.
#[inline]
pub fn ports() -> Option<&'static CStr> {
    // SAFETY: Reads a variable that is always there, and does not change after the module was loaded.
    let ports = unsafe { bindings::ipoib_rs_ports() };
    // SAFETY: A string that is kept for as long as the module.
    (!ports.is_null()).then(|| unsafe { CStr::from_char_ptr(ports) })
}
