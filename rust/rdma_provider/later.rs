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
    /// After that time, to the next tick, unless somebody asks before.
    In(Delta),
    /// After that time, as sharply as the machine can, unless somebody asks before.
    Sharply(Delta),
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
            (Again::In(one) | Again::Sharply(one), Again::In(two) | Again::Sharply(two)) => {
                Again::Sharply(if two < one { two } else { one })
            }
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
/// * While `ready` is true, `work`, `timer` and `sharp` are initialised, with [`run`], [`ring`] and [`ring_sharply`],
///   and `job` is the job of the [`Later`] that owns a reference to this.
/// * After that [`Later`] was dropped, none of them is pending nor running, nor will be.
#[pin_data]
pub struct Bell {
    #[pin]
    work: Opaque<bindings::work_struct>,
    #[pin]
    timer: Opaque<bindings::timer_list>,
    /// CPU that the job runs on; that of who asks if negative.
    cpu: i32,
    #[pin]
    sharp: Opaque<bindings::hrtimer>,
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
        Self::on(-1)
    }

    /// A bell whose job runs on one CPU, the present one, as long as that is online: what the job sends is not
    /// overtaken by what it sends from another CPU.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn on_this_cpu() -> Result<Arc<Self>> {
        // SAFETY: It may be called in any context.
        Self::on(unsafe { bindings::rdma_provider_cpu() })
    }

    fn on(cpu: i32) -> Result<Arc<Self>> {
        // INVARIANT: It is not ready.
        Arc::pin_init(
            pin_init!(Self {
                work <- Opaque::uninit(),
                timer <- Opaque::uninit(),
                cpu,
                sharp <- Opaque::uninit(),
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
            unsafe { bindings::rdma_provider_work_queue(self.cpu, self.work.get()) };
        }
    }

    /// Asks for the job after a time, and forgets an earlier request of that kind.
    fn ask_in(&self, delay: Delta) {
        let millis = delay.as_millis().clamp(0, u32::MAX.into()) as u32;
        // SAFETY: It is initialised, by the type invariant: this is called by the job.
        unsafe { bindings::rdma_provider_timer_set(self.timer.get(), millis) };
    }

    /// Asks for the job after a time, by the sharper timer.
    fn ask_sharply_in(&self, delay: Delta) {
        let nanos = delay.as_nanos().max(0);
        // SAFETY: It is initialised, by the type invariant: this is called by the job.
        unsafe { bindings::rdma_provider_hrtimer_set(self.sharp.get(), nanos) };
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
            bindings::rdma_provider_hrtimer_init(bell.sharp.get(), Some(ring_sharply));
        }
        // INVARIANT: Work, timers and job are there, and this is going to own a reference to the bell.
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
        // SAFETY: All were initialised, by the type invariant. A timer that was shut down and work that was
        // disabled stay so. The sharper timer is set by the work only, which does not run any more.
        unsafe {
            bindings::timer_shutdown_sync(self.bell.timer.get());
            bindings::disable_work_sync(self.bell.work.get());
            bindings::hrtimer_cancel(self.bell.sharp.get());
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
        Again::Sharply(delay) => bell.ask_sharply_in(delay),
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

/// Asks for a job, since the time has come, sharply.
///
/// # Safety
///
/// `timer` has to be the sharper one of a [`Bell`] that is ready.
unsafe extern "C" fn ring_sharply(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
    let field = timer.cast::<Opaque<bindings::hrtimer>>();
    // SAFETY: By the safety requirement. The `Later` that owns a reference is not gone: its `drop` waits for this.
    let bell = unsafe { &*kernel::container_of!(field, Bell, sharp) };
    bell.ask();
    bindings::hrtimer_restart_HRTIMER_NORESTART
}
