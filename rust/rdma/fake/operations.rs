// SPDX-License-Identifier: GPL-2.0

//! Operations of the RDMA device for tests, and what they are about.

use core::ptr;

use ipoib_sys::bindings;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::SpinLock;

use super::sent::{Sent, MAX_SGE};

/// Bytes of a message that it takes as it is posted.
const INLINE: u32 = 64;
/// Requests, completions and syncs that it keeps at a time.
pub(super) const ROOM: usize = 256;

/// A receive that was posted.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    /// The queue pair or shared receive queue.
    queue: *const c_void,
    pub(super) id: u64,
    pub(crate) sges: [bindings::ib_sge; MAX_SGE],
}

impl Posted {
    /// The addresses of its elements; 0 for those that there are not.
    pub(crate) fn addresses(&self) -> [u64; MAX_SGE] {
        self.sges.map(|sge| sge.addr)
    }
}

/// Part of a frame that is mapped for the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) addr: u64,
    pub(crate) len: usize,
}

/// Memory that the CPU was lent, or that was given back to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Synced {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) for_cpu: bool,
}

/// Objects of the device, and notes of what was done to them.
pub(super) struct State {
    /// In the order in which they were posted.
    pub(super) posted: KVec<Posted>,
    /// Completions, by their queues.
    pub(super) done: KVec<(*const bindings::ib_cq, bindings::ib_wc)>,
    pub(super) syncs: KVec<Synced>,
    /// Sends in the order in which they were posted.
    pub(super) sends: KVec<Sent>,
    /// Sends that it takes; others are refused.
    pub(super) takes: u32,
    /// Parts of frames that are mapped.
    pub(super) mapped: KVec<Part>,
    /// The number, from now on, of the part whose mapping fails; 0 is none.
    pub(super) unmappable: u32,
    /// Parts that were unmapped without being mapped.
    pub(super) strays: u32,
    /// Address handles that there are.
    pub(super) handles: KVec<*const bindings::ib_ah>,
    /// Requests of a queue pair in error do not complete.
    pub(super) silent: bool,
    /// States of queue pairs stay as they are.
    pub(super) rigid: bool,
    /// Changes of queue pairs' states.
    pub(super) changes: u32,
    /// Queue pairs that were made.
    pub(super) made: u32,
    /// Polls that find as many completions as they take, of nobody.
    pub(super) flood: u32,
    /// Receives are refused.
    pub(super) refuses: bool,
}

/// A queue pair with its state.
#[repr(C)]
struct OwnQp {
    qp: bindings::ib_qp,
    state: bindings::ib_qp_state,
}

pub(super) fn fill_attributes(attrs: &mut bindings::ib_device_attr) {
    attrs.kernel_cap_flags = u64::from(bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY);
    attrs.max_qp_wr = ROOM as u32;
    attrs.max_cqe = ROOM as u32;
    attrs.max_send_sge = MAX_SGE as u32;
    attrs.max_recv_sge = MAX_SGE as u32;
    attrs.max_srq = 1;
    attrs.max_srq_wr = ROOM as u32;
    attrs.max_srq_sge = MAX_SGE as u32;
}

pub(super) fn fill_operations(ops: &mut bindings::ib_device_ops) {
    ops.size_ib_pd = size_of::<bindings::ib_pd>();
    ops.size_ib_cq = size_of::<bindings::ib_cq>();
    ops.size_ib_srq = size_of::<bindings::ib_srq>();
    ops.size_ib_qp = size_of::<OwnQp>();
    ops.size_ib_ah = size_of::<bindings::ib_ah>();
    ops.alloc_pd = Some(alloc_pd);
    ops.dealloc_pd = Some(dealloc_pd);
    ops.create_cq = Some(create_cq);
    ops.destroy_cq = Some(destroy_cq);
    ops.poll_cq = Some(poll_cq);
    ops.req_notify_cq = Some(req_notify_cq);
    ops.create_srq = Some(create_srq);
    ops.destroy_srq = Some(destroy_srq);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.create_qp = Some(create_qp);
    ops.modify_qp = Some(modify_qp);
    ops.query_qp = Some(query_qp);
    ops.destroy_qp = Some(destroy_qp);
    ops.post_recv = Some(post_recv);
    ops.post_send = Some(post_send);
    ops.create_ah = Some(create_ah);
    ops.destroy_ah = Some(destroy_ah);
}

/// The state of a device.
///
/// # Safety
///
/// `device` must be that of a [`Fake`], which stays for as long as this is borrowed.
unsafe fn state<'a>(device: *mut bindings::ib_device) -> &'a SpinLock<State> {
    // SAFETY: By this function's requirements, and the type invariant of `Allocated`.
    unsafe {
        let data = (*device).__bindgen_anon_1.dev.driver_data;
        &*data.cast_const().cast::<SpinLock<State>>()
    }
}

/// # Safety
///
/// Called for a device of a [`Fake`] in place of the helper that syncs.
pub(super) unsafe extern "C" fn note_sync(
    device: *mut bindings::ib_device,
    addr: u64,
    len: usize,
    for_cpu: bool,
) {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state(device) }.lock();
    let synced = Synced { addr, len, for_cpu };
    let _ = state.syncs.push_within_capacity(synced);
}

/// Maps a part of a frame, unless that is to fail.
///
/// # Safety
///
/// Called for a device of a [`Fake`] in place of the helper that maps.
pub(super) unsafe extern "C" fn map_part(
    device: *mut bindings::ib_device,
    page: *mut bindings::page,
    offset: usize,
    len: usize,
) -> u64 {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state(device) }.lock();
    let fails = state.unmappable == 1;
    state.unmappable = state.unmappable.saturating_sub(1);
    if fails {
        return u64::MAX;
    }
    let to_device = bindings::dma_data_direction_DMA_TO_DEVICE;
    // SAFETY: By this function's requirements; the device has one that maps.
    let addr = unsafe {
        bindings::dma_map_page_attrs((*device).dma_device, page, offset, len, to_device, 0)
    };
    let _ = state.mapped.push_within_capacity(Part { addr, len });
    addr
}

/// Notes that a part is not mapped any more, which costs nothing where memory is just found elsewhere.
///
/// # Safety
///
/// Called for a device of a [`Fake`] in place of the helper that unmaps.
pub(super) unsafe extern "C" fn unmap_part(
    device: *mut bindings::ib_device,
    addr: u64,
    len: usize,
) {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state(device) }.lock();
    let part = Part { addr, len };
    match state.mapped.iter().position(|mapped| *mapped == part) {
        Some(at) => {
            let _ = state.mapped.remove(at);
        }
        None => state.strays += 1,
    }
}

// Operations that RDMA core and the rings call for objects of a `Fake`.

/// # Safety
///
/// As above.
unsafe extern "C" fn alloc_pd(_pd: *mut bindings::ib_pd, _udata: *mut bindings::ib_udata) -> c_int {
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn dealloc_pd(
    _pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn create_cq(
    cq: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    // SAFETY: The queue is being made, as the attributes say.
    unsafe { (*cq).cqe = (*attr).cqe as c_int };
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn destroy_cq(
    _cq: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    0
}

/// # Safety
///
/// As above, with room for `most` completions.
unsafe extern "C" fn poll_cq(
    cq: *mut bindings::ib_cq,
    most: c_int,
    wcs: *mut bindings::ib_wc,
) -> c_int {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state((*cq).device) }.lock();
    let State { done, flood, .. } = &mut *state;
    if *flood > 0 {
        *flood -= 1;
        for i in 0..most as usize {
            let mut wc = bindings::ib_wc::default();
            wc.__bindgen_anon_1.wr_id = u64::MAX - 1;
            // SAFETY: There is room.
            unsafe { wcs.add(i).write(wc) };
        }
        return most;
    }
    let (mut taken, mut at) = (0, 0);
    while let Some((own, wc)) = done.get(at).filter(|_| taken < most) {
        if !ptr::eq(*own, cq) {
            at += 1;
            continue;
        }
        // SAFETY: There is room.
        unsafe { wcs.add(taken as usize).write(*wc) };
        taken += 1;
        let _ = done.remove(at);
    }
    taken
}

/// # Safety
///
/// As above.
unsafe extern "C" fn req_notify_cq(
    _cq: *mut bindings::ib_cq,
    _flags: bindings::ib_cq_notify_flags,
) -> c_int {
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn create_srq(
    _srq: *mut bindings::ib_srq,
    _attr: *mut bindings::ib_srq_init_attr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn destroy_srq(
    srq: *mut bindings::ib_srq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state((*srq).device) }.lock();
    state
        .posted
        .retain(|posted| !ptr::eq(posted.queue, srq.cast()));
    0
}

/// Keeps receives.
///
/// # Safety
///
/// `wr` must be a chain of requests, posted to a queue of `device`'s, which is a [`Fake`]'s.
unsafe fn post(
    device: *mut bindings::ib_device,
    queue: *const c_void,
    mut wr: *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state(device) }.lock();
    if state.refuses {
        return EIO.to_errno();
    }
    while !wr.is_null() {
        let mut sges = [bindings::ib_sge::default(); MAX_SGE];
        // SAFETY: By this function's requirements; every view of the union is plain bytes.
        let id = unsafe {
            let (list, n) = ((*wr).sg_list, (*wr).num_sge as usize);
            for (i, sge) in sges.iter_mut().take(n).enumerate() {
                *sge = *list.add(i);
            }
            (*wr).__bindgen_anon_1.wr_id
        };
        let posted = Posted { queue, id, sges };
        if state.posted.push_within_capacity(posted).is_err() {
            return ENOMEM.to_errno();
        }
        // SAFETY: As above.
        wr = unsafe { (*wr).next };
    }
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn post_srq_recv(
    srq: *mut bindings::ib_srq,
    wr: *const bindings::ib_recv_wr,
    _bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: By this function's requirements.
    unsafe { post((*srq).device, srq.cast(), wr) }
}

/// # Safety
///
/// As above.
unsafe extern "C" fn post_recv(
    qp: *mut bindings::ib_qp,
    wr: *const bindings::ib_recv_wr,
    _bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: By this function's requirements.
    unsafe { post((*qp).device, qp.cast(), wr) }
}

/// # Safety
///
/// As above.
unsafe extern "C" fn post_send(
    qp: *mut bindings::ib_qp,
    mut wr: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state((*qp).device) }.lock();
    while !wr.is_null() {
        if state.takes == 0 {
            // SAFETY: There is room for the address.
            unsafe { *bad = wr };
            return EIO.to_errno();
        }
        state.takes -= 1;
        // SAFETY: By this function's requirements.
        let sent = unsafe { Sent::of(qp, wr) };
        if state.sends.push_within_capacity(sent).is_err() {
            return ENOMEM.to_errno();
        }
        // SAFETY: As above.
        wr = unsafe { (*wr).next };
    }
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn create_ah(
    ah: *mut bindings::ib_ah,
    _attr: *mut bindings::rdma_ah_init_attr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state((*ah).device) }.lock();
    match state.handles.push_within_capacity(ah) {
        Ok(()) => 0,
        Err(_) => ENOMEM.to_errno(),
    }
}

/// # Safety
///
/// As above.
unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
    // SAFETY: By this function's requirements.
    let mut state = unsafe { state((*ah).device) }.lock();
    state.handles.retain(|other| !ptr::eq(*other, ah));
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn create_qp(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By this function's requirements. It is zeroed, which is the state Reset.
    unsafe {
        (*attr).cap.max_inline_data = INLINE;
        let mut state = state((*qp).device).lock();
        state.made += 1;
        (*qp).qp_num = state.made;
    }
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn modify_qp(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    if mask as u32 & bindings::ib_qp_attr_mask_IB_QP_STATE == 0 {
        return 0;
    }
    // SAFETY: By this function's requirements; the queue pair has room for its state.
    unsafe {
        let to = (*attr).qp_state;
        let mut state = state((*qp).device).lock();
        state.changes += 1;
        if state.rigid {
            return EIO.to_errno();
        }
        let own = &mut (*qp.cast::<OwnQp>()).state;
        if core::mem::replace(own, to) == to {
            // As devices do for which that is no change: what was posted stays.
            return 0;
        }
        match to {
            bindings::ib_qp_state_IB_QPS_ERR => flush(&mut state, qp, true),
            bindings::ib_qp_state_IB_QPS_RESET => flush(&mut state, qp, false),
            _ => {}
        }
    }
    0
}

/// Ends the requests of a queue pair: they complete, or are forgotten, and so are its completions.
///
/// # Safety
///
/// The queue pair must be there, and be the device's whose state this is.
unsafe fn flush(state: &mut State, qp: *mut bindings::ib_qp, completes: bool) {
    let State {
        posted,
        sends,
        done,
        silent,
        ..
    } = state;
    if completes && *silent {
        return;
    }
    // SAFETY: By this function's requirements.
    let (recv_cq, send_cq) = unsafe { ((*qp).recv_cq, (*qp).send_cq) };
    let mut end = |cq: *mut bindings::ib_cq, id| {
        let mut wc = bindings::ib_wc {
            status: bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
            qp,
            ..Default::default()
        };
        wc.__bindgen_anon_1.wr_id = id;
        if completes {
            let _ = done.push_within_capacity((cq.cast_const(), wc));
        }
    };
    posted.retain(|request| {
        let is_own = ptr::eq(request.queue, qp.cast());
        if is_own {
            end(recv_cq, request.id);
        }
        !is_own
    });
    sends.retain(|request| {
        let is_own = ptr::eq(request.qp, qp);
        if is_own {
            end(send_cq, request.id);
        }
        !is_own
    });
    if !completes {
        done.retain(|(_, wc)| !ptr::eq(wc.qp, qp));
    }
}

/// # Safety
///
/// As above.
unsafe extern "C" fn query_qp(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    _init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    // SAFETY: By this function's requirements; the queue pair has room for its state.
    unsafe {
        let _state = state((*qp).device).lock();
        (*attr).qp_state = (*qp.cast::<OwnQp>()).state;
    }
    0
}

/// # Safety
///
/// As above.
unsafe extern "C" fn destroy_qp(
    qp: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By this function's requirements.
    unsafe { flush(&mut state((*qp).device).lock(), qp, false) };
    0
}
