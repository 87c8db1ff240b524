// SPDX-License-Identifier: GPL-2.0

//! Who drops a frame, or gives it to the device, has it no more.

use ipoib_netdev::skb::{DropReason, TxSkb};

fn lose(skb: TxSkb) {
    #[cfg(not(misuse))]
    let _ = skb.len();
    skb.drop_reason(DropReason::DevReady);
    #[cfg(misuse)]
    let _ = skb.len(); //~ E0382
}
