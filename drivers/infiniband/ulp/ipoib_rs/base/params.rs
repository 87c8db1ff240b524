// SPDX-License-Identifier: GPL-2.0

//! Module parameters. `module!` in main.rs declares them; their limits are checked here.

use ipoib_proto::qkey::QKey;
use ipoib_proto::sizes::{self, Sizes};
use ipoib_proto::text::Selection;
use kernel::prelude::*;

/// Frames in the rings of a new interface.
pub(crate) fn queue_sizes() -> Sizes {
    Sizes {
        receive: crate::module_parameters::recv_queue_size.value(),
        send: crate::module_parameters::send_queue_size.value(),
    }
}

/// Messages that the connections of an interface can receive at a time.
pub(crate) fn rc_recv_queue_size() -> u32 {
    crate::module_parameters::rc_recv_queue_size.value()
}

/// Returns true if the link type `ipoib` is to be registered as well.
pub(crate) fn replace() -> bool {
    crate::module_parameters::replace.value() != 0
}

/// The ports that get an interface by themselves.
pub(crate) fn ports() -> Selection<'static> {
    match ipoib_module::ports() {
        None if replace() => Selection::All,
        None => Selection::None,
        // `check` has seen to it that there is one.
        Some(text) => Selection::parse(text.to_bytes()).unwrap_or(Selection::None),
    }
}

/// Q_Key of interfaces on RoCE ports.
pub(crate) fn qkey() -> QKey {
    QKey(crate::module_parameters::qkey.value())
}

/// Refuses values out of range; the module does not load then.
///
/// # Errors
///
/// `EINVAL`, with a line in the log.
pub(crate) fn check() -> Result {
    let Sizes { receive, send } = queue_sizes();
    for (name, size, rule) in [
        ("send_queue_size", send, "a power of two "),
        ("recv_queue_size", receive, "a power of two "),
        ("rc_recv_queue_size", rc_recv_queue_size(), ""),
    ] {
        let (min, max) = (sizes::RANGE.start(), sizes::RANGE.end());
        if !sizes::RANGE.contains(&size) || !(rule.is_empty() || size.is_power_of_two()) {
            pr_err!("{name}={size}: must be {rule}from {min} to {max}\n");
            return Err(EINVAL);
        }
    }
    let replace = crate::module_parameters::replace.value();
    if replace > 1 {
        pr_err!("replace={replace}: must be 0 or 1\n");
        return Err(EINVAL);
    }
    let ports = ipoib_module::ports().unwrap_or(c"none");
    if Selection::parse(ports.to_bytes()).is_none() {
        pr_err!("ports={ports}: must be none, all, or a list such as mlx5_0:1,mlx5_1:1\n");
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
