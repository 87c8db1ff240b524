// SPDX-License-Identifier: GPL-2.0

//! The UD queue pair and the address handles that its sends need.

use ipoib_proto::flow_label;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_rdma::{Ah, AhOptions, GidRef, Notify, Pd, UdQp};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::port::Port;

/// The queue pair of an interface that is up, and what address handles are made from.
pub(crate) struct Endpoint {
    /// The queue pair.
    pub(crate) qp: Arc<UdQp>,
    /// The port.
    pub(crate) port: Arc<Port>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) gid: GidRef,
    /// The port's own GID, by which it joins groups even if a user has chosen another GUID: the RDMA core lets a port be
    /// in a group with one GID only, and others on it may have joined.
    pub(crate) member: GidRef,
    pub(crate) address: HwAddr,
    pub(crate) options: AhOptions,
    /// Is told when the administrator of an InfiniBand subnet or, on RoCE, the IP stack has answered.
    pub(crate) notify: Arc<dyn Notify>,
}

impl Endpoint {
    /// An address handle for a peer or group on RoCE.
    ///
    /// # Errors
    ///
    /// Those of resolving the GID, and `ENOMEM`.
    ///
    /// # Context
    ///
    /// Sleeps; never under RTNL.
    pub(crate) fn address_handle(&self, address: &HwAddr) -> Result<Arc<Ah>> {
        let options = AhOptions {
            flow_label: flow_label::between(&self.address, address),
            ..self.options
        };
        let notify = self.notify.clone();
        Ah::new(&self.pd, &self.gid, address.gid().0, options, notify)
    }
}
