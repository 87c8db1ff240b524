// SPDX-License-Identifier: GPL-2.0

//! Events of queues: completions, and queues that break.

use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_netdev::napi::{Handle, Poll};
use ipoib_rdma::{CompletionHandler, FailureHandler};

use crate::base::interface::Interface;

/// Schedules a NAPI when a CQ has something.
pub(super) struct Wake<P: Poll>(pub(super) Handle<P>);

impl<P: Poll> CompletionHandler for Wake<P> {
    fn completion(&self) {
        self.0.schedule();
    }
}

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
