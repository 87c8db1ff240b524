// SPDX-License-Identifier: GPL-2.0

//! Operations on address handles.

use ib_fabric::fault::Verb;
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;

use super::holder::limited;
use crate::ah::{address, AddressVector};
use crate::object::fill;

/// Makes an address handle.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn create_ah(
    ah: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_init_attr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with the handle that it makes and its attributes.
        let ((limits, counts), attr) =
            unsafe { (limited((*ah).device, Verb::CreateAh)?, &*(*attr).ah_attr) };
        let address = AddressVector::from_raw(attr)?;
        counts.handles.claim(limits.max_ah)?.keep();
        // SAFETY: It is being made, with the size that the table says.
        unsafe { fill(ah, address) };
        Ok(0)
    })
}

/// Changes an address handle.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn modify_ah(
    ah: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with its handle and the new attributes.
        let address = AddressVector::from_raw(unsafe { &*attr })?;
        // SAFETY: The ULP has to see to it that nobody uses the handle meanwhile. What was there needs no
        // dropping.
        unsafe { fill(ah, address) };
        Ok(0)
    })
}

/// Reads an address handle.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn query_ah(
    ah: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> c_int {
    // SAFETY: RDMA core calls with its handle, and memory for the answer.
    unsafe { attr.write(address(ah).to_raw()) };
    0
}

/// Ends an address handle, of which only memory is to be freed.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with a handle of its device's.
        let (_, counts) = unsafe { limited((*ah).device, Verb::DestroyAh)? };
        counts.handles.release();
        Ok(0)
    })
}
