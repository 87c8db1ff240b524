// SPDX-License-Identifier: GPL-2.0

//! Work that is done soon, in softirq.

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;

/// Something that has work to do.
pub trait Job: Send + Sync + 'static {
    /// Does it, or a part of it; returns whether there is more, for which it is called again. It runs on one
    /// CPU at a time, and once more if it was asked for while it ran.
    ///
    /// # Context
    ///
    /// Softirq; must not sleep.
    fn run(&self) -> bool;
}

/// A job that can be asked for at any time. When this is dropped, it has ended for good.
///
/// # Invariants
///
/// `work` was initialised with [`run`], and is pinned until it has been cancelled.
#[pin_data(PinnedDrop)]
pub struct Later<J: Job> {
    #[pin]
    work: Opaque<bindings::work_struct>,
    job: Arc<J>,
}

// SAFETY: A work item may be queued and cancelled by any thread; jobs are `Send` and `Sync`.
unsafe impl<J: Job> Send for Later<J> {}
// SAFETY: As above.
unsafe impl<J: Job> Sync for Later<J> {}

impl<J: Job> Later<J> {
    /// A job that nobody has asked for.
    pub fn new(job: Arc<J>) -> impl PinInit<Self> {
        // INVARIANT: It is initialised below, and the value is pinned.
        pin_init!(Self {
            work <- Opaque::ffi_init(|work| {
                // SAFETY: It is memory for a work item.
                unsafe { bindings::rdma_provider_work_init(work, Some(run::<J>)) }
            }),
            job,
        })
    }

    /// Asks for it.
    ///
    /// # Context
    ///
    /// Any.
    pub fn ask(&self) {
        // SAFETY: It was initialised, by the type invariant.
        unsafe { bindings::rdma_provider_work_queue(self.work.get()) };
    }

    /// The job.
    pub fn job(&self) -> &Arc<J> {
        &self.job
    }
}

#[pinned_drop]
impl<J: Job> PinnedDrop for Later<J> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: It was initialised, by the type invariant, and nobody can ask for it any more.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
    }
}

/// Runs a job.
///
/// # Safety
///
/// `work` has to be that of a [`Later<J>`].
unsafe extern "C" fn run<J: Job>(work: *mut bindings::work_struct) {
    let field = work.cast::<Opaque<bindings::work_struct>>();
    // SAFETY: By the safety requirement; it is not dropped before this has returned, by its `drop`.
    let later = unsafe { &*kernel::container_of!(field, Later<J>, work) };
    if later.job.run() {
        later.ask();
    }
}
