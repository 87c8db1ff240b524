// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

mod bell;
mod faulty;

use core::mem::MaybeUninit;

use ib_fabric::fault::Gate;
use ib_fabric::moderation::{Due, Moderation};
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::sync::{new_spinlock_irq, rcu, Arc, SpinLockIrq};

use crate::bh_work::Trigger;
use crate::clock::now;
use crate::faults::Faults;
use crate::qp::Qp;
use crate::readers::{report, wait_for_readers};
use crate::wakeups::{Debt, Wakeups};

pub(crate) use bell::Bell;

/// A completion queue, of which RDMA core has the other half.
///
/// # Invariants
///
/// While `open` is true, and for a grace period of RCU after that, `raw` is the `ib_cq` that this was made for, with
/// its handlers and contexts set.
#[pin_data]
pub struct Cq {
    raw: *mut bindings::ib_cq,
    open: Atomic<bool>,
    /// Schedules its [`Bell`].
    bell: Arc<Trigger>,
    /// The bell tells of completions, on the CPU of the queue's vector; else, who makes them does.
    spread: bool,
    /// The bell has a completion to tell of.
    rung: Atomic<bool>,
    /// As [`Wake::bits`].
    debt: Debt,
    faults: Arc<Faults>,
    /// Queue pairs whose completions it takes. Its lock is taken before any other one of this crate's.
    #[pin]
    users: SpinLockIrq<KVec<Arc<Qp>>>,
    #[pin]
    ring: SpinLockIrq<Ring>,
}

// SAFETY: `raw` is used as the invariant says, by any thread; the rest is `Send`.
unsafe impl Send for Cq {}
// SAFETY: As above, and what changes has a lock.
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
    /// Those that are held back.
    gate: Gate,
    armed: Armed,
    moderation: Moderation,
    /// There was no room for a completion: it takes no more (section 11.6.3.2).
    failed: bool,
}

// SAFETY: The pointers in the entries are numbers to this crate: it hands them back to the ULP, and
// removes those of a queue pair before it is destroyed.
unsafe impl Send for Ring {}

/// Consequences of a completion.
#[derive(Default)]
pub(crate) struct Wake {
    /// The ULP waits for it.
    completion: bool,
    /// The queue has just failed.
    failed: bool,
    /// It was lost.
    lost: bool,
    /// The ULP is to be told later.
    later: bool,
}

impl Wake {
    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.bits() == 0
    }

    /// A bit for each.
    pub(crate) fn bits(&self) -> u32 {
        u32::from(self.completion)
            | u32::from(self.failed) << 1
            | u32::from(self.lost) << 2
            | u32::from(self.later) << 3
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self {
            completion: bits & 1 != 0,
            failed: bits & 2 != 0,
            lost: bits & 4 != 0,
            later: bits & 8 != 0,
        }
    }
}

impl Ring {
    fn push(&mut self, wc: bindings::ib_wc, solicited: bool, hide: bool) -> Wake {
        let mut wake = Wake::default();
        if self.failed || self.len == self.entries.len() {
            wake.failed = !self.failed;
            wake.lost = true;
            self.failed = true;
            return wake;
        }
        let at = (self.head + self.len) % self.entries.len();
        self.entries[at] = wc;
        self.len += 1;
        if hide || self.gate.hidden() > 0 {
            self.gate.hide(solicited);
            return wake;
        }
        let wanted = match self.armed {
            Armed::No => false,
            Armed::Solicited => solicited,
            Armed::Next => true,
        };
        if wanted {
            match self.moderation.completed(now) {
                Due::Now => {
                    wake.completion = true;
                    self.armed = Armed::No;
                }
                Due::At(_) => wake.later = true,
                Due::Never => {}
            }
        }
        wake
    }

    fn pop(&mut self) -> Option<bindings::ib_wc> {
        if self.len == self.gate.hidden() {
            return None;
        }
        let wc = self.entries[self.head];
        self.head = (self.head + 1) % self.entries.len();
        self.len -= 1;
        Some(wc)
    }

    /// Removes the completions of a queue pair, and leaves the others in their order.
    fn forget(&mut self, qp: *mut bindings::ib_qp) {
        let (first, len, before) = (self.head, self.len, self.gate);
        self.len = 0;
        for i in 0..len {
            let wc = self.entries[(first + i) % self.entries.len()];
            if wc.qp != qp {
                let at = (first + self.len) % self.entries.len();
                self.entries[at] = wc;
                self.len += 1;
            } else {
                self.gate.forget(&before, len - 1 - i);
            }
        }
    }
}

impl Cq {
    /// Makes one of `entries` entries, with events on the CPU of a completion vector, or on any.
    ///
    /// # Safety
    ///
    /// `raw` has to be an `ib_cq` that is being created, and to stay until [`Cq::close`] has returned.
    pub(crate) unsafe fn new(
        raw: *mut bindings::ib_cq,
        entries: usize,
        faults: Arc<Faults>,
        vector: Option<u32>,
    ) -> Result<Arc<Self>> {
        let mut list = KVVec::with_capacity(entries, GFP_KERNEL)?;
        for _ in 0..entries {
            list.push(pin_init::zeroed(), GFP_KERNEL)?;
        }
        let ring = Ring {
            entries: list,
            head: 0,
            len: 0,
            gate: Gate::default(),
            armed: Armed::No,
            moderation: Moderation::default(),
            failed: false,
        };
        let bell = match vector {
            Some(vector) => Trigger::on_vector(vector)?,
            None => Trigger::new()?,
        };
        // INVARIANT: By the safety requirement.
        Arc::pin_init(
            pin_init!(Self {
                raw,
                open: Atomic::new(true),
                bell,
                spread: vector.is_some(),
                rung: Atomic::new(false),
                debt: Debt::new(),
                faults,
                users <- new_spinlock_irq!(KVec::new(), "rdma_provider::Cq::users"),
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
        self.bell.end();
        wait_for_readers();
    }

    /// Adds a queue pair, which has no completions yet, and stays until [`Cq::remove`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add(&self, qp: &Arc<Qp>) -> Result {
        Ok(self.users.lock().push(qp.clone(), GFP_ATOMIC)?)
    }

    /// Removes a queue pair.
    pub(crate) fn remove(&self, qp: &Arc<Qp>) {
        // It is not the last reference.
        self.users.lock().retain(|other| !Arc::ptr_eq(other, qp));
    }

    /// Adds a completion, and says whom to tell once no lock is held.
    pub(crate) fn push(&self, wc: bindings::ib_wc, solicited: bool) -> Wake {
        let mut ring = self.ring.lock();
        // Who opens the gate shows what is in the ring after that, under this lock.
        ring.push(wc, solicited, self.faults.is_gated())
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
        ring.len > ring.gate.hidden()
    }

    /// Removes the completions of a queue pair.
    pub(crate) fn forget(&self, qp: *mut bindings::ib_qp) {
        self.ring.lock().forget(qp);
    }

    /// Events that its ULP has to be told of.
    pub(crate) fn debt(&self) -> &Debt {
        &self.debt
    }

    /// Tells the ULP, and takes the queue pairs to the state Error that would lose completions.
    ///
    /// # Context
    ///
    /// As for [`Wakeups::flush`].
    pub(crate) fn notify(&self, wake: Wake, wakeups: &mut Wakeups) {
        if wake.completion {
            if self.spread {
                self.rung.store(true, Release);
                self.bell.schedule();
            } else {
                self.tell_completion();
            }
        }
        if wake.later {
            self.bell.schedule();
        }
        if wake.failed {
            self.tell_error();
        }
        if wake.lost {
            for qp in self.users.lock().iter() {
                qp.break_fatally(wakeups);
            }
        }
    }

    fn tell_completion(&self) {
        let _rcu = rcu::read_lock();
        if !self.open.load(Acquire) {
            return;
        }
        // SAFETY: The queue is open and RCU keeps it, by the type invariant.
        let (handler, context) = unsafe { ((*self.raw).comp_handler, (*self.raw).cq_context) };
        if let Some(handler) = handler {
            // SAFETY: The ULP's handler with its context; it may be called in any context.
            unsafe { handler(self.raw, context) };
        }
    }

    fn tell_error(&self) {
        let raw = self.raw;
        let mut event: bindings::ib_event = pin_init::zeroed();
        event.element.cq = raw;
        event.event = bindings::ib_event_type_IB_EVENT_CQ_ERR;
        // SAFETY: The queue is open then and RCU keeps it, by the type invariant.
        let owner = || unsafe { ((*raw).device, (*raw).event_handler, (*raw).cq_context) };
        // SAFETY: The ULP's handler with its context.
        unsafe { report(&self.open, event, owner) };
    }
}
