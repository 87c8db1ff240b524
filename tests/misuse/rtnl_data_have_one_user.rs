// SPDX-License-Identifier: GPL-2.0

//! There is one reference at a time to what RTNL protects.

use ipoib_netdev::rtnl::{Rtnl, RtnlCell};

fn change(cell: &RtnlCell<u32>, rtnl: &mut Rtnl) {
    let first = cell.get(rtnl);
    #[cfg(not(misuse))]
    {
        *first = 1;
    }
    let second = cell.get(rtnl); //~ E0499
    *second = 2;
    #[cfg(misuse)]
    {
        *first = 1;
    }
}
