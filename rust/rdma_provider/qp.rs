// SPDX-License-Identifier: GPL-2.0

//! Queue pairs for datagrams.

mod queue;

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};

use crate::cq::{Cq, Wakeups};
use crate::state::State;
use crate::work::{copy, length, permitted, Send, Status};
use queue::{ReceiveEntry, SendEntry, WorkQueue};

/// Service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Subnet management interface, queue pair 0.
    Smi,
    /// General services interface, queue pair 1.
    Gsi,
    /// Unreliable datagrams.
    Ud,
}

impl Kind {
    pub(crate) fn from_raw(raw: bindings::ib_qp_type) -> Result<Kind> {
        match raw {
            bindings::ib_qp_type_IB_QPT_SMI => Ok(Kind::Smi),
            bindings::ib_qp_type_IB_QPT_GSI => Ok(Kind::Gsi),
            bindings::ib_qp_type_IB_QPT_UD => Ok(Kind::Ud),
            _ => Err(EOPNOTSUPP),
        }
    }
}

/// Sizes of a queue pair's queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Send requests.
    pub(crate) sends: usize,
    /// Receive requests.
    pub(crate) receives: usize,
    /// Elements of a send request.
    pub(crate) send_sges: usize,
    /// Elements of a receive request.
    pub(crate) receive_sges: usize,
}

/// Attributes that a ULP sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) state: State,
    pub(crate) port: u8,
    pub(crate) pkey_index: u16,
    pub(crate) qkey: u32,
    pub(crate) sq_psn: u32,
}

/// The sending half.
struct SendSide {
    attributes: Attributes,
    queue: WorkQueue<SendEntry>,
}

/// The receiving half, with a copy of the attributes that it needs.
struct ReceiveSide {
    state: State,
    pkey_index: u16,
    qkey: u32,
    queue: WorkQueue<ReceiveEntry>,
}

/// Header fields of a message that a receive completion shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    /// Source queue pair.
    pub src_qp: u32,
    /// Source LID.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Bits of the destination LID below the LID mask.
    pub path_bits: u8,
    /// Index of the P_Key in the receiving port's table.
    pub pkey_index: u16,
    /// Immediate data, in network order.
    pub immediate: Option<[u8; 4]>,
    /// Whether the sender wants the receiver told.
    pub solicited: bool,
    /// Global route header as it was on the wire, if there was one.
    pub route: Option<[u8; 40]>,
}

/// Reason why a message was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<E> {
    /// The queue pair does not receive now.
    State,
    /// No receive request was posted.
    NoRequest,
    /// The buffers of the request are too small.
    TooLong,
    /// The buffers of the request are not the ULP's to use; the request has failed.
    Protection,
    /// The driver says no.
    Driver(E),
}

/// A queue pair, of which RDMA core has the other half.
///
/// # Invariants
///
/// `raw` is the `ib_qp` that this was made for. It is a number here, which completions carry; those are gone
/// before it is.
#[pin_data]
pub struct Qp {
    raw: *mut bindings::ib_qp,
    number: u32,
    kind: Kind,
    /// It does not hear what it sends to a multicast group.
    deaf: bool,
    signal_all: bool,
    sizes: Sizes,
    send_cq: Arc<Cq>,
    receive_cq: Arc<Cq>,
    #[pin]
    sends: SpinLockIrq<SendSide>,
    #[pin]
    receives: SpinLockIrq<ReceiveSide>,
}

// SAFETY: `raw` is not used as a pointer; the rest is `Send`.
unsafe impl core::marker::Send for Qp {}
// SAFETY: As above, and what changes has locks.
unsafe impl Sync for Qp {}

/// Room in front of a datagram for a global route header (IB specification, section 11.4.1.2).
const ROUTE_ROOM: usize = 40;

/// Properties of a queue pair that stay.
pub(crate) struct Blueprint {
    pub(crate) raw: *mut bindings::ib_qp,
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) port: u8,
    pub(crate) deaf: bool,
    pub(crate) signal_all: bool,
    pub(crate) sizes: Sizes,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) receive_cq: Arc<Cq>,
}

impl Qp {
    /// Makes one in the state Reset.
    pub(crate) fn new(plan: Blueprint) -> Result<Arc<Self>> {
        let sizes = plan.sizes;
        let sends = SendSide {
            attributes: Attributes {
                state: State::Reset,
                port: plan.port,
                pkey_index: 0,
                qkey: 0,
                sq_psn: 0,
            },
            queue: WorkQueue::new(sizes.sends, sizes.send_sges)?,
        };
        let receives = ReceiveSide {
            state: State::Reset,
            pkey_index: 0,
            qkey: 0,
            queue: WorkQueue::new(sizes.receives, sizes.receive_sges)?,
        };
        Arc::pin_init(
            pin_init!(Self {
                raw: plan.raw,
                number: plan.number,
                kind: plan.kind,
                deaf: plan.deaf,
                signal_all: plan.signal_all,
                sizes,
                send_cq: plan.send_cq,
                receive_cq: plan.receive_cq,
                sends <- new_spinlock_irq!(sends, "rdma_provider::Qp::sends"),
                receives <- new_spinlock_irq!(receives, "rdma_provider::Qp::receives"),
            }),
            GFP_KERNEL,
        )
    }

    /// Its number, 24 bits.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its service.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it is kept from hearing its own messages to a multicast group.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    pub(crate) fn attributes(&self) -> Attributes {
        self.sends.lock().attributes
    }

    pub(crate) fn signals_all(&self) -> bool {
        self.signal_all
    }

    /// Sends the oldest request of the send queue: `deliver` gets it, with its payload, and says how it
    /// ended. False if there is none to be sent.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's, and none that `deliver` takes. `deliver` runs with interrupts
    /// disabled.
    pub fn transmit(
        &self,
        wakeups: &mut Wakeups,
        deliver: impl FnOnce(&mut Wakeups, &Send, &Payload<'_>) -> Status,
    ) -> bool {
        let mut side = self.sends.lock();
        let side = &mut *side;
        if side.attributes.state != State::ReadyToSend {
            return false;
        }
        let Some((entry, pieces)) = side.queue.first() else {
            return false;
        };
        let entry = *entry;
        let mut request = entry.request;
        request.len = length(pieces);
        // The high bit says that the queue pair's own is meant (section 10.2.5).
        if request.qkey & 1 << 31 != 0 {
            request.qkey = side.attributes.qkey;
        }
        if self.kind != Kind::Gsi {
            request.pkey_index = side.attributes.pkey_index;
        }
        let status = if permitted(pieces) {
            deliver(wakeups, &request, &Payload { pieces })
        } else {
            Status::LocalProtection
        };
        side.queue.pop();
        self.complete_send(&entry, status, wakeups);
        if status != Status::Success {
            side.attributes.state = State::SendQueueError;
            self.receives.lock().state = State::SendQueueError;
            self.flush_sends(&mut side.queue, wakeups);
        }
        true
    }

    /// Puts a message into the oldest receive request. `check` gets the index of the queue pair's P_Key and
    /// its Q_Key; it refuses the message, or returns the header fields for the completion.
    ///
    /// # Errors
    ///
    /// See [`Refused`]. The message is gone.
    ///
    /// # Context
    ///
    /// In the callback of [`Qp::transmit`]. `check` runs with interrupts disabled.
    pub fn receive<E>(
        &self,
        wakeups: &mut Wakeups,
        payload: &Payload<'_>,
        check: impl FnOnce(u16, u32) -> Result<Meta, E>,
    ) -> Result<(), Refused<E>> {
        let mut side = self.receives.lock();
        if !side.state.receives() {
            return Err(Refused::State);
        }
        let meta = check(side.pkey_index, side.qkey).map_err(Refused::Driver)?;
        let Some((entry, pieces)) = side.queue.first() else {
            return Err(Refused::NoRequest);
        };
        let entry = *entry;
        let len = ROUTE_ROOM + payload.len();
        if len > length(pieces) {
            return Err(Refused::TooLong);
        }
        let mut wc: bindings::ib_wc = pin_init::zeroed();
        let allowed = permitted(pieces);
        if allowed {
            let header = meta.route.unwrap_or([0; ROUTE_ROOM]);
            // SAFETY: Both requests are in their queues, whose locks are held: a `Payload` exists only while
            // the sender's is. The header is on this stack.
            unsafe { copy(&header, payload.pieces, pieces) };
            wc.status = bindings::ib_wc_status_IB_WC_SUCCESS;
        } else {
            wc.status = bindings::ib_wc_status_IB_WC_LOC_PROT_ERR;
        }
        side.queue.pop();
        wc.__bindgen_anon_1.wr_id = entry.wr_id;
        wc.opcode = bindings::ib_wc_opcode_IB_WC_RECV;
        wc.byte_len = len as u32;
        wc.qp = self.raw;
        wc.src_qp = meta.src_qp;
        wc.slid = meta.slid.into();
        wc.sl = meta.sl;
        wc.dlid_path_bits = meta.path_bits;
        wc.pkey_index = meta.pkey_index;
        if meta.route.is_some() {
            wc.wc_flags |= bindings::ib_wc_flags_IB_WC_GRH as i32;
        }
        if let Some(immediate) = meta.immediate {
            wc.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM as i32;
            wc.ex.imm_data = u32::from_ne_bytes(immediate);
        }
        let wake = self.receive_cq.push(wc, meta.solicited || !allowed);
        wakeups.add(&self.receive_cq, wake);
        if allowed {
            Ok(())
        } else {
            Err(Refused::Protection)
        }
    }

    /// Posts a chain of send requests. Returns whether the queue pair has something to send now, and the
    /// error, if there was one, with the request that it is for.
    ///
    /// # Safety
    ///
    /// `wr` has to be a chain of send requests of a ULP's for this queue pair, which obeys the rules of
    /// `ib_post_send()`.
    pub(crate) unsafe fn post_send(
        &self,
        mut wr: *const bindings::ib_send_wr,
        wakeups: &mut Wakeups,
    ) -> (bool, Result<(), (Error, *const bindings::ib_send_wr)>) {
        let mut side = self.sends.lock();
        let mut result = Ok(());
        while !wr.is_null() {
            if !side.attributes.state.takes_sends() {
                result = Err((EINVAL, wr));
                break;
            }
            // SAFETY: By the safety requirement.
            if let Err(e) = unsafe { side.queue.push_send(wr, self.signal_all) } {
                result = Err((e, wr));
                break;
            }
            // SAFETY: By the safety requirement.
            wr = unsafe { (*wr).next };
        }
        if side.attributes.state.flushes_sends() {
            self.flush_sends(&mut side.queue, wakeups);
        }
        let ready = side.attributes.state == State::ReadyToSend && !side.queue.is_empty();
        (ready, result)
    }

    /// Posts a chain of receive requests. The error comes with the request that it is for.
    ///
    /// # Safety
    ///
    /// As for [`Qp::post_send`], with `ib_post_recv()`.
    pub(crate) unsafe fn post_receive(
        &self,
        mut wr: *const bindings::ib_recv_wr,
        wakeups: &mut Wakeups,
    ) -> Result<(), (Error, *const bindings::ib_recv_wr)> {
        let mut side = self.receives.lock();
        let mut result = Ok(());
        while !wr.is_null() {
            if !side.state.takes_receives() {
                result = Err((EINVAL, wr));
                break;
            }
            // SAFETY: By the safety requirement.
            if let Err(e) = unsafe { side.queue.push_receive(wr) } {
                result = Err((e, wr));
                break;
            }
            // SAFETY: By the safety requirement.
            wr = unsafe { (*wr).next };
        }
        if side.state == State::Error {
            self.flush_receives(&mut side.queue, wakeups);
        }
        result
    }

    /// Changes attributes and state. True: there is something to be sent.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a transition or attributes that the specification does not have (section 11.2.5.3).
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn modify(
        &self,
        attr: &bindings::ib_qp_attr,
        mask: u32,
        wakeups: &mut Wakeups,
    ) -> Result<bool> {
        let has = |flag: bindings::ib_qp_attr_mask| mask & flag != 0;
        let mut side = self.sends.lock();
        let side = &mut *side;
        let mut new = side.attributes;
        if has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE) {
            let assumed = State::from_raw(attr.cur_qp_state).ok_or(EINVAL)?;
            if assumed != new.state {
                return Err(EINVAL);
            }
        }
        let old = new.state;
        if has(bindings::ib_qp_attr_mask_IB_QP_STATE) {
            new.state = State::from_raw(attr.qp_state).ok_or(EINVAL)?;
        }
        let kind = match self.kind {
            Kind::Smi => bindings::ib_qp_type_IB_QPT_SMI,
            Kind::Gsi => bindings::ib_qp_type_IB_QPT_GSI,
            Kind::Ud => bindings::ib_qp_type_IB_QPT_UD,
        };
        // SAFETY: It only looks into a table.
        if !unsafe { bindings::ib_modify_qp_is_ok(old.as_raw(), new.state.as_raw(), kind, mask) } {
            return Err(EINVAL);
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_PORT) {
            new.port = u8::try_from(attr.port_num).map_err(|_| EINVAL)?;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX) {
            new.pkey_index = attr.pkey_index;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_QKEY) {
            new.qkey = attr.qkey;
        }
        if has(bindings::ib_qp_attr_mask_IB_QP_SQ_PSN) {
            new.sq_psn = attr.sq_psn & 0xff_ffff;
        }
        side.attributes = new;
        let mut other = self.receives.lock();
        other.state = new.state;
        other.pkey_index = new.pkey_index;
        other.qkey = new.qkey;
        match new.state {
            State::Reset => {
                side.queue.clear();
                other.queue.clear();
                self.forget();
            }
            State::Error => {
                self.flush_sends(&mut side.queue, wakeups);
                self.flush_receives(&mut other.queue, wakeups);
            }
            _ => {}
        }
        Ok(new.state == State::ReadyToSend && !side.queue.is_empty())
    }

    /// Gives RDMA core its half back: no request and no completion is left.
    pub(crate) fn close(&self) {
        let mut side = self.sends.lock();
        side.attributes.state = State::Reset;
        side.queue.clear();
        let mut other = self.receives.lock();
        other.state = State::Reset;
        other.queue.clear();
        self.forget();
    }

    /// Removes its completions.
    fn forget(&self) {
        self.send_cq.forget(self.raw);
        if !Arc::ptr_eq(&self.send_cq, &self.receive_cq) {
            self.receive_cq.forget(self.raw);
        }
    }

    fn complete_send(&self, entry: &SendEntry, status: Status, wakeups: &mut Wakeups) {
        if !entry.signaled && status == Status::Success {
            return;
        }
        let mut wc: bindings::ib_wc = pin_init::zeroed();
        wc.__bindgen_anon_1.wr_id = entry.wr_id;
        wc.status = status.as_raw();
        wc.opcode = bindings::ib_wc_opcode_IB_WC_SEND;
        wc.qp = self.raw;
        // A failure counts as solicited (section 11.4.2.2).
        let wake = self.send_cq.push(wc, status != Status::Success);
        wakeups.add(&self.send_cq, wake);
    }

    fn flush_sends(&self, queue: &mut WorkQueue<SendEntry>, wakeups: &mut Wakeups) {
        while let Some((entry, _)) = queue.first() {
            let entry = *entry;
            queue.pop();
            self.complete_send(&entry, Status::Flushed, wakeups);
        }
    }

    fn flush_receives(&self, queue: &mut WorkQueue<ReceiveEntry>, wakeups: &mut Wakeups) {
        while let Some((entry, _)) = queue.first() {
            let entry = *entry;
            queue.pop();
            let mut wc: bindings::ib_wc = pin_init::zeroed();
            wc.__bindgen_anon_1.wr_id = entry.wr_id;
            wc.status = Status::Flushed.as_raw();
            wc.opcode = bindings::ib_wc_opcode_IB_WC_RECV;
            wc.qp = self.raw;
            let wake = self.receive_cq.push(wc, true);
            wakeups.add(&self.receive_cq, wake);
        }
    }
}

/// The payload of a message that is being sent. It can be received any number of times.
///
/// # Invariants
///
/// `pieces` are those of a send request that is in its queue, whose lock is held.
pub struct Payload<'a> {
    pieces: &'a [crate::work::Piece],
}

impl Payload<'_> {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        length(self.pieces)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
