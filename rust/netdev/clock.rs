// SPDX-License-Identifier: GPL-2.0

//! Clocks.

use ipoib_sys::bindings;
use kernel::prelude::*;

/// Ticks a second. C defines `HZ` twice, and bindgen knows only that of user space.
const HZ: u64 = bindings::CONFIG_HZ as u64;

// The kernel's own conversion agrees.
const _: () = assert!(
    HZ * bindings::HZ_TO_MSEC_NUM as u64 == 1000 * bindings::HZ_TO_MSEC_DEN as u64,
    "not the ticks of this kernel"
);

// A tick counter of 32 bits wraps, and `sk_buff` has pointers where it has offsets here: Kconfig has
// `depends on 64BIT`.
const _: () = assert!(usize::BITS == 64);

/// Milliseconds since some moment before boot, as exact as a tick.
///
/// # Context
///
/// Any; costs one load.
#[inline]
pub fn now_ms() -> u64 {
    // SAFETY: `jiffies` is always readable; it is a word, so that a volatile read is whole.
    let jiffies = unsafe { core::ptr::read_volatile(&raw const bindings::jiffies) };
    ticks_to_ms::<HZ>(jiffies as u64)
}

/// Milliseconds of so many ticks of `1 / HZ` seconds, rounded down. A product of 64 bits holds the
/// uptime of any machine.
#[inline(always)]
const fn ticks_to_ms<const HZ: u64>(ticks: u64) -> u64 {
    let common = const { gcd(1000, HZ) };
    // Mostly one of the two is 1.
    ticks.wrapping_mul(1000 / common) / (HZ / common)
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

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

#[kunit_tests(rust_netdev_clock)]
mod tests {
    use super::ticks_to_ms;

    /// Every second has 1000 ms, whatever the tick is.
    #[test]
    fn a_second_has_1000_ms() {
        assert_eq!(ticks_to_ms::<100>(100), 1000);
        assert_eq!(ticks_to_ms::<250>(250), 1000);
        assert_eq!(ticks_to_ms::<300>(300), 1000);
        assert_eq!(ticks_to_ms::<1000>(1000), 1000);
        assert_eq!(ticks_to_ms::<1024>(1024), 1000);
    }

    /// The clock moves with every tick that is a millisecond or longer, and never back.
    #[test]
    fn every_tick_counts() {
        for tick in 0..1000 {
            let step = ticks_to_ms::<300>(tick + 1) - ticks_to_ms::<300>(tick);
            assert!(step == 3 || step == 4);
        }
    }

    /// Ticks begin five minutes before 32 bits are full; nothing happens there.
    #[test]
    fn no_jump_where_32_bits_are_full() {
        let full = 1u64 << 32;
        assert_eq!(ticks_to_ms::<1000>(full) - ticks_to_ms::<1000>(full - 1), 1);
        assert_eq!(
            ticks_to_ms::<300>(full) - ticks_to_ms::<300>(full - 300),
            1000
        );
    }
}
