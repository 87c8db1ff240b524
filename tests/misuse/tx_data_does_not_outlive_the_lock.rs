// SPDX-License-Identifier: GPL-2.0

//! Data that the transmit lock protects cannot be reached after it is released.

use ipoib_netdev::device::{Device, Driver};

fn transmit<T: Driver>(dev: &Device<T>) {
    let mut guard = dev.lock_tx();
    let tx = guard.as_mut();
    #[cfg(misuse)]
    drop(guard); //~ E0505
    let _is_open = tx.is_some();
    #[cfg(not(misuse))]
    drop(guard);
}
