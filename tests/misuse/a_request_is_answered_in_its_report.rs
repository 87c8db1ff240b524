// SPDX-License-Identifier: GPL-2.0

//! A request for a connection is answered, or refused, before the report of it returns.

use ipoib_rdma::Incoming;

fn keep(_: Option<Incoming<'static>>) {}

fn request(incoming: Incoming<'_>) {
    #[cfg(misuse)]
    keep(Some(incoming)); //~ E0521
    #[cfg(not(misuse))]
    {
        let _data = incoming.private_data();
        keep(None);
    }
}
