// SPDX-License-Identifier: GPL-2.0

//! Ports and their P_Key tables.

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;

use crate::device::Device;

/// Attributes of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortAttr {
    /// True if it carries data.
    pub active: bool,
    /// The largest payload of a packet now, in bytes.
    pub active_mtu_bytes: u32,
    /// The largest payload of a packet that the port is capable of, in bytes.
    pub max_mtu_bytes: u32,
    /// Mbit/s of all lanes, 0 for unknown.
    pub speed_mbps: u32,
    /// The base LID, 0 for none: that of a RoCE port, or of one that no subnet manager has set up.
    pub lid: u16,
}

impl Device {
    /// Queries the attributes of a port.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a port that does not exist; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Never with RTNL held, which it takes on RoCE.
    pub fn query_port(&self, port: u32) -> Result<PortAttr> {
        let mut attr = bindings::ib_port_attr::default();
        // SAFETY: The device is registered, the attributes are ours.
        to_result(unsafe { bindings::ib_query_port(self.as_raw(), port, &raw mut attr) })?;
        Ok(PortAttr {
            active: attr.state == bindings::ib_port_state_IB_PORT_ACTIVE,
            active_mtu_bytes: mtu_bytes(attr.active_mtu),
            max_mtu_bytes: mtu_bytes(attr.max_mtu),
            // SAFETY: A computation on what we own.
            speed_mbps: unsafe { bindings::ipoib_rs_ib_speed_mbps(&raw mut attr) },
            // Longer ones are Omni-Path's.
            lid: attr.lid as u16,
        })
    }
}

impl Device {
    /// The index of `pkey` in a port's table, as the RDMA core has it, whatever its membership bit.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it is not there; `EINVAL` for a port that does not exist.
    pub fn find_pkey(&self, port: u32, pkey: u16) -> Result<u16> {
        let mut index = 0;
        // SAFETY: The device is registered; the index is ours.
        to_result(unsafe {
            bindings::ib_find_cached_pkey(self.as_raw(), port, pkey, &raw mut index)
        })?;
        Ok(index)
    }

    /// Entry `index` of a port's table of P_Keys, as the RDMA core has it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a port or an entry that does not exist.
    pub fn pkey_at(&self, port: u32, index: u16) -> Result<u16> {
        let mut pkey = 0;
        // SAFETY: The device is registered; the P_Key is ours.
        to_result(unsafe {
            bindings::ib_get_cached_pkey(self.as_raw(), port, c_int::from(index), &raw mut pkey)
        })?;
        Ok(pkey)
    }
}

fn mtu_bytes(mtu: bindings::ib_mtu) -> u32 {
    // SAFETY: A computation.
    let bytes: c_int = unsafe { bindings::ipoib_rs_ib_mtu_bytes(mtu) };
    bytes.max(0) as u32
}
