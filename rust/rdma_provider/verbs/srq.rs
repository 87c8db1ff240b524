// SPDX-License-Identifier: GPL-2.0

//! Operations on shared receive queues.

use ib_fabric::fault::Verb;
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::device::Operations;
use super::holder::{faults, limited};
use crate::adapter::Adapter;
use crate::object::{fill, own, posted, take};
use crate::srq::Srq;
use crate::wakeups::Wakeups;

impl<A: Adapter> Operations<A> {
    /// Makes a shared receive queue.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        init: *mut bindings::ib_srq_init_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with the queue that its device makes and its attributes.
            let ((limits, counts), init) =
                unsafe { (limited((*srq).device, Verb::CreateSrq)?, &*init) };
            if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
                return Err(EOPNOTSUPP);
            }
            let attr = &init.attr;
            if attr.max_wr == 0
                || attr.max_wr > limits.max_srq_wr
                || attr.max_sge > limits.max_srq_sge
                || attr.srq_limit > attr.max_wr
            {
                return Err(EINVAL);
            }
            let claim = counts.receive_queues.claim(limits.max_srq)?;
            let (size, sges) = (attr.max_wr as usize, attr.max_sge as usize);
            // SAFETY: It stays until it is destroyed, which closes this.
            let own = unsafe { Srq::new(srq, size, sges, attr.srq_limit as usize)? };
            // SAFETY: It is being made, with the size that the table says.
            unsafe { fill(srq, own) };
            claim.keep();
            Ok(0)
        })
    }

    /// Posts receive requests.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: A ULP calls with its queue.
            let (adapter, own) = unsafe {
                (
                    Self::adapter((*srq).device),
                    own::<_, Arc<Srq>>(srq).ok_or(EINVAL)?,
                )
            };
            let struck = adapter.faults().strike(Verb::PostSrqRecv);
            // SAFETY: The ULP has room for it.
            unsafe { posted(struck.map_err(|e| (e, wr)), bad)? };
            let wake = |qp: &Arc<crate::Qp>| {
                if qp.posted() {
                    adapter.ready(qp);
                }
            };
            // SAFETY: A ULP calls with requests for this queue.
            let result = unsafe { own.post(wr, wake) };
            // SAFETY: The ULP has room for it.
            unsafe { posted(result, bad) }
        })
    }
}

/// Changes the limit of a shared receive queue.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn modify_srq(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with its queue and the new attributes.
        let (own, attr) = unsafe {
            faults((*srq).device).strike(Verb::ModifySrq)?;
            (own::<_, Arc<Srq>>(srq).ok_or(EINVAL)?, &*attr)
        };
        let limit = bindings::ib_srq_attr_mask_IB_SRQ_LIMIT;
        if mask & !limit != 0 {
            return Err(EOPNOTSUPP);
        }
        if mask & limit != 0 {
            own.set_limit(attr.srq_limit as usize, &mut Wakeups::new())?;
        }
        Ok(0)
    })
}

/// Reads the attributes of a shared receive queue.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn query_srq(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
) -> c_int {
    // SAFETY: RDMA core calls with its queue.
    let Some(own) = (unsafe { own::<_, Arc<Srq>>(srq) }) else {
        return EINVAL.to_errno();
    };
    let answer = bindings::ib_srq_attr {
        max_wr: own.size() as u32,
        max_sge: own.sges() as u32,
        srq_limit: own.limit() as u32,
    };
    // SAFETY: It is memory for the answer.
    unsafe { attr.write(answer) };
    0
}

/// Ends a shared receive queue.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn destroy_srq(
    srq: *mut bindings::ib_srq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: RDMA core calls with its queue.
        if let Some(own) = unsafe { own::<_, Arc<Srq>>(srq) } {
            own.close();
        }
        // SAFETY: It is one of its device's.
        let (_, counts) = unsafe { limited((*srq).device, Verb::DestroySrq)? };
        // SAFETY: Nobody uses it any more.
        drop(unsafe { take::<_, Arc<Srq>>(srq) });
        counts.receive_queues.release();
        Ok(0)
    })
}
