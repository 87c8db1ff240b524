// SPDX-License-Identifier: GPL-2.0

//! A received datagram becomes one frame.

use ipoib_netdev::napi::Context;
use ipoib_netdev::page_pool::{FilledBuf, Frame};

fn take(buf: FilledBuf<40>, frame: Frame, context: &Context<'_>) {
    let _ = buf.into_frame(context, frame, &[0; 4]);
    #[cfg(misuse)]
    let _ = buf.into_frame(context, frame, &[0; 4]); //~ E0382
}
