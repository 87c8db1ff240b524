// SPDX-License-Identifier: GPL-2.0

//! A message is gone before its buffer is posted again.

use ipoib_rdma::IntakeRing;

fn poll(ring: &mut IntakeRing) {
    let message = ring.message(0, |_| ());
    #[cfg(misuse)]
    ring.post(); //~ E0499
    let _len = message.as_ref().map(|message| message.len());
    drop(message);
    #[cfg(not(misuse))]
    ring.post();
}
