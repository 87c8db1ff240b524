// SPDX-License-Identifier: GPL-2.0

//! Only who saw the device complete a receive can say that a buffer holds something.

use ipoib_netdev::page_pool::{FilledBuf, PagePool, RxBuf};

fn show(pool: &PagePool<40>, buf: RxBuf<40>) -> Result<FilledBuf<40>, RxBuf<40>> {
    #[cfg(misuse)]
    let filled = Ok(pool.filled(buf, 40)); //~ E0133
    #[cfg(not(misuse))]
    let (_, filled) = (pool, Err(buf));
    filled
}
