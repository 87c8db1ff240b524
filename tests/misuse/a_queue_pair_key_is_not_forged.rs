// SPDX-License-Identifier: GPL-2.0

//! A completion, or a queue pair, says which it is; nobody makes that up.

use ipoib_rdma::{QpKey, RcQp};

fn key(qp: &RcQp) -> QpKey {
    #[cfg(misuse)]
    return QpKey(qp.qpn() as usize); //~ E0423
    #[cfg(not(misuse))]
    return qp.key();
}
