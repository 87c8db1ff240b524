// SPDX-License-Identifier: GPL-2.0

//! Operations of a device that has faults: each asks whether it is to fail before it begins.
//!
//! An object whose destruction fails stays, and can be destroyed again. It has no more requests, and its ULP hears
//! nothing of it, for many ULPs free what they had it for, whatever comes of it. RDMA core itself frees a
//! completion queue of `ib_alloc_cq()` and a memory region of a protection domain's own; what this crate has for
//! them is lost then, as it is for all that is still there when the device goes.

mod plain;

use core::marker::PhantomData;

use ib_fabric::fault::{Quirk, Setting, Verb};
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_int, c_uint};
use kernel::prelude::*;
use kernel::sync::Arc;

use super::object::own;
use super::{ah, cq, mr, pd, qp, srq, Holder, Operations};
use crate::adapter::Adapter;
use crate::faults::Faults;
use crate::qp::{Kind, Qp};
use crate::readers::wait_for_readers;
use crate::state::State;

/// The faults of a device.
///
/// # Safety
///
/// `device` has to be one of this crate's, for `'a`.
unsafe fn faults<'a>(device: *const bindings::ib_device) -> &'a Faults {
    // SAFETY: By the safety requirement it lies in a `Holder`, which has them by its invariant, at a place that does
    // not depend on the adapter's type.
    unsafe { &*(*device.cast::<Holder<()>>()).faults }
}

/// The operations of a device with the adapter `A`, as [`Operations`] are, which may fail.
struct Faulty<A>(PhantomData<A>);

/// Defines operations that fail if the rules say so, and else are those of the table.
macro_rules! faulty {
    ($(
        $verb:ident: fn $name:ident($($argument:ident: $type:ty),* $(,)?) on $device:expr
            => $operation:expr;
    )*) => {$(
        /// As the operation of this name.
        ///
        /// # Safety
        ///
        /// As [`Operations`] says.
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: RDMA core or a ULP calls with its object.
            let struck = unsafe { faults($device) }.strike(Verb::$verb);
            if let Err(e) = struck {
                return e.to_errno();
            }
            // SAFETY: By this function's requirements.
            unsafe { $operation($($argument),*) }
        }
    )*};
}

faulty! {
    AllocPd: fn alloc_pd(pd: *mut bindings::ib_pd, udata: *mut bindings::ib_udata)
        on (*pd).device => pd::alloc_pd;
    DeallocPd: fn dealloc_pd(pd: *mut bindings::ib_pd, udata: *mut bindings::ib_udata)
        on (*pd).device => pd::dealloc_pd;
    MapMr: fn map_mr_sg(
        mr: *mut bindings::ib_mr,
        list: *mut bindings::scatterlist,
        n: c_int,
        offset: *mut c_uint,
    ) on (*mr).device => mr::map_mr_sg;
    CreateAh: fn create_ah(
        ah: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) on (*ah).device => ah::create_ah;
    DestroyAh: fn destroy_ah(ah: *mut bindings::ib_ah, flags: u32)
        on (*ah).device => ah::destroy_ah;
    PollCq: fn poll_cq(cq: *mut bindings::ib_cq, entries: c_int, wc: *mut bindings::ib_wc)
        on (*cq).device => cq::poll_cq;
    NotifyCq: fn req_notify_cq(
        cq: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) on (*cq).device => cq::req_notify_cq;
    ModifySrq: fn modify_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
        mask: bindings::ib_srq_attr_mask,
        udata: *mut bindings::ib_udata,
    ) on (*srq).device => srq::modify_srq;
    QueryQp: fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) on (*qp).device => qp::query_qp;
}

impl<A: Adapter> Faulty<A> {
    faulty! {
        QueryDevice: fn query_device(
            device: *mut bindings::ib_device,
            attr: *mut bindings::ib_device_attr,
            udata: *mut bindings::ib_udata,
        ) on device => Operations::<A>::query_device;
        QueryPort: fn query_port(
            device: *mut bindings::ib_device,
            port: u32,
            attr: *mut bindings::ib_port_attr,
        ) on device => Operations::<A>::query_port;
        QueryGid: fn query_gid(
            device: *mut bindings::ib_device,
            port: u32,
            index: c_int,
            gid: *mut bindings::ib_gid,
        ) on device => Operations::<A>::query_gid;
        QueryPKey: fn query_pkey(
            device: *mut bindings::ib_device,
            port: u32,
            index: u16,
            pkey: *mut u16,
        ) on device => Operations::<A>::query_pkey;
        CreateCq: fn create_cq(
            cq: *mut bindings::ib_cq,
            attr: *const bindings::ib_cq_init_attr,
            attrs: *mut bindings::uverbs_attr_bundle,
        ) on (*cq).device => Operations::<A>::create_cq;
        CreateSrq: fn create_srq(
            srq: *mut bindings::ib_srq,
            init: *mut bindings::ib_srq_init_attr,
            udata: *mut bindings::ib_udata,
        ) on (*srq).device => Operations::<A>::create_srq;
    }

    /// Makes a queue pair, of which a device with this quirk takes fewer requests than it says. The special ones are
    /// spared, since no port is up without them.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: RDMA core calls with the queue pair that it makes and its attributes.
        let (faults, cap, kind) = unsafe {
            (
                faults((*qp).device),
                &(*attr).cap,
                Kind::from_raw((*attr).qp_type),
            )
        };
        if let Err(e) = faults.strike(Verb::CreateQp) {
            return e.to_errno();
        }
        let elements = cap.max_send_wr.saturating_mul(cap.max_send_sge.max(1));
        let room = faults.number(Setting::SendElements);
        let is_special = matches!(kind, Ok(Kind::Smi | Kind::Gsi));
        if !is_special && room.is_some_and(|room| elements > room) {
            return ENOMEM.to_errno();
        }
        // SAFETY: By this function's requirements.
        unsafe { Operations::<A>::create_qp(qp, attr, udata) }
    }

    /// Changes a queue pair's attributes and state.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its queue pair and the new attributes.
            let (device, own, raw_state) = unsafe {
                (
                    (*qp).device,
                    own::<_, Arc<Qp>>(qp).ok_or(EINVAL)?,
                    (*attr).qp_state,
                )
            };
            let has_state = mask as u32 & bindings::ib_qp_attr_mask_IB_QP_STATE != 0;
            let state = has_state.then(|| State::from_raw(raw_state)).flatten();
            // SAFETY: The queue pair is one of the device's.
            let faults = unsafe { faults(device) };
            faults.strike_modify(state)?;
            let leaves = state == Some(State::Init) && own.is_reset();
            if leaves && own.has_left_reset() && faults.has(Quirk::ResetOnce) {
                return Err(EINVAL);
            }
            // SAFETY: By this function's requirements.
            let result = unsafe { Operations::<A>::modify_qp(qp, attr, mask, udata) };
            if result == 0 && leaves {
                own.leave_reset();
            }
            Ok(result)
        })
    }

    /// Ends a queue pair.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: RDMA core calls with its queue pair, which nobody uses any more.
        let (faults, own) = unsafe { (faults((*qp).device), own::<_, Arc<Qp>>(qp)) };
        if let Err(e) = faults.strike(Verb::DestroyQp) {
            if let Some(own) = own {
                own.close();
                // As after its destruction.
                wait_for_readers();
            }
            return e.to_errno();
        }
        // SAFETY: By this function's requirements.
        unsafe { Operations::<A>::destroy_qp(qp, udata) }
    }

    /// Posts send requests. Each counts as a call.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: A ULP calls with its queue pair.
        let faults = unsafe { faults((*qp).device) };
        let check = || faults.strike(Verb::PostSend);
        // SAFETY: By this function's requirements.
        unsafe { Operations::<A>::post_checked(qp, wr, bad, check) }
    }

    /// Posts receive requests.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: A ULP calls with its queue pair.
        if let Err(e) = unsafe { faults((*qp).device) }.strike(Verb::PostRecv) {
            // SAFETY: The ULP has room for it.
            unsafe { *bad = wr };
            return e.to_errno();
        }
        // SAFETY: By this function's requirements.
        unsafe { Operations::<A>::post_recv(qp, wr, bad) }
    }

    /// Posts receive requests to a shared receive queue.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: A ULP calls with its queue.
        if let Err(e) = unsafe { faults((*srq).device) }.strike(Verb::PostSrqRecv) {
            // SAFETY: The ULP has room for it.
            unsafe { *bad = wr };
            return e.to_errno();
        }
        // SAFETY: By this function's requirements.
        unsafe { Operations::<A>::post_srq_recv(srq, wr, bad) }
    }

    faulty! {
        AttachMcast: fn attach_mcast(
            qp: *mut bindings::ib_qp,
            gid: *mut bindings::ib_gid,
            lid: u16,
        ) on (*qp).device => Operations::<A>::attach_mcast;
        DetachMcast: fn detach_mcast(
            qp: *mut bindings::ib_qp,
            gid: *mut bindings::ib_gid,
            lid: u16,
        ) on (*qp).device => Operations::<A>::detach_mcast;
    }
}

/// Puts these operations in the place of those that cannot fail.
pub(crate) fn cover<A: Adapter>(table: &mut bindings::ib_device_ops) {
    table.query_device = Some(Faulty::<A>::query_device);
    table.query_port = Some(Faulty::<A>::query_port);
    table.query_gid = Some(Faulty::<A>::query_gid);
    table.query_pkey = Some(Faulty::<A>::query_pkey);
    table.alloc_pd = Some(alloc_pd);
    table.dealloc_pd = Some(dealloc_pd);
    table.get_dma_mr = Some(plain::get_dma_mr);
    table.alloc_mr = Some(plain::alloc_mr);
    table.map_mr_sg = Some(map_mr_sg);
    table.dereg_mr = Some(plain::dereg_mr);
    table.create_ah = Some(create_ah);
    table.destroy_ah = Some(destroy_ah);
    table.create_cq = Some(Faulty::<A>::create_cq);
    table.destroy_cq = Some(plain::destroy_cq);
    table.poll_cq = Some(poll_cq);
    table.req_notify_cq = Some(req_notify_cq);
    table.create_srq = Some(Faulty::<A>::create_srq);
    table.modify_srq = Some(modify_srq);
    table.destroy_srq = Some(plain::destroy_srq);
    table.post_srq_recv = Some(Faulty::<A>::post_srq_recv);
    table.create_qp = Some(Faulty::<A>::create_qp);
    table.modify_qp = Some(Faulty::<A>::modify_qp);
    table.query_qp = Some(query_qp);
    table.destroy_qp = Some(Faulty::<A>::destroy_qp);
    table.post_send = Some(Faulty::<A>::post_send);
    table.post_recv = Some(Faulty::<A>::post_recv);
    table.attach_mcast = Some(Faulty::<A>::attach_mcast);
    table.detach_mcast = Some(Faulty::<A>::detach_mcast);
}
