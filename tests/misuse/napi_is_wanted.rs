// SPDX-License-Identifier: GPL-2.0

//! Memory of a CPU's own caches comes with the poll that runs on it.

use ipoib_netdev::napi::Context;
use ipoib_netdev::page_pool::{FilledBuf, Frame};

fn copy(buf: FilledBuf<40>, frame: Frame, context: &Context<'_>) {
    #[cfg(misuse)]
    let _ = buf.copy_frame(frame, &[0; 4]); //~ E0061
    #[cfg(not(misuse))]
    let _ = buf.copy_frame(context, frame, &[0; 4]);
}

fn take(buf: FilledBuf<40>, frame: Frame, context: &Context<'_>) {
    #[cfg(misuse)]
    let _ = buf.into_frame(frame, &[0; 4]); //~ E0061
    #[cfg(not(misuse))]
    let _ = buf.into_frame(context, frame, &[0; 4]);
}
