// SPDX-License-Identifier: GPL-2.0

//! Operations on memory regions, and the ends of queues, that may fail.

use ib_fabric::fault::Verb;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::sync::Arc;

use super::super::object::own;
use super::super::{cq, mr, srq};
use super::faults;
use crate::cq::Cq;
use crate::srq::Srq;

/// Makes a memory region of all memory.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn get_dma_mr(
    pd: *mut bindings::ib_pd,
    flags: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: RDMA core calls with its protection domain.
    match unsafe { faults((*pd).device) }.strike(Verb::GetDmaMr) {
        Err(e) => e.to_ptr(),
        // SAFETY: By this function's requirements.
        Ok(()) => unsafe { mr::get_dma_mr(pd, flags) },
    }
}

/// Makes a memory region that send requests open and close.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn alloc_mr(
    pd: *mut bindings::ib_pd,
    kind: bindings::ib_mr_type,
    most: u32,
) -> *mut bindings::ib_mr {
    // SAFETY: RDMA core calls with its protection domain.
    match unsafe { faults((*pd).device) }.strike(Verb::AllocMr) {
        Err(e) => e.to_ptr(),
        // SAFETY: By this function's requirements.
        Ok(()) => unsafe { mr::alloc_mr(pd, kind, most) },
    }
}

/// Ends a memory region.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn dereg_mr(
    mr: *mut bindings::ib_mr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: RDMA core calls with its region.
    if let Err(e) = unsafe { faults((*mr).device) }.strike(Verb::DeregMr) {
        // SAFETY: RDMA core calls with its region, which is not freed yet.
        unsafe { mr::close(mr) };
        return e.to_errno();
    }
    // SAFETY: By this function's requirements.
    unsafe { mr::dereg_mr(mr, udata) }
}

/// Ends a completion queue.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn destroy_cq(
    cq: *mut bindings::ib_cq,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: RDMA core calls with its queue, which nobody uses any more.
    let (faults, own) = unsafe { (faults((*cq).device), own::<_, Arc<Cq>>(cq)) };
    if let Err(e) = faults.strike(Verb::DestroyCq) {
        if let Some(own) = own {
            own.close();
        }
        return e.to_errno();
    }
    // SAFETY: By this function's requirements.
    unsafe { cq::destroy_cq(cq, udata) }
}

/// Ends a shared receive queue.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn destroy_srq(
    srq: *mut bindings::ib_srq,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: RDMA core calls with its queue, which nobody uses any more.
    let (faults, own) = unsafe { (faults((*srq).device), own::<_, Arc<Srq>>(srq)) };
    if let Err(e) = faults.strike(Verb::DestroySrq) {
        if let Some(own) = own {
            own.close();
        }
        return e.to_errno();
    }
    // SAFETY: By this function's requirements.
    unsafe { srq::destroy_srq(srq, udata) }
}
