// SPDX-License-Identifier: GPL-2.0

//! `ip link set … vf`: virtual functions of the RDMA device, which the RDMA core passes to its driver.

use ipoib_netdev::device::Device;
use ipoib_netdev::vf::{Config, Functions, Guid, Stats};
use ipoib_rdma::Device as RdmaDevice;
use kernel::prelude::*;

use crate::base::interface::Interface;

/// The device and the port of an interface. A virtual function has none of its own; those of a RoCE port are configured by
/// the port's netdev.
fn place(dev: &Device<Interface>) -> Result<(&RdmaDevice, u32)> {
    let port = &dev.data().get_ref().port;
    if port.device().is_virtual_function() || !port.is_infiniband() {
        return Err(EOPNOTSUPP);
    }
    Ok((port.device(), port.number()))
}

/// The [`place`] for a caller who may configure the device itself, and not only an interface on it that it was given.
fn own_place(dev: &Device<Interface>) -> Result<(&RdmaDevice, u32)> {
    let (device, port) = place(dev)?;
    if !device.may_configure() {
        return Err(EPERM);
    }
    Ok((device, port))
}

#[vtable]
impl Functions for Interface {
    fn set_link_state(dev: &Device<Self>, vf: i32, state: i32) -> Result {
        let (device, port) = own_place(dev)?;
        device.set_vf_link_state(port, vf, state)
    }

    fn config(dev: &Device<Self>, vf: i32, config: &mut Config<'_>) -> Result {
        let (device, port) = place(dev)?;
        device.vf_config(port, vf, config)
    }

    fn function_stats(dev: &Device<Self>, vf: i32, stats: &mut Stats<'_>) -> Result {
        let (device, port) = place(dev)?;
        device.vf_stats(port, vf, stats)
    }

    fn guids(
        dev: &Device<Self>,
        vf: i32,
        of_node: &mut Guid<'_>,
        of_port: &mut Guid<'_>,
    ) -> Result {
        let (device, port) = place(dev)?;
        device.vf_guids(port, vf, of_node, of_port)
    }

    fn set_guid(dev: &Device<Self>, vf: i32, guid: u64, kind: i32) -> Result {
        let (device, port) = own_place(dev)?;
        device.set_vf_guid(port, vf, guid, kind)
    }
}
