// SPDX-License-Identifier: GPL-2.0

//! Connection IDs and their destruction, which may have to wait for the CM.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::sync::Arc;
use kernel::time::{Delta, Instant, Monotonic};

use super::report::Context;
use super::CmHandler;
use crate::deferred::DeferDrop;
use crate::device::Device;

/// The longest wait for a report that the CM owes, or may owe, in milliseconds. It delays the end of the device only.
///
/// A kernel with "IB/cm: hold the ID while a send error is reported" (`patches/`) needs no such wait. Others free the ID in
/// spite of it, if the CM's worker does not run for that long just before it reports.
const REPORT_MS: i64 = 1000;

/// A connection ID, and the stage of its destruction.
///
/// # Invariants
///
/// * `raw` is a connection ID, owned by this value, and not one that listens; until it was destroyed, as `end`
///   says.
/// * Its handler is `event::<H>`, its context is `context`'s value.
pub(super) struct OwnedId<H: CmHandler> {
    raw: NonNull<bindings::ib_cm_id>,
    context: Arc<Context<H>>,
    end: End,
    /// The CM's device, which stays registered until the ID is destroyed.
    _dev: Device,
}

/// Stages of its destruction.
#[derive(Clone, Copy)]
enum End {
    /// It is there; if its last user has gone, the CM owes a report since then.
    Near(Option<Instant<Monotonic>>),
    /// It was destroyed at that time.
    Past(Instant<Monotonic>),
}

// SAFETY: A connection ID may be destroyed by any thread; the rest is `Send`.
unsafe impl<H: CmHandler> Send for OwnedId<H> {}
// SAFETY: As above, and `Sync`.
unsafe impl<H: CmHandler> Sync for OwnedId<H> {}

impl<H: CmHandler> OwnedId<H> {
    /// Takes ownership of an ID.
    ///
    /// # Safety
    ///
    /// `raw` must be a connection ID of `dev`, not one that listens, whose handler is `event::<H>` and whose context is
    /// `context`'s value. Nobody else may destroy it, nor use it but while there is a shared reference to this value.
    pub(super) unsafe fn new(
        raw: NonNull<bindings::ib_cm_id>,
        context: Arc<Context<H>>,
        dev: &Device,
    ) -> Self {
        // INVARIANT: By this function's requirements.
        Self {
            raw,
            context,
            end: End::Near(None),
            _dev: dev.clone(),
        }
    }

    pub(super) fn context(&self) -> &Arc<Context<H>> {
        &self.context
    }

    /// The CM's state of the connection, which may have changed already. None: the ID was destroyed.
    pub(super) fn state(&self) -> Option<bindings::ib_cm_state> {
        match self.end {
            End::Near(_) => {
                // SAFETY: There by the type invariant, and not destroyed while `self` is borrowed. The CM changes it
                // under a lock that is not ours to take, but any value that is read is one that it had.
                Some(unsafe { ptr::read_volatile(&raw const (*self.raw.as_ptr()).state) })
            }
            End::Past(_) => None,
        }
    }

    fn prepare_drop_at(&mut self, now: Instant<Monotonic>) -> bool {
        let since = match self.end {
            End::Near(since) => since,
            End::Past(then) => return self.is_silent(now - then),
        };
        // While the CM reports that a message was not answered, it holds no reference to the ID
        // (`cm_process_send_error`), unless it has the patch that `REPORT_MS` names, so that destroying that does not wait
        // for the report. Every other report does hold one.
        let is_owed = |state| self.context.is_owed_report(state);
        if self.state().is_some_and(is_owed) {
            let since = since.unwrap_or(now);
            self.end = End::Near(Some(since));
            if (now - since).as_millis() < REPORT_MS {
                return false;
            }
        }
        // SAFETY: There by the type invariant, and nobody uses it: `self` is borrowed mutably. On return, the
        // handler does not run.
        unsafe { bindings::ib_destroy_cm_id(self.raw.as_ptr()) };
        // INVARIANT: It is not used again.
        self.end = End::Past(Instant::now());
        self.is_silent(Delta::ZERO)
    }

    /// Returns true if the CM does not call the handler any more, that long after the ID was destroyed.
    ///
    /// It may have given a message up since we looked, and be about to call the handler, which is a matter
    /// of instructions, or of when its worker runs again. Nobody can tell that from a message that was cancelled, or a
    /// connection that just was there, for which all of this is waited.
    fn is_silent(&self, age: Delta) -> bool {
        self.context.is_settled() || age.as_millis() >= REPORT_MS
    }
}

impl<H: CmHandler> DeferDrop for OwnedId<H> {
    /// Destroys the ID, unless the CM may be about to report on it. Returns true if the CM does not call the handler
    /// any more. For that, the CM waits until its own handlers are over, and the device has sent its messages.
    fn prepare_drop(&mut self) -> bool {
        self.prepare_drop_at(Instant::now())
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(rust_rdma_cm_owned)]
mod tests {
    use kernel::alloc::flags::__GFP_ZERO;
    use kernel::error::from_err_ptr;
    use kernel::prelude::*;

    use super::super::report::{as_context, event, DREQ, LINK, REP, REQ};
    use super::super::CmEvent;
    use super::*;
    use crate::dummy::Dummy;

    struct Deaf;

    impl CmHandler for Deaf {
        fn event(&self, _event: CmEvent<'_>) {}
    }

    /// An ID of the CM's in the state in which a message was given up, on which it owes a report.
    fn given_up(dummy: &Dummy, message: u32) -> Result<OwnedId<Deaf>> {
        let context = Context::new(Arc::new(Deaf, GFP_KERNEL)?)?;
        context.owe(message);
        // SAFETY: The CM keeps the device in the ID, and uses no more of it before a message is sent. The context
        // lives as long as the ID.
        let raw = from_err_ptr(unsafe {
            bindings::ib_create_cm_id(
                dummy.device().as_raw(),
                Some(event::<Deaf>),
                as_context(&context),
            )
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        if matches!(message, LINK | DREQ) {
            // SAFETY: It is ours, and nobody else knows it.
            unsafe { (*raw.as_ptr()).state = bindings::ib_cm_state_IB_CM_TIMEWAIT };
        }
        // SAFETY: It was just made so, and only tests use it, while they have a reference.
        Ok(unsafe { OwnedId::new(raw, context, dummy.device()) })
    }

    /// Has the CM report that a message is unanswered.
    fn report(id: &OwnedId<Deaf>, what: bindings::ib_cm_event_type) -> Result {
        let mut told = KBox::<bindings::ib_cm_event>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        let told = told.as_mut_ptr();
        // SAFETY: It is zeroed, which is a valid value; these events are looked at no further. The ID is there.
        unsafe {
            (*told).event = what;
            event::<Deaf>(id.raw.as_ptr(), told);
        }
        Ok(())
    }

    #[test]
    fn an_id_stays_until_the_cm_has_reported() -> Result {
        let dummy = Dummy::new()?;
        for (message, what) in [
            (REQ, bindings::ib_cm_event_type_IB_CM_REQ_ERROR),
            (REP, bindings::ib_cm_event_type_IB_CM_REP_ERROR),
            // The CM has disconnected by itself.
            (LINK, bindings::ib_cm_event_type_IB_CM_DREQ_ERROR),
            (DREQ, bindings::ib_cm_event_type_IB_CM_DREQ_ERROR),
        ] {
            let mut id = given_up(&dummy, message)?;
            for _ in 0..2 {
                assert!(!id.prepare_drop());
                assert!(matches!(id.end, End::Near(Some(_))));
            }
            report(&id, what)?;
            assert!(id.state().is_some());
            assert!(id.prepare_drop());
            // The CM's memory is gone.
            assert!(id.state().is_none());
        }
        Ok(())
    }

    #[test]
    fn a_report_that_does_not_come_is_not_waited_for_for_ever() -> Result {
        let dummy = Dummy::new()?;
        let mut id = given_up(&dummy, LINK)?;
        let begin = Instant::now();
        for waited in [0, REPORT_MS - 1] {
            assert!(!id.prepare_drop_at(begin + Delta::from_millis(waited)));
            assert!(matches!(id.end, End::Near(Some(_))));
        }
        // It may be on its way still.
        assert!(!id.prepare_drop_at(begin + Delta::from_millis(REPORT_MS)));
        assert!(matches!(id.end, End::Past(_)));
        assert!(id.prepare_drop_at(Instant::now() + Delta::from_millis(REPORT_MS)));
        Ok(())
    }
}
