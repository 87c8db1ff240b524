// SPDX-License-Identifier: GPL-2.0

//! Queues that break.

use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_rdma::FailureHandler;

use crate::base::interface::Interface;

/// Has a queue of an interface, which it names, replaced when it breaks.
pub(super) struct Alarm(OwnedDevice<Interface>, &'static str);

impl Alarm {
    pub(super) fn new(dev: &Device<Interface>, queue: &'static str) -> Self {
        Self(dev.get_typed(), queue)
    }
}

impl FailureHandler for Alarm {
    fn failed(&self) {
        Interface::queue_failed(&self.0, self.1);
    }
}
