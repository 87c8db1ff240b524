// SPDX-License-Identifier: GPL-2.0

//! Operations on completion queues.

use ib_fabric::fault::Verb;
use ib_fabric::Limit;
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::device::Operations;
use super::holder::{faults, limited};
use crate::adapter::Adapter;
use crate::bh_work::BhWork;
use crate::cq::{Bell, Cq};
use crate::object::{fill, own, take};

/// Halves of this crate's of a completion queue.
pub(super) struct Kept {
    cq: Arc<Cq>,
    _bell: BhWork<Bell>,
}

/// This crate's half of a completion queue.
///
/// # Safety
///
/// As for [`own`].
pub(super) unsafe fn half<'a>(cq: *const bindings::ib_cq) -> Option<&'a Arc<Cq>> {
    // SAFETY: By the safety requirement.
    unsafe { own::<_, Kept>(cq) }.map(|kept| &kept.cq)
}

/// That half, for a verb.
///
/// # Errors
///
/// That with which the verb is to fail.
///
/// # Safety
///
/// As for [`own`].
unsafe fn called<'a>(cq: *const bindings::ib_cq, verb: Verb) -> Result<&'a Arc<Cq>> {
    // SAFETY: By the safety requirement.
    let (faults, own) = unsafe { (faults((*cq).device), half(cq)) };
    faults.strike(verb)?;
    own.ok_or(EINVAL)
}

impl<A: Adapter> Operations<A> {
    /// Makes a completion queue.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn create_cq(
        cq: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        _attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with the queue that its device makes.
            let (adapter, attr) = unsafe { (Self::adapter((*cq).device), &*attr) };
            // SAFETY: As above.
            let (limits, counts) = unsafe { limited((*cq).device, Verb::CreateCq)? };
            if attr.cqe == 0 || attr.cqe > limits.max_cqe || attr.flags != 0 {
                return Err(EINVAL);
            }
            let vectors = adapter.capabilities().limits.get(Limit::Vectors);
            if attr.comp_vector >= vectors {
                return Err(EINVAL);
            }
            let vector = (vectors > 1).then_some(attr.comp_vector);
            let claim = counts.completion_queues.claim(limits.max_cq)?;
            // SAFETY: It stays until it is destroyed, which closes this.
            let own = unsafe { Cq::new(cq, attr.cqe as usize, adapter.faults().clone(), vector)? };
            let bell = Bell::new(&own)?;
            let own = Kept {
                cq: own,
                _bell: bell,
            };
            // SAFETY: It is being made, with the size that the table says.
            unsafe {
                fill(cq, own);
                (*cq).cqe = attr.cqe as c_int;
            }
            claim.keep();
            Ok(0)
        })
    }
}

/// Ends a completion queue.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn destroy_cq(
    cq: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with its queue.
        if let Some(own) = unsafe { half(cq) } {
            own.close();
        }
        // SAFETY: It is one of its device's.
        let (_, counts) = unsafe { limited((*cq).device, Verb::DestroyCq)? };
        // SAFETY: Nobody uses it any more.
        drop(unsafe { take::<_, Kept>(cq) });
        counts.completion_queues.release();
        Ok(0)
    })
}

/// Takes completions.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn poll_cq(
    cq: *mut bindings::ib_cq,
    entries: c_int,
    wc: *mut bindings::ib_wc,
) -> c_int {
    from_result(|| {
        // SAFETY: A ULP calls with its queue.
        let own = unsafe { called(cq, Verb::PollCq)? };
        let room = usize::try_from(entries).map_err(|_| EINVAL)?;
        if room == 0 {
            return Ok(0);
        }
        // SAFETY: A ULP calls with memory for so many completions.
        let out = unsafe { core::slice::from_raw_parts_mut(wc.cast(), room) };
        Ok(own.poll(out) as c_int)
    })
}

/// Asks for an event.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn req_notify_cq(
    cq: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> c_int {
    from_result(|| {
        // SAFETY: A ULP calls with its queue.
        let own = unsafe { called(cq, Verb::NotifyCq)? };
        let kind = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK;
        let missed = own.arm(kind == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED);
        let asked = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
        Ok(c_int::from(asked && missed))
    })
}

/// Sets the moderation of events.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn modify_cq(
    cq: *mut bindings::ib_cq,
    count: u16,
    period: u16,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with a ULP's queue.
        unsafe { called(cq, Verb::ModifyCq)? }.moderate(count, period);
        Ok(0)
    })
}
