// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use core::ptr::{self, NonNull};

use ipoib_netdev::napi::{Handle, Poll};
use ipoib_rings::quiet::Quiet;
use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::{c_int, c_uint, c_void};
use kernel::prelude::*;
use kernel::revocable::Revocable;
use kernel::str::CStrExt;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::Arc;

use crate::device::Device;
use crate::failure::FailureHandler;
use crate::left::{self, Object, Told};

type PollFn = unsafe extern "C" fn(*mut bindings::ib_cq, c_int, *mut bindings::ib_wc) -> c_int;
type NotifyFn = unsafe extern "C" fn(*mut bindings::ib_cq, bindings::ib_cq_notify_flags) -> c_int;

mod sealed {
    /// Handlers of completions that there are.
    pub trait Sealed {}
}

/// Whom a completion queue tells of completions: a NAPI instance, whose poll it schedules, or nobody.
///
/// There are no others. Devices tell in hard interrupts, where what a driver may do otherwise does harm: it must not drop
/// a receive buffer, for example, nor a frame. And if a device does not destroy the queue, it may call for ever: the
/// handler is leaked then, and holds nothing that somebody waits for.
pub trait CompletionHandler: sealed::Sealed + Send + Sync + 'static {
    /// Called when there are completions. The queue is not armed any more.
    ///
    /// # Context
    ///
    /// Any, hard interrupt included, possibly under a lock of the device driver's.
    fn completion(&self);
}

impl<P: Poll> sealed::Sealed for Handle<P> {}

impl<P: Poll> CompletionHandler for Handle<P> {
    #[inline]
    fn completion(&self) {
        self.schedule();
    }
}

impl sealed::Sealed for () {}

impl CompletionHandler for () {
    fn completion(&self) {}
}

/// The context of a completion queue, which the device passes to [`completion`] and [`event`].
#[pin_data]
struct Waiter<H, F> {
    quiet: Arc<Quiet>,
    /// Not revocable: an RCU section would cost more than what the handler does.
    handler: H,
    #[pin]
    failure: Revocable<F>,
}

impl<H: Send + Sync, F: Send + Sync> Told for Waiter<H, F> {
    fn revoke(&self) {
        self.failure.revoke();
    }
}

/// A device refuses to report completions by an event.
#[derive(Debug)]
pub struct NoEvent;

/// A completion queue.
///
/// A poll of several queues can skip one that is [quiet](ipoib_rings::quiet).
///
/// # Invariants
///
/// * `raw` is a completion queue of `dev`'s, owned by this value; its context is `waiter`'s value,
///   whose `quiet` is this one's. There is a waiter until this is dropped.
/// * `poll` and `notify` are its device's operations.
/// * `quiet` is ended by all events, before the handler is told, which schedules a poll.
pub struct Cq {
    raw: NonNull<bindings::ib_cq>,
    poll: PollFn,
    notify: NotifyFn,
    quiet: Arc<Quiet>,
    claimed: Atomic<bool>,
    next: Atomic<u32>,
    /// The tag of the next send ring.
    tags: Atomic<u32>,
    /// Completions that no queue pair has reserved room for.
    room: Atomic<u32>,
    dev: Device,
    waiter: Option<Arc<dyn Told>>,
}

// SAFETY: A completion queue may be used and destroyed by any thread.
unsafe impl Send for Cq {}
// SAFETY: Polling and arming are synchronised by the device driver.
unsafe impl Sync for Cq {}

impl Cq {
    /// Makes a completion queue with at least `entries` entries, whose interrupts come on `vector`
    /// (modulo what the device has). `failure` is told when it is broken, because it has overrun or otherwise:
    /// it has no more completions.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no entries, or more than the device can; `EOPNOTSUPP`; `ENOMEM`; whatever the device
    /// says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping the last reference.
    pub fn new<H: CompletionHandler, F: FailureHandler>(
        dev: &Device,
        entries: u32,
        vector: u32,
        handler: H,
        failure: F,
    ) -> Result<Arc<Self>> {
        // RDMA core warns of it.
        if entries == 0 {
            return Err(EINVAL);
        }
        let ops = dev.ops();
        let poll = ops.poll_cq.ok_or(EOPNOTSUPP)?;
        let notify = ops.req_notify_cq.ok_or(EOPNOTSUPP)?;
        let attr = bindings::ib_cq_init_attr {
            cqe: entries,
            comp_vector: vector % dev.completion_vectors(),
            flags: 0,
        };
        let quiet = Arc::new(Quiet::new(), GFP_KERNEL)?;
        let told = quiet.clone();
        let waiter = Arc::pin_init(
            pin_init!(Waiter {
                quiet: told,
                handler,
                failure <- Revocable::new(failure),
            }),
            GFP_KERNEL,
        )?;
        let context = Arc::as_ptr(&waiter).cast_mut().cast::<c_void>();
        // SAFETY: The device is registered. The context is the waiter, which lives until the queue
        // is destroyed.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_create_cq(
                dev.as_raw(),
                Some(completion::<H, F>),
                Some(event::<H, F>),
                context,
                &raw const attr,
                dev.client().as_char_ptr(),
            )
        })?;
        // INVARIANT: It was just made, and is not quiet.
        let cq = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            poll,
            notify,
            quiet,
            claimed: Atomic::new(false),
            next: Atomic::new(0),
            tags: Atomic::new(0),
            room: Atomic::new(0),
            dev: dev.clone(),
            waiter: Some(waiter),
        };
        cq.room.store(cq.entries(), Relaxed);
        Ok(Arc::new(cq, GFP_KERNEL)?)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.dev
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.as_ptr()
    }

    /// The number of completions that it holds.
    pub fn entries(&self) -> u32 {
        // SAFETY: Owned by the type invariant; we never resize it.
        unsafe { (*self.as_raw()).cqe }.max(0) as u32
    }

    /// A tag for the requests of a send ring, in the upper half of their identifiers, which no other ring of this queue has.
    /// So a late completion of an earlier ring's, or of a queue pair that was destroyed, is nobody's.
    pub(crate) fn next_tag(&self) -> u64 {
        u64::from(self.tags.fetch_add(1, Relaxed)) << 32
    }

    /// Reserves room for so many completions at a time, for one of several queue pairs.
    ///
    /// # Errors
    ///
    /// `ENOSPC`.
    pub(crate) fn reserve(self: &Arc<Self>, count: u32) -> Result<Room> {
        let mut room = self.room.load(Relaxed);
        loop {
            let rest = room.checked_sub(count).ok_or(ENOSPC)?;
            match self.room.cmpxchg(room, rest, Relaxed) {
                Ok(_) => break,
                Err(other) => room = other,
            }
        }
        // INVARIANT: As was just done.
        Ok(Room {
            cq: self.clone(),
            count,
        })
    }

    /// Claims it for the caller, the only ring that polls it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one.
    pub(crate) fn claim(self: &Arc<Self>) -> Result<Claim> {
        self.claimed
            .cmpxchg(false, true, Acquire)
            .map_err(|_| EBUSY)?;
        // A new ring polls first.
        self.quiet.end();
        // INVARIANT: `claimed` was false and is true now.
        Ok(Claim {
            cq: self.clone(),
            next: self.next.load(Relaxed),
        })
    }

    /// Lets the device report completions together: as soon as there are `count`, or `us` microseconds
    /// after the first.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device cannot, and its own.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn moderate(&self, count: u16, us: u16) -> Result {
        // SAFETY: The queue exists by the type invariant.
        to_result(unsafe { bindings::rdma_set_cq_moderation(self.as_raw(), count, us) })
    }

    /// Returns true if it is armed and no event has come, so that there is nothing to poll for. A poll that is not
    /// due to an event should look all the same.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.get()
    }

    /// Requests an event at the next completion, unless one is requested already: for a poll of several queues,
    /// which looks whether it [is quiet](Self::is_quiet). If this returns true, poll again: there may be
    /// completions for which no event will come.
    ///
    /// # Errors
    ///
    /// No event will come: poll again, but not at once, since the device may refuse for ever.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub fn arm(&self) -> Result<bool, NoEvent> {
        self.quiet.arm(|| self.request())
    }

    /// Requests an event at the next completion, as [`Self::arm`] does, for a poll of this queue alone.
    ///
    /// # Errors
    ///
    /// As [`Self::arm`].
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub fn request(&self) -> Result<bool, NoEvent> {
        // SAFETY: Owned by the type invariant.
        let ret = unsafe {
            (self.notify)(
                self.as_raw(),
                bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP
                    | bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS,
            )
        };
        if ret == 0 {
            return Ok(false);
        }
        missed(ret)
    }

    /// Takes up to `most` completions, but no more than `wcs` has room for.
    #[inline]
    pub(crate) fn poll<'a>(
        &self,
        wcs: &'a mut [bindings::ib_wc],
        most: usize,
    ) -> &'a [bindings::ib_wc] {
        let most = most.min(wcs.len());
        // SAFETY: Owned by the type invariant; there is room for that many.
        let n = unsafe { (self.poll)(self.as_raw(), most as c_int, wcs.as_mut_ptr()) };
        // Neither an error, which is negative, nor a number that is too large is a number of completions.
        let n = n as c_uint as usize;
        let n = if n <= most { n } else { 0 };
        // SAFETY: No more than the length.
        unsafe { wcs.get_unchecked(..n) }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: Owned by the type invariant; queue pairs that use it hold an `Arc`.
        let err = unsafe { bindings::ib_destroy_cq_user(self.as_raw(), ptr::null_mut()) };
        if err != 0 {
            pr_err!("completion queue not destroyed: {}\n", err);
            // SAFETY: It is there, and was ours.
            unsafe { left::leave(Object::Cq(self.raw), self.waiter.take()) };
        }
    }
}

/// The end of a request for an event that has returned `ret`, which is not 0.
#[cold]
fn missed(ret: c_int) -> Result<bool, NoEvent> {
    if ret > 0 {
        Ok(true)
    } else {
        Err(NoEvent)
    }
}

/// Room for completions on a queue that several queue pairs share.
///
/// # Invariants
///
/// `cq.room` is less by `count` on behalf of this value.
pub(crate) struct Room {
    pub(crate) cq: Arc<Cq>,
    count: u32,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.cq.room.fetch_add(self.count, Relaxed);
    }
}

/// The right to poll a completion queue, until it is dropped.
///
/// # Invariants
///
/// `cq.claimed` is true on behalf of this value.
pub(crate) struct Claim {
    cq: Arc<Cq>,
    /// The first number for requests' identifiers. Successive receive rings on a queue continue the numbers, so that
    /// a late completion of an earlier ring is not taken for a later ring's own. Send rings have tags.
    pub(crate) next: u32,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Completions of the ring's requests would take up the room of the next ring's.
        let mut wcs = [bindings::ib_wc::default(); 4];
        for _ in 0..self.cq.entries() {
            if self.cq.poll(&mut wcs, usize::MAX).is_empty() {
                break;
            }
        }
        self.cq.next.store(self.next, Relaxed);
        self.cq.claimed.store(false, Release);
    }
}

/// # Safety
///
/// Called by the device with the context of a [`Cq`] made with an `H` and an `F`.
unsafe extern "C" fn completion<H: CompletionHandler, F: FailureHandler>(
    _cq: *mut bindings::ib_cq,
    context: *mut c_void,
) {
    // SAFETY: By this function's requirements; the `Cq` holds the waiter, or has leaked it.
    let waiter = unsafe { &*context.cast_const().cast::<Waiter<H, F>>() };
    // Scheduling a poll orders this.
    waiter.quiet.end();
    waiter.handler.completion();
}

/// # Safety
///
/// As for [`completion`].
unsafe extern "C" fn event<H: CompletionHandler, F: FailureHandler>(
    event: *mut bindings::ib_event,
    context: *mut c_void,
) {
    // SAFETY: By this function's requirements; the core passes a valid event.
    let (waiter, event) = unsafe {
        let waiter = &*context.cast_const().cast::<Waiter<H, F>>();
        (waiter, (*event).event)
    };
    if event == bindings::ib_event_type_IB_EVENT_CQ_ERR {
        waiter
            .failure
            .try_access_with(|handler| handler.failed("completion queue"));
    }
}

/// The identifier of the work request that `wc` completes.
#[inline]
pub(crate) fn wr_id(wc: &bindings::ib_wc) -> u64 {
    // SAFETY: Every view of the union is plain bytes.
    unsafe { wc.__bindgen_anon_1.wr_id }
}
