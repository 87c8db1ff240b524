// SPDX-License-Identifier: GPL-2.0

//! Allocations that fail, for tests.

use ipoib_sys::bindings;
use kernel::prelude::*;

/// Calls `f` again and again, each time with another one of its allocations failing, until none does. An allocation that
/// can wait fails where the lab has said so, and in kernels that inject faults. There, an allocation that
/// needs a new slab counts twice.
///
/// # Errors
///
/// Those of `f`, but for `ENOMEM` when an allocation has failed.
pub fn each_allocation_fails(mut f: impl FnMut() -> Result) -> Result {
    for nth in 1.. {
        // SAFETY: Whoever fails to allocate something copes with that.
        let (result, left) = unsafe {
            bindings::ipoib_rs_fail_nth(nth);
            (f(), bindings::ipoib_rs_fail_nth(0))
        };
        match result {
            Ok(()) if left == 0 => {}
            Err(error) if left == 0 && error == ENOMEM => {}
            result => return result,
        }
    }
    Ok(())
}
