// SPDX-License-Identifier: GPL-2.0

//! Parameters of the module that can be written while it runs, under `/sys/module/ipoib_rs/parameters`.

use ipoib_sys::bindings;

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
