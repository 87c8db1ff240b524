// SPDX-License-Identifier: GPL-2.0

//! Clocks.

use ipoib_sys::bindings;

/// Milliseconds since some moment before boot, as exact as a tick.
///
/// # Context
///
/// Any; costs one load.
#[inline]
pub fn now_ms() -> u64 {
    // SAFETY: `jiffies` is always readable; it is a word, so that a volatile read is whole.
    let jiffies = unsafe { core::ptr::read_volatile(&raw const bindings::jiffies) };
    (jiffies as u64).wrapping_mul(1000 / u64::from(bindings::HZ))
}

const _: () = assert!(1000 % bindings::HZ == 0);

/// Microseconds since some moment before boot, as exact as the hardware allows.
///
/// # Context
///
/// Any.
#[inline]
pub fn now_us() -> u64 {
    // SAFETY: May be called from anywhere; the monotonic clock is never negative.
    let ns = unsafe { bindings::ktime_get() };
    ns as u64 / 1000
}
