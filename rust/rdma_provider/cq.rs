// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::sync::{new_spinlock_irq, rcu, Arc, SpinLockIrq};

use crate::qp::{Qp, QpEvent};
use crate::srq::Srq;

/// A completion queue, of which RDMA core has the other half.
///
/// # Invariants
///
/// * While `open` is true, and for a grace period of RCU after that, `raw` is the `ib_cq` that this was made
///   for, with its handlers and contexts set.
/// * While `owed` is not 0, the queue is in the list of one [`Wakeups`], or is being put there or taken out, and only
///   who does that uses `next`. Otherwise, nobody does.
#[pin_data]
pub struct Cq {
    raw: *mut bindings::ib_cq,
    open: Atomic<bool>,
    /// Events that the ULP is going to be told of, as [`Wake::bits`].
    owed: Atomic<u32>,
    /// The next one in the list.
    next: UnsafeCell<Option<Arc<Cq>>>,
    #[pin]
    ring: SpinLockIrq<Ring>,
}

// SAFETY: `raw` and `next` are used as the invariants say, by any thread; the rest is `Send`.
unsafe impl Send for Cq {}
// SAFETY: As above; the ring has a lock, and `next` has one user at a time by the invariant.
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

impl Wake {
    fn bits(&self) -> u32 {
        u32::from(self.completion) | u32::from(self.overrun) << 1
    }

    fn from_bits(bits: u32) -> Self {
        Self {
            completion: bits & 1 != 0,
            overrun: bits & 2 != 0,
        }
    }
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
        // INVARIANT: By the safety requirement; it is in no list.
        Arc::pin_init(
            pin_init!(Self {
                raw,
                open: Atomic::new(true),
                owed: Atomic::new(0),
                next: UnsafeCell::new(None),
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

    /// Notes what the ULP has to be told of. True if the caller has to put the queue into its list: it was in none.
    fn owe(&self, wake: &Wake) -> bool {
        let mut old = self.owed.load(Relaxed);
        while let Err(now) = self.owed.cmpxchg(old, old | wake.bits(), Full) {
            old = now;
        }
        old == 0
    }

    /// Tells the ULP of what was noted. The queue is not in a list any more, and may get into one again.
    fn tell(&self) {
        self.notify(&Wake::from_bits(self.owed.xchg(0, Full)));
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

/// Events whose ULPs are to be told, completion queues once each, after this crate's locks have been released.
///
/// Dropping it tells them. A ULP that posts to a queue pair in error may be told before its call returns: its
/// handlers must not take a lock that it posts under.
///
/// There is room for any number of completion queues, as a multicast message may have that many receivers. There are
/// few other events at a time: those of the two queue pairs of a connection, and of their shared receive queues.
///
/// # Invariants
///
/// `cqs` is the first of a list, through `next`, of completion queues that are in no other one.
pub struct Wakeups {
    cqs: Option<Arc<Cq>>,
    notes: [Option<Note>; Wakeups::ROOM],
    /// Completion queues and notes.
    len: usize,
}

/// Another event that a ULP is to be told of.
enum Note {
    QueuePair(Arc<Qp>, QpEvent),
    Limit(Arc<Srq>),
}

impl Note {
    fn tell(&self) {
        match self {
            Note::QueuePair(qp, event) => qp.notify(*event),
            Note::Limit(srq) => srq.notify_limit(),
        }
    }

    fn is_same(&self, other: &Note) -> bool {
        match (self, other) {
            (Note::QueuePair(one, event), Note::QueuePair(two, same)) => {
                Arc::ptr_eq(one, two) && event == same
            }
            (Note::Limit(one), Note::Limit(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

impl Wakeups {
    /// Events, other than of completion queues, that it takes: more than there can be of a connection's, and as
    /// many as wait when [`Wakeups::flush_if_many`] does nothing.
    const ROOM: usize = 32;

    /// Events that are many.
    const MANY: usize = 8;

    /// None so far.
    pub fn new() -> Self {
        // INVARIANT: The list is empty.
        Self {
            cqs: None,
            notes: [const { None }; Self::ROOM],
            len: 0,
        }
    }

    /// Notes what a completion calls for. If somebody else is about to tell the queue's ULP, it does.
    pub(crate) fn add(&mut self, cq: &Arc<Cq>, wake: Wake) {
        if !wake.completion && !wake.overrun {
            return;
        }
        if cq.owe(&wake) {
            // SAFETY: It was in no list, and is for this to put into one.
            unsafe { *cq.next.get() = self.cqs.take() };
            // INVARIANT: It comes before those that were in the list.
            self.cqs = Some(cq.clone());
            self.len += 1;
        }
    }

    /// Notes an event of a queue pair.
    pub(crate) fn add_event(&mut self, qp: &Arc<Qp>, event: QpEvent) {
        self.push(Note::QueuePair(qp.clone(), event));
    }

    /// Notes that a shared receive queue runs empty.
    pub(crate) fn add_limit(&mut self, srq: &Arc<Srq>) {
        self.push(Note::Limit(srq.clone()));
    }

    /// Adds a note, unless there is one like it. No handler is called: the caller may hold locks.
    fn push(&mut self, note: Note) {
        for slot in &mut self.notes {
            match slot {
                Some(known) if known.is_same(&note) => return,
                Some(_) => {}
                None => {
                    *slot = Some(note);
                    self.len += 1;
                    return;
                }
            }
        }
        kernel::pr_warn_once!("too many events at a time; one is lost\n");
    }

    /// Tells them if there are so many that there is not much room for more. As for [`Wakeups::flush`].
    pub fn flush_if_many(&mut self) {
        if self.len >= Self::MANY {
            self.flush();
        }
    }

    /// Tells them all.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's, and none that a handler may want.
    pub fn flush(&mut self) {
        while let Some(cq) = self.cqs.take() {
            // SAFETY: It is in this list.
            // INVARIANT: The rest stays in the list; the queue is in none when it is told that it may get into another.
            self.cqs = unsafe { (*cq.next.get()).take() };
            cq.tell();
        }
        for slot in &mut self.notes {
            let Some(note) = slot.take() else {
                break;
            };
            note.tell();
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
