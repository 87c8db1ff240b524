// SPDX-License-Identifier: GPL-2.0

//! Requests to the subnet administrator (SA) of an InfiniBand subnet: paths to other ports ([`PathQuery`]), and
//! multicast groups ([`Join`]).
//!
//! Both are handles of a request that is under way. The answer is kept in the handle, whose owner is [notified]
//! of it. Dropping the handle cancels the request. A notification may be under way then, and goes on: for a question, the
//! device would have to have sent that, and a group may have to be left behind others.
//!
//! C headers: [`include/rdma/ib_sa.h`](srctree/include/rdma/ib_sa.h).
//!
//! [notified]: Notify

use core::ptr;

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_uint, c_void};
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::{Arc, SpinLock};
use kernel::types::Opaque;

use crate::deferred::{DeferDrop, Deferred, Reserved};
use crate::device::Device;
use crate::gid::GidRef;

mod join;

pub use join::{has_other_members, GroupRecord, Join, JoinRequest, JoinState};

/// Receiver of the news that a [`PathQuery`], a [`Join`] or a [`NeighbourQuery`](crate::NeighbourQuery) has been answered, or
/// that the neighbour of an [`Ah`](crate::Ah) has moved.
pub trait Notify: Send + Sync + 'static {
    /// Called when the answer has come, which the handle has by then, and when a group that was joined is to be joined anew.
    /// It may be called before the handle is made.
    ///
    /// # Context
    ///
    /// Process context, of the work queues of the SA or of the RDMA core, or any other, under spinlocks, if a neighbour has
    /// moved: leave the work to a work item.
    /// It must not drop a [`Join`] or a [`NeighbourQuery`](crate::NeighbourQuery), which may wait for it. A call that is
    /// under way goes on when a [`Join`] or a [`PathQuery`] is dropped.
    fn notify(&self);
}

/// A user of the SA. Requests hold it, and dropping it waits for the last of them to be over.
///
/// # Invariants
///
/// `raw` is registered.
#[pin_data(PinnedDrop)]
pub struct SaClient {
    #[pin]
    raw: Opaque<bindings::ib_sa_client>,
}

// SAFETY: It is a count and a completion, which any thread may use.
unsafe impl Send for SaClient {}
// SAFETY: As above.
unsafe impl Sync for SaClient {}

impl SaClient {
    /// Creates a user.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it.
    pub fn new() -> Result<Arc<Self>> {
        // INVARIANT: Registered as it is made.
        Arc::pin_init(
            pin_init!(Self {
                raw <- Opaque::ffi_init(|raw| {
                    // SAFETY: `raw` is writable and pinned.
                    unsafe { bindings::ib_sa_register_client(raw) };
                }),
            }),
            GFP_KERNEL,
        )
    }

    fn as_raw(&self) -> *mut bindings::ib_sa_client {
        self.raw.get()
    }
}

#[pinned_drop]
impl PinnedDrop for SaClient {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by the type invariant. On return no request of it is left.
        unsafe { bindings::ib_sa_unregister_client(self.as_raw()) };
    }
}

/// The path to another port, as the SA tells it.
///
/// # Invariants
///
/// It is of InfiniBand or OPA, not of RoCE.
#[derive(Clone, Copy)]
pub struct PathRecord(bindings::sa_path_rec);

impl PathRecord {
    /// The port's LID. On InfiniBand it has 16 bits.
    pub fn dlid(&self) -> u32 {
        let mut rec = self.0;
        // SAFETY: The record is ours.
        unsafe { bindings::ipoib_rs_sa_path_dlid(&raw mut rec) }
    }

    /// The port's GID.
    pub fn dgid(&self) -> [u8; 16] {
        // SAFETY: Every view of the union is plain bytes.
        unsafe { self.0.dgid.raw }
    }

    /// The code of the largest IB MTU on the way: 1 for 256 bytes, 2 for twice that, and so on; or anything else.
    pub fn mtu_code(&self) -> u8 {
        self.0.mtu
    }

    /// The service level.
    pub fn sl(&self) -> u8 {
        self.0.sl
    }

    /// The rate that the way allows, in Mbit/s; 0 for unknown.
    pub fn rate_mbps(&self) -> u32 {
        // SAFETY: A computation; a code that there is none of gives -1.
        let mbps = unsafe { bindings::ib_rate_to_mbps(self.0.rate.into()) };
        u32::try_from(mbps).unwrap_or(0)
    }

    pub(crate) fn as_raw(&self) -> *const bindings::sa_path_rec {
        &raw const self.0
    }
}

/// A question for a path.
#[derive(Clone, Copy)]
pub struct PathRequest<'a> {
    /// The GID to send from.
    pub from: &'a GidRef,
    /// The GID to send to.
    pub to: [u8; 16],
    /// The partition.
    pub pkey: u16,
    /// The traffic class.
    pub traffic_class: u8,
    /// How long to ask, in milliseconds; the question is repeated ten times meanwhile.
    pub timeout_ms: u32,
}

/// State of a query.
enum State {
    /// It is in the SA's list. Who waits is told of the answer.
    Asked(Arc<dyn Notify>),
    /// The first answer has come.
    Answered(Result<PathRecord>),
    /// It was cancelled.
    Cancelled,
}

/// The answer to a query: the first that comes.
#[pin_data]
struct Answer {
    #[pin]
    state: SpinLock<State>,
}

impl Answer {
    /// None yet.
    fn new(notify: Arc<dyn Notify>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state <- new_spinlock!(State::Asked(notify)),
            }),
            GFP_KERNEL,
        )
    }
}

/// Parts of a query that the SA may use until the device has sent the question.
struct Body {
    /// Dropping it waits until the callback has been called for the last time. In front of what that uses.
    _client: Arc<SaClient>,
    answer: Arc<Answer>,
    _device: Device,
}

impl DeferDrop for Body {}

/// A question for a path. Dropping it cancels it.
///
/// # Invariants
///
/// * `id` and `raw` name a query of the client of `body`, whose only one it is.
/// * The query's callback uses the answer of `body`.
pub struct PathQuery {
    id: c_int,
    raw: *mut bindings::ib_sa_query,
    body: Deferred<Body>,
}

// SAFETY: A query may be cancelled by any thread.
unsafe impl Send for PathQuery {}
// SAFETY: As above.
unsafe impl Sync for PathQuery {}

impl PathQuery {
    /// Asks for a path; `notify` is told of the answer, which may come before this returns.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device has no SA, as on RoCE; `EAGAIN` if the port does not know its subnet manager;
    /// `ESHUTDOWN` if the device goes; `ENOMEM`; those of sending.
    ///
    /// # Context
    ///
    /// Process context; may sleep. It is dropped in process context, too: the SA's workers take its lock with softirqs on.
    pub fn new(request: &PathRequest<'_>, notify: Arc<dyn Notify>) -> Result<Self> {
        let answer = Answer::new(notify)?;
        let client = SaClient::new()?;
        let device = request.from.device();
        if !device.is_infiniband(request.from.port()) {
            return Err(ENODEV);
        }
        let room = Reserved::new(device.patient())?;
        let path = bindings::ipoib_rs_sa_path {
            sgid: bindings::ib_gid {
                raw: request.from.raw(),
            },
            dgid: bindings::ib_gid { raw: request.to },
            pkey: request.pkey,
            traffic_class: request.traffic_class,
            timeout_ms: request.timeout_ms,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: The client and the device are registered, and the port is the device's, since it has a GID
        // there. The context stays until the client is unregistered, which waits for the callback.
        let id = unsafe {
            bindings::ipoib_rs_sa_query_path(
                client.as_raw(),
                device.as_raw(),
                request.from.port(),
                &raw const path,
                Some(answered),
                Arc::as_ptr(&answer).cast_mut().cast(),
                &raw mut raw,
            )
        };
        to_result(id)?;
        // INVARIANT: It was just sent.
        Ok(Self {
            id,
            raw,
            body: room.fill(Body {
                _client: client,
                answer,
                _device: device.clone(),
            }),
        })
    }

    /// The answer, if it has come. Errors: `ETIMEDOUT` if there was none, `EINVAL` if the SA refused, since it knows no such
    /// path or is busy, `EIO` if the question could not be sent.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn answer(&self) -> Option<Result<PathRecord>> {
        match &*self.body.answer.state.lock() {
            State::Answered(result) => Some(*result),
            State::Asked(_) | State::Cancelled => None,
        }
    }
}

impl Drop for PathQuery {
    fn drop(&mut self) {
        let mut state = self.body.answer.state.lock();
        if matches!(&*state, State::Asked(_)) {
            // SAFETY: The query is in the list, since its callback has yet to take the lock: nobody else can
            // have got its number and its memory.
            unsafe { bindings::ib_sa_cancel_query(self.id, self.raw) };
        }
        let before = core::mem::replace(&mut *state, State::Cancelled);
        drop(state);
        // Not under the lock: it may hold an interface.
        drop(before);
    }
}

/// Keeps the answer to a query. The SA may call it once more: if the answer comes before the device has completed the
/// question, and that is then cancelled, or completed in error.
///
/// # Safety
///
/// Called by the SA for a query of [`PathQuery::new`], with its context; `rec` is valid if `status` is 0.
unsafe extern "C" fn answered(
    status: c_int,
    rec: *mut bindings::sa_path_rec,
    _count: c_uint,
    context: *mut c_void,
) {
    // SAFETY: By this function's requirements. The answer stays until the query's client was unregistered, which waits
    // for this, whether the query was dropped or not.
    let answer = unsafe { &*context.cast_const().cast::<Answer>() };
    let result = match to_result(status) {
        // SAFETY: By this function's requirements.
        //
        // INVARIANT: The SA has no others.
        Ok(()) if status == 0 && !rec.is_null() => Ok(PathRecord(unsafe { *rec })),
        Ok(()) => Err(EIO),
        Err(error) => Err(error),
    };
    let mut state = answer.state.lock();
    if !matches!(&*state, State::Asked(_)) {
        return;
    }
    let before = core::mem::replace(&mut *state, State::Answered(result));
    drop(state);
    if let State::Asked(notify) = before {
        notify.notify();
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_sa)]
mod tests {
    use kernel::alloc::flags::__GFP_ZERO;
    use kernel::sync::atomic::{Atomic, Relaxed};

    use super::*;
    use crate::fake::Fake;
    use ipoib_netdev::faults::each_allocation_fails;

    /// Counts answers.
    struct Counts(Atomic<u32>);

    impl Notify for Counts {
        fn notify(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Without memory nobody is asked, and nothing is kept. The SA does not know the device, which it says last.
    #[test]
    fn no_memory_asks_for_no_path() -> Result {
        let fake = Fake::new()?;
        fake.speak(bindings::RDMA_CORE_PORT_IBA_IB);
        let gid = fake.gid([1; 16])?;
        assert!(fake.device().is_infiniband(gid.reference.port()));
        let counts = Arc::new(Counts(Atomic::new(0)), GFP_KERNEL)?;
        let request = PathRequest {
            from: &gid.reference,
            to: [2; 16],
            pkey: 0xffff,
            traffic_class: 0,
            timeout_ms: 1,
        };
        let mut tries = 0;
        each_allocation_fails(|| {
            tries += 1;
            match PathQuery::new(&request, counts.clone()) {
                Err(ENODEV) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(EINVAL),
            }
        })?;
        // The answer, the client and the room for both, where faults are injected.
        assert!(matches!(tries, 1 | 4..));
        assert_eq!(counts.0.load(Relaxed), 0);
        assert!(Arc::into_unique_or_drop(counts).is_some());
        Ok(())
    }

    /// The question's completion comes behind the answer, and is an error.
    #[test]
    fn a_query_that_is_reported_twice_keeps_its_answer() -> Result {
        let counts = Arc::new(Counts(Atomic::new(0)), GFP_KERNEL)?;
        let answer = Answer::new(counts.clone())?;
        let context = Arc::as_ptr(&answer).cast_mut().cast();
        let mut rec = KBox::<bindings::sa_path_rec>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: The context is an answer that stays; the record is zeroed, as which it is plain data.
        unsafe {
            answered(0, rec.as_mut_ptr(), 1, context);
            answered(EINTR.to_errno(), ptr::null_mut(), 0, context);
        }
        assert!(matches!(*answer.state.lock(), State::Answered(Ok(_))));
        assert_eq!(counts.0.load(Relaxed), 1);
        Ok(())
    }

    /// The device may send the question long after that was dropped.
    #[test]
    fn a_query_that_was_cancelled_tells_nobody() -> Result {
        let counts = Arc::new(Counts(Atomic::new(0)), GFP_KERNEL)?;
        let answer = Answer::new(counts.clone())?;
        let asked = core::mem::replace(&mut *answer.state.lock(), State::Cancelled);
        drop(asked);
        let context = Arc::as_ptr(&answer).cast_mut().cast();
        // SAFETY: The context is an answer that stays; there is no record without success.
        unsafe { answered(EINTR.to_errno(), ptr::null_mut(), 0, context) };
        assert!(matches!(*answer.state.lock(), State::Cancelled));
        assert_eq!(counts.0.load(Relaxed), 0);
        Ok(())
    }
}
