// SPDX-License-Identifier: GPL-2.0

//! Operations of a device that has faults: each asks whether it is to fail before it begins.
//!
//! An object whose destruction fails stays, and can be destroyed again. It has no more requests, and its ULP hears
//! nothing of it, for many ULPs free what they had it for, whatever comes of it. RDMA core itself frees a
//! completion queue of `ib_alloc_cq()` and a memory region of a protection domain's own; what this crate has for
//! them is lost then, as it is for all that is still there when the device goes.

use core::marker::PhantomData;

use ib_fabric::fault::{Quirk, Setting, Verb};
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_int, c_uint};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::delay::fsleep;
use kernel::time::Delta;

use super::device::Operations;
use super::holder::Holder;
use super::{ah, cq, mr, pd, qp, srq};
use crate::adapter::Adapter;
use crate::faults::Faults;
use crate::object::own;
use crate::qp::{Kind, Qp};
use crate::readers::wait_for_readers;
use crate::srq::Srq;
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
pub(super) struct Faulty<A>(PhantomData<A>);

/// Defines operations that fail if the rules say so, after what `else` says, and else are those of the table.
macro_rules! faulty {
    ($(
        $verb:ident: fn $name:ident($($argument:ident: $type:ty),* $(,)?) on $device:expr
            => $operation:expr $(, else $undo:expr)?;
    )*) => {$(
        /// As the operation of this name.
        ///
        /// # Safety
        ///
        /// As [`Operations`] says.
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: RDMA core or a ULP calls with its object.
            let struck = unsafe { faults($device) }.strike(Verb::$verb);
            if let Err(e) = struck {
                // SAFETY: By this function's requirements.
                $(unsafe { $undo };)?
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
    ModifyCq: fn modify_cq(cq: *mut bindings::ib_cq, count: u16, period: u16)
        on (*cq).device => cq::modify_cq;
    ModifySrq: fn modify_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
        mask: bindings::ib_srq_attr_mask,
        udata: *mut bindings::ib_udata,
    ) on (*srq).device => srq::modify_srq;
    DeregMr: fn dereg_mr(mr: *mut bindings::ib_mr, udata: *mut bindings::ib_udata)
        on (*mr).device => mr::dereg_mr, else mr::close(mr);
    DestroyCq: fn destroy_cq(cq: *mut bindings::ib_cq, udata: *mut bindings::ib_udata)
        on (*cq).device => cq::destroy_cq, else if let Some(own) = cq::half(cq) {
            own.close();
        };
    DestroySrq: fn destroy_srq(srq: *mut bindings::ib_srq, udata: *mut bindings::ib_udata)
        on (*srq).device => srq::destroy_srq, else if let Some(own) = own::<_, Arc<Srq>>(srq) {
            own.close();
        };
    QueryQp: fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) on (*qp).device => qp::query_qp;
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

impl<A: Adapter> Faulty<A> {
    faulty! {
        QueryDevice: fn query_device(
            device: *mut bindings::ib_device,
            attr: *mut bindings::ib_device_attr,
            udata: *mut bindings::ib_udata,
        ) on device => Operations::<A>::query_device;
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

    /// Reads the attributes of a port, which a device with this quirk says has one lane.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        // SAFETY: RDMA core calls with its device.
        let faults = unsafe { faults(device) };
        if let Err(e) = faults.strike(Verb::QueryPort) {
            return e.to_errno();
        }
        // SAFETY: By this function's requirements.
        let result = unsafe { Operations::<A>::query_port(device, port, attr) };
        if faults.has(Quirk::OneLane) {
            // SAFETY: RDMA core calls with memory for the answer.
            unsafe { (*attr).active_width = bindings::ib_port_width_IB_WIDTH_1X as u8 };
        }
        result
    }

    /// Makes a queue pair, of which a device with this quirk takes fewer requests than it says. The special ones are
    /// spared, since no port is up without them.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn create_qp(
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
    pub(super) unsafe extern "C" fn modify_qp(
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
            let time = faults.number(Setting::ModifyTime);
            // SAFETY: By this function's requirements.
            let modify = || unsafe { Operations::<A>::modify_qp(qp, attr, mask, udata) };
            let result = match time {
                Some(ms) => own.change_alone(|| {
                    fsleep(Delta::from_millis(ms.into()));
                    modify()
                }),
                None => modify(),
            };
            if result == 0 && leaves {
                own.leave_reset();
            }
            Ok(result)
        })
    }

    /// Posts send requests. Each counts as a call.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: A ULP calls with its queue pair.
        let faults = unsafe { faults((*qp).device) };
        let check = || faults.strike(Verb::PostSend);
        // SAFETY: By this function's requirements.
        unsafe { Operations::<A>::post_send(qp, wr, bad, check) }
    }

    faulty! {
        DestroyQp: fn destroy_qp(qp: *mut bindings::ib_qp, udata: *mut bindings::ib_udata)
            on (*qp).device => Operations::<A>::destroy_qp,
            else if let Some(own) = own::<_, Arc<Qp>>(qp) {
                own.close();
                // As after its destruction.
                wait_for_readers();
            };
        PostRecv: fn post_recv(
            qp: *mut bindings::ib_qp,
            wr: *const bindings::ib_recv_wr,
            bad: *mut *const bindings::ib_recv_wr,
        ) on (*qp).device => Operations::<A>::post_recv, else *bad = wr;
        PostSrqRecv: fn post_srq_recv(
            srq: *mut bindings::ib_srq,
            wr: *const bindings::ib_recv_wr,
            bad: *mut *const bindings::ib_recv_wr,
        ) on (*srq).device => Operations::<A>::post_srq_recv, else *bad = wr;
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
