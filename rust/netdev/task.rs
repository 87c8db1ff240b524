// SPDX-License-Identifier: GPL-2.0

//! Work that belongs to no device, and the queues of all work.

use core::ops::Deref;

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::types::Opaque;

/// The module's own work queues, which go on when memory is short. Those who have none use the system's.
///
/// Drop them behind all tasks and devices. Queues that are dropped before are lost: they stay for ever.
pub struct Queues(());

impl Queues {
    /// Makes the queues; before any work is queued. A module has one of these.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the module has queues; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub fn new() -> Result<Self> {
        // SAFETY: Process context by this function's contract.
        to_result(unsafe { bindings::ipoib_rs_wq_create() })?;
        Ok(Self(()))
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // SAFETY: Made by `new`.
        unsafe { bindings::ipoib_rs_wq_destroy() };
    }
}

/// Function of a [`Task`], with its data.
///
/// # Examples
///
/// `Runs` in the KUnit tests of this file runs as often as it is told.
pub trait Run: Send + Sync + 'static {
    /// True if it must go on when memory is short. Such work may not wait for the system's, as whoever deletes a
    /// network device does.
    const RECLAIMS: bool = true;

    /// Runs, never twice at once.
    ///
    /// # Context
    ///
    /// Process context without any lock; may sleep and may take RTNL: a [`Task`] must then not be
    /// dropped under RTNL.
    fn run(&self, task: &Queue<'_>);
}

fn queue<R: Run>(work: &Opaque<bindings::delayed_work>, delay_ms: u32) {
    let which = if R::RECLAIMS {
        bindings::ipoib_rs_wq_IPOIB_RS_WQ_RTNL
    } else {
        bindings::ipoib_rs_wq_IPOIB_RS_WQ_SYSTEM
    };
    // SAFETY: Work of a `Task`, whose owner has it or in which we run, hence initialised and alive.
    unsafe { bindings::ipoib_rs_delayed_work_queue(which, work.get(), delay_ms) };
}

/// Queues the running work item again.
pub struct Queue<'a>(&'a dyn Fn(u32));

impl Queue<'_> {
    /// Queues it to run again in `delay_ms`, unless it is queued already.
    pub fn queue(&self, delay_ms: u32) {
        (self.0)(delay_ms);
    }
}

/// A work item that owns what it runs on. Dropping it waits for it.
///
/// # Context
///
/// Dropping may sleep.
pub struct Task<R: Run>(Pin<KBox<Inner<R>>>);

#[pin_data]
struct Inner<R: Run> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    run: R,
    _text: TextRef,
}

// SAFETY: Work may be queued and cancelled on any thread, and `R` is `Send + Sync`.
unsafe impl<R: Run> Send for Inner<R> {}
// SAFETY: As above.
unsafe impl<R: Run> Sync for Inner<R> {}

impl<R: Run> Task<R> {
    /// Makes the item, not queued.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(run: R) -> Result<Self> {
        let inner = KBox::pin_init(
            try_pin_init!(Inner {
                work <- Opaque::ffi_init(|slot| {
                    // SAFETY: `slot` is pinned memory that stays until `Drop` cancelled the work.
                    unsafe { bindings::ipoib_rs_free_work_init(slot, Some(trampoline::<R>)) };
                }),
                run,
                _text: TextRef::new(),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: It may be called at any time; `Drop` gives it back.
        unsafe { bindings::ipoib_rs_wq_get() };
        Ok(Self(inner))
    }

    /// Queues the item to run in `delay_ms`; it runs once more if it is running. One that is queued
    /// already keeps its time if that is earlier.
    ///
    /// # Context
    ///
    /// Any.
    pub fn queue(&self, delay_ms: u32) {
        queue::<R>(&self.0.work, delay_ms);
    }

    /// Waits for the item and keeps it from ever running again. To be called where dropping it
    /// could otherwise be left to the item itself, which would wait for itself.
    ///
    /// # Context
    ///
    /// May sleep; as for dropping.
    pub fn end(&self) {
        // SAFETY: The work was initialised by `new`.
        unsafe { bindings::disable_delayed_work_sync(self.0.work.get()) };
    }
}

impl<R: Run> Deref for Task<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0.run
    }
}

impl<R: Run> Drop for Task<R> {
    fn drop(&mut self) {
        self.end();
        // SAFETY: Got by `new`, and the work was disabled.
        unsafe { bindings::ipoib_rs_wq_put() };
    }
}

/// # Safety
///
/// Called by the workqueue for the work of an [`Inner<R>`] that is alive: `Drop` waits for it.
unsafe extern "C" fn trampoline<R: Run>(work: *mut bindings::work_struct) {
    // SAFETY: By this function's requirements.
    let inner = unsafe {
        let delayed = kernel::container_of!(work, bindings::delayed_work, work);
        &*kernel::container_of!(Opaque::cast_from(delayed), Inner<R>, work)
    };
    inner
        .run
        .run(&Queue(&|delay_ms| queue::<R>(&inner.work, delay_ms)));
}

#[kunit_tests(rust_netdev_task)]
mod tests {
    use kernel::sync::atomic::{Atomic, Relaxed};
    use kernel::sync::Arc;
    use kernel::time::{delay::fsleep, Delta};

    use super::*;

    /// Runs some times, and takes a while for each.
    struct Runs {
        wanted: u32,
        done: Arc<Atomic<u32>>,
    }

    impl Run for Runs {
        fn run(&self, task: &Queue<'_>) {
            fsleep(Delta::from_millis(20));
            if self.done.fetch_add(1, Relaxed) + 1 < self.wanted {
                task.queue(0);
            }
        }
    }

    fn task(wanted: u32) -> Result<(Task<Runs>, Arc<Atomic<u32>>)> {
        let done = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let runs = Runs {
            wanted,
            done: done.clone(),
        };
        Ok((Task::new(runs)?, done))
    }

    /// Waits until it has begun as often as it is to.
    fn wait(done: &Atomic<u32>, wanted: u32) -> bool {
        (0..1000).any(|_| {
            fsleep(Delta::from_millis(10));
            done.load(Relaxed) >= wanted
        })
    }

    /// It queues itself as often as it likes, and is not queued twice.
    #[test]
    fn it_runs_again() -> Result {
        let (task, done) = task(3)?;
        task.queue(0);
        task.queue(0);
        assert!(wait(&done, 3));
        drop(task);
        assert!((3..=4).contains(&done.load(Relaxed)));
        Ok(())
    }

    /// Dropping it waits for it; once it has ended, it does not run any more.
    #[test]
    fn it_does_not_outlive_its_owner() -> Result {
        let (task, done) = task(u32::MAX)?;
        task.queue(0);
        assert!(wait(&done, 1));
        task.end();
        let ended = done.load(Relaxed);
        task.queue(0);
        fsleep(Delta::from_millis(50));
        assert_eq!(done.load(Relaxed), ended);
        drop(task);
        // Nobody else has what it counts in.
        assert_eq!(done.load(Relaxed), ended);
        Ok(())
    }

    /// Others would be used by work that is queued, and nobody would destroy the first.
    #[test]
    fn queues_are_made_once() {
        // The module that this is linked to may have some.
        let first = Queues::new();
        assert_eq!(Queues::new().err(), Some(EBUSY));
        drop(first);
    }

    /// One that never ran is dropped without.
    #[test]
    fn it_needs_not_run() -> Result {
        let (task, done) = task(1)?;
        task.queue(u32::MAX / 2);
        drop(task);
        assert_eq!(done.load(Relaxed), 0);
        Ok(())
    }
}
