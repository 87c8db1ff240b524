// SPDX-License-Identifier: GPL-2.0

//! Allocations that fail, for tests.

use ipoib_sys::bindings;
use kernel::prelude::*;

use crate::live::skip;

/// Calls `f` with its `nth` allocation failing. Returns true beside its result if that has been. An allocation that
/// can wait fails where the lab has said so, and in kernels that inject faults. There, an allocation that
/// needs a new slab counts twice.
pub fn with_failing<T>(nth: u32, f: impl FnOnce() -> T) -> (T, bool) {
    // SAFETY: Whoever fails to allocate something copes with that.
    unsafe {
        bindings::ipoib_rs_fail_nth(nth);
        let result = f();
        (result, bindings::ipoib_rs_fail_nth(0) == 0)
    }
}

/// Marks the running test as skipped: nothing has failed.
pub fn none_failed() {
    skip(c"no allocation fails: no FAILSLAB, or its ignore-gfp-wait is Y");
}

/// Calls `f` again and again, each time with another one of its allocations failing, until none does. The test is skipped if
/// the first one cannot be made to.
///
/// # Errors
///
/// Those of `f`, but for `ENOMEM` when an allocation has failed.
pub fn each_allocation_fails(mut f: impl FnMut() -> Result) -> Result {
    for nth in 1.. {
        let (result, failed) = with_failing(nth, &mut f);
        if failed && matches!(result, Ok(()) | Err(ENOMEM)) {
            continue;
        }
        if nth == 1 && !failed {
            none_failed();
        }
        return result;
    }
    Ok(())
}
