// SPDX-License-Identifier: GPL-2.0

//! Operations on queue pairs.

use ib_fabric::fault::{Quirk, Setting, Verb};
use ib_fabric::{Limit, Limits};
use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::delay::fsleep;
use kernel::time::Delta;

use super::cq::half;
use super::device::Operations;
use super::holder::{faults, limited};
use super::pd;
use crate::adapter::Adapter;
use crate::faults::Faults;
use crate::object::{fill, own, posted, take};
use crate::qp::{Abilities, Fixed, Kind, Qp};
use crate::readers::wait_for_readers;
use crate::srq::Srq;
use crate::state::State;
use crate::wakeups::Wakeups;

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
            // SAFETY: As above.
            let (_, counts) = unsafe { limited((*qp).device, Verb::CreateQp)? };
            let kind = Kind::from_raw(attr.qp_type)?;
            check_room(adapter.faults(), kind, &attr.cap)?;
            let limits = adapter.capabilities().limits;
            let abilities = abilities(&limits, kind, attr.create_flags)?;
            // SAFETY: RDMA core calls with the queue pair that it makes, and with a ULP's queues.
            let srq = unsafe { shared_queue(qp, attr, kind)? };
            check_sizes(&limits, &attr.cap)?;
            // SAFETY: RDMA core has set the domain of the queue pair.
            let domain = unsafe { pd::domain((*qp).pd)? };
            // SAFETY: A ULP's queues, which RDMA core keeps longer than the queue pair.
            let (send_cq, receive_cq) = unsafe { (half(attr.send_cq), half(attr.recv_cq)) };
            let send_cq = send_cq.ok_or(EINVAL)?;
            let receive_cq = receive_cq.ok_or(EINVAL)?;
            let port = first_port(attr, kind, adapter.ports())?;
            let claim = if kind.is_special() {
                None
            } else {
                Some(counts.queue_pairs.claim(limits.get(Limit::Qp))?)
            };
            let qp_number = adapter.reserve_qp(kind, port)?;
            let fixed = Fixed {
                raw: qp,
                number: qp_number,
                kind,
                port,
                abilities,
                signal_all: attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
                cap: attr.cap,
                send_cq: send_cq.clone(),
                receive_cq: receive_cq.clone(),
                srq,
                domain,
                faults: adapter.faults().clone(),
            };
            // SAFETY: It stays until it has been destroyed, which closes this and waits for a grace period.
            let own = unsafe { Qp::new(fixed) }
                .inspect_err(|_| adapter.release_qp(qp_number, kind, port))?;
            adapter.add_qp(&own);
            // SAFETY: It is being made, with the size that the table says.
            unsafe {
                (*qp).qp_num = qp_number;
                fill(qp, own);
            }
            if let Some(claim) = claim {
                claim.keep();
            }
            Ok(0)
        })
    }

    /// The adapter of a queue pair, and what this crate keeps of that.
    ///
    /// # Safety
    ///
    /// `qp` has to be a queue pair of this table's, for `'a`.
    unsafe fn both<'a>(qp: *const bindings::ib_qp) -> Result<(&'a A, &'a Arc<Qp>)> {
        // SAFETY: By the safety requirement.
        let (adapter, own) = unsafe { (Self::adapter((*qp).device), own(qp)) };
        Ok((adapter, own.ok_or(EINVAL)?))
    }

    /// Changes a queue pair's attributes and state, after a while if the device has that quirk.
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
            let ((adapter, own), attr) = unsafe { (Self::both(qp)?, &*attr) };
            let (faults, mask) = (adapter.faults(), mask as u32);
            let has_state = mask & bindings::ib_qp_attr_mask_IB_QP_STATE != 0;
            let state = has_state.then(|| State::from_raw(attr.qp_state)).flatten();
            faults.strike_modify(state)?;
            let leaves = state == Some(State::Init) && own.is_reset();
            if leaves && own.has_left_reset() && faults.has(Quirk::ResetOnce) {
                return Err(EINVAL);
            }
            match faults.number(Setting::ModifyTime) {
                Some(ms) => own.change_alone(|| {
                    fsleep(Delta::from_millis(ms.into()));
                    modify(adapter, own, attr, mask)
                })?,
                None => modify(adapter, own, attr, mask)?,
            }
            if leaves {
                own.leave_reset();
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
        from_result(|| {
            // SAFETY: RDMA core calls with its device's queue pair.
            let (adapter, own) = unsafe { Self::both(qp)? };
            // SAFETY: As above.
            let begun = unsafe { limited((*qp).device, Verb::DestroyQp) };
            if let Ok((_, counts)) = begun {
                adapter.release_qp(own.number(), own.kind(), own.first_port());
                if !own.kind().is_special() {
                    counts.queue_pairs.release();
                }
            }
            own.close();
            // Whoever has added a completion of its will have told the ULP: it may free the queue next.
            wait_for_readers();
            begun?;
            // SAFETY: Nobody uses it any more.
            drop(unsafe { take::<_, Arc<Qp>>(qp) });
            Ok(0)
        })
    }

    /// Posts send requests, up to the first one that is to fail: each counts as a call.
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
            let (adapter, own) = unsafe { Self::both(qp)? };
            let mut wakeups = Wakeups::new();
            // SAFETY: A ULP calls with requests for this queue pair.
            let (ready, result) = unsafe { own.post_send(wr, &mut wakeups) };
            if ready {
                adapter.ready(own);
            }
            // SAFETY: The ULP has room for it.
            unsafe { posted(result, bad) }
        })
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
            let (adapter, own) = unsafe { Self::both(qp)? };
            let struck = adapter.faults().strike(Verb::PostRecv);
            // SAFETY: The ULP has room for it.
            unsafe { posted(struck.map_err(|e| (e, wr)), bad)? };
            let mut wakeups = Wakeups::new();
            // SAFETY: A ULP calls with requests for this queue pair.
            let (waited, result) = unsafe { own.post_receive(wr, &mut wakeups) };
            if waited {
                adapter.ready(own);
            }
            // SAFETY: The ULP has room for it.
            unsafe { posted(result, bad) }
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
        unsafe { Self::membership(Verb::AttachMcast, qp, gid, lid, A::attach) }
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
        unsafe { Self::membership(Verb::DetachMcast, qp, gid, lid, A::detach) }
    }

    /// Changes the membership of a queue pair in a multicast group.
    ///
    /// # Safety
    ///
    /// `qp` has to be a queue pair of this table's, and `gid` a GID.
    unsafe fn membership(
        verb: Verb,
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
        change: fn(&A, &Arc<Qp>, [u8; 16], u16) -> Result,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the safety requirement.
            let ((adapter, own), gid) = unsafe { (Self::both(qp)?, (*gid).raw) };
            adapter.faults().strike(verb)?;
            change(adapter, own, gid, lid)?;
            Ok(0)
        })
    }
}

/// Changes a queue pair's attributes and state.
///
/// # Errors
///
/// `EINVAL` for a port or a P_Key index that there is not; those of [`Qp::modify`].
fn modify<A: Adapter>(
    adapter: &A,
    own: &Arc<Qp>,
    attr: &bindings::ib_qp_attr,
    mask: u32,
) -> Result {
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
    let mut wakeups = Wakeups::new();
    if own.modify(attr, mask, &mut wakeups)? {
        adapter.ready(own);
    }
    wakeups.flush();
    let ends = mask & bindings::ib_qp_attr_mask_IB_QP_STATE != 0
        && matches!(
            attr.qp_state,
            bindings::ib_qp_state_IB_QPS_ERR | bindings::ib_qp_state_IB_QPS_RESET
        );
    if ends && own.kind() == Kind::Rc {
        // An answer that was taken before may be being copied, without a lock of this queue pair's. That is
        // in softirq, which a grace period waits for: then the ULP may free the memory.
        wait_for_readers();
    }
    Ok(())
}

/// Checks that a device with the quirk has room for a queue pair's requests, of which it takes fewer than it says.
/// The special ones are spared, since no port is up without them.
///
/// # Errors
///
/// `ENOMEM` if it has not.
fn check_room(faults: &Faults, kind: Kind, cap: &bindings::ib_qp_cap) -> Result {
    let elements = cap.max_send_wr.saturating_mul(cap.max_send_sge.max(1));
    match faults.number(Setting::SendElements) {
        Some(room) if elements > room && !kind.is_special() => Err(ENOMEM),
        _ => Ok(()),
    }
}

/// Returns the port of a new queue pair, which counts for a special one.
///
/// # Errors
///
/// `EINVAL` if the device has no such port.
fn first_port(attr: &bindings::ib_qp_init_attr, kind: Kind, ports: u8) -> Result<u8> {
    let port = u8::try_from(attr.port_num).map_err(|_| EINVAL)?;
    if kind.is_special() && !(1..=ports).contains(&port) {
        return Err(EINVAL);
    }
    Ok(port)
}

/// The shared receive queue that a queue pair is made with, which then has no receive queue of its own.
///
/// # Safety
///
/// `qp` has to be a queue pair that is being made with these attributes.
unsafe fn shared_queue(
    qp: *const bindings::ib_qp,
    attr: &mut bindings::ib_qp_init_attr,
    kind: Kind,
) -> Result<Option<Arc<Srq>>> {
    if attr.srq.is_null() {
        return Ok(None);
    }
    if kind != Kind::Rc {
        return Err(EOPNOTSUPP);
    }
    attr.cap.max_recv_wr = 0;
    attr.cap.max_recv_sge = 0;
    // SAFETY: It is a queue of the ULP's, which RDMA core keeps longer than the queue pair. RDMA core has set the
    // domains of both.
    let (srq, same_domain) = unsafe { (own::<_, Arc<Srq>>(attr.srq), (*attr.srq).pd == (*qp).pd) };
    // Its requests' keys would be looked up in the wrong domain.
    same_domain.then_some(srq.cloned()).ok_or(EINVAL)
}

/// Abilities of a queue pair that is made with these flags.
///
/// # Errors
///
/// `EOPNOTSUPP` if the adapter has one of them not, or not for such queue pairs.
fn abilities(limits: &Limits, kind: Kind, flags: u32) -> Result<Abilities> {
    let block_loopback = bindings::ib_qp_create_flags_IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK as u32;
    let segments = bindings::ib_qp_create_flags_IB_QP_CREATE_IPOIB_UD_LSO as u32;
    let datagrams = kind == Kind::Ud;
    let mut known = 0;
    if limits.has(Limit::BlockLoopback) {
        known |= block_loopback;
    }
    if datagrams && limits.has(Limit::Lso) {
        known |= segments;
    }
    if flags & !known != 0 {
        return Err(EOPNOTSUPP);
    }
    let lso = flags & segments != 0;
    Ok(Abilities {
        block_loopback: flags & block_loopback != 0,
        checksum: datagrams && limits.has(Limit::Checksum),
        lso: if lso { limits.get(Limit::Lso) } else { 0 },
    })
}

/// Checks that the adapter can do the sizes of a queue pair's queues.
///
/// # Errors
///
/// `EINVAL` if it cannot.
fn check_sizes(limits: &Limits, cap: &bindings::ib_qp_cap) -> Result {
    if cap.max_send_wr > limits.get(Limit::QpWr)
        || cap.max_recv_wr > limits.get(Limit::QpWr)
        || cap.max_send_sge > limits.get(Limit::SendSge)
        || cap.max_recv_sge > limits.get(Limit::RecvSge)
        || cap.max_inline_data > limits.get(Limit::InlineData)
    {
        return Err(EINVAL);
    }
    Ok(())
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
    let (core, own, faults) = unsafe { (&*qp, own::<_, Arc<Qp>>(qp), faults((*qp).device)) };
    let own = match faults.strike(Verb::QueryQp).and(own.ok_or(EINVAL)) {
        Ok(own) => own,
        Err(e) => return e.to_errno(),
    };
    let (now, draining) = own.attributes();
    let cap = own.cap();
    let state = now.state as u32;
    let answer = bindings::ib_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        port_num: now.port.into(),
        pkey_index: now.pkey_index,
        qkey: now.qkey,
        sq_psn: now.sq_psn,
        rq_psn: now.rq_psn,
        dest_qp_num: now.dest_qp,
        path_mtu: now.mtu as u32,
        qp_access_flags: now.access as c_int,
        ah_attr: now.to.to_raw(),
        timeout: now.timeout,
        retry_cnt: now.retries,
        rnr_retry: now.rnr_retries,
        min_rnr_timer: now.rnr_timer,
        max_rd_atomic: now.max_reads,
        max_dest_rd_atomic: now.max_dest_reads,
        sq_draining: draining.into(),
        cap,
        ..pin_init::zeroed()
    };
    // SAFETY: It is memory for the answers.
    unsafe {
        attr.write(answer);
        init.write(creation(core, own, cap));
    }
    0
}

/// The attributes that a queue pair was created with.
fn creation(
    core: &bindings::ib_qp,
    own: &Qp,
    cap: bindings::ib_qp_cap,
) -> bindings::ib_qp_init_attr {
    bindings::ib_qp_init_attr {
        event_handler: core.registered_event_handler,
        qp_context: core.qp_context,
        send_cq: core.send_cq,
        recv_cq: core.recv_cq,
        srq: core.srq,
        cap,
        sq_sig_type: if own.signals_all() {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        },
        qp_type: core.qp_type,
        ..pin_init::zeroed()
    }
}
