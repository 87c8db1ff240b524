// SPDX-License-Identifier: GPL-2.0

//! The queue of a device is its driver's, not that of whoever comes upon the device.

use ipoib_netdev::device::{Device, Driver, RawDevice};

fn wake<T: Driver>(ours: &Device<T>, others: &RawDevice) -> bool {
    #[cfg(misuse)]
    others.start_queue(); //~ E0599
    ours.start_queue();
    ours.is(others)
}
