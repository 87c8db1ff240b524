// SPDX-License-Identifier: GPL-2.0

//! Peers and groups as tracepoints name them.

use ipoib_proto::hwaddr::HwAddr;
use ipoib_trace::Who;

/// The peer or the group with a link-layer address.
#[inline]
pub(crate) fn who(address: &HwAddr) -> Who {
    Who {
        gid: address.gid().0,
        qpn: address.qpn().get(),
    }
}
