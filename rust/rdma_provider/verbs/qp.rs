// SPDX-License-Identifier: GPL-2.0

//! Operations on queue pairs.

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::{rcu, Arc};

use super::object::{fill, own, take};
use super::Operations;
use crate::adapter::Adapter;
use crate::cq::{Cq, Wakeups};
use crate::qp::{Blueprint, Kind, Qp, Sizes};

impl<A: Adapter> Operations<A> {
    /// Makes a queue pair.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with the queue pair that it makes and its attributes.
            let (adapter, attr) = unsafe { (Self::adapter((*qp).device), &mut *attr) };
            let kind = Kind::from_raw(attr.qp_type)?;
            let deaf = bindings::ib_qp_create_flags_IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK as u32;
            if attr.create_flags & !deaf != 0 || !attr.srq.is_null() {
                return Err(EOPNOTSUPP);
            }
            let sizes = sizes(adapter, &attr.cap)?;
            // SAFETY: A ULP's queues, which RDMA core keeps longer than the queue pair.
            let (send_cq, receive_cq) = unsafe {
                (
                    own::<_, Arc<Cq>>(attr.send_cq),
                    own::<_, Arc<Cq>>(attr.recv_cq),
                )
            };
            let (Some(send_cq), Some(receive_cq)) = (send_cq, receive_cq) else {
                return Err(EINVAL);
            };
            let port = u8::try_from(attr.port_num).map_err(|_| EINVAL)?;
            if kind != Kind::Ud && (port == 0 || port > adapter.ports()) {
                return Err(EINVAL);
            }
            let qp_number = adapter.reserve_qp(kind, port)?;
            let own = Qp::new(Blueprint {
                raw: qp,
                number: qp_number,
                kind,
                port,
                deaf: attr.create_flags & deaf != 0,
                signal_all: attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
                sizes,
                send_cq: send_cq.clone(),
                receive_cq: receive_cq.clone(),
            })
            .inspect_err(|_| adapter.release_qp(qp_number))?;
            attr.cap.max_inline_data = 0;
            adapter.add_qp(&own);
            // SAFETY: It is being made, with the size that the table says.
            unsafe {
                (*qp).qp_num = qp_number;
                fill(qp, own);
            }
            Ok(0)
        })
    }

    /// Changes a queue pair's attributes and state.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: RDMA core calls with its queue pair and the new attributes.
            let (adapter, own, attr) = unsafe {
                (
                    Self::adapter((*qp).device),
                    own::<_, Arc<Qp>>(qp).ok_or(EINVAL)?,
                    &*attr,
                )
            };
            let mask = mask as u32;
            if mask & bindings::ib_qp_attr_mask_IB_QP_PORT != 0
                && (attr.port_num == 0 || attr.port_num > adapter.ports().into())
            {
                return Err(EINVAL);
            }
            if mask & bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX != 0
                && attr.pkey_index >= adapter.capabilities().pkeys
            {
                return Err(EINVAL);
            }
            // Nobody is told of a send queue that has drained.
            if mask & bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY != 0 {
                return Err(EOPNOTSUPP);
            }
            let mut wakeups = Wakeups::new();
            if own.modify(attr, mask, &mut wakeups)? {
                adapter.ready(own);
            }
            Ok(0)
        })
    }

    /// Ends a queue pair.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: RDMA core calls with its device's queue pair, which nobody uses any more.
        let (adapter, own) = unsafe { (Self::adapter((*qp).device), take::<_, Arc<Qp>>(qp)) };
        if let Some(own) = own {
            adapter.release_qp(own.number());
            own.close();
            // Whoever has added a completion of its will have told the ULP: it may free the queue next.
            rcu::synchronize_rcu();
        }
        0
    }

    /// Posts send requests.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: A ULP calls with its queue pair.
            let (adapter, own) = unsafe {
                (
                    Self::adapter((*qp).device),
                    own::<_, Arc<Qp>>(qp).ok_or(EINVAL)?,
                )
            };
            let mut wakeups = Wakeups::new();
            // SAFETY: A ULP calls with requests for this queue pair.
            let (ready, result) = unsafe { own.post_send(wr, &mut wakeups) };
            if ready {
                adapter.ready(own);
            }
            result.map_err(|(e, at)| {
                // SAFETY: The ULP has room for it.
                unsafe { *bad = at };
                e
            })?;
            Ok(0)
        })
    }

    /// Attaches a queue pair to a multicast group.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn attach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
    ) -> c_int {
        // SAFETY: RDMA core calls with its queue pair and a GID.
        unsafe { Self::membership(qp, gid, lid, A::attach) }
    }

    /// Detaches a queue pair from a multicast group.
    ///
    /// # Safety
    ///
    /// As [`Operations`] says.
    pub(super) unsafe extern "C" fn detach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
    ) -> c_int {
        // SAFETY: RDMA core calls with its queue pair and a GID.
        unsafe { Self::membership(qp, gid, lid, A::detach) }
    }

    /// Changes the membership of a queue pair in a multicast group.
    ///
    /// # Safety
    ///
    /// `qp` has to be a queue pair of this table's, and `gid` a GID.
    unsafe fn membership(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
        change: fn(&A, &Arc<Qp>, [u8; 16], u16) -> Result,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the safety requirement.
            let (adapter, own, gid) = unsafe {
                (
                    Self::adapter((*qp).device),
                    own::<_, Arc<Qp>>(qp).ok_or(EINVAL)?,
                    (*gid).raw,
                )
            };
            change(adapter, own, gid, lid)?;
            Ok(0)
        })
    }
}

/// Sizes of a queue pair's queues, if the adapter can do them.
fn sizes<A: Adapter>(adapter: &A, cap: &bindings::ib_qp_cap) -> Result<Sizes> {
    let limits = adapter.capabilities();
    if cap.max_send_wr > limits.work_requests
        || cap.max_recv_wr > limits.work_requests
        || cap.max_send_sge > limits.sges
        || cap.max_recv_sge > limits.sges
        || cap.max_inline_data > 0
    {
        return Err(EINVAL);
    }
    Ok(Sizes {
        sends: cap.max_send_wr as usize,
        receives: cap.max_recv_wr as usize,
        send_sges: cap.max_send_sge as usize,
        receive_sges: cap.max_recv_sge as usize,
    })
}

/// Reads a queue pair's attributes.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn query_qp(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    // SAFETY: RDMA core calls with its queue pair.
    let (core, own) = unsafe { (&*qp, own::<_, Arc<Qp>>(qp)) };
    let Some(own) = own else {
        return EINVAL.to_errno();
    };
    let now = own.attributes();
    let sizes = own.sizes();
    let cap = bindings::ib_qp_cap {
        max_send_wr: sizes.sends as u32,
        max_recv_wr: sizes.receives as u32,
        max_send_sge: sizes.send_sges as u32,
        max_recv_sge: sizes.receive_sges as u32,
        ..pin_init::zeroed()
    };
    let state = now.state.as_raw();
    let answer = bindings::ib_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        port_num: now.port.into(),
        pkey_index: now.pkey_index,
        qkey: now.qkey,
        sq_psn: now.sq_psn,
        cap,
        ..pin_init::zeroed()
    };
    let how = bindings::ib_qp_init_attr {
        event_handler: core.registered_event_handler,
        qp_context: core.qp_context,
        send_cq: core.send_cq,
        recv_cq: core.recv_cq,
        cap,
        sq_sig_type: if own.signals_all() {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        },
        qp_type: core.qp_type,
        ..pin_init::zeroed()
    };
    // SAFETY: It is memory for the answers.
    unsafe {
        attr.write(answer);
        init.write(how);
    }
    0
}

/// Posts receive requests.
///
/// # Safety
///
/// As [`Operations`] says.
pub(super) unsafe extern "C" fn post_recv(
    qp: *mut bindings::ib_qp,
    wr: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    from_result(|| {
        // SAFETY: A ULP calls with its queue pair.
        let own = unsafe { own::<_, Arc<Qp>>(qp) }.ok_or(EINVAL)?;
        let mut wakeups = Wakeups::new();
        // SAFETY: A ULP calls with requests for this queue pair.
        let result = unsafe { own.post_receive(wr, &mut wakeups) };
        result.map_err(|(e, at)| {
            // SAFETY: The ULP has room for it.
            unsafe { *bad = at };
            e
        })?;
        Ok(0)
    })
}
