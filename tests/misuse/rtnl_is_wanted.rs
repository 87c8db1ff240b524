// SPDX-License-Identifier: GPL-2.0

//! Functions that have to run under RTNL take its token.

use ipoib_netdev::device::{Device, Driver};
use ipoib_netdev::rtnl::Rtnl;

fn restart<T: Driver>(dev: &Device<T>, rtnl: &mut Rtnl) {
    #[cfg(misuse)]
    let _ = dev.restart(); //~ E0061
    #[cfg(not(misuse))]
    let _ = dev.restart(rtnl);
}
