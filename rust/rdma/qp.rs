// SPDX-License-Identifier: GPL-2.0

//! Unreliable datagram queue pairs, and what they have in common with others.

mod owned;

use ipoib_netdev::relaxed::Relax;
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::revocable::Revocable;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, Mutex};

use crate::cq::Cq;
use crate::failure::{event, FailureHandler};
use crate::left::Left;
use crate::pd::Pd;

pub(crate) use owned::OwnedQp;

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpCaps {
    /// Sends that may be outstanding.
    pub send_wr: u32,
    /// Receives that may be posted.
    pub recv_wr: u32,
    /// Elements that a send gathers from.
    pub send_sge: u32,
    /// Elements that a receive scatters to.
    pub recv_sge: u32,
}

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpState {
    /// Nothing is processed; nothing may be posted.
    Reset,
    /// Receives may be posted, but none happens.
    Init,
    /// It receives.
    ReadyToReceive,
    /// It receives and sends.
    ReadyToSend,
    /// Sends are being drained.
    SendDraining,
    /// A send failed. Receives go on; sends are flushed until [`UdQp::recover_sqe`].
    SendError,
    /// All that is posted is flushed.
    Error,
}

/// The state of a queue pair; the errors and the context are those of [`UdQp::state`].
///
/// # Safety
///
/// `raw` must be a queue pair that is not being destroyed.
pub(crate) unsafe fn query_state(raw: *mut bindings::ib_qp) -> Result<QpState> {
    let mut attr = bindings::ib_qp_attr::default();
    let mut init = bindings::ib_qp_init_attr::default();
    // SAFETY: By this function's requirements; the attributes are ours.
    to_result(unsafe {
        bindings::ib_query_qp(
            raw,
            &raw mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE as c_int,
            &raw mut init,
        )
    })?;
    Ok(match attr.qp_state {
        bindings::ib_qp_state_IB_QPS_RESET => QpState::Reset,
        bindings::ib_qp_state_IB_QPS_INIT => QpState::Init,
        bindings::ib_qp_state_IB_QPS_RTR => QpState::ReadyToReceive,
        bindings::ib_qp_state_IB_QPS_RTS => QpState::ReadyToSend,
        bindings::ib_qp_state_IB_QPS_SQD => QpState::SendDraining,
        bindings::ib_qp_state_IB_QPS_SQE => QpState::SendError,
        bindings::ib_qp_state_IB_QPS_ERR => QpState::Error,
        _ => return Err(EIO),
    })
}

/// Changes the attributes of a queue pair that `mask` names.
///
/// `life` is what became of the last RESET: a queue pair that could not be reset is only good to be
/// destroyed, and its device is not asked again, which may take seconds to say no.
///
/// # Errors
///
/// Whatever the device says, or said to a RESET before.
///
/// # Safety
///
/// `raw` must be a queue pair, and not be destroyed while `life` is borrowed and `Ok`. It must be changed
/// by this function only, with this `life`. What the attributes refer to must be valid.
pub(crate) unsafe fn modify(
    raw: *mut bindings::ib_qp,
    life: &mut Result,
    attr: &mut bindings::ib_qp_attr,
    mask: c_int,
) -> Result {
    (*life)?;
    // SAFETY: By this function's requirements.
    let result = to_result(unsafe { bindings::ib_modify_qp(raw, attr, mask) });
    let is_reset = attr.qp_state == bindings::ib_qp_state_IB_QPS_RESET;
    if is_reset && mask as u32 & bindings::ib_qp_attr_mask_IB_QP_STATE != 0 {
        *life = result;
    }
    result
}

/// Attributes of a queue pair with these queues, whose sends complete as their requests say.
pub(crate) fn attributes(
    kind: bindings::ib_qp_type,
    send_cq: &Cq,
    recv_cq: &Cq,
    caps: QpCaps,
) -> bindings::ib_qp_init_attr {
    bindings::ib_qp_init_attr {
        send_cq: send_cq.as_raw(),
        recv_cq: recv_cq.as_raw(),
        cap: bindings::ib_qp_cap {
            max_send_wr: caps.send_wr,
            max_recv_wr: caps.recv_wr,
            max_send_sge: caps.send_sge,
            max_recv_sge: caps.recv_sge,
            ..Default::default()
        },
        sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
        qp_type: kind,
        ..Default::default()
    }
}

/// The flags of a datagram queue pair.
fn create_flags(blocks_loopback: bool, segments: bool) -> u32 {
    let mut flags = 0;
    if blocks_loopback {
        flags |= bindings::ib_qp_create_flags_IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;
    }
    if segments {
        // mlx5 makes no checksums either without it.
        flags |= bindings::ib_qp_create_flags_IB_QP_CREATE_IPOIB_UD_LSO;
    }
    flags as u32
}

/// An unreliable datagram queue pair.
///
/// # Examples
///
/// `samples/ud_loopback.rs` makes one with its completion queues, and brings it up.
///
/// # Invariants
///
/// * `owned` is a UD queue pair of `pd`, `send_cq` and `recv_cq`, which are all of one device. Its state is
///   only changed with `life` locked, which is what became of the last RESET.
/// * `epoch` counts changes to and from Reset: it is even while the queue pair is reset, and from just before.
/// * `left` is the memory of rings that the device may access. It does not hold the queue pair.
#[pin_data(PinnedDrop)]
pub struct UdQp {
    owned: OwnedQp,
    #[pin]
    life: Mutex<Result>,
    epoch: Atomic<u32>,
    #[pin]
    left: Mutex<[Option<KBox<dyn Left>>; 2]>,
    port: u32,
    checksums: bool,
    /// False from when the device has refused to segment a frame.
    segments: Atomic<bool>,
    caps: QpCaps,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    pd: Arc<Pd>,
}

/// The objects that an unreliable datagram queue pair is made of.
pub struct UdInit<'a> {
    /// Its protection domain.
    pub pd: &'a Arc<Pd>,
    /// The completion queue of its sends.
    pub send_cq: &'a Arc<Cq>,
    /// The completion queue of its receives.
    pub recv_cq: &'a Arc<Cq>,
    /// The sizes of its queues.
    pub caps: QpCaps,
    /// The port that it uses.
    pub port: u32,
    /// Datagrams are frames of IP over InfiniBand, of which the device is to do as much as it can:
    /// [`Device::checks_checksums`], [`Device::segments`].
    ///
    /// [`Device::checks_checksums`]: crate::Device::checks_checksums
    /// [`Device::segments`]: crate::Device::segments
    pub offloads: bool,
}

/// Work on frames of IP over InfiniBand that a queue pair's device does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdOffloads {
    /// Checksums of TCP and UDP.
    pub checksums: bool,
    /// Segmentation of TCP.
    pub segments: bool,
}

impl UdQp {
    /// Makes a queue pair; `handler` is told when it breaks. If the device can, it does not hear what it
    /// sends to its own groups.
    ///
    /// # Errors
    ///
    /// `EINVAL` for objects of different devices, a port that does not exist, or more than the
    /// device can; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping the last reference.
    pub fn new<H: FailureHandler>(init: UdInit<'_>, handler: H) -> Result<Arc<Self>> {
        let UdInit {
            pd,
            send_cq,
            recv_cq,
            caps,
            port,
            offloads,
        } = init;
        let dev = pd.device();
        if !dev.same(send_cq.device())
            || !dev.same(recv_cq.device())
            || !dev.ports().contains(&port)
        {
            return Err(EINVAL);
        }
        let offloads = UdOffloads {
            checksums: offloads && dev.checks_checksums(),
            segments: offloads && dev.segments(),
        };
        let handler = Arc::pin_init(Revocable::new(handler), GFP_KERNEL)?;
        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(event::<H>),
            qp_context: Arc::as_ptr(&handler).cast_mut().cast(),
            create_flags: create_flags(dev.blocks_loopback(), offloads.segments),
            ..attributes(bindings::ib_qp_type_IB_QPT_UD, send_cq, recv_cq, caps)
        };
        // SAFETY: All that the attributes refer to is valid, and outlives the queue pair by the
        // type invariants.
        let owned = unsafe { OwnedQp::new(pd, &mut attr, Some(handler)) }?;
        // INVARIANT: It was just made.
        Arc::pin_init(
            pin_init!(Self {
                owned,
                life <- new_mutex!(Ok(())),
                epoch: Atomic::new(0),
                left <- new_mutex!([None, None]),
                port,
                checksums: offloads.checksums,
                segments: Atomic::new(offloads.segments),
                // The device may have rounded up; what was asked for is what rings rely on.
                caps,
                send_cq: send_cq.clone(),
                recv_cq: recv_cq.clone(),
                pd: pd.clone(),
            }),
            GFP_KERNEL,
        )
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.owned.as_raw()
    }

    /// Keeps a ring's memory, which the device may access, until the queue pair is destroyed.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn keep(&self, left: KBox<dyn Left>) {
        match self.left.lock().iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(left),
            // A ring's memory claims its completion queue, of which there are two: so there is a place.
            None => core::mem::forget(left),
        }
    }

    pub(crate) fn ops(&self) -> &bindings::ib_device_ops {
        self.pd.device().ops()
    }

    /// Its number, 24 bits.
    pub fn qpn(&self) -> u32 {
        // SAFETY: Owned by the type invariant; the number is constant.
        unsafe { (*self.as_raw()).qp_num }
    }

    /// The port that it uses.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Work on frames that its device does.
    pub fn offloads(&self) -> UdOffloads {
        UdOffloads {
            checksums: self.checksums,
            segments: self.segments.load(Relaxed),
        }
    }

    /// Has rings leave no more segmentation to the device.
    pub(crate) fn stop_segmenting(&self) {
        self.segments.store(false, Relaxed);
    }

    /// The sizes of its queues.
    pub fn caps(&self) -> QpCaps {
        self.caps
    }

    /// Its protection domain.
    #[inline]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The completion queue of its sends.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
    }

    /// The completion queue of its receives.
    pub fn recv_cq(&self) -> &Arc<Cq> {
        &self.recv_cq
    }

    fn modify(
        &self,
        state: bindings::ib_qp_state,
        mask: bindings::ib_qp_attr_mask,
        fill: impl FnOnce(&mut bindings::ib_qp_attr),
    ) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        fill(&mut attr);
        let mask = mask | bindings::ib_qp_attr_mask_IB_QP_STATE;
        // Neither the RDMA core nor every device driver has a lock of its own for this.
        let mut life = self.life.lock();
        let resets = state == bindings::ib_qp_state_IB_QPS_RESET;
        let (epoch, next) = (self.epoch(), self.epoch().wrapping_add(1));
        if resets && !is_even(epoch) {
            // INVARIANT: It is about to be reset; `life` is locked.
            self.epoch.store(next, Relaxed);
        }
        // SAFETY: It is there for as long as this value; the attributes are ours and refer to nothing.
        unsafe { modify(self.as_raw(), &mut life, &mut attr, mask as c_int) }?;
        if !resets && is_even(epoch) {
            // INVARIANT: It is not reset any more; `life` is locked.
            self.epoch.store(next, Relaxed);
        }
        Ok(())
    }

    /// Counts changes to and from the state Reset: even while it is reset.
    ///
    /// # Context
    ///
    /// Any. Relaxed: the caller keeps posting and changes of the state apart, by disabling NAPI, say.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        Relax::get(&self.epoch)
    }

    /// Moves it from Reset to Init, in which receives may be posted, but none happens.
    ///
    /// # Errors
    ///
    /// `EINVAL` in another state than reset; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn to_init(&self, pkey_index: u16, qkey: u32) -> Result {
        self.modify(
            bindings::ib_qp_state_IB_QPS_INIT,
            bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
                | bindings::ib_qp_attr_mask_IB_QP_PORT
                | bindings::ib_qp_attr_mask_IB_QP_QKEY,
            |attr| {
                attr.pkey_index = pkey_index;
                attr.port_num = self.port;
                attr.qkey = qkey;
            },
        )
    }

    /// Moves it from Init to Ready to Send, with `psn` as the number of its first packet.
    ///
    /// # Errors
    ///
    /// `EINVAL` in another state than initialised; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn start(&self, psn: u32) -> Result {
        self.modify(bindings::ib_qp_state_IB_QPS_RTR, 0, |_| ())?;
        self.modify(
            bindings::ib_qp_state_IB_QPS_RTS,
            bindings::ib_qp_attr_mask_IB_QP_SQ_PSN,
            |attr| attr.sq_psn = psn & PSN_MASK,
        )
    }

    /// Gives it another Q_Key: from now on, it receives only what is sent with that one.
    ///
    /// # Errors
    ///
    /// `EINVAL` unless it is ready to send; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn set_qkey(&self, qkey: u32) -> Result {
        self.modify(
            bindings::ib_qp_state_IB_QPS_RTS,
            // Not IB_QP_CUR_STATE: soft-RoCE believes that, whatever the state is.
            bindings::ib_qp_attr_mask_IB_QP_QKEY,
            |attr| attr.qkey = qkey,
        )
    }

    /// Moves it to the state Error, in which all posted requests are flushed.
    ///
    /// # Errors
    ///
    /// Whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn to_error(&self) -> Result {
        self.modify(bindings::ib_qp_state_IB_QPS_ERR, 0, |_| ())
    }

    /// Resets it: the device forgets all posted requests. It is for the rings to do, which know what
    /// was posted. `posted` is the epoch of a ring's last post: mlx5 and mlx4 take requests in the state Reset, and forget
    /// them only on the way back to it from another one, so it passes through Init first.
    ///
    /// # Errors
    ///
    /// Whatever the device says. The queue pair is only good to be destroyed then, and no change of its
    /// state succeeds any more.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn to_reset(&self, posted: Option<u32>) -> Result {
        if posted.is_some_and(|posted| is_even(posted) && posted == self.epoch()) {
            self.to_init(0, 0)
                .inspect_err(|error| *self.life.lock() = Err(*error))?;
        }
        self.modify(bindings::ib_qp_state_IB_QPS_RESET, 0, |_| ())
    }

    /// Its state.
    ///
    /// # Errors
    ///
    /// `EIO` for a state that there is not; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn state(&self) -> Result<QpState> {
        // SAFETY: Owned by the type invariant.
        unsafe { query_state(self.as_raw()) }
    }

    /// Has it send again after a failed send. Returns false if it is in another state.
    ///
    /// # Errors
    ///
    /// Whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn recover_sqe(&self) -> Result<bool> {
        if self.state()? != QpState::SendError {
            return Ok(false);
        }
        self.modify(bindings::ib_qp_state_IB_QPS_RTS, 0, |_| ())?;
        Ok(true)
    }
}

#[pinned_drop]
impl PinnedDrop for UdQp {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Rings and group memberships hold an `Arc`.
        if unsafe { self.owned.destroy() }.is_err() {
            for left in self.left.lock().iter_mut().flatten() {
                left.abandon();
            }
        }
        // The memory that rings have left is dropped here, unless it was abandoned.
    }
}

const fn is_even(n: u32) -> bool {
    n & 1 == 0
}

const PSN_MASK: u32 = 0xff_ffff;

/// A random packet sequence number.
///
/// # Context
///
/// Any.
pub fn random_psn() -> u32 {
    // SAFETY: Any context will do.
    unsafe { bindings::get_random_u32() & PSN_MASK }
}
