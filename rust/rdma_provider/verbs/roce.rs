// SPDX-License-Identifier: GPL-2.0

//! Operations of a device with Ethernet ports.

use ib_fabric::LinkLayer;
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;

use super::device::{number, Operations};
use crate::adapter::Adapter;

impl<A: Adapter> Operations<A> {
    /// Puts the operations of Ethernet ports in the place of those of a subnet's.
    pub(super) fn cover_ethernet(table: &mut bindings::ib_device_ops) {
        // RDMA core has the table.
        table.query_gid = None;
        table.add_gid = Some(Self::add_gid);
        table.del_gid = Some(Self::del_gid);
        table.report_port_event = Some(report_port_event);
    }

    /// The link layer of a port.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn get_link_layer(
        device: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        // SAFETY: RDMA core calls with its device.
        match unsafe { Self::adapter(device) }.link_layer() {
            LinkLayer::InfiniBand => bindings::rdma_link_layer_IB_LINK_LAYER_INFINIBAND,
            LinkLayer::Ethernet => bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET,
        }
    }

    /// Sets a GID.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn add_gid(
        attr: *const bindings::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: RDMA core calls with an entry of its table, which is as long as this runs; every bit pattern is a GID.
        let result = unsafe { Self::set_gid(attr, (*attr).gid.raw) };
        from_result(|| result.map(|()| 0))
    }

    /// Takes a GID away.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    unsafe extern "C" fn del_gid(
        attr: *const bindings::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: As above.
        let result = unsafe { Self::set_gid(attr, [0; 16]) };
        from_result(|| result.map(|()| 0))
    }

    /// Sets the GID in the place of an entry.
    ///
    /// # Safety
    ///
    /// `attr` has to be an entry of a device of this table's.
    unsafe fn set_gid(attr: *const bindings::ib_gid_attr, gid: [u8; 16]) -> Result {
        // SAFETY: By the safety requirement.
        let (device, port, index) = unsafe { ((*attr).device, (*attr).port_num, (*attr).index) };
        // SAFETY: By the safety requirement.
        let adapter = unsafe { Self::adapter(device) };
        adapter.set_gid(number(port)?, index, gid)
    }
}

/// Reports nothing: the state of a port is not that of its network device alone, and its adapter tells of it.
///
/// # Safety
///
/// As [`Operations`] says.
unsafe extern "C" fn report_port_event(
    _device: *mut bindings::ib_device,
    _netdev: *mut bindings::net_device,
    _event: c_ulong,
) {
}
