// SPDX-License-Identifier: GPL-2.0

//! Data that RTNL protects cannot be reached after it is released.

use ipoib_netdev::rtnl::{Rtnl, RtnlCell};

fn change(cell: &RtnlCell<u32>) {
    let mut held = Rtnl::lock();
    let value = cell.get(&mut held);
    #[cfg(misuse)]
    drop(held); //~ E0505
    *value = 1;
    #[cfg(not(misuse))]
    drop(held);
}
