// SPDX-License-Identifier: GPL-2.0

//! Completions and events of queues, which ULPs are told of once no lock is held.

use core::cell::UnsafeCell;

use kernel::sync::{rcu, Arc};

use crate::cq::{Cq, Wake};
use crate::owed::Owed;
use crate::srq::Srq;

/// An object whose ULP is told of events.
enum Subject {
    Cq(Arc<Cq>),
    Srq(Arc<Srq>),
}

impl Subject {
    fn debt(&self) -> &Debt {
        match self {
            Subject::Cq(cq) => cq.debt(),
            Subject::Srq(srq) => srq.debt(),
        }
    }
}

/// Events that the ULP of an object is going to be told of once no lock is held.
///
/// # Invariants
///
/// While `owed` is not 0, the object is in the list of one [`Wakeups`], or is being put there or taken out, and only
/// who does that uses `next`. Otherwise, nobody does.
pub(crate) struct Debt {
    owed: Owed,
    /// The next object in the list.
    next: UnsafeCell<Option<Subject>>,
}

// SAFETY: `next` has one user at a time, by the type invariant.
unsafe impl Sync for Debt {}

impl Debt {
    /// No events.
    pub(crate) const fn new() -> Self {
        // INVARIANT: The object is in no list.
        Self {
            owed: Owed::new(),
            next: UnsafeCell::new(None),
        }
    }
}

/// Objects whose ULPs are to be told of events, each object once, after this crate's locks have been released.
///
/// Dropping it tells them. A ULP that posts to a queue pair in error may be told before its call returns: its
/// handlers must not take a lock that it posts under.
///
/// There is room for any number of them: a multicast message may have many receivers, and a completion queue in error
/// may have many users.
///
/// # Invariants
///
/// `first` is the first of a list, through their debts, of objects that are in no other one.
pub struct Wakeups {
    first: Option<Subject>,
    len: usize,
}

impl Wakeups {
    /// Objects that are many.
    const MANY: usize = 8;

    /// None so far.
    pub fn new() -> Self {
        // INVARIANT: The list is empty.
        Self {
            first: None,
            len: 0,
        }
    }

    /// Notes what a completion calls for. If somebody else is about to tell the queue's ULP, it does.
    pub(crate) fn add(&mut self, cq: &Arc<Cq>, wake: Wake) {
        if !wake.is_empty() && cq.debt().owed.add(wake.bits()) {
            self.push(Subject::Cq(cq.clone()));
        }
    }

    /// Notes that a shared receive queue runs empty.
    pub(crate) fn add_limit(&mut self, srq: &Arc<Srq>) {
        if srq.debt().owed.add(1) {
            self.push(Subject::Srq(srq.clone()));
        }
    }

    /// Adds an object whose debt has just become one. No handler is called: the caller may hold locks.
    fn push(&mut self, subject: Subject) {
        // SAFETY: It was in no list, and is for this to put into one.
        unsafe { *subject.debt().next.get() = self.first.take() };
        // INVARIANT: It comes before those that were in the list.
        self.first = Some(subject);
        self.len += 1;
    }

    /// Tells them if they are many. As for [`Wakeups::flush`].
    pub fn flush_if_many(&mut self) {
        if self.len >= Self::MANY {
            self.flush();
        }
    }

    /// Reports all of them.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's, and none that a handler may want.
    pub fn flush(&mut self) {
        // A queue in the list may be being destroyed: that waits for this, so that the last reference is not here,
        // where a ULP's locks may be held.
        let _rcu = rcu::read_lock();
        while let Some(subject) = self.first.take() {
            let debt = subject.debt();
            // SAFETY: It is in this list.
            // INVARIANT: The rest stays in the list; the object is in none when it may get into another.
            self.first = unsafe { (*debt.next.get()).take() };
            let events = debt.owed.take();
            match &subject {
                Subject::Cq(cq) => cq.notify(Wake::from_bits(events), self),
                Subject::Srq(srq) => srq.notify_limit(),
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
