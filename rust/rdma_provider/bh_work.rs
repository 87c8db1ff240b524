// SPDX-License-Identifier: GPL-2.0

//! Work items on the BH workqueue, which run soon or after a delay.

use core::ptr;

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::sync::Arc;
use kernel::time::Delta;
use kernel::types::Opaque;

/// The next time that a job runs.
#[derive(Clone, Copy, Debug)]
pub enum Again {
    /// At once: there is more to do.
    Now,
    /// After a delay, rounded up to a tick, unless it is scheduled before.
    In(Delta),
    /// After a delay by an hrtimer, unless it is scheduled before.
    Precisely(Delta),
    /// When it is scheduled.
    Idle,
}

impl Again {
    /// The sooner one of two times.
    pub fn or_sooner(self, other: Again) -> Again {
        match (self, other) {
            (Again::Now, _) | (_, Again::Now) => Again::Now,
            (Again::Idle, time) | (time, Again::Idle) => time,
            (Again::In(one), Again::In(two)) => Again::In(if two < one { two } else { one }),
            (Again::In(one) | Again::Precisely(one), Again::In(two) | Again::Precisely(two)) => {
                Again::Precisely(if two < one { two } else { one })
            }
        }
    }
}

/// Work of a [`BhWork`].
pub trait Job: Send + Sync + 'static {
    /// Does the work, or a part of it. It runs on one CPU at a time, and once more if it was scheduled while it ran.
    ///
    /// # Context
    ///
    /// Softirq; must not sleep.
    fn run(&self) -> Again;
}

/// A handle that schedules a job. It may exist before the job does.
///
/// # Invariants
///
/// * While `ready` is true, `work`, `timer` and `hrtimer` are initialised, with [`run`], [`timer_expired`] and [`hrtimer_expired`],
///   and `job` is the job of the [`BhWork`] that owns a reference to this.
/// * After that [`BhWork`] was dropped, none of them is pending nor running, nor will be.
#[pin_data]
pub struct Trigger {
    #[pin]
    work: Opaque<bindings::work_struct>,
    #[pin]
    timer: Opaque<bindings::timer_list>,
    /// CPU that the job runs on; that of who asks if negative.
    cpu: i32,
    #[pin]
    hrtimer: Opaque<bindings::hrtimer>,
    taken: Atomic<bool>,
    ready: Atomic<bool>,
    job: Atomic<*mut c_void>,
}

// SAFETY: Work items and timers may be used by any thread; `job` is used as the type invariant says.
unsafe impl Send for Trigger {}
// SAFETY: As above.
unsafe impl Sync for Trigger {}

impl Trigger {
    /// A trigger without a job: scheduling does nothing yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Arc<Self>> {
        Self::on(-1)
    }

    /// A trigger whose job runs on one CPU, the present one, as long as that is online: what the job sends is not
    /// overtaken by what it sends from another CPU.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn on_this_cpu() -> Result<Arc<Self>> {
        // SAFETY: It may be called in any context.
        Self::on(unsafe { bindings::rdma_provider_cpu() })
    }

    /// A trigger whose job runs on the CPU of a completion vector.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn on_vector(vector: u32) -> Result<Arc<Self>> {
        // SAFETY: It may be called in any context.
        Self::on(unsafe { bindings::rdma_provider_vector_cpu(vector) })
    }

    fn on(cpu: i32) -> Result<Arc<Self>> {
        // INVARIANT: It is not ready.
        Arc::pin_init(
            pin_init!(Self {
                work <- Opaque::uninit(),
                timer <- Opaque::uninit(),
                cpu,
                hrtimer <- Opaque::uninit(),
                taken: Atomic::new(false),
                ready: Atomic::new(false),
                job: Atomic::new(ptr::null_mut()),
            }),
            GFP_KERNEL,
        )
    }

    /// Schedules the job.
    ///
    /// # Context
    ///
    /// Any.
    pub fn schedule(&self) {
        if self.ready.load(Acquire) {
            // SAFETY: It is initialised, by the type invariant.
            unsafe { bindings::rdma_provider_bh_work_queue(self.cpu, self.work.get()) };
        }
    }

    /// Ends the use of the job: it does not run any more, and scheduling does nothing.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn end(&self) {
        if !self.ready.load(Acquire) {
            return;
        }
        // SAFETY: All were initialised, by the type invariant. A timer that was shut down and work that was
        // disabled stay so. The hrtimer is set by the work only, which does not run any more.
        unsafe {
            bindings::timer_shutdown_sync(self.timer.get());
            bindings::disable_work_sync(self.work.get());
            bindings::hrtimer_cancel(self.hrtimer.get());
        }
    }

    /// Schedules the job after a delay, which replaces an earlier one of this kind.
    fn schedule_in(&self, delay: Delta) {
        let millis = delay.as_millis().clamp(0, u32::MAX.into()) as u32;
        // SAFETY: It is initialised, by the type invariant: this is called by the job.
        unsafe { bindings::rdma_provider_timer_set(self.timer.get(), millis) };
    }

    /// Schedules the job after a delay, by the hrtimer.
    fn schedule_precisely_in(&self, delay: Delta) {
        let nanos = delay.as_nanos().max(0);
        // SAFETY: It is initialised, by the type invariant: this is called by the job.
        unsafe { bindings::rdma_provider_hrtimer_set(self.hrtimer.get(), nanos) };
    }
}

/// A job that can be scheduled at any time. When this has been dropped, it does not run any more.
///
/// # Invariants
///
/// `trigger` is ready, with `job`, and was taken for this.
pub struct BhWork<J: Job> {
    trigger: Arc<Trigger>,
    job: Arc<J>,
    _text: TextRef,
}

impl<J: Job> BhWork<J> {
    /// Lets a trigger schedule a job.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it has another one already.
    pub fn new(trigger: Arc<Trigger>, job: Arc<J>) -> Result<Self> {
        if trigger.taken.xchg(true, Full) {
            return Err(EBUSY);
        }
        let raw = Arc::as_ptr(&job).cast_mut().cast();
        trigger.job.store(raw, Relaxed);
        // SAFETY: The trigger was taken for this, so that nobody else initialises them, and nobody uses them before
        // it is ready.
        unsafe {
            bindings::rdma_provider_bh_work_init(trigger.work.get(), Some(run::<J>));
            bindings::rdma_provider_timer_init(trigger.timer.get(), Some(timer_expired));
            bindings::rdma_provider_hrtimer_init(trigger.hrtimer.get(), Some(hrtimer_expired));
        }
        // INVARIANT: Work, timers and job are there, and this is going to own a reference to the trigger.
        trigger.ready.store(true, Release);
        // INVARIANT: It is ready with this job.
        Ok(Self {
            trigger,
            job,
            _text: TextRef::new(),
        })
    }

    /// The trigger.
    pub fn trigger(&self) -> &Arc<Trigger> {
        &self.trigger
    }

    /// The job.
    pub fn job(&self) -> &Arc<J> {
        &self.job
    }
}

impl<J: Job> Drop for BhWork<J> {
    fn drop(&mut self) {
        self.trigger.end();
    }
}

/// Runs a job.
///
/// # Safety
///
/// `work` has to be that of a [`Trigger`] that is ready with a job of this type.
unsafe extern "C" fn run<J: Job>(work: *mut bindings::work_struct) {
    let field = work.cast::<Opaque<bindings::work_struct>>();
    // SAFETY: By the safety requirement. The `BhWork` that owns a reference is not gone: its `drop` waits for this.
    let (trigger, job) = unsafe {
        let trigger = &*kernel::container_of!(field, Trigger, work);
        (trigger, &*trigger.job.load(Relaxed).cast::<J>())
    };
    match job.run() {
        Again::Now => trigger.schedule(),
        Again::In(delay) => trigger.schedule_in(delay),
        Again::Precisely(delay) => trigger.schedule_precisely_in(delay),
        Again::Idle => {}
    }
}

/// Schedules a job whose timer has expired.
///
/// # Safety
///
/// `timer` has to be that of a [`Trigger`] that is ready.
unsafe extern "C" fn timer_expired(timer: *mut bindings::timer_list) {
    let field = timer.cast::<Opaque<bindings::timer_list>>();
    // SAFETY: By the safety requirement. The `BhWork` that owns a reference is not gone: its `drop` waits for this.
    let trigger = unsafe { &*kernel::container_of!(field, Trigger, timer) };
    trigger.schedule();
}

/// Schedules a job whose hrtimer has expired.
///
/// # Safety
///
/// `timer` has to be the hrtimer of a [`Trigger`] that is ready.
unsafe extern "C" fn hrtimer_expired(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
    let field = timer.cast::<Opaque<bindings::hrtimer>>();
    // SAFETY: By the safety requirement. The `BhWork` that owns a reference is not gone: its `drop` waits for this.
    let trigger = unsafe { &*kernel::container_of!(field, Trigger, hrtimer) };
    trigger.schedule();
    bindings::hrtimer_restart_HRTIMER_NORESTART
}
