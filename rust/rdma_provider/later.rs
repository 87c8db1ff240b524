// SPDX-License-Identifier: GPL-2.0

//! Work that is done soon, or after a time, in softirq.

use core::ptr;

use ipoib_sys::bindings;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::sync::Arc;
use kernel::time::Delta;
use kernel::types::Opaque;

/// Next time that a job is to run.
#[derive(Clone, Copy, Debug)]
pub enum Again {
    /// At once: there is more to be done.
    Now,
    /// After that time, unless somebody asks before.
    In(Delta),
    /// When somebody asks.
    Asked,
}

impl Again {
    /// The sooner one of two times.
    pub fn or_sooner(self, other: Again) -> Again {
        match (self, other) {
            (Again::Now, _) | (_, Again::Now) => Again::Now,
            (Again::Asked, time) | (time, Again::Asked) => time,
            (Again::In(one), Again::In(two)) => Again::In(if two < one { two } else { one }),
        }
    }
}

/// Something that has work to do.
pub trait Job: Send + Sync + 'static {
    /// Does it, or a part of it. It runs on one CPU at a time, and once more if it was asked for while it ran.
    ///
    /// # Context
    ///
    /// Softirq; must not sleep.
    fn run(&self) -> Again;
}

/// The means to ask for a job, which may exist before the job does.
///
/// # Invariants
///
/// * While `ready` is true, `work` and `timer` are initialised, with [`run`] and [`ring`], and `job` is the job
///   of the [`Later`] that owns a reference to this.
/// * After that [`Later`] was dropped, neither is pending nor running, nor will be.
#[pin_data]
pub struct Bell {
    #[pin]
    work: Opaque<bindings::work_struct>,
    #[pin]
    timer: Opaque<bindings::timer_list>,
    taken: Atomic<bool>,
    ready: Atomic<bool>,
    job: Atomic<*mut c_void>,
}

// SAFETY: Work items and timers may be used by any thread; `job` is used as the type invariant says.
unsafe impl Send for Bell {}
// SAFETY: As above.
unsafe impl Sync for Bell {}

impl Bell {
    /// A bell without a job: nobody hears it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Arc<Self>> {
        // INVARIANT: It is not ready.
        Arc::pin_init(
            pin_init!(Self {
                work <- Opaque::uninit(),
                timer <- Opaque::uninit(),
                taken: Atomic::new(false),
                ready: Atomic::new(false),
                job: Atomic::new(ptr::null_mut()),
            }),
            GFP_KERNEL,
        )
    }

    /// Asks for the job.
    ///
    /// # Context
    ///
    /// Any.
    pub fn ask(&self) {
        if self.ready.load(Acquire) {
            // SAFETY: It is initialised, by the type invariant.
            unsafe { bindings::rdma_provider_work_queue(self.work.get()) };
        }
    }

    /// Asks for the job after a time, and forgets an earlier request of that kind.
    fn ask_in(&self, delay: Delta) {
        let millis = delay.as_millis().clamp(0, u32::MAX.into()) as u32;
        // SAFETY: It is initialised, by the type invariant: this is called by the job.
        unsafe { bindings::rdma_provider_timer_set(self.timer.get(), millis) };
    }
}

/// A job that can be asked for at any time. When this is dropped, it has ended for good.
///
/// # Invariants
///
/// `bell` is ready, with `job`, and was taken for this.
pub struct Later<J: Job> {
    bell: Arc<Bell>,
    job: Arc<J>,
}

impl<J: Job> Later<J> {
    /// Lets a bell ask for a job.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it asks for another one already.
    pub fn new(bell: Arc<Bell>, job: Arc<J>) -> Result<Self> {
        if bell.taken.xchg(true, Full) {
            return Err(EBUSY);
        }
        let raw = Arc::as_ptr(&job).cast_mut().cast();
        bell.job.store(raw, Relaxed);
        // SAFETY: The bell was taken for this, so that nobody else initialises them, and nobody uses them before
        // it is ready.
        unsafe {
            bindings::rdma_provider_work_init(bell.work.get(), Some(run::<J>));
            bindings::rdma_provider_timer_init(bell.timer.get(), Some(ring));
        }
        // INVARIANT: Work, timer and job are there, and this is going to own a reference to the bell.
        bell.ready.store(true, Release);
        // INVARIANT: It is ready with this job.
        Ok(Self { bell, job })
    }

    /// The bell.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// The job.
    pub fn job(&self) -> &Arc<J> {
        &self.job
    }
}

impl<J: Job> Drop for Later<J> {
    fn drop(&mut self) {
        // SAFETY: Both were initialised, by the type invariant. A timer that was shut down and work that was
        // disabled stay so.
        unsafe {
            bindings::timer_shutdown_sync(self.bell.timer.get());
            bindings::disable_work_sync(self.bell.work.get());
        }
    }
}

/// Runs a job.
///
/// # Safety
///
/// `work` has to be that of a [`Bell`] that is ready with a job of this type.
unsafe extern "C" fn run<J: Job>(work: *mut bindings::work_struct) {
    let field = work.cast::<Opaque<bindings::work_struct>>();
    // SAFETY: By the safety requirement. The `Later` that owns a reference is not gone: its `drop` waits for this.
    let (bell, job) = unsafe {
        let bell = &*kernel::container_of!(field, Bell, work);
        (bell, &*bell.job.load(Relaxed).cast::<J>())
    };
    match job.run() {
        Again::Now => bell.ask(),
        Again::In(delay) => bell.ask_in(delay),
        Again::Asked => {}
    }
}

/// Asks for a job, since the time has come.
///
/// # Safety
///
/// `timer` has to be that of a [`Bell`] that is ready.
unsafe extern "C" fn ring(timer: *mut bindings::timer_list) {
    let field = timer.cast::<Opaque<bindings::timer_list>>();
    // SAFETY: By the safety requirement. The `Later` that owns a reference is not gone: its `drop` waits for this.
    let bell = unsafe { &*kernel::container_of!(field, Bell, timer) };
    bell.ask();
}
