// SPDX-License-Identifier: GPL-2.0

//! The clock of connections, and that on the wall.

use ipoib_sys::bindings;

/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;

/// Nanoseconds since 1970.
pub fn wall_clock() -> u64 {
    // SAFETY: It may be called in any context.
    let time = unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_REAL) };
    u64::try_from(time).unwrap_or(0)
}

/// Nanoseconds since the machine was started.
pub fn now() -> u64 {
    // SAFETY: It may be called in any context.
    let time = unsafe { bindings::ktime_get() };
    u64::try_from(time).unwrap_or(0)
}
