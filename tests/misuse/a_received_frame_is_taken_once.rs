// SPDX-License-Identifier: GPL-2.0

//! A received datagram becomes one frame.

use ipoib_netdev::page_pool::{FilledBuf, Frame};

fn take(buf: FilledBuf, frame: Frame) {
    let _ = buf.into_frame(frame);
    #[cfg(misuse)]
    let _ = buf.into_frame(frame); //~ E0382
}
