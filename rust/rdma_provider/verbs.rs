// SPDX-License-Identifier: GPL-2.0

//! The table of operations that RDMA core calls.

mod ah;
mod count;
mod cq;
mod faulty;
mod mr;
mod object;
mod pd;
mod qp;
mod roce;
mod srq;

use core::marker::PhantomData;
use core::mem::size_of;

use ib_fabric::{Limit, Limits, LinkLayer};
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_char, c_int};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::adapter::Adapter;
use crate::ah::AddressVector;
use crate::domain::Domain;
use crate::faults::Faults;
use crate::mad::{Mad, MadSource, Verdict};
use crate::qp::Qp;
use crate::srq::Srq;
use count::Counts;
use faulty::Faulty;
use object::Object;

pub(crate) use ah::address;

/// Memory of a device.
///
/// # Invariants
///
/// Until the device is freed, `adapter` is its adapter, and `faults` are the adapter's.
#[repr(C)]
pub(crate) struct Holder<A> {
    device: bindings::ib_device,
    // In front of the adapter, so that its place does not depend on that one's type.
    pub(crate) faults: *const Faults,
    pub(crate) adapter: *const A,
    counts: Counts,
}

/// The operations of a device with the adapter `A`.
///
/// Only RDMA core may call them, as `struct ib_device_ops` says, with devices of this table's and objects of
/// theirs: that is what their `# Safety` sections mean.
pub(crate) struct Operations<A>(PhantomData<A>);

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
            // RDMA core wants it of a device for the kernel's ULPs.
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

    /// The adapter of a device.
    ///
    /// # Safety
    ///
    /// `device` has to be one of this table's, for `'a`.
    unsafe fn adapter<'a>(device: *const bindings::ib_device) -> &'a A {
        // SAFETY: By the safety requirement it lies in a `Holder`, which has the adapter by its invariant.
        unsafe { &*(*device.cast::<Holder<A>>()).adapter }
    }

    /// Opens the adapter's handle: the device is registered.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn enable_driver(device: *mut bindings::ib_device) -> c_int {
        // SAFETY: RDMA core calls with its device, which stays until its registration is dropped, and that closes
        // the handle first.
        unsafe { Self::adapter(device).handle().open(device) };
        0
    }

    /// Fills in capabilities and limits.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: RDMA core calls with its device, and memory for the answer that nobody else has.
        let (adapter, attr) = unsafe { (Self::adapter(device), &mut *attr) };
        adapter.capabilities().fill(attr);
        0
    }

    /// Sets the node description.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn modify_device(
        device: *mut bindings::ib_device,
        mask: c_int,
        modify: *mut bindings::ib_device_modify,
    ) -> c_int {
        let known = bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC;
        if mask as u32 & !known != 0 {
            return EOPNOTSUPP.to_errno();
        }
        if mask as u32 & known != 0 {
            // SAFETY: RDMA core calls with its device and the new attributes.
            let (adapter, text) = unsafe { (Self::adapter(device), (*modify).node_desc) };
            adapter.set_description(&text);
            // SAFETY: RDMA core reads it byte by byte, and sysfs, which calls this, does it one at a time.
            unsafe { (*device).node_desc = (*modify).node_desc };
        }
        0
    }

    /// Writes the firmware version as text.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn get_dev_fw_str(device: *mut bindings::ib_device, text: *mut c_char) {
        // SAFETY: RDMA core calls with its device.
        let (major, minor, patch) = unsafe { Self::adapter(device) }.capabilities().firmware;
        // SAFETY: The buffer is as long as the helper takes it to be.
        unsafe {
            bindings::rdma_provider_fw_version(text, major.into(), minor.into(), patch.into())
        };
    }

    /// Fills in a port's attributes.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its device, and memory for the answer that nobody else has.
            let (adapter, attr) = unsafe { (Self::adapter(device), &mut *attr) };
            adapter.port(number(port)?)?.fill(attr);
            Ok(0)
        })
    }

    /// Changes a port's CapabilityMask.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn modify_port(
        device: *mut bindings::ib_device,
        port: u32,
        mask: c_int,
        modify: *mut bindings::ib_port_modify,
    ) -> c_int {
        from_result(|| {
            if mask != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: RDMA core calls with its device and the new attributes.
            let (adapter, modify) = unsafe { (Self::adapter(device), &*modify) };
            adapter.set_capabilities(
                number(port)?,
                modify.set_port_cap_mask,
                modify.clr_port_cap_mask,
            )?;
            Ok(0)
        })
    }

    /// Fills in what of a port stays.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn get_port_immutable(
        device: *mut bindings::ib_device,
        port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its device, and memory for the answer that nobody else has.
            let (adapter, immutable) = unsafe { (Self::adapter(device), &mut *immutable) };
            let attr = adapter.port(number(port)?)?;
            immutable.pkey_tbl_len = attr.pkeys.into();
            immutable.gid_tbl_len = attr.gids.into();
            immutable.core_cap_flags = match adapter.link_layer() {
                LinkLayer::InfiniBand => bindings::RDMA_CORE_PORT_IBA_IB,
                LinkLayer::Ethernet => bindings::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP,
            };
            immutable.max_mad_size = bindings::IB_MGMT_MAD_SIZE;
            Ok(0)
        })
    }

    /// Reads an entry of the GID table.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn query_gid(
        device: *mut bindings::ib_device,
        port: u32,
        index: c_int,
        gid: *mut bindings::ib_gid,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its device.
            let adapter = unsafe { Self::adapter(device) };
            let index = u32::try_from(index).map_err(|_| EINVAL)?;
            let raw = adapter.gid(number(port)?, index)?;
            // SAFETY: It is memory for the answer.
            unsafe { (*gid).raw = raw };
            Ok(0)
        })
    }

    /// Reads an entry of the P_Key table.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn query_pkey(
        device: *mut bindings::ib_device,
        port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its device.
            let adapter = unsafe { Self::adapter(device) };
            let raw = adapter.pkey(number(port)?, index)?;
            // SAFETY: It is memory for the answer.
            unsafe { *pkey = raw };
            Ok(0)
        })
    }

    /// Hands a management datagram to the adapter.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    #[allow(clippy::too_many_arguments, reason = "RDMA core's prototype")]
    unsafe extern "C" fn process_mad(
        device: *mut bindings::ib_device,
        flags: c_int,
        port: u32,
        wc: *const bindings::ib_wc,
        _grh: *const bindings::ib_grh,
        request: *const bindings::ib_mad,
        reply: *mut bindings::ib_mad,
        _size: *mut usize,
        _pkey_index: *mut u16,
    ) -> c_int {
        // SAFETY: RDMA core calls with its device.
        let adapter = unsafe { Self::adapter(device) };
        let Ok(port) = number(port) else {
            return bindings::ib_mad_result_IB_MAD_RESULT_FAILURE as c_int;
        };
        // SAFETY: It is null or the completion that the datagram came with.
        let wc = unsafe { wc.as_ref() };
        let source = MadSource {
            trusted: flags as u32 & bindings::ib_process_mad_flags_IB_MAD_IGNORE_MKEY != 0,
            slid: wc.map_or(0, |wc| wc.slid as u16),
            src_qp: wc.map_or(0, |wc| wc.src_qp),
            pkey_index: wc.map_or(0, |wc| wc.pkey_index),
        };
        // SAFETY: Both are 256 bytes, by `max_mad_size`, and they do not overlap.
        let (request, reply) = unsafe { (&*request.cast::<Mad>(), &mut *reply.cast::<Mad>()) };
        let success = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS;
        let result = match adapter.process_mad(port, source, request, reply) {
            Verdict::Pass => success,
            Verdict::Consume => success | bindings::ib_mad_result_IB_MAD_RESULT_CONSUMED,
            Verdict::Reply => success | bindings::ib_mad_result_IB_MAD_RESULT_REPLY,
        };
        result as c_int
    }
}

/// A port's number as an adapter counts it.
fn number(port: u32) -> Result<u8> {
    u8::try_from(port).map_err(|_| EINVAL)
}

/// Takes a context of user space away; there is none.
///
/// # Safety
///
/// As [`Operations`] says.
unsafe extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}
