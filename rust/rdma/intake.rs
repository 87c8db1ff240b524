// SPDX-License-Identifier: GPL-2.0

//! Intakes: the buffers that connections receive into.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::from_err_ptr;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::revocable::Revocable;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::{Arc, Mutex, SetOnce};

use crate::cq::Cq;
use crate::deferred::{DeferDrop, Deferred, Reserved};
use crate::failure::{event, FailureHandler};
use crate::left::{self, Left, Object, Told};
use crate::pd::Pd;

/// An intake: many queue pairs receive into its buffers. They share a receive queue, or have one each
/// where the device cannot share.
///
/// It is destroyed when its last user, be it a queue pair, is. All that is received through it
/// completes on one completion queue, so that one ring sees all of it.
///
/// # Invariants
///
/// * `raw` is the shared receive queue of `body`, if there is one.
/// * Queue pairs that use it hold an `Arc` of it, and complete receives on the `cq` of `body`.
/// * One ring at most ever posts its buffers. Once that is dropped, the body's `memory` is what it had
///   posted.
pub struct Intake {
    raw: Option<NonNull<bindings::ib_srq>>,
    max_wr: u32,
    max_sge: u32,
    has_ring: Atomic<bool>,
    reports: Arc<Reports>,
    body: Deferred<Body>,
}

/// Experience with a device's reports that a queue pair takes no more receives from a shared receive queue.
pub(crate) struct Reports {
    /// A report has come at some time.
    came: Atomic<bool>,
    /// A report did not come in time.
    missing: Atomic<bool>,
}

impl Reports {
    /// Notes that one came.
    pub(crate) fn note(&self) {
        self.came.store(true, Relaxed);
    }

    /// Notes that one has not come in time.
    pub(crate) fn note_missing(&self) {
        self.missing.store(true, Relaxed);
    }

    /// Returns true if one may come, as far as is known: irdma makes none.
    pub(crate) fn are_made(&self) -> bool {
        self.came.load(Relaxed) || !self.missing.load(Relaxed)
    }
}

// SAFETY: A shared receive queue may be used by any thread.
unsafe impl Send for Intake {}
// SAFETY: Posting is synchronised by the device driver.
unsafe impl Sync for Intake {}

/// A place for the memory of a dropped ring.
type Place = Pin<KBox<Mutex<Option<KBox<dyn Left>>>>>;

/// DeferDrop of an intake that is no longer in use.
///
/// # Invariants
///
/// `raw` is a shared receive queue of `pd`, owned by this value, if there is one; `told` is the handler of its
/// events then. `memory`, if it is there, is what may be received into.
struct Body {
    raw: Option<NonNull<bindings::ib_srq>>,
    told: Option<Arc<dyn Told>>,
    /// A queue pair was not destroyed.
    stuck: Atomic<bool>,
    memory: Place,
    /// The completion queue of all receives.
    cq: SetOnce<Arc<Cq>>,
    pd: Arc<Pd>,
}

// SAFETY: A shared receive queue may be destroyed by any thread.
unsafe impl Send for Body {}
// SAFETY: As above.
unsafe impl Sync for Body {}

impl DeferDrop for Body {}

impl Intake {
    /// Makes an intake whose queue pairs share a receive queue. That takes `max_wr` receives, each of
    /// which scatters to at most `max_sge` elements; `handler` is told when it breaks.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none, or for more than the device can; `EOPNOTSUPP` if it has no such thing;
    /// `ESHUTDOWN` after the [`crate::Reaper`] was dropped; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Dropping it is fine in softirq.
    pub fn shared<H: FailureHandler>(
        pd: &Arc<Pd>,
        max_wr: u32,
        max_sge: u32,
        handler: H,
    ) -> Result<Arc<Self>> {
        let dev = pd.device();
        if dev.ops().create_srq.is_none() || dev.max_srq() == 0 {
            return Err(EOPNOTSUPP);
        }
        if max_wr == 0 || max_wr > dev.max_srq_wr() || max_sge == 0 || max_sge > dev.max_srq_sge() {
            return Err(EINVAL);
        }
        Self::with(pd, max_wr, max_sge, || {
            let handler = Arc::pin_init(Revocable::new(handler), GFP_KERNEL)?;
            let mut attr = bindings::ib_srq_init_attr {
                event_handler: Some(event::<H>),
                srq_context: Arc::as_ptr(&handler).cast_mut().cast(),
                attr: bindings::ib_srq_attr {
                    max_wr,
                    max_sge,
                    srq_limit: 0,
                },
                srq_type: bindings::ib_srq_type_IB_SRQT_BASIC,
                ..Default::default()
            };
            // SAFETY: `pd` is valid and outlives the queue by the type invariant, as does the handler; the
            // attributes are ours. Without user data this is the kernel's own queue.
            let raw = from_err_ptr(unsafe {
                bindings::ib_create_srq_user(
                    pd.as_raw(),
                    &raw mut attr,
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            })?;
            // INVARIANT: It was just made.
            Ok(Some((NonNull::new(raw).ok_or(ENOMEM)?, handler)))
        })
    }

    /// Makes an intake whose queue pairs have receive queues of their own. Those take `max_wr` receives
    /// together, each of which scatters to at most `max_sge` elements.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none, or for more elements than the device can; `ESHUTDOWN` after the
    /// [`crate::Reaper`] was dropped; `ENOMEM`.
    ///
    /// # Context
    ///
    /// As [`Self::shared`].
    pub fn separate(pd: &Arc<Pd>, max_wr: u32, max_sge: u32) -> Result<Arc<Self>> {
        if max_wr == 0 || max_sge == 0 || max_sge > pd.device().max_recv_sge() {
            return Err(EINVAL);
        }
        // INVARIANT: There is no shared receive queue.
        Self::with(pd, max_wr, max_sge, || Ok(None))
    }

    /// Makes an intake with the queue that `make` makes, if it does, of which the type invariants hold.
    fn with(
        pd: &Arc<Pd>,
        max_wr: u32,
        max_sge: u32,
        make: impl FnOnce() -> Result<Option<(NonNull<bindings::ib_srq>, Arc<dyn Told>)>>,
    ) -> Result<Arc<Self>> {
        let reserved = Reserved::new(pd.deferred_drop())?;
        let memory = Self::no_memory()?;
        let (raw, told) = make()?.unzip();
        let body = Body {
            raw,
            told,
            stuck: Atomic::new(false),
            memory,
            cq: SetOnce::new(),
            pd: pd.clone(),
        };
        // Nothing fails between that and this: dropping it destroys the queue.
        let body = reserved.fill(body);
        let reports = Reports {
            came: Atomic::new(false),
            missing: Atomic::new(false),
        };
        let reports = Arc::new(reports, GFP_KERNEL)?;
        let intake = Self {
            raw,
            // The device may have rounded up; what was asked for is what rings rely on.
            max_wr,
            max_sge,
            has_ring: Atomic::new(false),
            reports,
            body,
        };
        Ok(Arc::new(intake, GFP_KERNEL)?)
    }

    /// The place of a ring's memory, where there is none yet.
    // Not in the generic function, of whose instances each would give the lock's class a name of its own.
    fn no_memory() -> Result<Place> {
        KBox::pin_init(new_mutex!(None), GFP_KERNEL)
    }

    /// The device's reports about its queue pairs.
    pub(crate) fn reports(&self) -> &Arc<Reports> {
        &self.reports
    }

    /// Returns true if its queue pairs share a receive queue.
    pub fn is_shared(&self) -> bool {
        self.raw.is_some()
    }

    /// The shared receive queue; null if there is none.
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_srq {
        self.raw.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// Receives that may be posted.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Elements that a receive scatters to.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// The protection domain.
    #[inline]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.body.pd
    }

    /// Binds it to the completion queue of its receives.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is bound to another one, or this one is of another device.
    pub(crate) fn bind(&self, cq: &Arc<Cq>) -> Result {
        if !cq.device().same(self.pd().device()) {
            return Err(EINVAL);
        }
        // A concurrent call that is still setting it makes this one an error.
        match self.body.cq.as_ref() {
            Some(bound) if Arc::ptr_eq(bound, cq) => Ok(()),
            None if self.body.cq.populate(cq.clone()) => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Claims it for the caller, the only ring that ever posts to it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one, or was.
    pub(crate) fn claim(&self) -> Result {
        self.has_ring
            .cmpxchg(false, true, Relaxed)
            .map_err(|_| EBUSY)?;
        Ok(())
    }

    /// Notes that a queue pair was not destroyed: the device may receive forever.
    pub(crate) fn give_up(&self) {
        self.body.stuck.store(true, Release);
    }

    /// Keeps the memory of the ring, which is being dropped, until nothing can be received into it
    /// any more.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn keep(&self, memory: KBox<dyn Left>) {
        // INVARIANT: There was one ring, so that nothing is there yet.
        *self.body.memory.lock() = Some(memory);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let mut stuck = self.stuck.load(Acquire);
        if let Some(raw) = self.raw {
            // SAFETY: Owned by the type invariant; queue pairs that use it hold an `Arc`.
            let err = unsafe { bindings::ib_destroy_srq_user(raw.as_ptr(), ptr::null_mut()) };
            if err != 0 {
                pr_err!("shared receive queue not destroyed: {}\n", err);
                // SAFETY: It is there, and was ours.
                unsafe { left::leave(Object::Srq(raw), self.told.take()) };
                stuck = true;
            }
        }
        if stuck {
            // The device may still write to what was posted.
            if let Some(memory) = &mut *self.memory.lock() {
                memory.abandon();
            }
        }
        // INVARIANT: Otherwise the device has none of the memory, which is dropped now.
    }
}
