// SPDX-License-Identifier: GPL-2.0

//! The table of operations that RDMA core calls.
//!
//! Each asks whether it is to fail, by the faults that the device has been given, before it begins. An object whose
//! destruction fails stays, and can be destroyed again. It has no more requests, and its ULP hears nothing of it, for
//! many ULPs free what they had it for, whatever comes of it. RDMA core itself frees a completion queue of
//! `ib_alloc_cq()` and a memory region of a protection domain's own; what this crate has for them is lost then, as it
//! is for all that is still there when the device goes.

mod ah;
mod cq;
mod device;
mod holder;
mod mr;
mod pd;
mod qp;
mod roce;
mod srq;

use core::mem::size_of;

use ib_fabric::{Limit, Limits, LinkLayer};
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::adapter::Adapter;
use crate::ah::AddressVector;
use crate::domain::Domain;
use crate::object::Object;
use crate::qp::Qp;
use crate::srq::Srq;

pub(crate) use device::Operations;
pub(crate) use holder::Holder;

impl<A: Adapter> Operations<A> {
    /// The table of a device with this link layer and these limits, in which the verbs are missing that it does not
    /// have. RDMA core copies it.
    pub(crate) fn table(
        module: &'static ThisModule,
        link_layer: LinkLayer,
        limits: &Limits,
    ) -> bindings::ib_device_ops {
        let mut table = Self::all(module);
        if link_layer == LinkLayer::Ethernet {
            Self::cover_ethernet(&mut table);
        }
        if !limits.has(Limit::Srq) {
            table.create_srq = None;
            table.modify_srq = None;
            table.query_srq = None;
            table.destroy_srq = None;
            table.post_srq_recv = None;
        }
        if !limits.has(Limit::Multicast) {
            table.attach_mcast = None;
            table.detach_mcast = None;
        }
        if limits.has(Limit::GetNetdev) {
            table.get_netdev = Some(bindings::rdma_provider_get_netdev);
        }
        table
    }

    fn all(module: &'static ThisModule) -> bindings::ib_device_ops {
        bindings::ib_device_ops {
            owner: module.as_ptr().cast(),
            driver_id: bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
            enable_driver: Some(Self::enable_driver),
            query_device: Some(Self::query_device),
            modify_device: Some(Self::modify_device),
            get_dev_fw_str: Some(Self::get_dev_fw_str),
            query_port: Some(Self::query_port),
            modify_port: Some(Self::modify_port),
            get_link_layer: Some(Self::get_link_layer),
            get_port_immutable: Some(Self::get_port_immutable),
            query_gid: Some(Self::query_gid),
            query_pkey: Some(Self::query_pkey),
            process_mad: Some(Self::process_mad),
            // Without it, the device cannot be given to another network namespace.
            disassociate_ucontext: Some(disassociate_ucontext),
            alloc_pd: Some(pd::alloc_pd),
            dealloc_pd: Some(pd::dealloc_pd),
            get_dma_mr: Some(mr::get_dma_mr),
            // Without it, RDMA core has no device for the kernel's ULPs.
            reg_user_mr: Some(mr::reg_user_mr),
            alloc_mr: Some(mr::alloc_mr),
            map_mr_sg: Some(mr::map_mr_sg),
            dereg_mr: Some(mr::dereg_mr),
            create_ah: Some(ah::create_ah),
            modify_ah: Some(ah::modify_ah),
            query_ah: Some(ah::query_ah),
            destroy_ah: Some(ah::destroy_ah),
            create_cq: Some(Self::create_cq),
            destroy_cq: Some(cq::destroy_cq),
            poll_cq: Some(cq::poll_cq),
            req_notify_cq: Some(cq::req_notify_cq),
            modify_cq: Some(cq::modify_cq),
            create_srq: Some(Self::create_srq),
            modify_srq: Some(srq::modify_srq),
            query_srq: Some(srq::query_srq),
            destroy_srq: Some(srq::destroy_srq),
            post_srq_recv: Some(Self::post_srq_recv),
            create_qp: Some(Self::create_qp),
            modify_qp: Some(Self::modify_qp),
            query_qp: Some(qp::query_qp),
            destroy_qp: Some(Self::destroy_qp),
            post_send: Some(Self::post_send),
            post_recv: Some(Self::post_recv),
            attach_mcast: Some(Self::attach_mcast),
            detach_mcast: Some(Self::detach_mcast),
            size_ib_ah: size_of::<Object<bindings::ib_ah, AddressVector>>(),
            size_ib_cq: size_of::<Object<bindings::ib_cq, cq::Kept>>(),
            size_ib_pd: size_of::<Object<bindings::ib_pd, Arc<Domain>>>(),
            size_ib_qp: size_of::<Object<bindings::ib_qp, Arc<Qp>>>(),
            size_ib_srq: size_of::<Object<bindings::ib_srq, Arc<Srq>>>(),
            ..pin_init::zeroed()
        }
    }
}

/// Takes a context of user space away; there is none.
///
/// # Safety
///
/// As [`Operations`] says.
unsafe extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}
