// SPDX-License-Identifier: GPL-2.0

//! The bytes of a message that becomes a frame are not looked at any more.

use ipoib_netdev::napi::Context;
use ipoib_netdev::parts::Packet;
use ipoib_rdma::RcReceived;

fn receive(message: RcReceived<'_>, context: &Context<'_>, packet: Packet) {
    let head = message.head();
    #[cfg(not(misuse))]
    let _first = head.first();
    let _ = message.into_frame(context, packet, &[0; 4]); //~ E0505
    #[cfg(misuse)]
    let _first = head.first();
}
