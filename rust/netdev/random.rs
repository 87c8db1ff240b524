// SPDX-License-Identifier: GPL-2.0

//! Random numbers.

use ipoib_sys::bindings;

/// `N` numbers that nobody can guess.
pub fn random<const N: usize>() -> [u64; N] {
    let mut numbers = [0u64; N];
    // SAFETY: The array is valid for writes of its own size.
    unsafe {
        bindings::get_random_bytes(
            numbers.as_mut_ptr().cast(),
            core::mem::size_of_val(&numbers),
        );
    }
    numbers
}
