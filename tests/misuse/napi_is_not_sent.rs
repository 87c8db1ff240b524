// SPDX-License-Identifier: GPL-2.0

//! A poll's context stays on the CPU where that runs.

use ipoib_netdev::napi::Context;

fn send<T: Send>(_: T) {}

fn poll(context: &Context<'_>) {
    #[cfg(misuse)]
    send(context); //~ E0277
    #[cfg(not(misuse))]
    send(context.device());
}
