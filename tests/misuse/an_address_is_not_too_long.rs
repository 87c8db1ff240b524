// SPDX-License-Identifier: GPL-2.0

//! The kernel has room for 32 bytes of an address.

use ipoib_netdev::device::Bytes;

fn setup<Address: Bytes>() -> usize {
    size_of::<Address>()
}

fn sizes() -> usize {
    #[cfg(misuse)]
    setup::<[u8; 33]>(); //~ E0277
    setup::<[u8; 32]>()
}
