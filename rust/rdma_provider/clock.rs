// SPDX-License-Identifier: GPL-2.0

//! The clock of connections.

use ipoib_sys::bindings;

/// Nanoseconds since the machine was started.
pub fn now() -> u64 {
    // SAFETY: It may be called in any context.
    let time = unsafe { bindings::ktime_get() };
    u64::try_from(time).unwrap_or(0)
}
