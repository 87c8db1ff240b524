// SPDX-License-Identifier: GPL-2.0

//! Attributes and states of a queue pair (IB specification, section 11.2.5).

use ib_fabric::rc::{Access, Psn, Requester, RequesterSetup, Responder, ResponderSetup};
use ib_fabric::Mtu;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{Kind, Qp, QpEvent, ReceiveSide, SendSide};
use crate::ah::AddressVector;
use crate::state::State;
use crate::wakeups::Wakeups;
use crate::work::Path;

/// READ requests and atomic operations that a connection may have under way, either way.
pub(crate) const MAX_READS: u8 = 16;

/// Attributes that a ULP sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) state: State,
    pub(crate) port: u8,
    pub(crate) pkey_index: u16,
    pub(crate) qkey: u32,
    pub(crate) sq_psn: u32,
    pub(crate) rq_psn: u32,
    pub(crate) to: AddressVector,
    pub(crate) dest_qp: u32,
    pub(crate) mtu: Mtu,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) max_reads: u8,
    pub(crate) max_dest_reads: u8,
    pub(crate) access: u32,
}

impl Attributes {
    /// The attributes of a queue pair in the state Reset.
    pub(super) fn new(port: u8) -> Self {
        Self {
            port,
            ..Self::default()
        }
    }

    /// Returns the attributes after a change.
    ///
    /// # Errors
    ///
    /// `EINVAL` for values that the specification does not have.
    fn changed(mut self, attr: &bindings::ib_qp_attr, mask: u32) -> Result<Self> {
        let has = |flag: bindings::ib_qp_attr_mask| mask & flag != 0;
        let at_most = |value: u8, most: u8| (value <= most).then_some(value).ok_or(EINVAL);
        if has(bindings::ib_qp_attr_mask_IB_QP_PORT) {
            self.port = u8::try_from(attr.port_num).map_err(|_| EINVAL)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX) {
            self.pkey_index = attr.pkey_index;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_QKEY) {
            self.qkey = attr.qkey;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_SQ_PSN) {
            self.sq_psn = attr.sq_psn & 0xff_ffff;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_RQ_PSN) {
            self.rq_psn = attr.rq_psn & 0xff_ffff;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_AV) {
            self.to = AddressVector::from_raw(&attr.ah_attr)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_DEST_QPN) {
            self.dest_qp = attr.dest_qp_num & 0xff_ffff;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_PATH_MTU) {
            let code = u8::try_from(attr.path_mtu).map_err(|_| EINVAL)?;
            self.mtu = Mtu::from_code(code).ok_or(EINVAL)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT) {
            self.timeout = at_most(attr.timeout, 31)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT) {
            self.retries = at_most(attr.retry_cnt, 7)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY) {
            self.rnr_retries = at_most(attr.rnr_retry, 7)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER) {
            self.rnr_timer = at_most(attr.min_rnr_timer, 31)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC) {
            self.max_reads = at_most(attr.max_rd_atomic, MAX_READS)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC) {
            self.max_dest_reads = at_most(attr.max_dest_rd_atomic, MAX_READS)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS) {
            self.access = attr.qp_access_flags as u32;
        }
        Ok(self)
    }

    /// The other end.
    pub(super) fn path(&self) -> Path {
        Path {
            to: AddressVector {
                port: self.port,
                ..self.to
            },
            remote_qp: self.dest_qp,
            pkey_index: self.pkey_index,
            mtu: self.mtu.bytes(),
        }
    }

    fn rights(&self) -> Access {
        let has = |flag: bindings::ib_access_flags| self.access & flag != 0;
        Access {
            read: has(bindings::ib_access_flags_IB_ACCESS_REMOTE_READ),
            write: has(bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE),
            atomic: has(bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC),
        }
    }

    fn requester(&self) -> Requester {
        Requester::new(&RequesterSetup {
            psn: Psn::new(self.sq_psn),
            mtu: self.mtu,
            timeout: self.timeout,
            retries: self.retries,
            rnr_retries: self.rnr_retries,
            reads: self.max_reads,
        })
    }

    /// Makes the responder, which is too large to be moved about.
    #[inline(never)]
    fn responder(&self) -> Result<KBox<Responder>> {
        let responder = Responder::new(&ResponderSetup {
            psn: Psn::new(self.rq_psn),
            mtu: self.mtu,
            rnr_timer: self.rnr_timer,
            resources: self.max_dest_reads,
            access: self.rights(),
            // Each packet says so.
        });
        Ok(KBox::new(responder, GFP_ATOMIC)?)
    }
}

impl Qp {
    /// The attributes, and whether the send queue is draining.
    pub(crate) fn attributes(&self) -> (Attributes, bool) {
        let side = self.sends.lock();
        let mut attributes = side.attributes;
        if self.receives.lock().broken {
            attributes.state = State::Error;
        }
        let draining = attributes.state == State::SendQueueDrained && !is_drained(&side);
        (attributes, draining)
    }

    /// Changes attributes and state. True: there is something to be sent.
    ///
    /// In the states Error and Reset, no work begins any more; an answer that [`Qp::respond`] has returned before may
    /// still be copied from memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a transition or attributes that the specification does not have (section 11.2.5.3); `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn modify(
        self: &Arc<Self>,
        attr: &bindings::ib_qp_attr,
        mask: u32,
        wakeups: &mut Wakeups,
    ) -> Result<bool> {
        let mut side = self.sends.lock();
        let side = &mut *side;
        let mut other = self.receives.lock();
        let other = &mut *other;
        // It may have learned of an error that the sending half has not.
        let old = if other.broken {
            State::Error
        } else {
            side.attributes.state
        };
        let state = self.next_state(old, attr, mask)?;
        let mut new = side.attributes.changed(attr, mask)?;
        new.state = state;
        let connected = self.fixed.kind == Kind::Rc;
        if connected && old == State::Init && state == State::ReadyToReceive {
            let responder = new.responder()?;
            other.end_responder();
            other.responder = Some(responder);
            other.silent = true;
        }
        side.attributes = new;
        other.port = new.port;
        other.qkey = new.qkey;
        other.path = new.path();
        if let Some(responder) = &mut other.responder {
            responder.change(new.rights(), new.rnr_timer);
        }
        if state == State::ReadyToSend && connected && old == State::ReadyToReceive {
            side.end_requester();
            side.requester = Some(new.requester());
            other.silent = false;
        }
        if state == State::SendQueueDrained && old != state {
            let notify = mask & bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY != 0;
            side.tell_drained = notify && attr.en_sqd_async_notify != 0;
        }
        self.enter(state, side, other, wakeups);
        self.note_requester(side);
        self.note_responder(other);
        Ok(state == State::ReadyToSend && !side.queue.is_empty())
    }

    /// State after a change from `old`.
    fn next_state(&self, old: State, attr: &bindings::ib_qp_attr, mask: u32) -> Result<State> {
        let has = |flag: bindings::ib_qp_attr_mask| mask & flag != 0;
        if has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE) {
            let assumed = State::from_raw(attr.cur_qp_state).ok_or(EINVAL)?;
            if assumed != old {
                return Err(EINVAL);
            }
        }
        let state = if has(bindings::ib_qp_attr_mask_IB_QP_STATE) {
            State::from_raw(attr.qp_state).ok_or(EINVAL)?
        } else {
            old
        };
        let kind = self.fixed.kind as u32;
        // SAFETY: It only looks into a table.
        let valid = unsafe { bindings::ib_modify_qp_is_ok(old as u32, state as u32, kind, mask) };
        valid.then_some(state).ok_or(EINVAL)
    }

    /// Does what a state means for both halves.
    fn enter(
        self: &Arc<Self>,
        state: State,
        side: &mut SendSide,
        other: &mut ReceiveSide,
        wakeups: &mut Wakeups,
    ) {
        match state {
            State::Reset => {
                side.queue.clear();
                other.queue.clear();
                side.end_requester();
                other.end_responder();
                other.broken = false;
                other.state = state;
                self.forget();
            }
            State::Error => {
                other.broken = false;
                // The other end is still told why, but nothing is read for it any more.
                if let Some(responder) = &mut other.responder {
                    responder.forget_answers();
                }
                self.break_sends(side, None, wakeups);
                self.break_receives(other, None, wakeups);
            }
            State::SendQueueDrained => {
                other.state = state;
                self.check_drained(side);
            }
            _ => other.state = state,
        }
    }

    /// Tells the ULP that the send queue has drained, if that is news to it.
    pub(super) fn check_drained(&self, side: &mut SendSide) {
        let drains = side.attributes.state == State::SendQueueDrained;
        if drains && side.tell_drained && is_drained(side) {
            side.tell_drained = false;
            self.note(QpEvent::Drained);
        }
    }

    /// Tells the ULP that the other side knows of the connection before this one does.
    pub(super) fn check_silence(&self, side: &mut ReceiveSide) {
        if side.silent {
            side.silent = false;
            self.note(QpEvent::Established);
        }
    }
}

fn is_drained(side: &SendSide) -> bool {
    side.requester.as_ref().is_none_or(Requester::is_drained)
}
