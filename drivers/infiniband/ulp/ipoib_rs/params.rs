// SPDX-License-Identifier: GPL-2.0

//! Module parameters, checked.

use ipoib_netdev::param;
use ipoib_proto::qkey::QKey;
use ipoib_rdma::Device;
use kernel::prelude::*;

/// What a ring's size may be.
pub(crate) const RING_SIZES: core::ops::RangeInclusive<u32> = 64..=8192;

/// Frames in the send ring.
pub(crate) fn send_queue_size() -> u32 {
    crate::module_parameters::send_queue_size.value()
}

/// Frames in the receive ring.
pub(crate) fn recv_queue_size() -> u32 {
    crate::module_parameters::recv_queue_size.value()
}

/// Messages that an interface's connections can receive at a time.
pub(crate) fn rc_recv_queue_size() -> u32 {
    crate::module_parameters::rc_recv_queue_size.value()
}

/// Connections that all interfaces on an RDMA device may have together. It can be written at any time.
pub(crate) fn rc_max_device_connections() -> u32 {
    param::rc_max_device_connections()
}

/// Whether to register the C driver's link type, too.
pub(crate) fn replace() -> bool {
    crate::module_parameters::replace.value() != 0
}

/// How many frames an interface's queues can hold, whatever its rings' sizes are at the time: four
/// times as many as the larger one begins with, or as the device has.
pub(crate) fn queue_capacity(device: &Device) -> u32 {
    let largest = recv_queue_size().max(send_queue_size());
    let wanted = largest.saturating_mul(4).min(*RING_SIZES.end());
    let limit = device.max_qp_wr().min(device.max_cqe());
    // A power of two, like what it is made from.
    wanted.min(limit.checked_ilog2().map_or(0, |log| 1 << log))
}

/// Whether a ring may have that size where `max` is the most.
pub(crate) fn is_ring_size(size: u32, max: u32) -> bool {
    size.is_power_of_two() && RING_SIZES.contains(&size) && size <= max
}

/// The interfaces' Q_Key.
pub(crate) fn qkey() -> QKey {
    QKey::choose(None, Some(QKey(crate::module_parameters::qkey.value())))
}

/// Refuses to load with values out of range.
///
/// # Errors
///
/// `EINVAL`, and a line in the log that says which value is wrong.
pub(crate) fn check() -> Result {
    for (name, size) in [
        ("send_queue_size", send_queue_size()),
        ("recv_queue_size", recv_queue_size()),
    ] {
        if !is_ring_size(size, *RING_SIZES.end()) {
            pr_err!("{name}={size}: must be a power of two from 64 to 8192\n");
            return Err(EINVAL);
        }
    }
    if !(64..=8192).contains(&rc_recv_queue_size()) {
        pr_err!(
            "rc_recv_queue_size={}: must be from 64 to 8192\n",
            rc_recv_queue_size()
        );
        return Err(EINVAL);
    }
    let replace = crate::module_parameters::replace.value();
    if replace > 1 {
        pr_err!("replace={replace}: must be 0 or 1\n");
        return Err(EINVAL);
    }
    if !qkey().is_controlled() {
        pr_warn!(
            "qkey={:#010x} is not a controlled Q_Key: user space can send with it\n",
            qkey().0
        );
    }
    Ok(())
}
