// SPDX-License-Identifier: GPL-2.0

//! Operations on a device and its ports.

use core::marker::PhantomData;

use ib_fabric::fault::{Quirk, Verb};
use ib_fabric::{Arrival, Lid, LinkLayer, Mad, Verdict};
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_char, c_int};
use kernel::prelude::*;

use super::holder::Holder;
use crate::adapter::Adapter;

/// The operations of a device with the adapter `A`.
///
/// Only RDMA core may call them, as `struct ib_device_ops` says, with devices of this table's and objects of
/// theirs: that is what their `# Safety` sections mean.
pub(crate) struct Operations<A>(PhantomData<A>);

impl<A: Adapter> Operations<A> {
    /// The adapter of a device.
    ///
    /// # Safety
    ///
    /// `device` has to be one of this table's, for `'a`.
    pub(super) unsafe fn adapter<'a>(device: *const bindings::ib_device) -> &'a A {
        // SAFETY: By the safety requirement it lies in a `Holder`, which has the adapter by its invariant.
        unsafe { &*(*device.cast::<Holder<A>>()).adapter }
    }

    /// The adapter of a device, for a verb.
    ///
    /// # Errors
    ///
    /// That with which the verb is to fail.
    ///
    /// # Safety
    ///
    /// `device` has to be one of this table's, for `'a`.
    unsafe fn called<'a>(device: *const bindings::ib_device, verb: Verb) -> Result<&'a A> {
        // SAFETY: By the safety requirement.
        let adapter = unsafe { Self::adapter(device) };
        adapter.faults().strike(verb)?;
        Ok(adapter)
    }

    /// Opens the adapter's handle: the device is registered.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn enable_driver(device: *mut bindings::ib_device) -> c_int {
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
    pub(super) unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its device, and memory for the answer that nobody else has.
            let (adapter, attr) = unsafe { (Self::called(device, Verb::QueryDevice)?, &mut *attr) };
            adapter.capabilities().fill(attr);
            Ok(0)
        })
    }

    /// Sets the node description.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn modify_device(
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
    pub(super) unsafe extern "C" fn get_dev_fw_str(
        device: *mut bindings::ib_device,
        text: *mut c_char,
    ) {
        // SAFETY: RDMA core calls with its device.
        let (major, minor, patch) = unsafe { Self::adapter(device) }.capabilities().firmware;
        // SAFETY: The buffer is as long as the helper takes it to be.
        unsafe {
            bindings::rdma_provider_fw_version(text, major.into(), minor.into(), patch.into())
        };
    }

    /// Fills in a port's attributes; a device with the quirk says that it has one lane.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its device, and memory for the answer that nobody else has.
            let (adapter, attr) = unsafe { (Self::called(device, Verb::QueryPort)?, &mut *attr) };
            adapter.port(number(port)?)?.fill(attr);
            if adapter.faults().has(Quirk::OneLane) {
                attr.active_width = bindings::ib_port_width_IB_WIDTH_1X as u8;
            }
            Ok(0)
        })
    }

    /// Changes a port's CapabilityMask.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn modify_port(
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
    pub(super) unsafe extern "C" fn get_port_immutable(
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
    pub(super) unsafe extern "C" fn query_gid(
        device: *mut bindings::ib_device,
        port: u32,
        index: c_int,
        gid: *mut bindings::ib_gid,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its device.
            let adapter = unsafe { Self::called(device, Verb::QueryGid)? };
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
    pub(super) unsafe extern "C" fn query_pkey(
        device: *mut bindings::ib_device,
        port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its device.
            let adapter = unsafe { Self::called(device, Verb::QueryPKey)? };
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
    pub(super) unsafe extern "C" fn process_mad(
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
        let arrival = Arrival {
            // RDMA core itself asks, for sysfs, and not a subnet manager.
            local: flags as u32 & bindings::ib_process_mad_flags_IB_MAD_IGNORE_MKEY != 0,
            slid: wc.map_or(Lid::NONE, |wc| Lid::new(wc.slid as u16)),
            src_qp: wc.map_or(0, |wc| wc.src_qp),
            pkey_index: wc.map_or(0, |wc| wc.pkey_index),
        };
        // SAFETY: Both are 256 bytes, by `max_mad_size`, and they do not overlap.
        let (request, reply) = unsafe { (&*request.cast::<Mad>(), &mut *reply.cast::<Mad>()) };
        let success = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS;
        let result = match adapter.process_mad(port, &arrival, request, reply) {
            Verdict::Pass => success,
            Verdict::Consume => success | bindings::ib_mad_result_IB_MAD_RESULT_CONSUMED,
            Verdict::Reply => success | bindings::ib_mad_result_IB_MAD_RESULT_REPLY,
        };
        result as c_int
    }
}

/// A port's number as an adapter counts it.
pub(super) fn number(port: u32) -> Result<u8> {
    u8::try_from(port).map_err(|_| EINVAL)
}
