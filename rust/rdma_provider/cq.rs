// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use core::mem::MaybeUninit;

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::sync::{new_spinlock_irq, rcu, Arc, SpinLockIrq};

/// A completion queue, of which RDMA core has the other half.
///
/// # Invariants
///
/// While `open` is true, and for a grace period of RCU after that, `raw` is the `ib_cq` that this was made
/// for, with its handlers and contexts set.
#[pin_data]
pub struct Cq {
    raw: *mut bindings::ib_cq,
    open: Atomic<bool>,
    #[pin]
    ring: SpinLockIrq<Ring>,
}

// SAFETY: `raw` is used as the invariant says, by any thread; the rest is `Send`.
unsafe impl Send for Cq {}
// SAFETY: As above, and the ring has a lock.
unsafe impl Sync for Cq {}

/// The completion that a ULP wants to be told of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Next,
}

struct Ring {
    entries: KVVec<bindings::ib_wc>,
    /// The oldest one.
    head: usize,
    len: usize,
    armed: Armed,
    /// Completions were lost for want of room. The ULP was told; its queue pairs go on.
    overrun: bool,
}

// SAFETY: The pointers in the entries are numbers to this crate: it hands them back to the ULP, and
// removes those of a queue pair before it is destroyed.
unsafe impl Send for Ring {}

/// Events that completions call for.
#[derive(Default)]
pub(crate) struct Wake {
    completion: bool,
    overrun: bool,
}

impl Ring {
    fn push(&mut self, wc: bindings::ib_wc, solicited: bool) -> Wake {
        let mut wake = Wake::default();
        if self.len == self.entries.len() {
            wake.overrun = !self.overrun;
            self.overrun = true;
            return wake;
        }
        let at = (self.head + self.len) % self.entries.len();
        self.entries[at] = wc;
        self.len += 1;
        wake.completion = match self.armed {
            Armed::No => false,
            Armed::Solicited => solicited,
            Armed::Next => true,
        };
        if wake.completion {
            self.armed = Armed::No;
        }
        wake
    }

    fn pop(&mut self) -> Option<bindings::ib_wc> {
        if self.len == 0 {
            return None;
        }
        let wc = self.entries[self.head];
        self.head = (self.head + 1) % self.entries.len();
        self.len -= 1;
        Some(wc)
    }

    /// Removes the completions of a queue pair, and leaves the others in their order.
    fn forget(&mut self, qp: *mut bindings::ib_qp) {
        // Those that stay are no news to who waits for one.
        let armed = core::mem::replace(&mut self.armed, Armed::No);
        for _ in 0..self.len {
            if let Some(wc) = self.pop() {
                if wc.qp != qp {
                    self.push(wc, false);
                }
            }
        }
        self.armed = armed;
    }
}

impl Cq {
    /// Makes one of `entries` entries.
    ///
    /// # Safety
    ///
    /// `raw` has to be an `ib_cq` that is being created, and to stay until [`Cq::close`] has returned.
    pub(crate) unsafe fn new(raw: *mut bindings::ib_cq, entries: usize) -> Result<Arc<Self>> {
        let mut list = KVVec::with_capacity(entries, GFP_KERNEL)?;
        for _ in 0..entries {
            list.push(pin_init::zeroed(), GFP_KERNEL)?;
        }
        let ring = Ring {
            entries: list,
            head: 0,
            len: 0,
            armed: Armed::No,
            overrun: false,
        };
        // INVARIANT: By the safety requirement.
        Arc::pin_init(
            pin_init!(Self {
                raw,
                open: Atomic::new(true),
                ring <- new_spinlock_irq!(ring, "rdma_provider::Cq"),
            }),
            GFP_KERNEL,
        )
    }

    /// Ends the use of the `ib_cq`. After this, no handler of the queue's is running, and none will.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn close(&self) {
        self.open.store(false, Release);
        rcu::synchronize_rcu();
    }

    /// Adds a completion, and says whom to tell once no lock is held.
    pub(crate) fn push(&self, wc: bindings::ib_wc, solicited: bool) -> Wake {
        self.ring.lock().push(wc, solicited)
    }

    /// Takes up to as many completions as `out` has room for, oldest first.
    pub(crate) fn poll(&self, out: &mut [MaybeUninit<bindings::ib_wc>]) -> usize {
        let mut ring = self.ring.lock();
        let mut n = 0;
        for slot in out {
            let Some(wc) = ring.pop() else {
                break;
            };
            slot.write(wc);
            n += 1;
        }
        n
    }

    /// Asks for an event at the next completion, or the next solicited one; true if there is a completion
    /// already.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        let mut ring = self.ring.lock();
        // A request for any completion outlives one for a solicited one.
        if !solicited_only {
            ring.armed = Armed::Next;
        } else if ring.armed == Armed::No {
            ring.armed = Armed::Solicited;
        }
        ring.len > 0
    }

    /// Removes the completions of a queue pair.
    pub(crate) fn forget(&self, qp: *mut bindings::ib_qp) {
        self.ring.lock().forget(qp);
    }

    /// Tells the ULP.
    fn notify(&self, wake: &Wake) {
        let _rcu = rcu::read_lock();
        if !self.open.load(Acquire) {
            return;
        }
        if wake.completion {
            // SAFETY: The queue is open and RCU keeps it, by the type invariant.
            let (handler, context) = unsafe { ((*self.raw).comp_handler, (*self.raw).cq_context) };
            if let Some(handler) = handler {
                // SAFETY: The ULP's handler with its context; it may be called in any context.
                unsafe { handler(self.raw, context) };
            }
        }
        if wake.overrun {
            // SAFETY: As above.
            let (handler, context) = unsafe { ((*self.raw).event_handler, (*self.raw).cq_context) };
            if let Some(handler) = handler {
                let mut event: bindings::ib_event = pin_init::zeroed();
                // SAFETY: As above.
                event.device = unsafe { (*self.raw).device };
                event.element.cq = self.raw;
                event.event = bindings::ib_event_type_IB_EVENT_CQ_ERR;
                // SAFETY: The ULP's handler with its context; it may be called in any context.
                unsafe { handler(&raw mut event, context) };
            }
        }
    }
}

/// Completion queues whose ULPs are to be told, once each, after this crate's locks have been released.
///
/// Dropping it tells them. A ULP that posts to a queue pair in error is told before its call returns: its
/// handlers must not take a lock that it posts under.
pub struct Wakeups {
    queues: [Option<(Arc<Cq>, Wake)>; Wakeups::ROOM],
    len: usize,
}

impl Wakeups {
    /// Queues that it takes.
    const ROOM: usize = 32;

    /// None so far.
    pub fn new() -> Self {
        Self {
            queues: [const { None }; Self::ROOM],
            len: 0,
        }
    }

    /// Queues that wait to be told.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody has to be told.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Notes what a completion calls for.
    pub(crate) fn add(&mut self, cq: &Arc<Cq>, wake: Wake) {
        if !wake.completion && !wake.overrun {
            return;
        }
        let queues = self.queues[..self.len].iter_mut().flatten();
        for (queue, known) in queues {
            if Arc::ptr_eq(queue, cq) {
                known.completion |= wake.completion;
                known.overrun |= wake.overrun;
                return;
            }
        }
        match self.queues.get_mut(self.len) {
            Some(slot) => {
                *slot = Some((cq.clone(), wake));
                self.len += 1;
            }
            // Handlers do no more than schedule something, so that a lock does not hurt.
            None => cq.notify(&wake),
        }
    }

    /// Tells them all.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's, and none that a handler may want.
    pub fn flush(&mut self) {
        for slot in &mut self.queues[..self.len] {
            if let Some((cq, wake)) = slot.take() {
                cq.notify(&wake);
            }
        }
        self.len = 0;
    }
}

impl Default for Wakeups {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        self.flush();
    }
}
