// SPDX-License-Identifier: GPL-2.0

//! `netdev_*` printing: the line names driver and interface, as `dmesg` readers expect.

use kernel::fmt;
use kernel::prelude::*;

use crate::device::RawDevice;
use ipoib_sys::bindings;

/// How grave a line is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something failed.
    Err,
    /// Something is wrong but handled.
    Warn,
    /// Worth knowing.
    Info,
    /// For developers.
    Debug,
}

/// Prints a line for `dev`; used through [`crate::netdev_log`].
///
/// `limited` subjects it to the network's rate limit, which whatever the wire can cause must be.
pub fn print(dev: &RawDevice, level: Level, limited: bool, args: fmt::Arguments<'_>) {
    let level = match level {
        Level::Err => c"\x013",
        Level::Warn => c"\x014",
        Level::Info => c"\x016",
        Level::Debug => c"\x017",
    };
    // SAFETY: The device is valid for the call, and the helper prints `args` with `%pA`, which
    // expects a pointer to `fmt::Arguments`.
    unsafe {
        bindings::ipoib_rs_netdev_printk(
            level.as_char_ptr(),
            dev.as_raw(),
            core::ptr::from_ref(&args).cast(),
            limited,
        );
    }
}

/// Prints a line for a device: `netdev_log!(dev, Warn, "text {}\n", x)`, or with `limited` after
/// the level for what the wire or a peer can trigger.
#[macro_export]
macro_rules! netdev_log {
    ($dev:expr, $level:ident, limited, $($arg:tt)*) => {
        $crate::log::print($dev, $crate::log::Level::$level, true, kernel::prelude::fmt!($($arg)*))
    };
    ($dev:expr, $level:ident, $($arg:tt)*) => {
        $crate::log::print($dev, $crate::log::Level::$level, false, kernel::prelude::fmt!($($arg)*))
    };
}
