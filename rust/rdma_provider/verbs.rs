// SPDX-License-Identifier: GPL-2.0

//! The table of operations that RDMA core calls.

mod ah;
mod cq;
mod device;
mod faulty;
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
use faulty::Faulty;

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
        table
    }

    fn all(module: &'static ThisModule) -> bindings::ib_device_ops {
        bindings::ib_device_ops {
            owner: module.as_ptr().cast(),
            driver_id: bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
            enable_driver: Some(Self::enable_driver),
            query_device: Some(Faulty::<A>::query_device),
            modify_device: Some(Self::modify_device),
            get_dev_fw_str: Some(Self::get_dev_fw_str),
            query_port: Some(Faulty::<A>::query_port),
            modify_port: Some(Self::modify_port),
            get_link_layer: Some(Self::get_link_layer),
            get_port_immutable: Some(Self::get_port_immutable),
            query_gid: Some(Faulty::<A>::query_gid),
            query_pkey: Some(Faulty::<A>::query_pkey),
            process_mad: Some(Self::process_mad),
            // Without it, the device cannot be given to another network namespace.
            disassociate_ucontext: Some(disassociate_ucontext),
            alloc_pd: Some(faulty::alloc_pd),
            dealloc_pd: Some(faulty::dealloc_pd),
            get_dma_mr: Some(faulty::get_dma_mr),
            // Without it, RDMA core has no device for the kernel's ULPs.
            reg_user_mr: Some(mr::reg_user_mr),
            alloc_mr: Some(faulty::alloc_mr),
            map_mr_sg: Some(faulty::map_mr_sg),
            dereg_mr: Some(faulty::dereg_mr),
            create_ah: Some(faulty::create_ah),
            modify_ah: Some(ah::modify_ah),
            query_ah: Some(ah::query_ah),
            destroy_ah: Some(faulty::destroy_ah),
            create_cq: Some(Faulty::<A>::create_cq),
            destroy_cq: Some(faulty::destroy_cq),
            poll_cq: Some(faulty::poll_cq),
            req_notify_cq: Some(faulty::req_notify_cq),
            modify_cq: Some(faulty::modify_cq),
            create_srq: Some(Faulty::<A>::create_srq),
            modify_srq: Some(faulty::modify_srq),
            query_srq: Some(srq::query_srq),
            destroy_srq: Some(faulty::destroy_srq),
            post_srq_recv: Some(Faulty::<A>::post_srq_recv),
            create_qp: Some(Faulty::<A>::create_qp),
            modify_qp: Some(Faulty::<A>::modify_qp),
            query_qp: Some(faulty::query_qp),
            destroy_qp: Some(Faulty::<A>::destroy_qp),
            post_send: Some(Faulty::<A>::post_send),
            post_recv: Some(Faulty::<A>::post_recv),
            attach_mcast: Some(Faulty::<A>::attach_mcast),
            detach_mcast: Some(Faulty::<A>::detach_mcast),
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
