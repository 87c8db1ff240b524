// SPDX-License-Identifier: GPL-2.0

//! Events of queues: completions, and queues that break.

use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_netdev::napi::{Handle, Poll};
use ipoib_rdma::{CompletionHandler, FailureHandler};

use crate::base::interface::Interface;

/// Schedules a NAPI when a CQ has something.
pub(super) struct Wake<P: Poll> {
    napi: Handle<P>,
    dev: OwnedDevice<Interface>,
}

impl<P: Poll> Wake<P> {
    pub(super) fn new(napi: Handle<P>, dev: &Device<Interface>) -> Self {
        Self {
            napi,
            dev: dev.get_typed(),
        }
    }
}

impl<P: Poll> CompletionHandler for Wake<P> {
    fn completion(&self) {
        self.napi.schedule();
    }

    fn failed(&self) {
        Interface::queue_failed(&self.dev, "completion queue");
    }
}

/// Has a queue of an interface, which it names, replaced when it breaks.
pub(super) struct Alarm(pub(super) OwnedDevice<Interface>, pub(super) &'static str);

impl FailureHandler for Alarm {
    fn failed(&self) {
        Interface::queue_failed(&self.0, self.1);
    }
}
