// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues (IB specification, section 10.2.9).

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Release};
use kernel::sync::{new_spinlock_irq, rcu, Arc, SpinLockIrq};

use crate::qp::{Qp, ReceiveEntry, WorkQueue};
use crate::readers::{report, wait_for_readers};
use crate::wakeups::{Debt, Wakeups};

/// A shared receive queue, of which RDMA core has the other half.
///
/// # Invariants
///
/// While `open` is true, and for a grace period of RCU after that, `raw` is the `ib_srq` that this was made for,
/// with its handler and context set.
#[pin_data]
pub(crate) struct Srq {
    raw: *mut bindings::ib_srq,
    open: Atomic<bool>,
    /// True if the ULP is going to be told that it runs empty.
    debt: Debt,
    size: usize,
    sges: usize,
    #[pin]
    shared: SpinLockIrq<Shared>,
}

// SAFETY: `raw` is used as the invariant says, by any thread; the rest is `Send`.
unsafe impl Send for Srq {}
// SAFETY: As above, and what changes has a lock.
unsafe impl Sync for Srq {}

struct Shared {
    queue: WorkQueue<ReceiveEntry>,
    /// Number of requests below which the ULP is told, once; 0 if it is not.
    limit: usize,
    /// Queue pairs that have found it empty.
    waiting: KVec<Arc<Qp>>,
}

impl Srq {
    /// Makes one for `size` requests with lists of `sges` elements.
    ///
    /// # Safety
    ///
    /// `raw` has to be an `ib_srq` that is being created, and to stay until [`Srq::close`] has returned.
    pub(crate) unsafe fn new(
        raw: *mut bindings::ib_srq,
        size: usize,
        sges: usize,
        limit: usize,
    ) -> Result<Arc<Self>> {
        let shared = Shared {
            queue: WorkQueue::new(size, sges)?,
            limit,
            waiting: KVec::new(),
        };
        // INVARIANT: By the safety requirement.
        Arc::pin_init(
            pin_init!(Self {
                raw,
                open: Atomic::new(true),
                debt: Debt::new(),
                size,
                sges,
                shared <- new_spinlock_irq!(shared, "rdma_provider::Srq"),
            }),
            GFP_KERNEL,
        )
    }

    /// Ends the use of the `ib_srq`. After this, its handler is not running, and will not.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn close(&self) {
        self.open.store(false, Release);
        wait_for_readers();
    }

    /// Events that its ULP has to be told of.
    pub(crate) fn debt(&self) -> &Debt {
        &self.debt
    }

    /// Requests that there is room for.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Elements that the list of a request may have.
    pub(crate) fn sges(&self) -> usize {
        self.sges
    }

    /// Number of requests below which the ULP is told.
    pub(crate) fn limit(&self) -> usize {
        self.shared.lock().limit
    }

    /// Changes that number.
    pub(crate) fn set_limit(self: &Arc<Self>, limit: usize, wakeups: &mut Wakeups) -> Result {
        if limit > self.size {
            return Err(EINVAL);
        }
        let mut shared = self.shared.lock();
        shared.limit = limit;
        self.check_limit(&mut shared, wakeups);
        Ok(())
    }

    fn check_limit(self: &Arc<Self>, shared: &mut Shared, wakeups: &mut Wakeups) {
        if shared.queue.len() < shared.limit {
            shared.limit = 0;
            wakeups.add_limit(self);
        }
    }

    /// Moves the oldest request to the queue of a queue pair, which is called by [`Qp::posted`] after the next one
    /// has been posted if there is none.
    pub(crate) fn take(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        queue: &mut WorkQueue<ReceiveEntry>,
        wakeups: &mut Wakeups,
    ) -> bool {
        let mut shared = self.shared.lock();
        let shared = &mut *shared;
        if queue.take_from(&mut shared.queue) {
            self.check_limit(shared, wakeups);
            return true;
        }
        let is_known = shared.waiting.iter().any(|other| Arc::ptr_eq(other, qp));
        if !is_known {
            // If there is no memory, its sender gets an RNR NAK after a time.
            let _ = shared.waiting.push(qp.clone(), GFP_ATOMIC);
        }
        false
    }

    /// Forgets a queue pair.
    pub(crate) fn forget(&self, qp: &Arc<Qp>) {
        let mut shared = self.shared.lock();
        // It is not the last reference.
        shared.waiting.retain(|other| !Arc::ptr_eq(other, qp));
    }

    /// Posts a chain of receive requests, and calls `wake` for queue pairs that have waited for one. The error comes
    /// with the request that it is for.
    ///
    /// # Safety
    ///
    /// `wr` has to be a chain of receive requests of a ULP's for this queue, which obeys the rules of
    /// `ib_post_srq_recv()`.
    pub(crate) unsafe fn post(
        &self,
        mut wr: *const bindings::ib_recv_wr,
        mut wake: impl FnMut(&Arc<Qp>),
    ) -> Result<(), (Error, *const bindings::ib_recv_wr)> {
        // A queue pair that is being destroyed waits for this before its last reference is dropped.
        let _rcu = rcu::read_lock();
        let mut result = Ok(());
        let waiting = {
            let mut shared = self.shared.lock();
            let before = shared.queue.len();
            while !wr.is_null() {
                // SAFETY: By the safety requirement.
                if let Err(e) = unsafe { shared.queue.push_receive(wr) } {
                    result = Err((e, wr));
                    break;
                }
                // SAFETY: By the safety requirement.
                wr = unsafe { (*wr).next };
            }
            if shared.queue.len() > before && !shared.waiting.is_empty() {
                core::mem::take(&mut shared.waiting)
            } else {
                KVec::new()
            }
        };
        for qp in &waiting {
            wake(qp);
        }
        result
    }

    /// Tells the ULP that there are fewer requests than it wants there to be.
    pub(crate) fn notify_limit(&self) {
        self.notify(bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED);
    }

    /// Tells the ULP that the queue has failed.
    pub(crate) fn notify_error(&self) {
        self.notify(bindings::ib_event_type_IB_EVENT_SRQ_ERR);
    }

    /// Ends the use of the `ib_srq`. A grace period of RCU later, its handler is not running any more.
    pub(crate) fn abandon(&self) {
        self.open.store(false, Release);
    }

    fn notify(&self, kind: bindings::ib_event_type) {
        let raw = self.raw;
        let mut event: bindings::ib_event = pin_init::zeroed();
        event.element.srq = raw;
        event.event = kind;
        // SAFETY: The queue is open then and RCU keeps it, by the type invariant.
        let owner = || unsafe { ((*raw).device, (*raw).event_handler, (*raw).srq_context) };
        // SAFETY: The ULP's handler with its context.
        unsafe { report(&self.open, event, owner) };
    }
}
