// SPDX-License-Identifier: GPL-2.0

//! Only a running poll has its context.

use ipoib_netdev::napi::Context;
use ipoib_netdev::skb::RxSkb;

fn pass_up(skb: RxSkb, context: &Context<'_>) {
    #[cfg(misuse)]
    let context = &Context {
        napi: todo!(),  //~ E0451
        timer: todo!(), //~ E0451
        rests: todo!(), //~ E0451
    };
    skb.poll_receive(context, false);
}
