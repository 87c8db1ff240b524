// SPDX-License-Identifier: GPL-2.0

//! Only who saw the device complete a receive can say that a buffer holds something.

use ipoib_netdev::page_pool::RxBuf;

fn show(buf: RxBuf<40>) -> usize {
    #[cfg(misuse)]
    let filled = buf.filled(40); //~ E0133
    #[cfg(not(misuse))]
    let filled: Result<RxBuf<40>, RxBuf<40>> = Ok(buf);
    usize::from(filled.is_ok())
}
