// SPDX-License-Identifier: GPL-2.0

//! NAPI: polling with state that only the poll owns.
//!
//! C headers: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h).

use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomPinned;

use ipoib_sys::bindings;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::{Arc, Completion, Mutex};
use kernel::types::Opaque;

use crate::device::{DeviceRef, RawDevice};
use crate::relaxed::Relax;

/// The most units of work that a poll may do at a time.
pub const MAX_BUDGET: u32 = bindings::NAPI_POLL_WEIGHT;

/// State that a NAPI instance polls.
///
/// # Examples
///
/// `Counting` in the KUnit tests (`tests.rs`) counts its polls.
pub trait Poll: Send + 'static {
    /// True if this polls transmit completions only.
    const TX: bool;

    /// The source of events.
    type Source: Source;

    /// Passes `binding` on to the page pools that the poll allocates from. One that is taken away from the poll is not
    /// dropped, nor used elsewhere, before the poll has lost its state: the kernel warns of that.
    ///
    /// # Context
    ///
    /// Process context, while no poll has the state; may sleep.
    fn bind_pools(&mut self, _binding: &Binding<'_>) {}

    /// Does up to `budget` units of work, which is 1 at least.
    ///
    /// Returns how much was done. Less than `budget` means that there is nothing left: polling ends
    /// and the source is armed, unless the poll [rests](Context::rest).
    ///
    /// # Context
    ///
    /// Softirq. Must not sleep.
    fn poll(&mut self, context: &Context<'_>, budget: usize) -> usize;
}

/// The source of a NAPI instance's events.
pub trait Source: Send + Sync + 'static {
    /// Asks for an event when there is something to poll. True: there may be something already that
    /// no event will come for.
    ///
    /// # Context
    ///
    /// Softirq; the next poll may be running on another CPU.
    fn arm(&self) -> bool;
}

/// A NAPI instance that stays in memory as long as this does.
pub(crate) trait Instance: Send + Sync {
    /// The C side, which was registered with a device.
    fn as_raw(&self) -> *mut bindings::napi_struct;
}

impl<P: Poll> Instance for Inner<P> {
    fn as_raw(&self) -> *mut bindings::napi_struct {
        self.napi.get()
    }
}

/// The NAPI instances that a device's queues refer to.
#[derive(Default)]
pub(crate) struct Polled {
    pub(crate) receive: Option<Arc<dyn Instance>>,
    pub(crate) transmit: Option<Arc<dyn Instance>>,
    /// True if the queues refer to none any more.
    pub(crate) closed: bool,
}

/// A NAPI instance whose poll is about to get a state or has just lost it, for the page pools that its poll
/// allocates from. Their pages return to them without a lock meanwhile.
pub struct Binding<'a> {
    pub(crate) instance: &'a Arc<dyn Instance>,
    pub(crate) enables: bool,
}

/// A NAPI instance of a device.
///
/// # Invariants
///
/// `inner.napi` is registered with `dev` and enabled until this is dropped, but for moments in which `dev` is locked.
///
/// # Context
///
/// Dropping sleeps.
pub struct Napi<P: Poll> {
    inner: Arc<Inner<P>>,
    dev: DeviceRef,
}

/// State shared by a [`Napi`] and its handles. It holds nothing that has to be dropped in process context
/// once the [`Napi`] is gone.
///
/// # Invariants
///
/// * `napi` was registered with a device. It is enabled while that lasts: `napi_stop_kthread()`, a write of 0 to `threaded`,
///   waits with the device locked until a listed instance is. It cannot be scheduled afterwards.
/// * `timer` is set up; it is started by polls that have a state only, and so stopped for good with them.
/// * `state` and `source` are the poll's while `has_state`, and the [`Napi`]'s owner's otherwise, who has waited for the polls
///   that found it true. `source` is only shared by polls. Both are None once the [`Napi`] was dropped.
/// * `has_state` is changed by the [`Napi`]'s owner only, with `questions` locked: while that is locked and the poll has a state,
///   the poll runs when it is scheduled.
/// * `asked` is null, or points to a question that whoever holds `questions` waits to be answered.
///   The poll makes it null when it has done so, and touches it no more.
#[pin_data]
struct Inner<P: Poll> {
    #[pin]
    napi: Opaque<bindings::napi_struct>,
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    state: UnsafeCell<Option<P>>,
    source: UnsafeCell<Option<P::Source>>,
    has_state: Atomic<bool>,
    #[pin]
    questions: Mutex<()>,
    asked: Atomic<*mut Asked<'static, P>>,
    #[pin]
    _pin: PhantomPinned,
}

/// A question to the state of a poll, on the stack of whoever asks.
#[pin_data]
struct Asked<'a, P> {
    question: *mut (dyn FnMut(&mut P) + Send + 'a),
    #[pin]
    answered: Completion,
}

// SAFETY: `napi_schedule` may be called from anywhere; `state` moves between the poll callback and
// the owner as the invariant says, for which `P: Send` suffices.
unsafe impl<P: Poll> Send for Inner<P> {}
// SAFETY: As above.
unsafe impl<P: Poll> Sync for Inner<P> {}

impl<P: Poll> Napi<P> {
    /// Registers a NAPI instance with `dev`, whose polls do nothing yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn new(dev: &RawDevice) -> Result<Self> {
        let inner = Arc::pin_init(
            try_pin_init!(Inner::<P> {
                napi <- Opaque::ffi_init(|slot| {
                    // SAFETY: `slot` is pinned memory that stays until `napi_del`; it is zeroed, as
                    // the C side expects.
                    unsafe {
                        core::ptr::write_bytes(slot, 0, 1);
                        bindings::ipoib_rs_napi_add(dev.as_raw(), slot, Some(poll::<P>), P::TX);
                    }
                }),
                timer <- Opaque::ffi_init(|slot| {
                    // SAFETY: `slot` is pinned memory that stays until the timer is cancelled.
                    unsafe {
                        bindings::hrtimer_setup(
                            slot,
                            Some(wake::<P>),
                            bindings::CLOCK_MONOTONIC as bindings::clockid_t,
                            bindings::hrtimer_mode_HRTIMER_MODE_REL_PINNED,
                        );
                    }
                }),
                state: UnsafeCell::new(None),
                source: UnsafeCell::new(None),
                has_state: Atomic::new(false),
                questions <- new_mutex!(()),
                asked: Atomic::new(core::ptr::null_mut()),
                _pin: PhantomPinned,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: It was just registered, and those are disabled at first.
        unsafe { bindings::napi_enable(inner.napi.get()) };
        // INVARIANT: It was just registered and enabled, and has no state.
        Ok(Self {
            inner,
            dev: dev.get(),
        })
    }

    /// A handle that can schedule the poll from any context.
    pub fn handle(&self) -> Handle<P> {
        Handle {
            inner: self.inner.clone(),
        }
    }

    /// Sets how many units of work a poll may do at a time: 64 at first, and at most
    /// ([`MAX_BUDGET`]).
    ///
    /// # Context
    ///
    /// Any; the poll may be running, and the next one keeps to it.
    pub fn set_budget(&self, budget: u32) {
        let budget = budget.clamp(1, MAX_BUDGET) as kernel::ffi::c_int;
        // SAFETY: Registered by the invariant; the weight is an int that polls read without a lock.
        unsafe { core::ptr::write_volatile(&raw mut (*self.inner.napi.get()).weight, budget) };
    }

    /// Gives the poll its state and lets it run.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it runs already.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    // Not in the caller, which would have the state on its stack twice.
    #[inline(never)]
    pub fn enable(&mut self, state: P, source: P::Source) -> Result {
        if self.has_state() {
            return Err(EBUSY);
        }
        // SAFETY: Polls have no state, so that state and source are the owner's, which `&mut self` makes us.
        unsafe {
            *self.inner.source.get() = Some(source);
            let state = (*self.inner.state.get()).insert(state);
            self.bind_pools(state, true);
        }
        self.reset_limit();
        let _questions = self.inner.questions.lock();
        // INVARIANT: The state is the poll's from here on.
        self.inner.has_state.store(true, Release);
        Ok(())
    }

    /// Stops the poll, waits until it does not run, and takes its state back.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn disable(&mut self) -> Option<P> {
        self.stop()?.take()
    }

    /// Stops the poll, waits until it does not run, has `f` end what its state is about, and drops that
    /// where it is: on a stack it might take too much.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn finish(&mut self, f: impl FnOnce(&mut P)) {
        let Some(slot) = self.stop() else {
            return;
        };
        if let Some(state) = slot {
            f(state);
        }
        *slot = None;
    }

    /// Stops the poll; gives its state, if it was running.
    fn stop(&mut self) -> Option<&mut Option<P>> {
        if !self.has_state() {
            return None;
        }
        let questions = self.inner.questions.lock();
        self.inner.has_state.store(false, Relaxed);
        drop(questions);
        // SAFETY: The instance is enabled by the type invariant. A poll that has completed may still be arming its source;
        // polls are RCU readers. The device is unlocked below.
        unsafe {
            bindings::ipoib_rs_netdev_lock(self.dev.as_raw());
            bindings::napi_disable_locked(self.inner.napi.get());
            bindings::hrtimer_cancel(self.inner.timer.get());
            bindings::synchronize_net();
        }
        self.reset_limit();
        // SAFETY: No poll that has seen the state runs any more: it is ours from here on. The source goes too: it may hold what holds a handle to this very instance.
        let slot = unsafe {
            *self.inner.source.get() = None;
            &mut *self.inner.state.get()
        };
        if let Some(state) = slot {
            self.bind_pools(state, false);
        }
        // SAFETY: It was disabled and the device locked above.
        unsafe {
            bindings::napi_enable_locked(self.inner.napi.get());
            bindings::ipoib_rs_netdev_unlock(self.dev.as_raw());
        }
        Some(slot)
    }

    /// Returns true if polls have a state.
    fn has_state(&self) -> bool {
        self.inner.has_state.load(Relaxed)
    }

    /// Has the byte limit of the queue that the instance polls, if any, forget what was sent. No poll has a state.
    fn reset_limit(&self) {
        // SAFETY: The device is allocated, and the instance alone completes what the limit knows.
        unsafe { bindings::ipoib_rs_tx_reset(self.dev.as_raw(), self.inner.napi.get()) };
    }

    /// The device that the instance is registered with.
    pub(crate) fn device(&self) -> &RawDevice {
        &self.dev
    }

    /// This instance, kept in memory.
    pub(crate) fn instance(&self) -> Arc<dyn Instance> {
        self.inner.clone()
    }

    /// Binds the pools of a state, which no poll has, to this instance, or unbinds them.
    fn bind_pools(&self, state: &mut P, enables: bool) {
        let instance = self.instance();
        state.bind_pools(&Binding {
            instance: &instance,
            enables,
        });
    }
}

impl<P: Poll> Drop for Napi<P> {
    fn drop(&mut self) {
        self.finish(|_| ());
        // SAFETY: Registered and enabled by the type invariant. Those who still have a handle cannot schedule it from now on.
        // This waits for those who found it on the device's list.
        unsafe {
            bindings::napi_disable(self.inner.napi.get());
            bindings::ipoib_rs_napi_del(self.inner.napi.get());
        }
    }
}

/// Schedules a poll, as long as its [`Napi`] is there.
///
/// # Context
///
/// May be dropped in any.
pub struct Handle<P: Poll> {
    inner: Arc<Inner<P>>,
}

impl<P: Poll> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<P: Poll> Handle<P> {
    /// A handle that does not say what is polled.
    pub fn waker(&self) -> Waker {
        Waker(self.inner.clone())
    }

    /// Schedules the poll; without effect while it has no state.
    ///
    /// # Context
    ///
    /// Any, hard interrupt included.
    #[inline]
    pub fn schedule(&self) {
        // SAFETY: The instance was registered, and lives as long as `inner`.
        unsafe { schedule(self.inner.napi.get()) };
    }

    /// Has the next poll call `f` with its state, and waits for the result.
    ///
    /// `f` runs in softirq, between two batches, and must not sleep.
    ///
    /// # Errors
    ///
    /// `ENETDOWN` while the poll has no state; `f` is dropped then.
    ///
    /// # Context
    ///
    /// Process context; sleeps. With RTNL or without.
    pub fn ask<R: Send>(&self, f: impl FnOnce(&mut P) -> R + Send) -> Result<R> {
        let questions = self.inner.questions.lock();
        if !self.inner.has_state.load(Relaxed) {
            return Err(ENETDOWN);
        }
        let (mut f, mut answer) = (Some(f), None);
        {
            let mut question = |state: &mut P| answer = f.take().map(|f| f(state));
            let question: *mut (dyn FnMut(&mut P) + Send + '_) = &raw mut question;
            pin_init::stack_pin_init!(let asked = pin_init!(Asked {
                question,
                answered <- Completion::new(),
            }));
            // INVARIANT: We hold `questions` until it is answered.
            self.inner
                .asked
                .store(core::ptr::from_ref(&*asked).cast_mut().cast(), Release);
            self.schedule();
            asked.answered.wait_for_completion();
        }
        drop(questions);
        answer.ok_or(ENETDOWN)
    }
}

/// Schedules a poll, for code that need not know what is polled.
#[derive(Clone)]
pub struct Waker(Arc<dyn Instance>);

impl Waker {
    /// Schedules the poll, as [`Handle::schedule`] does.
    ///
    /// # Context
    ///
    /// Any, hard interrupt included.
    pub fn wake(&self) {
        // SAFETY: The instance was registered, and lives as long as we do.
        unsafe { schedule(self.0.as_raw()) };
    }
}

/// Schedules a poll, as `napi_schedule` does.
///
/// # Safety
///
/// `napi` must be alive and have been registered; one that is not any more is disabled.
#[inline]
unsafe fn schedule(napi: *mut bindings::napi_struct) {
    // SAFETY: By this function's requirements; ours to schedule if the first says so.
    unsafe {
        if bindings::napi_schedule_prep(napi) {
            bindings::__napi_schedule(napi);
        }
    }
}

/// A running poll.
///
/// # Invariants
///
/// `napi` is the instance whose poll runs now, in softirq, on this CPU; `timer` is its timer.
pub struct Context<'a> {
    napi: &'a Opaque<bindings::napi_struct>,
    timer: &'a Opaque<bindings::hrtimer>,
    /// The source is not to be armed: the timer runs.
    rests: Cell<bool>,
}

impl Context<'_> {
    /// The C side of this instance.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::napi_struct {
        self.napi.get()
    }

    /// Schedules the poll in `us` microseconds, and not at the time that was asked for before.
    pub fn wake_in(&self, us: u32) {
        // SAFETY: Set up by the type invariant; the poll runs, so that nobody cancels it.
        unsafe { bindings::ipoib_rs_timer_start(self.timer.get(), us) };
    }

    /// As [`Self::wake_in`], and without an event before: the source is not armed behind this poll. Where timers
    /// of so short a time wait for the next tick it is armed as ever, and nothing else is done.
    pub fn rest(&self, us: u32) {
        // SAFETY: A comparison.
        if unsafe { bindings::ipoib_rs_timer_is_exact(us) } {
            self.wake_in(us);
            self.rests.set(true);
        }
    }

    /// The device polled for.
    #[inline]
    pub fn device(&self) -> &RawDevice {
        // SAFETY: A registered NAPI's device is valid while its poll runs, by the type invariant.
        unsafe { RawDevice::from_raw((*self.napi.get()).dev) }
    }
}

/// Calls `f` as a poll, with softirqs disabled, in a test of what only a poll may do.
///
/// # Errors
///
/// `ENOMEM`.
///
/// # Safety
///
/// `f` must not use the instance that the context stands for: no device has it, and its timer is not set up.
///
/// # Context
///
/// Process context; may sleep, but `f` must not.
#[cfg(CONFIG_KUNIT = "y")]
pub unsafe fn as_a_poll<R>(f: impl FnOnce(&Context<'_>) -> R) -> Result<R> {
    let napi = KBox::new(Opaque::<bindings::napi_struct>::zeroed(), GFP_KERNEL)?;
    let timer = KBox::new(Opaque::<bindings::hrtimer>::zeroed(), GFP_KERNEL)?;
    // SAFETY: Softirqs are enabled again below.
    unsafe { bindings::ipoib_rs_bh_disable() };
    // INVARIANT: What is done with the context is what a poll may do by this function's requirements.
    let result = f(&Context {
        napi: &napi,
        timer: &timer,
        rests: Cell::new(false),
    });
    // SAFETY: They were disabled above.
    unsafe { bindings::ipoib_rs_bh_enable() };
    Ok(result)
}

/// Answers the question that was asked.
#[cold]
fn answer<P: Poll>(inner: &Inner<P>, state: &mut P) {
    let asked = inner.asked.load(Acquire);
    inner.asked.store(core::ptr::null_mut(), Relaxed);
    // SAFETY: Who asked waits until it is answered, by the type invariant, and looks at the question
    // only then; polls do not run at the same time.
    unsafe {
        (*(*asked).question)(state);
        (*asked).answered.complete_all();
    }
}

/// # Safety
///
/// Called by NAPI for an instance that lies in an [`Inner<P>`].
unsafe extern "C" fn poll<P: Poll>(
    napi: *mut bindings::napi_struct,
    budget: kernel::ffi::c_int,
) -> kernel::ffi::c_int {
    let field = Opaque::cast_from(napi);
    // SAFETY: `napi` lies in an `Inner<P>` by this function's requirements.
    let inner = unsafe { &*kernel::container_of!(field, Inner<P>, napi) };
    // A budget of 0 is that of netpoll, which polls in whatever context prints. It is no way to our devices
    // (`IFF_DISABLE_NETPOLL`), and so to no [`Context`].
    let budget = match usize::try_from(budget) {
        Ok(budget) if budget > 0 => budget,
        _ => return 0,
    };
    let context = Context {
        napi: &inner.napi,
        timer: &inner.timer,
        rests: Cell::new(false),
    };
    let done = {
        let has_state = inner.has_state.load(Acquire);
        // SAFETY: NAPI runs one poll of an instance at a time, and the state belongs to it by the type invariant. The reference
        // ends before polling does, since then the next poll may begin on another CPU.
        let state = has_state.then(|| unsafe { &mut *inner.state.get() });
        let Some(state) = state.and_then(Option::as_mut) else {
            // SAFETY: The poll runs now.
            unsafe { bindings::napi_complete_done(napi, 0) };
            return 0;
        };
        if !inner.asked.get().is_null() {
            answer(inner, state);
        }
        state.poll(&context, budget).min(budget)
    };
    // SAFETY: The poll runs now, and does not touch the instance after it has completed it, but for
    // scheduling it, which is always allowed.
    let complete = || unsafe { bindings::napi_complete_done(napi, done as kernel::ffi::c_int) };
    if done < budget && complete() && !context.rests.get() {
        // SAFETY: Written only while polls have no state and this one, an RCU reader, has ended: see `Napi::stop`.
        let source = unsafe { &*inner.source.get() };
        // A closure, which is inlined; the bare function is not.
        if source.as_ref().is_some_and(|source| source.arm()) {
            // SAFETY: As above.
            unsafe { schedule(napi) };
        }
    }
    done as kernel::ffi::c_int
}

/// # Safety
///
/// Called in hard interrupt for a timer that lies in an [`Inner<P>`].
unsafe extern "C" fn wake<P: Poll>(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
    let field = Opaque::cast_from(timer);
    // SAFETY: `timer` lies in an `Inner<P>` by this function's requirements, which is not dropped
    // before the timer is cancelled.
    unsafe {
        let inner = &*kernel::container_of!(field, Inner<P>, timer);
        schedule(inner.napi.get());
    }
    bindings::hrtimer_restart_HRTIMER_NORESTART
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_netdev_napi)]
mod tests {
    use super::*;
    use crate::dummy::{Registered, Seen};

    /// A poll that is asked for its number.
    struct Numbered(u32);

    struct Silent;

    impl Source for Silent {
        fn arm(&self) -> bool {
            false
        }
    }

    impl Poll for Numbered {
        const TX: bool = false;
        type Source = Silent;

        fn poll(&mut self, _context: &Context<'_>, _budget: usize) -> usize {
            0
        }
    }

    /// Polls without a state end, and those after them have the state that the instance was given.
    #[test]
    fn polls_without_a_state_end() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let mut napi = Napi::new(registered.device())?;
        let handle = napi.handle();
        for number in 0..3 {
            handle.schedule();
            assert_eq!(handle.ask(|_| ()), Err(ENETDOWN));
            napi.enable(Numbered(number), Silent)?;
            assert_eq!(handle.ask(|poll: &mut Numbered| poll.0), Ok(number));
            assert_eq!(napi.disable().map(|poll| poll.0), Some(number));
        }
        handle.schedule();
        drop(napi);
        handle.schedule();
        Ok(())
    }
}
