// SPDX-License-Identifier: GPL-2.0

//! Events of a queue pair, which its ULP is told of by a work item.
//!
//! A ULP may pass `IB_EVENT_COMM_EST` on to `ib_cm_notify()`, which takes `cm_id_priv->lock`. The InfiniBand connection
//! manager holds that lock around one that it also takes with interrupts enabled, so that a softirq must not want it.

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::Acquire;
use kernel::types::Opaque;

use super::{Qp, QpEvent};
use crate::owed::Owed;

/// Events that the ULP of a queue pair is going to be told of.
///
/// # Invariants
///
/// * It is a field of a [`Qp`]. `work` is initialised, with [`run`].
/// * When [`Qp::end_events`] has returned, `work` is not pending nor running, nor will be. Until then, the queue pair
///   stays.
#[pin_data]
pub(super) struct Events {
    /// As [`QpEvent::bit`].
    owed: Owed,
    #[pin]
    work: Opaque<bindings::work_struct>,
}

// SAFETY: Work items may be used by any thread.
unsafe impl Send for Events {}
// SAFETY: As above.
unsafe impl Sync for Events {}

impl Events {
    /// No events.
    ///
    /// # Safety
    ///
    /// It has to become the field `events` of a [`Qp`], for which [`Qp::end_events`] is called before it goes.
    pub(super) unsafe fn new() -> impl PinInit<Self> {
        // INVARIANT: By the safety requirement.
        pin_init!(Self {
            owed: Owed::new(),
            work <- Opaque::ffi_init(|work| {
                // SAFETY: It is memory for a work item.
                unsafe { bindings::rdma_provider_work_init(work, Some(run)) }
            }),
        })
    }
}

impl Qp {
    /// Has its ULP told of an event soon, unless its use has ended. The completions that the event is about have to be in
    /// their queues before.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn note(&self, event: QpEvent) {
        if self.events.owed.add(event.bit()) {
            // SAFETY: It is initialised, and the queue pair stays until it has run or was cancelled, by the type
            // invariant.
            unsafe { bindings::rdma_provider_work_queue(self.events.work.get()) };
        }
    }

    /// Drops the events that its ULP has not been told of.
    pub(super) fn forget_events(&self) {
        self.events.owed.take();
    }

    /// Ends the reports: the ULP's handler does not run any more. Events that it has not been told of are dropped.
    ///
    /// # Context
    ///
    /// Process context; sleeps. Hold no lock that a handler may want, and do not call it from one.
    pub(super) fn end_events(&self) {
        // SAFETY: It is initialised, by the type invariant.
        // INVARIANT: Work that was disabled stays so.
        unsafe { bindings::disable_work_sync(self.events.work.get()) };
    }

    /// Waits until its ULP has been told of the events up to now. Returns true if it was about to be.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn wait_for_events(&self) -> bool {
        // SAFETY: It is initialised, by the type invariant.
        unsafe { bindings::flush_work(self.events.work.get()) }
    }

    fn tell(&self, kind: QpEvent) {
        let raw = self.fixed.raw;
        let mut event: bindings::ib_event = pin_init::zeroed();
        event.element.qp = raw;
        event.event = kind as u32;
        // SAFETY: `close` waits for this before RDMA core's half goes.
        let (handler, context) = unsafe {
            event.device = (*raw).device;
            ((*raw).event_handler, (*raw).qp_context)
        };
        if let Some(handler) = handler {
            // SAFETY: RDMA core's handler with the ULP's context; it may sleep here.
            unsafe { handler(&raw mut event, context) };
        }
    }
}

/// Tells the ULP of a queue pair of its events.
///
/// # Safety
///
/// `work` has to be that of the [`Events`] of a [`Qp`].
unsafe extern "C" fn run(work: *mut bindings::work_struct) {
    let field = work.cast::<Opaque<bindings::work_struct>>();
    // SAFETY: By the safety requirement. The queue pair is not gone while this runs, by the invariant of `Events`.
    let qp = unsafe {
        let events = kernel::container_of!(field, Events, work);
        &*kernel::container_of!(events, Qp, events)
    };
    let events = qp.events.owed.take();
    let owed = |event: &QpEvent| events & event.bit() != 0;
    for event in QpEvent::ALL.into_iter().filter(owed) {
        if qp.open.load(Acquire) {
            qp.tell(event);
        }
    }
}
