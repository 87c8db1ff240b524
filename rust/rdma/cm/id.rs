// SPDX-License-Identifier: GPL-2.0

//! Connection IDs: one end of a connection each.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use super::owned::OwnedId;
use super::report::{as_context, event, Context, DREQ, LINK, NONE, REP, REQ};
use super::{send_reject, CmHandler, RejectReason, Request, REPLY_DATA, REQUEST_DATA};
use crate::ah::{AhOptions, Route};
use crate::deferred::{DeferDrop, Deferred, Reserved};
use crate::gid::GidRef;
use crate::pd::Pd;
use crate::qp::random_psn;
use crate::rc::RcQp;

/// Retries of a packet that is not acknowledged: as many as possible, since giving a connection up loses all
/// frames in flight. 7 would be one more, but means forever on soft-RoCE.
const RETRIES: u8 = 6;
/// The acknowledgement timeout is from 134 ms to 1 s (4.096 us times two to the power of these), whatever the
/// peer wishes.
const MIN_TIMEOUT: u8 = 15;
const MAX_TIMEOUT: u8 = 18;
/// Retries of a packet for which the peer has no buffer: forever. Nothing is wrong with the connection, and
/// the peer posts buffers again as soon as it gets to run.
const RNR_RETRIES: u8 = 7;
/// The time after which the peer retries when we have no buffer: 0.64 ms, about as long as NAPI takes to come
/// round on a busy host. The CM's value, 0, means 655 ms.
const RNR_TIMER: u8 = 12;

/// A connection ID that is to be destroyed when nobody uses it any more, and what it holds until then.
///
/// Destroying an ID takes until the device has sent the CM's last message. So its users' own things are given back
/// before: the handler, with all that it holds, and the protection domain. The ID is left to its device.
///
/// # Invariants
///
/// `id` is of `pd`'s device.
struct Body<H: CmHandler> {
    id: Deferred<OwnedId<H>>,
    pd: Arc<Pd>,
}

impl<H: CmHandler> DeferDrop for Body<H> {}

impl<H: CmHandler> Drop for Body<H> {
    fn drop(&mut self) {
        self.id.context().forget_handler();
    }
}

/// Room for a connection ID.
pub(super) struct Room<H: CmHandler> {
    body: Reserved<Body<H>>,
    id: Reserved<OwnedId<H>>,
    pub(super) context: Arc<Context<H>>,
}

impl<H: CmHandler> Room<H> {
    /// Makes room for an ID with that handler.
    ///
    /// # Errors
    ///
    /// `ESHUTDOWN` after the [`crate::Reaper`] was dropped; `ENOMEM`.
    pub(super) fn new(pd: &Pd, handler: Arc<H>) -> Result<Self> {
        Ok(Self {
            body: Reserved::new(pd.deferred_drop())?,
            id: Reserved::new(pd.device().patient())?,
            context: Context::new(handler)?,
        })
    }
}

/// A connection ID: one end of a connection.
///
/// Dropping it rejects or disconnects the connection, and tells the handler of no more events. It neither holds the
/// queue pair nor is held by it. It holds its handler; a handler that owns its ID must drop that, or neither is ever
/// freed.
///
/// # Invariants
///
/// `raw` is the connection ID of `body`.
pub struct CmId<H: CmHandler> {
    raw: NonNull<bindings::ib_cm_id>,
    /// True if the peer has requested the connection.
    incoming: bool,
    requested: Atomic<bool>,
    /// The number of the peer's first packet.
    psn: u32,
    body: Deferred<Body<H>>,
}

// SAFETY: A connection ID may be used by any thread.
unsafe impl<H: CmHandler> Send for CmId<H> {}
// SAFETY: Its messages are sent under the CM's lock, but for the request, which is sent once.
unsafe impl<H: CmHandler> Sync for CmId<H> {}

impl<H: CmHandler> CmId<H> {
    /// Makes an ID for a connection that we request; `handler` is told of its events.
    ///
    /// # Errors
    ///
    /// `ESHUTDOWN` after the [`crate::Reaper`] was dropped; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Dropping it is fine in softirq.
    pub fn new(pd: &Arc<Pd>, handler: Arc<H>) -> Result<Self> {
        let room = Room::new(pd, handler)?;
        let context = as_context(&room.context);
        // SAFETY: The device is registered, and the context lives until the ID is destroyed.
        let raw = from_err_ptr(unsafe {
            bindings::ib_create_cm_id(pd.device().as_raw(), Some(event::<H>), context)
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: It was just made so, of `pd`'s device, and nobody else knows it.
        Ok(unsafe { Self::own(raw, false, room, pd) })
    }

    /// Takes ownership of an ID.
    ///
    /// # Safety
    ///
    /// `raw` must be a connection ID of `pd`'s device, not one that listens, whose handler is `event::<H>` and whose
    /// context is `room`'s. Nobody else may use it from here on.
    pub(super) unsafe fn own(
        raw: NonNull<bindings::ib_cm_id>,
        incoming: bool,
        room: Room<H>,
        pd: &Arc<Pd>,
    ) -> Self {
        // SAFETY: By this function's requirements. We use `raw` while we have the body, and that has the ID, which the
        // work item borrows mutably only when it was dropped.
        let id = unsafe { OwnedId::new(raw, room.context, pd.device()) };
        // INVARIANT: By this function's requirements.
        let body = Body {
            id: room.id.fill(id),
            pd: pd.clone(),
        };
        // INVARIANT: That is the body's.
        Self {
            raw,
            incoming,
            requested: Atomic::new(false),
            psn: random_psn(),
            body: room.body.fill(body),
        }
    }

    /// Sends `message`, which the CM will report on, in `state` only. If that fails, it owes the report that it did
    /// before.
    fn send(
        &self,
        message: u32,
        state: bindings::ib_cm_state,
        send: impl FnOnce() -> c_int,
    ) -> Result {
        // The CM checks it again, but by then another message's report would be forgotten.
        if self.body.id.state() != Some(state) {
            return Err(EINVAL);
        }
        let context = self.body.id.context();
        // The report may come before the call returns.
        let before = context.owe(message);
        to_result(send()).inspect_err(|_| context.settle(message, before))
    }

    fn check(&self, qp: &RcQp) -> Result {
        if self.body.pd.device().same(qp.pd().device()) {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Requests a connection for `qp`, which is in the state Reset and is made ready for it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an ID that is not new, objects of different devices, too much private data,
    /// or the path is to a group; `EBUSY` if this ID has been used for a
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
        let (path, dmac, options) = match req.path.route() {
            Route::Roce { dmac, options } => (ptr::null(), *dmac, *options),
            Route::Path(path) => (path.as_raw(), [0; 6], AhOptions::default()),
            Route::Group => return Err(EINVAL),
        };
        // The CM copes neither with two requests at a time, nor with one after a failed one.
        self.requested
            .cmpxchg(false, true, Relaxed)
            .map_err(|_| EBUSY)?;

        init_qp(qp, gid, req.pkey)?;
        let raw = bindings::ipoib_rs_cm_request {
            sgid_attr: gid.as_raw(),
            path,
            dgid: bindings::ib_gid {
                raw: req.path.dgid(),
            },
            dmac,
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
        self.send(REQ, bindings::ib_cm_state_IB_CM_IDLE, || {
            // SAFETY: The ID is owned by the type invariant, and new, and this is its one request.
            // The GID is referenced by the path, which has the record, and the private data are as long as it
            // says.
            unsafe { bindings::ipoib_rs_cm_send_request(self.raw.as_ptr(), &raw const raw) }
        })
    }

    /// Has `qp` receive and send. That is the queue pair that was passed to [`Self::request`], after
    /// [`CmEvent::Accepted`]; or a new one, if the peer has requested the connection.
    ///
    /// Returns the LID of the peer's port if packets to it have no GRH. Then its datagrams have none either, since it has
    /// its paths from the same subnet administrator.
    ///
    /// # Errors
    ///
    /// `EINVAL` at any other time, for a queue pair of another device or in another state, or if the peer's MTU does
    /// not exist; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn ready(&self, qp: &RcQp) -> Result<Option<u16>> {
        self.check(qp)?;
        if self.incoming {
            self.step(qp, bindings::ib_qp_state_IB_QPS_INIT)?;
        }
        let lid = self.step(qp, bindings::ib_qp_state_IB_QPS_RTR)?;
        self.step(qp, bindings::ib_qp_state_IB_QPS_RTS)?;
        Ok(lid)
    }

    /// Takes the queue pair to a state. Returns the LID that its packets go to from now on, if they have no GRH.
    fn step(&self, qp: &RcQp, state: bindings::ib_qp_state) -> Result<Option<u16>> {
        let mut attr = bindings::ib_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        // SAFETY: Owned by the type invariant; the attributes and the mask are ours.
        to_result(unsafe {
            bindings::ib_cm_init_qp_attr(self.raw.as_ptr(), &raw mut attr, &raw mut mask)
        })?;
        // Some devices do not check the MTU, which is the peer's word.
        if state == bindings::ib_qp_state_IB_QPS_RTR
            && !(bindings::ib_mtu_IB_MTU_256..=bindings::ib_mtu_IB_MTU_4096)
                .contains(&attr.path_mtu)
        {
            return Err(EINVAL);
        }
        // There are no RDMA reads and writes.
        attr.qp_access_flags = 0;
        attr.max_dest_rd_atomic = 0;
        attr.max_rd_atomic = 0;
        // If the peer has requested the connection, the CM does not know this before the reply.
        attr.rq_psn = self.psn;
        attr.min_rnr_timer = RNR_TIMER;
        // These are the peer's wishes, but we are the ones who lose frames.
        attr.retry_cnt = RETRIES;
        attr.rnr_retry = RNR_RETRIES;
        attr.timeout = attr.timeout.clamp(MIN_TIMEOUT, MAX_TIMEOUT);
        // An alternate path, which the peer may change at any time, is not used.
        mask &= !(bindings::ib_qp_attr_mask_IB_QP_ALT_PATH
            | bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE) as c_int;
        // The peer may change the path, too, and with it goes the CM's reference to the GID, which the core finds again by
        // its index.
        attr.ah_attr.grh.sgid_attr = ptr::null();
        // SAFETY: It names no GID but by its index.
        unsafe { qp.modify(&mut attr, mask)? };
        let to = &attr.ah_attr;
        let is_set = mask & bindings::ib_qp_attr_mask_IB_QP_AV as c_int != 0;
        let is_within = to.type_ == bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB
            && u32::from(to.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH == 0;
        if !(is_set && is_within) {
            return Ok(None);
        }
        // SAFETY: By its type, it has a LID.
        Ok(Some(unsafe { to.__bindgen_anon_1.ib.dlid }))
    }

    /// Confirms a connection that the peer has accepted.
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
        let context = self.body.id.context();
        context.settle(NONE, LINK);
        // SAFETY: Owned by the type invariant.
        to_result(unsafe { bindings::ib_send_cm_rtu(self.raw.as_ptr(), ptr::null(), 0) })
            .inspect_err(|_| context.settle(LINK, NONE))
    }

    /// Accepts the connection that the peer has requested; `qp` is [ready](Self::ready). The private data for the peer
    /// are at most [`REPLY_DATA`] bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the peer has not, or was answered, for a queue pair of another device, or too much private data;
    /// `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn accept(&self, qp: &RcQp, private_data: &[u8]) -> Result {
        self.check(qp)?;
        if !self.incoming || private_data.len() > REPLY_DATA {
            return Err(EINVAL);
        }
        let mut param = bindings::ib_cm_rep_param {
            qp_num: qp.qpn(),
            starting_psn: self.psn,
            private_data: private_data.as_ptr().cast(),
            private_data_len: private_data.len() as u8,
            rnr_retry_count: RNR_RETRIES,
            srq: qp.intake().is_shared().into(),
            ..Default::default()
        };
        self.send(REP, bindings::ib_cm_state_IB_CM_REQ_RCVD, || {
            // SAFETY: Owned by the type invariant; the private data are as long as it says.
            unsafe { bindings::ib_send_cm_rep(self.raw.as_ptr(), &raw mut param) }
        })
    }

    /// Rejects the connection that the peer has requested, or accepted. Afterwards the ID is only good to be
    /// dropped.
    ///
    /// # Errors
    ///
    /// `EINVAL` at any other time, or for too much private data; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result {
        // The CM would do it while it waits for an answer, too, but then destroying the ID would wait for as
        // long as the peer could have taken.
        if !matches!(
            self.body.id.state(),
            Some(bindings::ib_cm_state_IB_CM_REQ_RCVD | bindings::ib_cm_state_IB_CM_REP_RCVD)
        ) {
            return Err(EINVAL);
        }
        // SAFETY: Owned by the type invariant.
        unsafe { send_reject(self.raw, reason, private_data) }
    }

    /// Ends the connection. [`CmEvent::Over`] comes when the peer has answered, or has not in time.
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

/// Takes a queue pair from Reset to Init, at the port of a GID and in a partition.
///
/// The CM has the attributes only once the request is sent, when it may be answered already.
///
/// # Errors
///
/// `ENOENT` if the port is not in the partition; whatever the device says.
fn init_qp(qp: &RcQp, gid: &GidRef, pkey: u16) -> Result {
    let mut attr = bindings::ib_qp_attr {
        qp_state: bindings::ib_qp_state_IB_QPS_INIT,
        pkey_index: gid.device().find_pkey(gid.port(), pkey)?,
        port_num: gid.port(),
        ..Default::default()
    };
    let mask = bindings::ib_qp_attr_mask_IB_QP_STATE
        | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS
        | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
        | bindings::ib_qp_attr_mask_IB_QP_PORT;
    // SAFETY: There is no address.
    unsafe { qp.modify(&mut attr, mask as c_int) }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_cm_id)]
mod tests {
    use super::super::CmEvent;
    use super::*;
    use crate::deferred::Reaper;
    use crate::fake::Fake;

    const IDLE: bindings::ib_cm_state = bindings::ib_cm_state_IB_CM_IDLE;

    struct Deaf;

    impl CmHandler for Deaf {
        fn event(&self, _event: CmEvent<'_>) {}
    }

    /// A message that was not sent leaves the report that the CM owed before, unless that came meanwhile; and one that
    /// the state of the connection forbids changes nothing.
    #[test]
    fn a_message_that_is_not_sent_owes_nothing() -> Result {
        let fake = Fake::new()?;
        let reaper = Reaper::new()?;
        let pd = Pd::new(fake.device(), &reaper)?;
        let id = CmId::new(&pd, Arc::new(Deaf, GFP_KERNEL)?)?;
        let context = id.body.id.context();
        context.owe(LINK);
        assert_eq!(id.send(DREQ, IDLE, || ENOMEM.to_errno()), Err(ENOMEM));
        assert_eq!(context.owe(LINK), LINK);
        let other = bindings::ib_cm_state_IB_CM_ESTABLISHED;
        assert_eq!(id.send(DREQ, other, || 0), Err(EINVAL));
        assert_eq!(context.owe(LINK), LINK);
        assert_eq!(id.send(DREQ, IDLE, || 0), Ok(()));
        assert_eq!(context.owe(LINK), DREQ);
        let reported = || {
            context.settle(DREQ, NONE);
            ENOMEM.to_errno()
        };
        assert_eq!(id.send(DREQ, IDLE, reported), Err(ENOMEM));
        assert!(context.is_settled());
        Ok(())
    }
}
