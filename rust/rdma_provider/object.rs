// SPDX-License-Identifier: GPL-2.0

//! Memory of RDMA core's objects, and answers to who uses them.

use kernel::ffi::c_int;
use kernel::prelude::*;

/// Memory of an object of RDMA core's, which allocates it zeroed.
///
/// # Invariants
///
/// Between the return of the operation that made the object and the call of the one that destroys it, `own` is
/// `Some`.
#[repr(C)]
pub(crate) struct Object<C, T> {
    core: C,
    own: Option<T>,
}

/// Sets what an object keeps.
///
/// # Safety
///
/// `object` has to be one of RDMA core's that is being made, with room for `Object<C, T>`.
pub(crate) unsafe fn fill<C, T>(object: *mut C, own: T) {
    // SAFETY: By the safety requirement. What was there was never a value.
    unsafe { (&raw mut (*object.cast::<Object<C, T>>()).own).write(Some(own)) };
}

/// The value that an object keeps.
///
/// # Safety
///
/// `object` has to be one of this crate's that was made and is not being destroyed, for `'a`.
pub(crate) unsafe fn own<'a, C, T>(object: *const C) -> Option<&'a T> {
    // SAFETY: By the safety requirement and the type invariant.
    unsafe { (*object.cast::<Object<C, T>>()).own.as_ref() }
}

/// Takes that value, before RDMA core frees the object.
///
/// # Safety
///
/// As for [`own`], and nobody else may have the object.
pub(crate) unsafe fn take<C, T>(object: *mut C) -> Option<T> {
    // SAFETY: By the safety requirement and the type invariant.
    unsafe { (*object.cast::<Object<C, T>>()).own.take() }
}

/// Tells a ULP which of the requests that it has posted was refused, if one was.
///
/// # Safety
///
/// `bad` has to be the place that the ULP has for it.
pub(crate) unsafe fn posted<R>(
    result: Result<(), (Error, *const R)>,
    bad: *mut *const R,
) -> Result<c_int> {
    result.map_err(|(e, at)| {
        // SAFETY: By the safety requirement.
        unsafe { *bad = at };
        e
    })?;
    Ok(0)
}
