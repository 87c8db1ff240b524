// SPDX-License-Identifier: GPL-2.0

//! A poll cannot keep its context.

use ipoib_netdev::napi::Context;

fn keep(_: Option<&'static Context<'static>>) {}

fn poll(context: &Context<'_>) {
    let _device = context.device();
    #[cfg(misuse)]
    keep(Some(context)); //~ E0521
    #[cfg(not(misuse))]
    keep(None);
}
