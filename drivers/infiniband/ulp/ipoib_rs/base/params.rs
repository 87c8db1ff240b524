// SPDX-License-Identifier: GPL-2.0

//! Module parameters, checked.

use ipoib_netdev::param;
use ipoib_proto::qkey::QKey;
use ipoib_proto::sizes::{self, Sizes};
use kernel::prelude::*;

/// Frames in the rings of a new interface.
pub(crate) fn queue_sizes() -> Sizes {
    Sizes {
        receive: crate::module_parameters::recv_queue_size.value(),
        send: crate::module_parameters::send_queue_size.value(),
    }
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

/// The interfaces' Q_Key.
pub(crate) fn qkey() -> QKey {
    QKey(crate::module_parameters::qkey.value())
}

/// Refuses to load with values out of range.
///
/// # Errors
///
/// `EINVAL`, and a line in the log that says which value is wrong.
pub(crate) fn check() -> Result {
    let Sizes { receive, send } = queue_sizes();
    for (name, size) in [("send_queue_size", send), ("recv_queue_size", receive)] {
        if !size.is_power_of_two() || !sizes::RANGE.contains(&size) {
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
