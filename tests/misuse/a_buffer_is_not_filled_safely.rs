// SPDX-License-Identifier: GPL-2.0

//! Only who saw the device complete a receive can say that a buffer holds something.

use ipoib_netdev::page_pool::{FilledBuf, RxBuf};

fn show(buf: RxBuf<40>) -> Result<FilledBuf<40>, RxBuf<40>> {
    #[cfg(misuse)]
    let filled = Ok(buf.filled(40)); //~ E0133
    #[cfg(not(misuse))]
    let filled = Err(buf);
    filled
}
