// SPDX-License-Identifier: GPL-2.0

//! The driver's data go with the device: a reference to them holds one to that.

use ipoib_netdev::device::{Driver, OwnedDevice};

fn look<T: Driver>(owned: OwnedDevice<T>) {
    let data = owned.data();
    #[cfg(misuse)]
    drop(owned); //~ E0505
    let _data = data.get_ref();
    #[cfg(not(misuse))]
    drop(owned);
}
