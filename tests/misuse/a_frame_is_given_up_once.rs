// SPDX-License-Identifier: GPL-2.0

//! A frame cannot be used after it was dropped or given to the device.

use ipoib_netdev::skb::{DropReason, TxSkb};

fn lose(skb: TxSkb) {
    #[cfg(not(misuse))]
    let _ = skb.len();
    skb.drop_reason(DropReason::DevReady);
    #[cfg(misuse)]
    let _ = skb.len(); //~ E0382
}
