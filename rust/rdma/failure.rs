// SPDX-License-Identifier: GPL-2.0

//! Failures of queues and queue pairs, which the device reports.

use ipoib_netdev::device::{Device, OwnedDevice, Tasks};
use ipoib_netdev::netdev_log;
use ipoib_sys::bindings;
use kernel::ffi::c_void;
use kernel::revocable::Revocable;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

mod sealed {
    /// Handlers of failures that there are.
    pub trait Sealed {}
}

/// Handler of the failure of a completion queue, a queue pair or a shared receive queue: an [`Alarm`], or nobody.
///
/// There are no others, for the reason that [`CompletionHandler`](crate::CompletionHandler) gives: devices tell in hard
/// interrupts.
pub trait FailureHandler: sealed::Sealed + Send + Sync + 'static {
    /// Called when `what` has failed by itself.
    ///
    /// # Context
    ///
    /// Any, hard interrupt included, possibly under a lock of the device driver's.
    fn failed(&self, what: &'static str);
}

impl sealed::Sealed for () {}

impl FailureHandler for () {
    fn failed(&self, _what: &'static str) {}
}

/// Has a work item of a network device look at what has failed.
pub struct Alarm<T: Tasks> {
    dev: OwnedDevice<T>,
    task: usize,
    failed: Arc<Atomic<bool>>,
}

impl<T: Tasks> Alarm<T> {
    /// Makes an alarm that sets `failed`, and then queues work item `task` of `dev`.
    pub fn new(dev: &Device<T>, task: usize, failed: Arc<Atomic<bool>>) -> Self {
        Self {
            dev: dev.get_typed(),
            task,
            failed,
        }
    }
}

impl<T: Tasks> sealed::Sealed for Alarm<T> {}

impl<T: Tasks> FailureHandler for Alarm<T> {
    fn failed(&self, what: &'static str) {
        self.failed.store(true, Relaxed);
        netdev_log!(&self.dev, Warn, limited, "{what} is broken\n");
        self.dev.queue_task(self.task, 0);
    }
}

/// Tells of the failure of a queue pair, or of a shared receive queue.
///
/// # Safety
///
/// Called by the device, with a valid event and the context of either, which was made with a `Revocable<H>`.
pub(crate) unsafe extern "C" fn event<H: FailureHandler>(
    event: *mut bindings::ib_event,
    context: *mut c_void,
) {
    // SAFETY: By this function's requirements; the handler lives until the object is destroyed.
    let (handler, event) = unsafe {
        let handler = &*context.cast_const().cast::<Revocable<H>>();
        (handler, (*event).event)
    };
    let what = match event {
        bindings::ib_event_type_IB_EVENT_QP_FATAL
        | bindings::ib_event_type_IB_EVENT_QP_REQ_ERR
        | bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR => "queue pair",
        bindings::ib_event_type_IB_EVENT_SRQ_ERR => "shared receive queue",
        _ => return,
    };
    handler.try_access_with(|handler| handler.failed(what));
}
