// SPDX-License-Identifier: GPL-2.0

//! A reset makes the device forget what was posted: the rings do that, which know what they have posted.

use ipoib_rdma::UdQp;

fn end(qp: &UdQp) {
    #[cfg(misuse)]
    let _ = qp.to_reset(); //~ E0624
    #[cfg(not(misuse))]
    let _ = qp.to_error();
}
