// SPDX-License-Identifier: GPL-2.0

//! Unreliable datagram queue pairs.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::str::CStrExt;
use kernel::sync::Arc;

use crate::cq::Cq;
use crate::pd::{Pd, CALLER};

/// How much a queue pair takes.
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
    /// A send failed: it receives, and sends are flushed until [`UdQp::recover_sqe`].
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

/// An unreliable datagram queue pair.
///
/// # Invariants
///
/// `raw` is a UD queue pair, owned by this value, of `pd`, `send_cq` and `recv_cq`, which are all of
/// one device.
pub struct UdQp {
    raw: NonNull<bindings::ib_qp>,
    port: u32,
    caps: QpCaps,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    pd: Arc<Pd>,
}

// SAFETY: A queue pair may be used and destroyed by any thread.
unsafe impl Send for UdQp {}
// SAFETY: Its state is changed under the device driver's lock.
unsafe impl Sync for UdQp {}

impl UdQp {
    /// Makes a queue pair that will use `port`. If the device can, it does not hear what it sends to its own
    /// groups.
    ///
    /// # Errors
    ///
    /// `EINVAL` for things of different devices, a port that does not exist, or more than the
    /// device can; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping the last reference.
    pub fn new(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        caps: QpCaps,
        port: u32,
    ) -> Result<Arc<Self>> {
        let dev = pd.device();
        if !dev.same(send_cq.device())
            || !dev.same(recv_cq.device())
            || !dev.ports().contains(&port)
        {
            return Err(EINVAL);
        }
        let mut attr = bindings::ib_qp_init_attr {
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
            qp_type: bindings::ib_qp_type_IB_QPT_UD,
            create_flags: if dev.blocks_loopback() {
                bindings::ib_qp_create_flags_IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK as u32
            } else {
                0
            },
            ..Default::default()
        };
        // SAFETY: All that the attributes refer to is valid, and outlives the queue pair by the
        // type invariant.
        let raw = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd.as_raw(), &raw mut attr, CALLER.as_char_ptr())
        })?;
        // INVARIANT: It was just made.
        let qp = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            port,
            // The device may have rounded up; what was asked for is what rings rely on.
            caps,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            pd: pd.clone(),
        };
        Ok(Arc::new(qp, GFP_KERNEL)?)
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.raw.as_ptr()
    }

    pub(crate) fn ops(&self) -> &bindings::ib_device_ops {
        self.pd.device().ops()
    }

    /// Its number, 24 bits, by which it is addressed.
    pub fn qpn(&self) -> u32 {
        // SAFETY: Owned by the type invariant; the number is constant.
        unsafe { (*self.as_raw()).qp_num }
    }

    /// The port that it uses.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// How much it takes.
    pub fn caps(&self) -> QpCaps {
        self.caps
    }

    /// Its protection domain.
    #[inline]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Where its sends complete.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
    }

    /// Where its receives complete.
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
        // SAFETY: Owned by the type invariant; the attributes are ours and `mask` says which count.
        to_result(unsafe { bindings::ib_modify_qp(self.as_raw(), &raw mut attr, mask as c_int) })
    }

    /// Brings it from reset to where it can receive only what was posted and posts are allowed.
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

    /// Brings it from initialised to where it receives and sends; `psn` is what its first packet
    /// is numbered.
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

    /// Has all that is posted flushed.
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

    /// Has all that is posted forgotten.
    ///
    /// # Errors
    ///
    /// Whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn to_reset(&self) -> Result {
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

    /// Lets it send again after a failed send. False: that is not the state it is in.
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

impl Drop for UdQp {
    fn drop(&mut self) {
        // SAFETY: Owned by the type invariant; rings and group memberships hold an `Arc`.
        let err = unsafe { bindings::ib_destroy_qp_user(self.as_raw(), ptr::null_mut()) };
        if err != 0 {
            pr_err!("queue pair not destroyed: {}\n", err);
        }
    }
}

const PSN_MASK: u32 = 0xff_ffff;

/// A packet sequence number that nobody can guess.
///
/// # Context
///
/// Any.
pub fn random_psn() -> u32 {
    // SAFETY: Any context will do.
    unsafe { bindings::get_random_u32() & PSN_MASK }
}
