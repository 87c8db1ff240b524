// SPDX-License-Identifier: GPL-2.0

//! Only a running poll frees frames together with others, in the CPU's own cache: whoever could wake it does not.

use ipoib_netdev::napi::{Context, Waker};
use ipoib_netdev::skb::TxSkb;

fn free(skb: TxSkb, poll: &Waker) {
    poll.wake();
    #[cfg(misuse)]
    skb.napi_consume(Some(poll)); //~ E0308
    #[cfg(not(misuse))]
    skb.napi_consume(None);
}

fn free_in_a_poll(skb: TxSkb, poll: &Context<'_>) {
    skb.napi_consume(Some(poll));
}

fn free_later(skb: TxSkb, poll: Option<&Context<'_>>) {
    #[cfg(misuse)]
    skb.napi_consume(); //~ E0061
    #[cfg(not(misuse))]
    skb.napi_consume(poll);
}
