// SPDX-License-Identifier: GPL-2.0

//! RTNL is released by the task that took it.

use raw_ether::notifier::Rtnl;

fn send<T: Send>(_: T) {}

fn hold() {
    #[cfg(misuse)]
    send(Rtnl::lock()); //~ E0277
    #[cfg(not(misuse))]
    drop(Rtnl::lock());
}
