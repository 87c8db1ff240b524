// SPDX-License-Identifier: GPL-2.0

//! Operations on protection domains.

use ib_fabric::fault::Verb;
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::holder::limited;
use crate::domain::Domain;
use crate::object::{fill, own, take};

/// The domain that a protection domain of RDMA core's stands for.
///
/// # Safety
///
/// `pd` has to be one of a device of this crate's.
pub(super) unsafe fn domain(pd: *const bindings::ib_pd) -> Result<Arc<Domain>> {
    // SAFETY: By the safety requirement.
    let domain = unsafe { own::<_, Arc<Domain>>(pd) };
    domain.cloned().ok_or(EINVAL)
}

/// Makes a protection domain.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn alloc_pd(
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with the domain that its device makes.
        let (limits, counts) = unsafe { limited((*pd).device, Verb::AllocPd)? };
        let claim = counts.domains.claim(limits.max_pd)?;
        let domain = Domain::new()?;
        // SAFETY: It is being made, with the size that the table says.
        unsafe { fill(pd, domain) };
        claim.keep();
        Ok(0)
    })
}

/// Ends a protection domain.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn dealloc_pd(
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with its device's protection domain.
        let (_, counts) = unsafe { limited((*pd).device, Verb::DeallocPd)? };
        // SAFETY: Nobody uses it any more.
        drop(unsafe { take::<_, Arc<Domain>>(pd) });
        counts.domains.release();
        Ok(0)
    })
}
