// SPDX-License-Identifier: GPL-2.0

//! Completion events of the two queue pairs' kinds.

use ipoib_netdev::device::OwnedDevice;
use ipoib_netdev::napi::Source;
use ipoib_rdma::{Cq, NoEvent};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::interface::Interface;

/// The events of a CQ, for the NAPI that polls its ring, and of that for connections.
pub(crate) struct Events {
    pub(crate) datagrams: Arc<Cq>,
    pub(crate) connections: Option<Arc<Cq>>,
    pub(crate) dev: OwnedDevice<Interface>,
}

impl Source for Events {
    // For every poll, at its end.
    #[inline(always)]
    fn arm(&self) -> bool {
        let again = |armed: Result<bool, NoEvent>| {
            armed.unwrap_or_else(|_| {
                Interface::poll_later(&self.dev);
                false
            })
        };
        match &self.connections {
            Some(connections) => again(self.datagrams.arm()) | again(connections.arm()),
            // Its poll looks at no other.
            None => again(self.datagrams.request()),
        }
    }
}

/// The queues that a poll takes completions from, of datagrams and of connections, which are as `due` says if there are
/// both. An event is for one of them; a poll without one looks at both.
#[inline]
pub(crate) fn to_poll(due: Option<(bool, bool)>) -> (bool, bool) {
    match due {
        None => (true, false),
        Some((false, false)) => (true, true),
        Some(due) => due,
    }
}
