// SPDX-License-Identifier: GPL-2.0

//! Virtual functions of an RDMA device, which its driver configures.
//!
//! All of these return `EOPNOTSUPP` where the driver cannot, and are called in process context; they may sleep.

use ipoib_netdev::vf::{Config, Guid, Stats};
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::prelude::*;

use crate::device::Device;

impl Device {
    /// Sets the state of a function's link on `port`, an `IFLA_VF_LINK_STATE_*`.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn set_vf_link_state(&self, port: u32, vf: i32, state: i32) -> Result {
        // SAFETY: Registered by the type invariant; drivers check what user space may say.
        to_result(unsafe { bindings::ib_set_vf_link_state(self.as_raw(), vf, port, state) })
    }

    /// Says how a function is configured.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn vf_config(&self, port: u32, vf: i32, config: &mut Config<'_>) -> Result {
        // SAFETY: As in `set_vf_link_state`; the answer has room.
        to_result(unsafe { bindings::ib_get_vf_config(self.as_raw(), vf, port, config.as_raw()) })
    }

    /// Says what a function has sent and received.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn vf_stats(&self, port: u32, vf: i32, stats: &mut Stats<'_>) -> Result {
        // SAFETY: As in `vf_config`.
        to_result(unsafe { bindings::ib_get_vf_stats(self.as_raw(), vf, port, stats.as_raw()) })
    }

    /// Says a function's GUIDs.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn vf_guids(
        &self,
        port: u32,
        vf: i32,
        of_node: &mut Guid<'_>,
        of_port: &mut Guid<'_>,
    ) -> Result {
        // SAFETY: As in `vf_config`.
        to_result(unsafe {
            bindings::ib_get_vf_guid(self.as_raw(), vf, port, of_node.as_raw(), of_port.as_raw())
        })
    }

    /// Gives a function another GUID, by `kind` that of its node or of its port.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another kind; those of the device.
    pub fn set_vf_guid(&self, port: u32, vf: i32, guid: u64, kind: i32) -> Result {
        let kinds = [
            bindings::IFLA_VF_IB_NODE_GUID,
            bindings::IFLA_VF_IB_PORT_GUID,
        ];
        if !kinds.iter().any(|known| u32::try_from(kind) == Ok(*known)) {
            return Err(EINVAL);
        }
        // SAFETY: As in `set_vf_link_state`.
        to_result(unsafe { bindings::ib_set_vf_guid(self.as_raw(), vf, port, guid, kind) })
    }
}
