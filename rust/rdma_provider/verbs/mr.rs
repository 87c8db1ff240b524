// SPDX-License-Identifier: GPL-2.0

//! Operations on memory regions.

use ib_fabric::fault::Verb;
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_int, c_uint};
use kernel::prelude::*;
use kernel::sync::Arc;

use super::holder::{faults, limited};
use super::pd::domain;
use crate::attributes::MAX_PAGES;
use crate::domain::Domain;
use crate::region::Region;

/// Memory of a region of RDMA core's, which this crate allocates.
///
/// # Invariants
///
/// `region` is in the table of `domain`.
#[repr(C)]
struct Holder {
    _core: bindings::ib_mr,
    region: Arc<Region>,
    domain: Arc<Domain>,
}

impl Holder {
    /// Gives RDMA core a region.
    fn publish(region: Arc<Region>, domain: Arc<Domain>) -> Result<*mut bindings::ib_mr> {
        let key = region.place() << 8;
        let holder = Holder {
            _core: bindings::ib_mr {
                lkey: key,
                rkey: key,
                ..pin_init::zeroed()
            },
            region,
            domain,
        };
        let holder = KBox::new(holder, GFP_KERNEL)?;
        // INVARIANT: The caller has added it.
        Ok(KBox::into_raw(holder).cast())
    }

    /// The region behind one of RDMA core's.
    ///
    /// # Safety
    ///
    /// `mr` has to be one that [`Holder::publish`] has returned, and not to be freed during `'a`.
    unsafe fn region<'a>(mr: *const bindings::ib_mr) -> &'a Arc<Region> {
        // SAFETY: By the safety requirement.
        unsafe { &(*mr.cast::<Holder>()).region }
    }
}

/// Adds a region to a protection domain, for a verb.
///
/// # Safety
///
/// `pd` has to be one of a device of this crate's.
unsafe fn add(
    pd: *mut bindings::ib_pd,
    verb: Verb,
    make: impl Fn(u32) -> Result<Arc<Region>>,
) -> *mut bindings::ib_mr {
    let add = || {
        // SAFETY: By the safety requirement.
        let ((limits, counts), domain) = unsafe { (limited((*pd).device, verb)?, domain(pd)?) };
        let claim = counts.regions.claim(limits.max_mr)?;
        let region = domain.add(make)?;
        let mr = Holder::publish(region.clone(), domain.clone())
            .inspect_err(|_| domain.remove(&region))?;
        claim.keep();
        Ok::<_, Error>(mr)
    };
    add().unwrap_or_else(|e: Error| e.to_ptr())
}

/// Makes a memory region of all memory.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn get_dma_mr(
    pd: *mut bindings::ib_pd,
    flags: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: RDMA core calls with its protection domain. The ULP that asks for such a region lends all memory that
    // it will name.
    unsafe {
        add(pd, Verb::GetDmaMr, |place| {
            Region::of_all(place, flags as u32)
        })
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
    let make = |place| {
        if kind != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
            return Err(EOPNOTSUPP);
        }
        if most == 0 || most > MAX_PAGES {
            return Err(EINVAL);
        }
        Region::new(place, most as usize)
    };
    // SAFETY: RDMA core calls with its protection domain.
    unsafe { add(pd, Verb::AllocMr, make) }
}

/// Refuses a memory region of user space, which has no verbs.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn reg_user_mr(
    _pd: *mut bindings::ib_pd,
    _start: u64,
    _length: u64,
    _virt: u64,
    _flags: c_int,
    _dmah: *mut bindings::ib_dmah,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    EOPNOTSUPP.to_ptr()
}

/// Drafts the next registration of a memory region.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn map_mr_sg(
    mr: *mut bindings::ib_mr,
    list: *mut bindings::scatterlist,
    n: c_int,
    offset: *mut c_uint,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with its region, whose page size it has set.
        let (region, page_size) = unsafe {
            faults((*mr).device).strike(Verb::MapMr)?;
            (Holder::region(mr), (*mr).page_size)
        };
        region.begin_draft(page_size)?;
        // SAFETY: RDMA core calls with a list of so many elements.
        Ok(unsafe { bindings::ib_sg_to_pages(mr, list, n, offset, Some(add_page)) })
    })
}

/// Adds a page to the draft of a registration.
///
/// # Safety
///
/// As [`Operations`] says, with a region and a page of it.
unsafe extern "C" fn add_page(mr: *mut bindings::ib_mr, at: u64) -> c_int {
    from_result(|| {
        // SAFETY: By the safety requirement.
        unsafe { Holder::region(mr) }.add_page(at)?;
        Ok(0)
    })
}

/// Ends a memory region.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn dereg_mr(
    mr: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with its device's region.
        let (_, counts) = unsafe { limited((*mr).device, Verb::DeregMr) }
            // SAFETY: `Holder::publish` has made it.
            .inspect_err(|_| unsafe { Holder::region(mr) }.end())?;
        // SAFETY: Nobody uses it any more; `Holder::publish` has made it.
        let holder = unsafe { KBox::<Holder>::from_raw(mr.cast()) };
        holder.domain.remove(&holder.region);
        counts.regions.release();
        Ok(0)
    })
}
