// SPDX-License-Identifier: GPL-2.0

//! Netlink checks a number as one type, so that no other type may be read from it.

use ipoib_netdev::link::Text;
use ipoib_netdev::link_attributes;

#[cfg(misuse)]
link_attributes! { //~ E0080
    /// Two bytes.
    id: u16 = 1;
    /// They need not end with a zero.
    name: Text<9> = 1;
}

#[cfg(not(misuse))]
link_attributes! {
    /// Two bytes.
    id: u16 = 1;
    /// They end with a zero.
    name: Text<9> = 2;
}
