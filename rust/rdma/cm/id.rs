// SPDX-License-Identifier: GPL-2.0

//! Connection IDs: one end of a connection, and what the CM reports on it.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::Arc;
use kernel::time::{Delta, Instant, Monotonic};

use super::{
    private_data, send_reject, CmEvent, CmHandler, RejectReason, Reply, Request, REJECT_DATA,
    REPLY_DATA, REQUEST_DATA,
};
use crate::graveyard::{Mortal, Plot, Remains};
use crate::pd::Pd;
use crate::qp::random_psn;
use crate::rc::RcQp;

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

/// The CM has nothing to report.
const NONE: u32 = 0;
/// A request of ours is unanswered.
const REQ: u32 = 1;
/// A reply of ours is unanswered.
const REP: u32 = 2;
/// There is a connection. The CM disconnects by itself if the other side makes another one of the same
/// queue pair, and reports on that as if we had.
const LINK: u32 = 3;
/// A disconnection of ours is unanswered.
const DREQ: u32 = 4;

/// What the CM has of a connection ID.
pub(super) struct Context<H> {
    handler: Arc<H>,
    /// The report that the CM owes before the connection is over.
    owed: Atomic<u32>,
}

impl<H> Context<H> {
    /// The CM has reported on `message`, or will not: `next` is what it has to report on now.
    fn settle(&self, message: u32, next: u32) {
        // If it is not the one, it had been settled before.
        let _ = self.owed.cmpxchg(message, next, Release);
    }

    /// The CM has reported that the connection is over.
    fn settle_all(&self) {
        self.owed.store(NONE, Release);
    }

    /// Whether the CM, which is in that state, has given up a message, be it one that it sent by itself, and
    /// has not said so yet.
    fn is_owed_report(&self, state: bindings::ib_cm_state) -> bool {
        self.owed.load(Acquire) != NONE
            && matches!(
                state,
                bindings::ib_cm_state_IB_CM_IDLE | bindings::ib_cm_state_IB_CM_TIMEWAIT
            )
    }
}

/// What is left of a connection ID that nobody uses any more.
///
/// # Invariants
///
/// * `raw` is a connection ID of `pd`'s device, owned by this value, and not one that listens; until it
///   was destroyed, as `end` says.
/// * Its handler is `event::<H>`, its context is `context`'s value.
pub(super) struct Body<H: CmHandler> {
    raw: NonNull<bindings::ib_cm_id>,
    context: Arc<Context<H>>,
    end: End,
    pd: Arc<Pd>,
}

/// How far the end of a connection ID is.
#[derive(Clone, Copy)]
enum End {
    /// It is there, and nobody uses it any more; the CM owes it a report since then, if that is known.
    Near(Option<Instant<Monotonic>>),
    /// It was destroyed then.
    Past(Instant<Monotonic>),
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
    pub(super) fn own(
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
            end: End::Near(None),
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

    /// Sends a message that the CM will report on, and that it sends in `state` only. If that fails, it has
    /// to report on `before` as it had.
    fn send(
        &self,
        (message, before): (u32, u32),
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
        to_result(send()).inspect_err(|_| context.settle(message, before))
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
            srq: qp.intake().is_shared().into(),
            pkey: req.pkey,
            mtu: req.mtu,
            qpn: qp.qpn(),
            psn: self.psn,
            service_id: req.service_id,
            private_data: req.private_data.as_ptr().cast(),
        };
        self.send((REQ, NONE), bindings::ib_cm_state_IB_CM_IDLE, || {
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
        let context = &self.body.context;
        context.settle(NONE, LINK);
        // SAFETY: Owned by the type invariant.
        to_result(unsafe { bindings::ib_send_cm_rtu(self.raw.as_ptr(), ptr::null(), 0) })
            .inspect_err(|_| context.settle(LINK, NONE))
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
            srq: qp.intake().is_shared().into(),
            ..Default::default()
        };
        self.send((REP, NONE), bindings::ib_cm_state_IB_CM_REQ_RCVD, || {
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
        self.send(
            (DREQ, LINK),
            bindings::ib_cm_state_IB_CM_ESTABLISHED,
            || {
                // SAFETY: Owned by the type invariant.
                unsafe { bindings::ib_send_cm_dreq(self.raw.as_ptr(), ptr::null(), 0) }
            },
        )
    }
}

impl<H: CmHandler> Context<H> {
    pub(super) fn new(handler: Arc<H>) -> Result<Arc<Self>> {
        let context = Self {
            handler,
            owed: Atomic::new(NONE),
        };
        Ok(Arc::new(context, GFP_KERNEL)?)
    }
}

/// What the CM is to have of something.
pub(super) fn as_context<T>(context: &Arc<T>) -> *mut c_void {
    Arc::as_ptr(context).cast_mut().cast()
}

impl<H: CmHandler> Body<H> {
    /// What the CM is at. It may be at something else already.
    fn state(&self) -> bindings::ib_cm_state {
        // SAFETY: Owned by the type invariant. The CM changes it under a lock that is not ours to
        // take, but any value that is read is one that it had.
        unsafe { ptr::read_volatile(&raw const (*self.raw.as_ptr()).state) }
    }
}

/// How long a report of the CM's is waited for, which is on its way.
const REPORT_MS: i64 = 1000;
/// The same for one that may be.
const LATE_MS: i64 = 10;

impl<H: CmHandler> Remains for Body<H> {
    fn may_go(&mut self) -> bool {
        let now = Instant::now();
        match self.end {
            // While the CM reports that a message was not answered, it holds no reference to the ID
            // (`cm_process_send_error`), so that destroying that does not wait for the report. Every
            // other report does hold one.
            End::Near(since) if self.context.is_owed_report(self.state()) => {
                let since = since.unwrap_or(now);
                self.end = End::Near(Some(since));
                if (now - since).as_millis() < REPORT_MS {
                    return false;
                }
            }
            End::Near(_) => {}
            End::Past(then) => return self.is_silent(now - then),
        }
        // SAFETY: Owned by the type invariant. The `CmId` is gone, and this is the work item, not
        // the ID's handler. On return, the handler does not run.
        unsafe { bindings::ib_destroy_cm_id(self.raw.as_ptr()) };
        // INVARIANT: It is not used again.
        self.end = End::Past(Instant::now());
        self.is_silent(Delta::ZERO)
    }
}

impl<H: CmHandler> Body<H> {
    /// Whether the CM does not call the handler any more, that long after the ID was destroyed.
    ///
    /// It may have given a message up since we looked, and be about to call the handler, which is a matter
    /// of instructions. Nobody can tell that from a message that was cancelled, or a connection that just
    /// was there, for which all of this is waited.
    fn is_silent(&self, age: Delta) -> bool {
        self.context.owed.load(Acquire) == NONE || age.as_millis() >= LATE_MS
    }
}

/// What the CM calls.
///
/// # Safety
///
/// Called by the CM for the ID of a [`Body<H>`], with a valid event.
pub(super) unsafe extern "C" fn event<H: CmHandler>(
    id: *mut bindings::ib_cm_id,
    event: *const bindings::ib_cm_event,
) -> c_int {
    // SAFETY: By this function's requirements. The context lives until the ID is destroyed, which
    // waits for us, or, if we report that a message was not answered, until that is settled or was
    // waited for.
    let context = unsafe { &*(*id).context.cast_const().cast::<Context<H>>() };
    // SAFETY: By this function's requirements.
    let event = unsafe { &*event };
    // From when the message is settled on, nobody may wait for us any more.
    let handler = context.handler.clone();
    let event = match event.event {
        bindings::ib_cm_event_type_IB_CM_REP_RECEIVED => {
            context.settle(REQ, NONE);
            CmEvent::Accepted {
                // SAFETY: That is what this event comes with.
                private_data: unsafe { private_data(event, REPLY_DATA) },
            }
        }
        bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED
        | bindings::ib_cm_event_type_IB_CM_USER_ESTABLISHED => {
            context.settle(REP, LINK);
            CmEvent::Confirmed
        }
        bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED => {
            // It may be about any of them.
            context.settle_all();
            CmEvent::Rejected {
                // SAFETY: That is what this event comes with; the message has 16 bits for it.
                reason: unsafe { event.param.rej_rcvd.reason } as u16,
                // SAFETY: As above.
                private_data: unsafe { private_data(event, REJECT_DATA) },
            }
        }
        bindings::ib_cm_event_type_IB_CM_REQ_ERROR => {
            context.settle(REQ, NONE);
            CmEvent::NoAnswer
        }
        bindings::ib_cm_event_type_IB_CM_REP_ERROR => {
            context.settle(REP, NONE);
            CmEvent::NoAnswer
        }
        bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED => {
            // It stands for an answer to a reply or a disconnection of ours.
            context.settle_all();
            // SAFETY: By this function's requirements; this event comes with a reference to the ID.
            // If it fails, the other side asks again or does not care.
            let _ = unsafe { bindings::ib_send_cm_drep(id, ptr::null(), 0) };
            CmEvent::Disconnected
        }
        bindings::ib_cm_event_type_IB_CM_DREQ_ERROR
        | bindings::ib_cm_event_type_IB_CM_DREP_RECEIVED
        | bindings::ib_cm_event_type_IB_CM_TIMEWAIT_EXIT => {
            context.settle_all();
            CmEvent::Over
        }
        // It takes longer, or is about alternate paths.
        _ => return 0,
    };
    handler.event(event);
    // Anything else would destroy the ID, which has an owner.
    0
}

#[cfg(CONFIG_KUNIT)]
#[kunit_tests(ipoib_rs_cm_id)]
mod tests {
    use super::*;
    use kernel::alloc::flags::__GFP_ZERO;

    const GONE: bindings::ib_cm_state = bindings::ib_cm_state_IB_CM_TIMEWAIT;

    struct Deaf;

    impl CmHandler for Deaf {
        fn event(&self, _event: CmEvent<'_>) {}
    }

    fn context(owed: u32) -> Result<Arc<Context<Deaf>>> {
        let context = Context::new(Arc::new(Deaf, GFP_KERNEL)?)?;
        context.owed.store(owed, Release);
        Ok(context)
    }

    /// Has the CM report that.
    fn report(context: &Arc<Context<Deaf>>, what: bindings::ib_cm_event_type) -> Result {
        let flags = GFP_KERNEL | __GFP_ZERO;
        let mut id = KBox::<bindings::ib_cm_id>::new_uninit(flags)?;
        let mut told = KBox::<bindings::ib_cm_event>::new_uninit(flags)?;
        let (id, told) = (id.as_mut_ptr(), told.as_mut_ptr());
        // SAFETY: Both are ours and zeroed, which is a valid value of each; these events are looked at no
        // further.
        unsafe {
            (*id).context = as_context(context);
            (*told).event = what;
            event::<Deaf>(id, told);
        }
        Ok(())
    }

    #[test]
    fn a_connection_owes_a_report_until_it_is_over() -> Result {
        let context = context(REP)?;
        report(&context, bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED)?;
        assert!(!context.is_owed_report(bindings::ib_cm_state_IB_CM_ESTABLISHED));
        // The CM has disconnected by itself, and nobody answers.
        assert!(!context.is_owed_report(bindings::ib_cm_state_IB_CM_DREQ_SENT));
        assert!(context.is_owed_report(GONE));
        report(&context, bindings::ib_cm_event_type_IB_CM_DREQ_ERROR)?;
        assert!(!context.is_owed_report(GONE));
        Ok(())
    }

    #[test]
    fn a_report_of_the_end_counts_whenever_it_comes() -> Result {
        let context = context(REP)?;
        report(&context, bindings::ib_cm_event_type_IB_CM_DREQ_ERROR)?;
        report(&context, bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED)?;
        assert!(!context.is_owed_report(GONE));
        Ok(())
    }

    #[test]
    fn what_failed_to_be_sent_leaves_what_was_owed() -> Result {
        let context = context(LINK)?;
        context.owed.store(DREQ, Release);
        context.settle(DREQ, LINK);
        assert!(context.is_owed_report(GONE));
        // A report that came meanwhile stands.
        context.settle_all();
        context.settle(DREQ, LINK);
        assert!(!context.is_owed_report(GONE));
        Ok(())
    }
}
