// SPDX-License-Identifier: GPL-2.0

//! An RDMA device for tests, which has queues, maps memory, and receives when a test says so.
//!
//! RDMA core does not know of it: it was allocated, but is not registered.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use ipoib_netdev::mapper::Mapper;
use ipoib_sys::bindings;
use kernel::alloc::flags::__GFP_ZERO;
use kernel::ffi::{c_int, c_void};
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::SpinLock;

use crate::cq::{Cq, FailureHandler};
use crate::device::{Device, Gone};

/// The most elements of a receive.
const MAX_SGE: usize = 4;
/// Requests, completions and syncs that it keeps at a time.
const ROOM: usize = 256;

/// A handler of failures that do not happen.
pub(crate) struct Nobody;

impl FailureHandler for Nobody {
    fn failed(&self) {}
}

/// A receive that was posted.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    /// The queue pair or shared receive queue.
    queue: *const c_void,
    id: u64,
    pub(crate) sges: [bindings::ib_sge; MAX_SGE],
}

impl Posted {
    /// The addresses of its elements; 0 for those that there are not.
    pub(crate) fn addresses(&self) -> [u64; MAX_SGE] {
        self.sges.map(|sge| sge.addr)
    }
}

/// Memory that the CPU was lent, or that was given back to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Synced {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) for_cpu: bool,
}

/// What the device has, and what was done to it.
struct State {
    /// In the order in which they were posted.
    posted: KVec<Posted>,
    /// Completions, by their queues.
    done: KVec<(*const bindings::ib_cq, bindings::ib_wc)>,
    syncs: KVec<Synced>,
    /// Changes of queue pairs' states.
    changes: u32,
    /// Queue pairs that were made.
    made: u32,
    /// Polls that find as many completions as they take, of nobody.
    flood: u32,
}

/// A queue pair with its state.
#[repr(C)]
struct OwnQp {
    qp: bindings::ib_qp,
    state: bindings::ib_qp_state,
}

/// The data of its port, by the number of that.
type Ports = [bindings::ib_port_data; 2];

/// The C side.
///
/// # Invariants
///
/// `raw` is an allocated device, whose driver's data are `state`'s value, and whose ports' are `_ports`'.
struct Allocated {
    raw: NonNull<bindings::ib_device>,
    state: Pin<KBox<SpinLock<State>>>,
    _ports: KBox<MaybeUninit<Ports>>,
}

/// An RDMA device. All that is made of it goes first.
pub(crate) struct Fake {
    /// In front of what it refers to.
    device: Device,
    allocated: Allocated,
    mapper: Mapper,
}

impl Fake {
    /// Makes one, and has it told of what is synced until the test ends.
    pub(crate) fn new() -> Result<Self> {
        let mapper = Mapper::new()?;
        let state = State {
            posted: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            done: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            syncs: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            changes: 0,
            made: 0,
            flood: 0,
        };
        let state = KBox::pin_init(new_spinlock!(state), GFP_KERNEL)?;
        let mut ports = KBox::<Ports>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: The size is that of the structure, and the namespace is there for good.
        let raw = unsafe {
            bindings::_ib_alloc_device(
                size_of::<bindings::ib_device>(),
                &raw mut bindings::init_net,
            )
        };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let dev = raw.as_ptr();
        // SAFETY: It is nobody else's. It has a reference of its own, so that giving back the last other one tells
        // nobody. Ports are zeroed, as which they speak nothing.
        unsafe {
            (*dev).__bindgen_anon_1.dev.driver_data =
                ptr::from_ref(&*state).cast_mut().cast::<c_void>();
            (*dev).port_data = ports.as_mut_ptr().cast();
            (*dev).phys_port_cnt = 1;
            (*dev).dma_device = mapper.as_raw();
            (*dev).refcount.refs.counter = 1;
            fill_attributes(&mut (*dev).attrs);
            fill_operations(&mut (*dev).ops);
            bindings::ipoib_rs_stub_sync_rx(Some(note_sync));
        }
        // INVARIANT: As was just written.
        let allocated = Allocated {
            raw,
            state,
            _ports: ports,
        };
        // SAFETY: It is allocated.
        let device = unsafe { Device::try_get(dev, &Gone::new()?)? };
        Ok(Self {
            device,
            allocated,
            mapper,
        })
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Takes the receive that was posted first, for a message.
    pub(crate) fn begin(&self) -> Result<Posted> {
        let mut state = self.allocated.state.lock();
        state.posted.remove(0).map_err(|_| ENOBUFS)
    }

    /// Writes a message to where the elements of a receive say.
    pub(crate) fn write(&self, posted: &Posted, mut bytes: &[u8]) -> Result {
        for sge in &posted.sges {
            let len = bytes.len().min(sge.length as usize);
            let (here, rest) = bytes.split_at(len);
            bytes = rest;
            if len > 0 {
                let at = self.mapper.find(sge.addr).ok_or(EFAULT)?;
                // SAFETY: Whoever has posted it has that much there, and does not use it meanwhile.
                unsafe { at.as_ptr().copy_from_nonoverlapping(here.as_ptr(), len) };
            }
        }
        bytes.is_empty().then_some(()).ok_or(EMSGSIZE)
    }

    /// Completes a receive with `len` bytes; `change` says how it was otherwise.
    pub(crate) fn complete(
        &self,
        cq: &Cq,
        posted: &Posted,
        len: usize,
        change: impl FnOnce(&mut bindings::ib_wc),
    ) -> Result {
        let mut wc = bindings::ib_wc {
            status: bindings::ib_wc_status_IB_WC_SUCCESS,
            opcode: bindings::ib_wc_opcode_IB_WC_RECV,
            byte_len: len as u32,
            ..Default::default()
        };
        wc.__bindgen_anon_1.wr_id = posted.id;
        change(&mut wc);
        let mut state = self.allocated.state.lock();
        let push = state.done.push_within_capacity((cq.as_raw(), wc));
        push.map_err(|_| ENOBUFS)
    }

    /// Takes the syncs since the last time, in their order.
    pub(crate) fn syncs(&self) -> Result<KVec<Synced>> {
        let next = KVec::with_capacity(ROOM, GFP_KERNEL)?;
        Ok(core::mem::replace(
            &mut self.allocated.state.lock().syncs,
            next,
        ))
    }

    /// How many times a queue pair's state was changed.
    pub(crate) fn changes(&self) -> u32 {
        self.allocated.state.lock().changes
    }

    /// Has so many polls find as many completions as they take, of requests that there are not.
    pub(crate) fn flood(&self, polls: u32) {
        self.allocated.state.lock().flood = polls;
    }

    /// How many polls of a [flood](Self::flood) are left.
    pub(crate) fn flood_left(&self) -> u32 {
        self.allocated.state.lock().flood
    }

    /// Holds the page that is mapped at `addr`.
    pub(crate) fn hold(&self, addr: u64) -> Result<Held> {
        let va = self.mapper.find(addr).ok_or(EFAULT)?;
        // SAFETY: There is memory.
        unsafe { bindings::ipoib_rs_page_hold(va.as_ptr().cast()) };
        // INVARIANT: It was just taken.
        Ok(Held { va, addr })
    }
}

/// Calls `f` again and again, each time with another one of its allocations failing, until none does. An allocation that
/// can wait fails where the lab has said so, and in kernels that inject faults.
///
/// # Errors
///
/// Those of `f`, but for `ENOMEM` when an allocation has failed.
pub(crate) fn each_allocation_fails(mut f: impl FnMut() -> Result) -> Result {
    for nth in 1.. {
        // SAFETY: Whoever fails to allocate something copes with that.
        let (result, left) = unsafe {
            bindings::ipoib_rs_fail_nth(nth);
            (f(), bindings::ipoib_rs_fail_nth(0))
        };
        match result {
            Ok(()) if left == 0 => {}
            Err(error) if left == 0 && error == ENOMEM => {}
            result => return result,
        }
    }
    Ok(())
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: Allocated by the type invariant, and all references are gone but its own. RDMA core does not look for
        // the ports of a device that has none.
        unsafe {
            let dev = self.raw.as_ptr();
            (*dev).refcount.refs.counter = 0;
            (*dev).port_data = ptr::null_mut();
            bindings::ib_dealloc_device(dev);
        }
    }
}

/// A page of a page pool's that stays, whoever gives it up.
///
/// # Invariants
///
/// There is a reference to the page at `va`.
pub(crate) struct Held {
    va: NonNull<u8>,
    addr: u64,
}

impl Held {
    /// Returns true if it is mapped, as far as its pool notes it.
    pub(crate) fn is_mapped(&self) -> bool {
        // SAFETY: The page is there by the type invariant.
        let addr = unsafe { bindings::ipoib_rs_page_pool_dma(self.va.as_ptr().cast()) };
        addr == self.addr
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: The reference is there by the type invariant, and is given back once.
        unsafe { bindings::ipoib_rs_page_release(self.va.as_ptr().cast()) };
    }
}

fn fill_attributes(attrs: &mut bindings::ib_device_attr) {
    attrs.kernel_cap_flags = u64::from(bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY);
    attrs.max_qp_wr = ROOM as u32;
    attrs.max_cqe = ROOM as u32;
    attrs.max_send_sge = MAX_SGE as u32;
    attrs.max_recv_sge = MAX_SGE as u32;
    attrs.max_srq = 1;
    attrs.max_srq_wr = ROOM as u32;
    attrs.max_srq_sge = MAX_SGE as u32;
}

fn fill_operations(ops: &mut bindings::ib_device_ops) {
    ops.size_ib_pd = size_of::<bindings::ib_pd>();
    ops.size_ib_cq = size_of::<bindings::ib_cq>();
    ops.size_ib_srq = size_of::<bindings::ib_srq>();
    ops.size_ib_qp = size_of::<OwnQp>();
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
unsafe extern "C" fn note_sync(
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

// What follows is called by RDMA core and rings as is usual, for objects of a `Fake`'s.

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
    _qp: *mut bindings::ib_qp,
    _wr: *const bindings::ib_send_wr,
    _bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    EOPNOTSUPP.to_errno()
}

/// # Safety
///
/// As above.
unsafe extern "C" fn create_qp(
    qp: *mut bindings::ib_qp,
    _attr: *mut bindings::ib_qp_init_attr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By this function's requirements. It is zeroed, which is the state Reset.
    unsafe {
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
        (*qp.cast::<OwnQp>()).state = to;
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
    let State { posted, done, .. } = state;
    // SAFETY: By this function's requirements.
    let cq: *const bindings::ib_cq = unsafe { (*qp).recv_cq };
    posted.retain(|request| {
        let is_own = ptr::eq(request.queue, qp.cast());
        if is_own && completes {
            let mut wc = bindings::ib_wc {
                status: bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
                qp,
                ..Default::default()
            };
            wc.__bindgen_anon_1.wr_id = request.id;
            let _ = done.push_within_capacity((cq, wc));
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
