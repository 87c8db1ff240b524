// SPDX-License-Identifier: GPL-2.0

//! The InfiniBand connection manager: how two hosts agree to connect two queue pairs.
//!
//! One side sends a request to a service of the other's, which replies, and the first confirms:
//!
//! ```text
//! CmId::request   ---- REQ ----->   Listen::request, Incoming::take, CmId::ready, CmId::accept
//! Accepted        <--- REP ------
//! CmId::ready
//! CmId::confirm   ---- RTU ----->   Confirmed
//! ```
//!
//! Either side ends it with [`CmId::disconnect`], or by dropping the [`CmId`].
//!
//! C headers: [`include/rdma/ib_cm.h`](srctree/include/rdma/ib_cm.h).

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::slice;

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::{c_int, c_void};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::{Arc, Mutex};
use kernel::time::{delay::fsleep, Delta};

use crate::ah::Ah;
use crate::graveyard::{Mortal, Plot};
use crate::pd::Pd;
use crate::qp::random_psn;
use crate::rc::RcQp;

/// Octets of private data that a request carries.
pub const REQUEST_DATA: usize = bindings::ib_cm_data_size_IB_CM_REQ_PRIVATE_DATA_SIZE as usize;
/// Octets of private data that a reply carries.
pub const REPLY_DATA: usize = bindings::ib_cm_data_size_IB_CM_REP_PRIVATE_DATA_SIZE as usize;
/// Octets of private data that a rejection carries.
pub const REJECT_DATA: usize = bindings::ib_cm_data_size_IB_CM_REJ_PRIVATE_DATA_SIZE as usize;

/// How often a packet is sent again that nobody acknowledges: as often as can be, since a connection
/// that is given up costs all frames that are on it and the time to make another. 7 would be one
/// more, but stands for ever with soft-RoCE.
const RETRIES: u8 = 6;
/// How long an acknowledgement is waited for: from 134 ms to 1 s (4.096 us times two to the power of
/// this), whatever the other side wishes, who might wish for ever.
const MIN_TIMEOUT: u8 = 15;
const MAX_TIMEOUT: u8 = 18;
/// How often a packet is sent again to who has no buffer for it: for ever. Nothing is wrong with
/// the connection, and buffers are posted again as soon as the receiver gets to run.
const RNR_RETRIES: u8 = 7;
/// How long who finds us without a buffer has to wait: 0.64 ms, about as long as NAPI takes to come
/// round on a busy host. What the CM says, 0, stands for 655 ms.
const RNR_TIMER: u8 = 12;

/// Who is told what becomes of a connection.
///
/// The CM has its events follow each other, but for [`CmEvent::NoAnswer`] and [`CmEvent::Over`],
/// which may come while the handler still deals with an earlier one.
pub trait CmHandler: Send + Sync + 'static {
    /// Something happened.
    ///
    /// # Context
    ///
    /// Process context; may sleep. The [`CmId`] may be dropped in here; nobody may wait in here for
    /// it to be destroyed.
    fn event(&self, event: CmEvent<'_>);
}

/// What became of a connection.
#[derive(Clone, Copy, Debug)]
pub enum CmEvent<'a> {
    /// The other side has accepted: call [`CmId::ready`] and [`CmId::confirm`].
    Accepted {
        /// What came along, [`REPLY_DATA`] octets.
        private_data: &'a [u8],
    },
    /// The other side has heard that we accepted.
    Confirmed,
    /// The other side does not want the connection.
    Rejected {
        /// Why; see [`RejectReason`].
        reason: u16,
        /// What came along, [`REJECT_DATA`] octets.
        private_data: &'a [u8],
    },
    /// The other side did not answer a request, or a reply.
    NoAnswer,
    /// The other side has disconnected, which was answered.
    Disconnected,
    /// The connection is over. It may come twice: when the other side has confirmed that, and when
    /// the last packet is off the network.
    Over,
}

/// Why a connection is not wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RejectReason {
    /// There is no queue pair.
    NoQp,
    /// Something that is needed is used up.
    NoResources,
    /// The request is not understood.
    Unsupported,
    /// There is no such service.
    InvalidServiceId,
    /// Not that kind of queue pair.
    InvalidTransport,
    /// There is a connection that has the same queue pair on the other side.
    StaleConnection,
    /// The request is for another port, or from nobody we know.
    InvalidGid,
    /// The packets are too large.
    InvalidMtu,
    /// What the private data say.
    ConsumerDefined,
}

impl RejectReason {
    /// What stands for it in a message.
    pub const fn code(self) -> u16 {
        let code = match self {
            Self::NoQp => bindings::ib_cm_rej_reason_IB_CM_REJ_NO_QP,
            Self::NoResources => bindings::ib_cm_rej_reason_IB_CM_REJ_NO_RESOURCES,
            Self::Unsupported => bindings::ib_cm_rej_reason_IB_CM_REJ_UNSUPPORTED,
            Self::InvalidServiceId => bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_SERVICE_ID,
            Self::InvalidTransport => bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_TRANSPORT_TYPE,
            Self::StaleConnection => bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN,
            Self::InvalidGid => bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_GID,
            Self::InvalidMtu => bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_MTU,
            Self::ConsumerDefined => bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED,
        };
        code as u16
    }
}

/// How patient a request is. Times are 4.096 us times two to the power of the number, at most 31.
#[derive(Clone, Copy, Debug)]
pub struct CmTimeouts {
    /// How long a packet is on its way at most. An unacknowledged packet is sent again after about
    /// twice that.
    pub packet_life_time: u8,
    /// How long either side takes to answer a message at most.
    pub response: u8,
    /// How often a message is sent again, 1 to 15.
    pub retries: u8,
}

impl Default for CmTimeouts {
    /// Gives up a silent host after 12 s: 8 messages, each of which has 1 s to be answered and
    /// 0.5 s to cross the network and back. The life time is what the RDMA CM assumes on RoCE.
    fn default() -> Self {
        Self {
            packet_life_time: 16,
            response: 18,
            retries: 7,
        }
    }
}

/// What is asked of the other side.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// To where, and from which GID.
    pub path: &'a Ah,
    /// Which of its services.
    pub service_id: u64,
    /// The partition.
    pub pkey: u16,
    /// Octets that a packet carries at most.
    pub mtu: u32,
    /// How patiently.
    pub timeouts: CmTimeouts,
    /// What to tell the service, at most [`REQUEST_DATA`] octets.
    pub private_data: &'a [u8],
}

/// What a request is answered.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// What to tell the other side, at most [`REPLY_DATA`] octets.
    pub private_data: &'a [u8],
}

/// No message of ours is unanswered.
const NONE: u32 = 0;
/// A request of ours is unanswered.
const REQ: u32 = 1;
/// A reply of ours is unanswered.
const REP: u32 = 2;
/// A disconnection of ours is unanswered.
const DREQ: u32 = 3;

/// What the CM has of a connection ID.
struct Context<H> {
    handler: Arc<H>,
    /// Which of our messages the CM has to report on.
    owed: Atomic<u32>,
}

impl<H> Context<H> {
    /// The CM has reported on `message`, or will not.
    fn settle(&self, message: u32) {
        // If it is not the one, it had been settled before.
        let _ = self.owed.cmpxchg(message, NONE, Release);
    }
}

/// What is left of a connection ID that nobody uses any more.
///
/// # Invariants
///
/// * `raw` is a connection ID of `pd`'s device, owned by this value, and not one that listens.
/// * Its handler is `event::<H>`, its context is `context`'s value.
struct Body<H: CmHandler> {
    raw: NonNull<bindings::ib_cm_id>,
    context: Arc<Context<H>>,
    pd: Arc<Pd>,
}

// SAFETY: A connection ID may be destroyed by any thread; the rest is `Send`.
unsafe impl<H: CmHandler> Send for Body<H> {}
// SAFETY: As above, and `Sync`.
unsafe impl<H: CmHandler> Sync for Body<H> {}

/// A connection ID: one side's end of a connection that is made, is there or was.
///
/// Dropping it rejects or disconnects whatever is under way. It has no hold on the queue pair, nor
/// that on it. But it holds its handler until it is destroyed: a handler that its ID lies in must
/// let go of that, or neither ever goes.
///
/// # Invariants
///
/// `raw` is the connection ID of `body`.
pub struct CmId<H: CmHandler> {
    raw: NonNull<bindings::ib_cm_id>,
    /// Whether the other side has asked for the connection.
    incoming: bool,
    requested: Atomic<bool>,
    /// What the other side numbers its first packet.
    psn: u32,
    body: Mortal<Body<H>>,
}

// SAFETY: A connection ID may be used by any thread.
unsafe impl<H: CmHandler> Send for CmId<H> {}
// SAFETY: Its messages are sent under the CM's lock, but for the request, which is sent once.
unsafe impl<H: CmHandler> Sync for CmId<H> {}

impl<H: CmHandler> CmId<H> {
    /// Makes an ID for a connection that we ask for; `handler` is told what becomes of it.
    ///
    /// # Errors
    ///
    /// `ESHUTDOWN` after the [`crate::Reaper`] was dropped; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Dropping it is fine in softirq.
    pub fn new(pd: &Arc<Pd>, handler: Arc<H>) -> Result<Self> {
        let plot = Plot::new(pd.graveyard())?;
        let context = Context::new(handler)?;
        // SAFETY: The device is registered, and the context lives until the ID is destroyed.
        let raw = from_err_ptr(unsafe {
            bindings::ib_create_cm_id(pd.device().as_raw(), Some(event::<H>), as_context(&context))
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        Ok(Self::own(raw, false, plot, context, pd))
    }

    /// Takes ownership of an ID whose handler and context are as [`Body`] says.
    fn own(
        raw: NonNull<bindings::ib_cm_id>,
        incoming: bool,
        plot: Plot<Body<H>>,
        context: Arc<Context<H>>,
        pd: &Arc<Pd>,
    ) -> Self {
        // INVARIANT: As the callers say.
        let body = Body {
            raw,
            context,
            pd: pd.clone(),
        };
        // INVARIANT: That is the body's.
        Self {
            raw,
            incoming,
            requested: Atomic::new(false),
            psn: random_psn(),
            body: plot.fill(body),
        }
    }

    /// Sends a message that the CM will report on, and that it sends in `state` only.
    fn send(
        &self,
        message: u32,
        state: bindings::ib_cm_state,
        send: impl FnOnce() -> c_int,
    ) -> Result {
        // The CM looks again, but by then another message would be forgotten.
        if self.body.state() != state {
            return Err(EINVAL);
        }
        let context = &self.body.context;
        // The report may come before the call returns.
        context.owed.store(message, Release);
        to_result(send()).inspect_err(|_| context.settle(message))
    }

    fn check(&self, qp: &RcQp) -> Result {
        if self.body.pd.device().same(qp.pd().device()) {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Asks for a connection of `qp`, which is fresh, and prepares that for it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an ID that is not fresh, things of different devices, or too many private data;
    /// `EOPNOTSUPP` if the path's port does not speak RoCE; `EBUSY` if this ID has been used for a
    /// request before, be it one that failed; `ENOENT` if the port is not in the partition;
    /// `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn request(&self, qp: &RcQp, req: &Request<'_>) -> Result {
        let dev = self.body.pd.device();
        let gid = req.path.gid();
        self.check(qp)?;
        if self.incoming || !dev.same(gid.device()) || req.private_data.len() > REQUEST_DATA {
            return Err(EINVAL);
        }
        if !dev.is_roce(gid.port()) {
            return Err(EOPNOTSUPP);
        }
        // Two at a time would confuse the CM, and so would one after a failed one.
        self.requested
            .cmpxchg(false, true, Relaxed)
            .map_err(|_| EBUSY)?;

        // The CM says how only once the request is under way, when it may be answered already.
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_INIT,
            pkey_index: dev.find_pkey(gid.port(), req.pkey)?,
            port_num: gid.port(),
            ..Default::default()
        };
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE
            | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS
            | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
            | bindings::ib_qp_attr_mask_IB_QP_PORT;
        // SAFETY: There is no address.
        unsafe { qp.modify(&mut attr, mask as c_int) }?;

        let options = req.path.options();
        let raw = bindings::ipoib_rs_cm_request {
            sgid_attr: gid.as_raw(),
            dgid: bindings::ib_gid {
                raw: req.path.dgid(),
            },
            dmac: req.path.dmac(),
            hop_limit: options.hop_limit,
            traffic_class: options.traffic_class,
            sl: options.sl,
            packet_life_time: req.timeouts.packet_life_time.min(31),
            response_timeout: req.timeouts.response.min(31),
            cm_retries: req.timeouts.retries.clamp(1, 15),
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
            private_data_len: req.private_data.len() as u8,
            pkey: req.pkey,
            mtu: req.mtu,
            qpn: qp.qpn(),
            psn: self.psn,
            service_id: req.service_id,
            private_data: req.private_data.as_ptr().cast(),
        };
        self.send(REQ, bindings::ib_cm_state_IB_CM_IDLE, || {
            // SAFETY: The ID is owned by the type invariant, and fresh, and this is its one request.
            // The GID is referenced by the path, and the private data are as long as it says.
            unsafe { bindings::ipoib_rs_cm_send_request(self.raw.as_ptr(), &raw const raw) }
        })
    }

    /// Brings `qp` to where it receives and sends: the queue pair that was passed to
    /// [`Self::request`], after [`CmEvent::Accepted`]; or a fresh one, if the other side has asked.
    ///
    /// # Errors
    ///
    /// `EINVAL` at any other time, for a queue pair of another device or in another state, or if the
    /// other side wants packets of a size that there is not; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn ready(&self, qp: &RcQp) -> Result {
        self.check(qp)?;
        if self.incoming {
            self.step(qp, bindings::ib_qp_state_IB_QPS_INIT)?;
        }
        self.step(qp, bindings::ib_qp_state_IB_QPS_RTR)?;
        self.step(qp, bindings::ib_qp_state_IB_QPS_RTS)
    }

    fn step(&self, qp: &RcQp, state: bindings::ib_qp_state) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        // SAFETY: Owned by the type invariant; the attributes and the mask are ours.
        to_result(unsafe {
            bindings::ib_cm_init_qp_attr(self.raw.as_ptr(), &raw mut attr, &raw mut mask)
        })?;
        // Some devices do not check this, which the other side may have made up.
        if state == bindings::ib_qp_state_IB_QPS_RTR
            && !(bindings::ib_mtu_IB_MTU_256..=bindings::ib_mtu_IB_MTU_4096)
                .contains(&attr.path_mtu)
        {
            return Err(EINVAL);
        }
        // Nobody reads or writes our memory, and we read nobody's.
        attr.qp_access_flags = 0;
        attr.max_dest_rd_atomic = 0;
        attr.max_rd_atomic = 0;
        // If the other side has asked, the CM does not know this before the reply.
        attr.rq_psn = self.psn;
        attr.min_rnr_timer = RNR_TIMER;
        // What the other side wishes for, but it is we who lose the frames.
        attr.retry_cnt = RETRIES;
        attr.rnr_retry = RNR_RETRIES;
        attr.timeout = attr.timeout.clamp(MIN_TIMEOUT, MAX_TIMEOUT);
        // SAFETY: The GID is referenced by the ID's path, which does not change any more once the CM
        // tells the attributes that name it: it changes with our request, before that is sent, and
        // with alternate paths, which RoCE has none of.
        unsafe { qp.modify(&mut attr, mask) }
    }

    /// Tells the other side, which has accepted, that we are ready.
    ///
    /// # Errors
    ///
    /// `EINVAL` at any other time than after [`CmEvent::Accepted`]; `ENOMEM`; whatever the device
    /// says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn confirm(&self) -> Result {
        // SAFETY: Owned by the type invariant.
        to_result(unsafe { bindings::ib_send_cm_rtu(self.raw.as_ptr(), ptr::null(), 0) })
    }

    /// Accepts the connection that the other side has asked for; `qp` is [ready](Self::ready).
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has not asked, or was answered, for a queue pair of another device, or too many
    /// private data; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn accept(&self, qp: &RcQp, reply: &Reply<'_>) -> Result {
        self.check(qp)?;
        if !self.incoming || reply.private_data.len() > REPLY_DATA {
            return Err(EINVAL);
        }
        let mut param = bindings::ib_cm_rep_param {
            qp_num: qp.qpn(),
            starting_psn: self.psn,
            private_data: reply.private_data.as_ptr().cast(),
            private_data_len: reply.private_data.len() as u8,
            rnr_retry_count: RNR_RETRIES,
            srq: 1,
            ..Default::default()
        };
        self.send(REP, bindings::ib_cm_state_IB_CM_REQ_RCVD, || {
            // SAFETY: Owned by the type invariant; the private data are as long as it says.
            unsafe { bindings::ib_send_cm_rep(self.raw.as_ptr(), &raw mut param) }
        })
    }

    /// Rejects what the other side has asked for, or accepted. Afterwards there is only one thing to
    /// do with the ID, that is to drop it.
    ///
    /// # Errors
    ///
    /// `EINVAL` at any other time, or for too many private data; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result {
        // The CM would do it while it waits for an answer to a message of ours, too, but then
        // destroying the ID would wait for as long as the other side could have taken.
        if !matches!(
            self.body.state(),
            bindings::ib_cm_state_IB_CM_REQ_RCVD | bindings::ib_cm_state_IB_CM_REP_RCVD
        ) {
            return Err(EINVAL);
        }
        // SAFETY: Owned by the type invariant.
        unsafe { send_reject(self.raw, reason, private_data) }
    }

    /// Ends the connection. [`CmEvent::Over`] comes when the other side has answered, or did not.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn disconnect(&self) -> Result {
        self.send(DREQ, bindings::ib_cm_state_IB_CM_ESTABLISHED, || {
            // SAFETY: Owned by the type invariant.
            unsafe { bindings::ib_send_cm_dreq(self.raw.as_ptr(), ptr::null(), 0) }
        })
    }
}

/// Sends a rejection.
///
/// # Safety
///
/// `raw` must be valid.
///
/// # Errors
///
/// `EINVAL` for too many private data, or in the wrong state; whatever the CM says.
unsafe fn send_reject(
    raw: NonNull<bindings::ib_cm_id>,
    reason: RejectReason,
    private_data: &[u8],
) -> Result {
    if private_data.len() > REJECT_DATA {
        return Err(EINVAL);
    }
    // SAFETY: By this function's requirements; the private data are as long as it says.
    to_result(unsafe {
        bindings::ib_send_cm_rej(
            raw.as_ptr(),
            bindings::ib_cm_rej_reason::from(reason.code()),
            ptr::null_mut(),
            0,
            private_data.as_ptr().cast(),
            private_data.len() as u8,
        )
    })
}

impl<H: CmHandler> Context<H> {
    fn new(handler: Arc<H>) -> Result<Arc<Self>> {
        let context = Self {
            handler,
            owed: Atomic::new(NONE),
        };
        Ok(Arc::new(context, GFP_KERNEL)?)
    }
}

fn as_context<T>(context: &Arc<T>) -> *mut c_void {
    Arc::as_ptr(context).cast_mut().cast()
}

impl<H: CmHandler> Body<H> {
    /// What the CM is at. It may be at something else already.
    fn state(&self) -> bindings::ib_cm_state {
        // SAFETY: Owned by the type invariant. The CM changes it under a lock that is not ours to
        // take, but any value that is read is one that it had.
        unsafe { ptr::read_volatile(&raw const (*self.raw.as_ptr()).state) }
    }

    /// Whether the CM has given up a message of ours, and has not said so yet.
    fn is_owed_report(&self) -> bool {
        self.context.owed.load(Acquire) != NONE
            && matches!(
                self.state(),
                bindings::ib_cm_state_IB_CM_IDLE | bindings::ib_cm_state_IB_CM_TIMEWAIT
            )
    }
}

/// How long a report of the CM's is waited for, which is on its way.
const REPORT_MS: usize = 1000;

impl<H: CmHandler> Drop for Body<H> {
    fn drop(&mut self) {
        // While the CM reports that a message was not answered, it holds no reference to the ID
        // (`cm_process_send_error`), so that destroying that does not wait for the report. Every
        // other report does hold one.
        for _ in 0..REPORT_MS {
            if !self.is_owed_report() {
                break;
            }
            fsleep(Delta::from_millis(1));
        }
        // SAFETY: Owned by the type invariant. The `CmId` is gone, and this is the work item, not
        // the ID's handler. On return, the handler does not run.
        unsafe { bindings::ib_destroy_cm_id(self.raw.as_ptr()) };
    }
}

/// # Safety
///
/// Called by the CM for the ID of a [`Body<H>`], with a valid event.
unsafe extern "C" fn event<H: CmHandler>(
    id: *mut bindings::ib_cm_id,
    event: *const bindings::ib_cm_event,
) -> c_int {
    // SAFETY: By this function's requirements. The context lives until the ID is destroyed, which
    // waits for us, or, if we report that a message was not answered, until that is settled.
    let context = unsafe { &*(*id).context.cast_const().cast::<Context<H>>() };
    // SAFETY: By this function's requirements.
    let event = unsafe { &*event };
    // From when the message is settled on, nobody may wait for us any more.
    let handler = context.handler.clone();
    let event = match event.event {
        bindings::ib_cm_event_type_IB_CM_REP_RECEIVED => {
            context.settle(REQ);
            CmEvent::Accepted {
                // SAFETY: That is what this event comes with.
                private_data: unsafe { private_data(event, REPLY_DATA) },
            }
        }
        bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED
        | bindings::ib_cm_event_type_IB_CM_USER_ESTABLISHED => {
            context.settle(REP);
            CmEvent::Confirmed
        }
        bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED => {
            // It may be about any of them.
            context.owed.store(NONE, Release);
            CmEvent::Rejected {
                // SAFETY: That is what this event comes with; the message has 16 bits for it.
                reason: unsafe { event.param.rej_rcvd.reason } as u16,
                // SAFETY: As above.
                private_data: unsafe { private_data(event, REJECT_DATA) },
            }
        }
        bindings::ib_cm_event_type_IB_CM_REQ_ERROR => {
            context.settle(REQ);
            CmEvent::NoAnswer
        }
        bindings::ib_cm_event_type_IB_CM_REP_ERROR => {
            context.settle(REP);
            CmEvent::NoAnswer
        }
        bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED => {
            // It stands for an answer to a reply or a disconnection of ours.
            context.owed.store(NONE, Release);
            // SAFETY: By this function's requirements; this event comes with a reference to the ID.
            // If it fails, the other side asks again or does not care.
            let _ = unsafe { bindings::ib_send_cm_drep(id, ptr::null(), 0) };
            CmEvent::Disconnected
        }
        bindings::ib_cm_event_type_IB_CM_DREQ_ERROR
        | bindings::ib_cm_event_type_IB_CM_DREP_RECEIVED
        | bindings::ib_cm_event_type_IB_CM_TIMEWAIT_EXIT => {
            context.settle(DREQ);
            CmEvent::Over
        }
        // It takes longer, or is about alternate paths.
        _ => return 0,
    };
    handler.event(event);
    // Anything else would destroy the ID, which has an owner.
    0
}

/// The private data of an event.
///
/// # Safety
///
/// The event's must be null or that long.
unsafe fn private_data(event: &bindings::ib_cm_event, len: usize) -> &[u8] {
    if event.private_data.is_null() {
        return &[];
    }
    // SAFETY: By this function's requirements. They are part of the message, which lives as long as
    // the event.
    unsafe { slice::from_raw_parts(event.private_data.cast_const().cast(), len) }
}

/// Who is told of requests for a service.
pub trait Listen: Send + Sync + 'static {
    /// The other side asks for a connection. Requests come one by one.
    ///
    /// # Context
    ///
    /// Process context; may sleep. The [`Listener`] must not be dropped in here, and who drops it
    /// must not hold a lock that is taken in here.
    fn request(&self, incoming: Incoming<'_>);
}

/// What the CM has of a listener.
#[pin_data]
struct Door<L> {
    #[pin]
    open: Mutex<bool>,
    listen: Arc<L>,
    pd: Arc<Pd>,
}

/// A service that connections can be asked of, until this value is dropped.
///
/// # Invariants
///
/// `raw` is owned by this value. Its handler is `incoming::<L>`, its context is `door`'s value.
pub struct Listener<L: Listen> {
    raw: NonNull<bindings::ib_cm_id>,
    door: Arc<Door<L>>,
}

// SAFETY: It is only kept and dropped, which any thread may do.
unsafe impl<L: Listen> Send for Listener<L> {}
// SAFETY: As above.
unsafe impl<L: Listen> Sync for Listener<L> {}

impl<L: Listen> Listener<L> {
    /// Offers the service `service_id`, on all ports of the device; `listen` is told of requests.
    ///
    /// # Errors
    ///
    /// `EBUSY` if somebody offers it already; `EINVAL` for an ID that is not for us to choose;
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it, which waits for [`Listen::request`].
    pub fn new(pd: &Arc<Pd>, service_id: u64, listen: Arc<L>) -> Result<Self> {
        let pd = pd.clone();
        let door = Arc::pin_init(
            pin_init!(Door {
                open <- new_mutex!(true),
                listen,
                pd,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The device is registered, and the context lives until the ID is destroyed.
        let raw = from_err_ptr(unsafe {
            bindings::ib_create_cm_id(
                door.pd.device().as_raw(),
                Some(incoming::<L>),
                as_context(&door),
            )
        })?;
        // INVARIANT: It was just made.
        let listener = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            door,
        };
        // SAFETY: Owned by the type invariant.
        to_result(unsafe { bindings::ib_cm_listen(listener.raw.as_ptr(), service_id.to_be()) })?;
        Ok(listener)
    }
}

impl<L: Listen> Drop for Listener<L> {
    fn drop(&mut self) {
        // The CM waits as well, but complains at every tick.
        *self.door.open.lock() = false;
        // SAFETY: Owned by the type invariant. On return no request is reported.
        unsafe { bindings::ib_destroy_cm_id(self.raw.as_ptr()) };
    }
}

/// # Safety
///
/// Called by the CM for the ID of a [`Listener<L>`], which is held meanwhile, with a valid event and
/// a new ID.
unsafe extern "C" fn incoming<L: Listen>(
    id: *mut bindings::ib_cm_id,
    event: *const bindings::ib_cm_event,
) -> c_int {
    // SAFETY: By this function's requirements; the new ID has the listener's context.
    let door = unsafe { &*(*id).context.cast_const().cast::<Door<L>>() };
    // SAFETY: By this function's requirements.
    let event = unsafe { &*event };
    // Returning an error destroys the new ID: that has no owner yet.
    let refused = EINVAL.to_errno();
    if event.event != bindings::ib_cm_event_type_IB_CM_REQ_RECEIVED {
        // Somebody asks for a service's queue pair without wanting a connection.
        return refused;
    }
    // SAFETY: That is what this event comes with.
    let req = unsafe { &event.param.req_rcvd };
    let port = u32::from(req.port);
    if req.ppath_sgid_attr.is_null() || !door.pd.device().is_roce(port) {
        return refused;
    }
    let Some(raw) = NonNull::new(id) else {
        return refused;
    };
    let verdict = Cell::new(refused);
    // INVARIANT: As this function's requirements say.
    let incoming = Incoming {
        raw,
        verdict: &verdict,
        pd: &door.pd,
        port,
        // SAFETY: The GID is referenced by the new ID's path; every view of the union is plain
        // octets.
        local_gid: unsafe { (*req.ppath_sgid_attr).gid.raw },
        // SAFETY: The event comes with a path, which is as long-lived.
        path: unsafe { &*req.primary_path },
        req,
        // SAFETY: That is what this event comes with.
        private_data: unsafe { private_data(event, REQUEST_DATA) },
        _thread: PhantomData,
    };
    let open = door.open.lock();
    if *open {
        door.listen.request(incoming);
    }
    verdict.get()
}

/// A request for a connection. Dropping it rejects the request.
///
/// # Invariants
///
/// `raw` is the new ID of a request that is being reported, on a RoCE port; it has no owner, and
/// the CM destroys it after the report if `verdict` is not 0 then.
pub struct Incoming<'a> {
    raw: NonNull<bindings::ib_cm_id>,
    verdict: &'a Cell<c_int>,
    pd: &'a Arc<Pd>,
    port: u32,
    local_gid: [u8; 16],
    path: &'a bindings::sa_path_rec,
    req: &'a bindings::ib_cm_req_event_param,
    private_data: &'a [u8],
    /// It belongs to the report, and so to its thread.
    _thread: PhantomData<*mut ()>,
}

impl Incoming<'_> {
    /// The GID that it came to.
    pub fn local_gid(&self) -> [u8; 16] {
        self.local_gid
    }

    /// The GID that it is from, as it says.
    pub fn remote_gid(&self) -> [u8; 16] {
        // SAFETY: Every view of the union is plain octets.
        unsafe { self.path.dgid.raw }
    }

    /// The service that is asked for.
    pub fn service_id(&self) -> u64 {
        u64::from_be(self.path.service_id)
    }

    /// The partition that the connection is to be in.
    pub fn pkey(&self) -> u16 {
        u16::from_be(self.path.pkey)
    }

    /// The port that it came to.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Octets that a packet is to carry at most; `None` if that is no size there is.
    pub fn mtu(&self) -> Option<u32> {
        // The message has 4 bits for it.
        let mtu = bindings::ib_mtu::from(self.path.mtu);
        (bindings::ib_mtu_IB_MTU_256..=bindings::ib_mtu_IB_MTU_4096)
            .contains(&mtu)
            .then(|| 128 << mtu)
    }

    /// The queue pair on the other side.
    pub fn remote_qpn(&self) -> u32 {
        self.req.remote_qpn
    }

    /// Whether that is a reliable connection one.
    pub fn is_rc(&self) -> bool {
        self.req.qp_type == bindings::ib_qp_type_IB_QPT_RC
    }

    /// Whether that has a shared receive queue.
    pub fn has_srq(&self) -> bool {
        self.req.srq() != 0
    }

    /// What the other side tells us, [`REQUEST_DATA`] octets.
    pub fn private_data(&self) -> &[u8] {
        self.private_data
    }

    /// Does not want the connection.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn reject(self, reason: RejectReason, private_data: &[u8]) {
        // If it fails, the CM tries to say no without a reason.
        //
        // SAFETY: Valid by the type invariant.
        let _ = unsafe { send_reject(self.raw, reason, private_data) };
    }

    /// Takes the request in hand: `handler` is told what becomes of it from here on, and the ID
    /// answers it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the other side is not told, so that it asks again; `ESHUTDOWN` after the
    /// [`crate::Reaper`] was dropped.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn take<H: CmHandler>(self, handler: Arc<H>) -> Result<CmId<H>> {
        let room =
            || -> Result<_> { Ok((Plot::new(self.pd.graveyard())?, Context::new(handler)?)) };
        let (plot, context) = room().inspect_err(|err| self.verdict.set(err.to_errno()))?;
        // SAFETY: Valid by the type invariant. Until it is answered nothing happens on the ID but
        // this report, after which the CM looks at these again.
        unsafe {
            (*self.raw.as_ptr()).context = as_context(&context);
            (*self.raw.as_ptr()).cm_handler = Some(event::<H>);
        }
        // From here on it has an owner, so that the CM must not destroy it.
        self.verdict.set(0);
        Ok(CmId::own(self.raw, true, plot, context, self.pd))
    }
}
