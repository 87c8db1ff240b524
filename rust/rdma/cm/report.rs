// SPDX-License-Identifier: GPL-2.0

//! Reports of the CM on a connection ID, and those that it still owes.

use core::ptr;

use ipoib_sys::bindings;
use kernel::ffi::{c_int, c_void};
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::sync::{Arc, ArcBorrow, SpinLock};

use super::{private_data, CmEvent, CmHandler, REJECT_DATA, REPLY_DATA};

/// The CM owes no report.
pub(super) const NONE: u32 = 0;
/// The CM owes a report on our request, which is unanswered.
pub(super) const REQ: u32 = 1;
/// The CM owes a report on our reply, which is unanswered.
pub(super) const REP: u32 = 2;
/// There is a connection. The CM disconnects by itself if the peer connects the same queue pair again, and
/// reports on that as if we had.
pub(super) const LINK: u32 = 3;
/// The CM owes a report on our disconnection, which is unanswered.
pub(super) const DREQ: u32 = 4;

/// The context of a connection ID, which the CM passes to [`event`].
#[pin_data]
pub(super) struct Context<H> {
    /// None from when the ID has no user any more.
    #[pin]
    handler: SpinLock<Option<Arc<H>>>,
    /// The report that the CM owes: [`NONE`] to [`DREQ`].
    owed: Atomic<u32>,
}

impl<H> Context<H> {
    /// Notes that the CM owes a report on `message`; returns that on which it did before.
    pub(super) fn owe(&self, message: u32) -> u32 {
        self.owed.xchg(message, Release)
    }

    /// Returns true if the CM owes no report.
    pub(super) fn is_settled(&self) -> bool {
        self.owed.load(Acquire) == NONE
    }

    /// Notes that the CM has reported on `message`, or will not, and owes a report on `next` from now on.
    pub(super) fn settle(&self, message: u32, next: u32) {
        // Otherwise it was settled before.
        let _ = self.owed.cmpxchg(message, next, Release);
    }

    /// Notes that the CM has reported the end of the connection.
    fn settle_all(&self) {
        self.owed.store(NONE, Release);
    }

    /// Returns true if the CM, whose state this is, has given up on a message, be it one that it sent by itself, and
    /// has yet to report that.
    pub(super) fn is_owed_report(&self, state: bindings::ib_cm_state) -> bool {
        !self.is_settled()
            && matches!(
                state,
                bindings::ib_cm_state_IB_CM_IDLE | bindings::ib_cm_state_IB_CM_TIMEWAIT
            )
    }
}

impl<H: CmHandler> Context<H> {
    pub(super) fn new(handler: Arc<H>) -> Result<Arc<Self>> {
        let context = pin_init!(Self {
            handler <- new_spinlock!(Some(handler)),
            owed: Atomic::new(NONE),
        });
        Arc::pin_init(context, GFP_KERNEL)
    }

    /// Tells the handler of no more events; it may be running still.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn forget_handler(&self) {
        let handler = self.handler.lock().take();
        // Not under the lock.
        drop(handler);
    }
}

/// The pointer by which the CM knows a context.
pub(super) fn as_context<T>(context: &Arc<T>) -> *mut c_void {
    Arc::as_ptr(context).cast_mut().cast()
}

/// Handles an event of a connection ID.
///
/// # Safety
///
/// Called by the CM with a valid event, for an ID whose context is a `Context<H>`.
pub(super) unsafe extern "C" fn event<H: CmHandler>(
    id: *mut bindings::ib_cm_id,
    event: *const bindings::ib_cm_event,
) -> c_int {
    // SAFETY: By this function's requirements. The context lives until the ID is destroyed, which
    // waits for us, or, if we report that a message was not answered, until that is settled or was
    // waited for.
    let context = unsafe { ArcBorrow::from_raw((*id).context.cast_const().cast::<Context<H>>()) };
    // Held, since another report may settle it while the handler runs.
    let context: &Arc<Context<H>> = &context.into();
    // SAFETY: By this function's requirements.
    let event = unsafe { &*event };
    let handler = context.handler.lock().clone();
    // SAFETY: By this function's requirements.
    let told = unsafe { interpret(context, id, event) };
    if let (Some(handler), Some(told)) = (handler, told) {
        handler.event(told);
    }
    // A CM without the patch that `REPORT_MS` names holds no reference to the ID while it reports that a message was not
    // answered: once that is settled, nobody waits for this function any more.
    match event.event {
        bindings::ib_cm_event_type_IB_CM_REQ_ERROR => context.settle(REQ, NONE),
        bindings::ib_cm_event_type_IB_CM_REP_ERROR => context.settle(REP, NONE),
        bindings::ib_cm_event_type_IB_CM_DREQ_ERROR => context.settle_all(),
        _ => (),
    }
    // An error would destroy the ID, which has an owner.
    0
}

/// Translates an event for the handler, and settles the reports that it stands for. [`event`] settles those of a message
/// that was not answered.
///
/// # Safety
///
/// As for [`event`].
unsafe fn interpret<'a, H: CmHandler>(
    context: &Context<H>,
    id: *mut bindings::ib_cm_id,
    event: &'a bindings::ib_cm_event,
) -> Option<CmEvent<'a>> {
    Some(match event.event {
        bindings::ib_cm_event_type_IB_CM_REP_RECEIVED => {
            context.settle(REQ, NONE);
            CmEvent::Accepted {
                // SAFETY: That is what this event comes with.
                private_data: unsafe { private_data(event, REPLY_DATA) },
            }
        }
        bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED
        | bindings::ib_cm_event_type_IB_CM_USER_ESTABLISHED => {
            context.settle(REP, LINK);
            CmEvent::Confirmed
        }
        bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED => {
            // It may reject any of our messages.
            context.settle_all();
            CmEvent::Rejected {
                // SAFETY: That is what this event comes with; the message has 16 bits for it.
                reason: unsafe { event.param.rej_rcvd.reason } as u16,
                // SAFETY: As above.
                private_data: unsafe { private_data(event, REJECT_DATA) },
            }
        }
        bindings::ib_cm_event_type_IB_CM_REQ_ERROR | bindings::ib_cm_event_type_IB_CM_REP_ERROR => {
            CmEvent::NoAnswer
        }
        bindings::ib_cm_event_type_IB_CM_DREQ_ERROR => CmEvent::Over,
        bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED => {
            // It stands for an answer to a reply or a disconnection of ours.
            context.settle_all();
            // SAFETY: By this function's requirements; this event comes with a reference to the ID.
            // If it fails, the other side asks again or does not care.
            let _ = unsafe { bindings::ib_send_cm_drep(id, ptr::null(), 0) };
            CmEvent::Disconnected
        }
        bindings::ib_cm_event_type_IB_CM_DREP_RECEIVED
        | bindings::ib_cm_event_type_IB_CM_TIMEWAIT_EXIT => {
            context.settle_all();
            CmEvent::Over
        }
        // Delays of the peer's, and alternate paths.
        _ => return None,
    })
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_cm_report)]
mod tests {
    use super::*;
    use kernel::alloc::flags::__GFP_ZERO;

    const GONE: bindings::ib_cm_state = bindings::ib_cm_state_IB_CM_TIMEWAIT;

    struct Deaf;

    impl CmHandler for Deaf {
        fn event(&self, _event: CmEvent<'_>) {}
    }

    /// A handler that looks whether reports are settled while it runs.
    struct Curious {
        context: Atomic<*mut Context<Curious>>,
        settled: Atomic<bool>,
    }

    impl CmHandler for Curious {
        fn event(&self, _event: CmEvent<'_>) {
            // SAFETY: The test sets it before it reports anything, and holds the context.
            let context = unsafe { &*self.context.load(Acquire) };
            self.settled.store(context.is_settled(), Release);
        }
    }

    fn context(owed: u32) -> Result<Arc<Context<Deaf>>> {
        let context = Context::new(Arc::new(Deaf, GFP_KERNEL)?)?;
        context.owe(owed);
        Ok(context)
    }

    /// Has the CM report an event.
    fn report<H: CmHandler>(context: &Arc<Context<H>>, what: bindings::ib_cm_event_type) -> Result {
        let flags = GFP_KERNEL | __GFP_ZERO;
        let mut id = KBox::<bindings::ib_cm_id>::new_uninit(flags)?;
        let mut told = KBox::<bindings::ib_cm_event>::new_uninit(flags)?;
        let (id, told) = (id.as_mut_ptr(), told.as_mut_ptr());
        // SAFETY: Both are ours and zeroed, which is a valid value of each; these events are looked at no
        // further.
        unsafe {
            (*id).context = as_context(context);
            (*told).event = what;
            event::<H>(id, told);
        }
        Ok(())
    }

    #[test]
    fn a_connection_owes_a_report_until_it_is_over() -> Result {
        let context = context(REP)?;
        report(&context, bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED)?;
        assert!(!context.is_owed_report(bindings::ib_cm_state_IB_CM_ESTABLISHED));
        // The CM has disconnected by itself, and nobody answers.
        assert!(!context.is_owed_report(bindings::ib_cm_state_IB_CM_DREQ_SENT));
        assert!(context.is_owed_report(GONE));
        report(&context, bindings::ib_cm_event_type_IB_CM_DREQ_ERROR)?;
        assert!(!context.is_owed_report(GONE));
        Ok(())
    }

    /// While the CM reports that a message was not answered, only the unsettled report keeps the ID and the module.
    #[test]
    fn a_report_without_a_reference_is_settled_last() -> Result {
        for (owed, what) in [
            (REQ, bindings::ib_cm_event_type_IB_CM_REQ_ERROR),
            (REP, bindings::ib_cm_event_type_IB_CM_REP_ERROR),
            (DREQ, bindings::ib_cm_event_type_IB_CM_DREQ_ERROR),
        ] {
            let handler = Curious {
                context: Atomic::new(core::ptr::null_mut()),
                settled: Atomic::new(true),
            };
            let handler = Arc::new(handler, GFP_KERNEL)?;
            let context = Context::new(handler.clone())?;
            let raw = as_context(&context).cast();
            handler.context.store(raw, Release);
            context.owe(owed);
            report(&context, what)?;
            assert!(!handler.settled.load(Acquire));
            assert!(context.is_settled());
        }
        Ok(())
    }

    #[test]
    fn a_report_of_the_end_counts_whenever_it_comes() -> Result {
        let context = context(REP)?;
        report(&context, bindings::ib_cm_event_type_IB_CM_DREQ_ERROR)?;
        report(&context, bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED)?;
        assert!(!context.is_owed_report(GONE));
        Ok(())
    }

    #[test]
    fn a_message_that_failed_leaves_what_was_owed() -> Result {
        let context = context(LINK)?;
        context.owe(DREQ);
        context.settle(DREQ, LINK);
        assert!(context.is_owed_report(GONE));
        // A report that came meanwhile stands.
        context.settle_all();
        context.settle(DREQ, LINK);
        assert!(!context.is_owed_report(GONE));
        Ok(())
    }
}
