// SPDX-License-Identifier: GPL-2.0

//! Module parameters, checked.

use ipoib_proto::qkey::QKey;
use kernel::prelude::*;

/// What a ring's size may be.
const RING_SIZES: core::ops::RangeInclusive<u32> = 64..=8192;

/// Frames in the send ring.
pub(crate) fn send_queue_size() -> u32 {
    crate::module_parameters::send_queue_size.value()
}

/// Frames in the receive ring.
pub(crate) fn recv_queue_size() -> u32 {
    crate::module_parameters::recv_queue_size.value()
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
        if !RING_SIZES.contains(&size) || !size.is_power_of_two() {
            pr_err!("{name}={size}: must be a power of two from 64 to 8192\n");
            return Err(EINVAL);
        }
    }
    if !qkey().is_controlled() {
        pr_warn!(
            "qkey={:#010x} is not a controlled Q_Key: user space can send with it\n",
            qkey().0
        );
    }
    Ok(())
}
