// SPDX-License-Identifier: GPL-2.0

//! A driver keeps no device that it is shown, but for a counted reference, which is waited for after `uninit`.

use ipoib_netdev::device::{Device, Driver, OwnedDevice};

fn keep<T: 'static>(_: T) {}

fn uninit<T: Driver>(dev: &Device<T>) {
    #[cfg(misuse)]
    keep::<&'static Device<T>>(dev); //~ E0521
    #[cfg(not(misuse))]
    keep::<OwnedDevice<T>>(dev.get_typed());
}
