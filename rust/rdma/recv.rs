// SPDX-License-Identifier: GPL-2.0

//! The receive ring of a UD queue pair.
//!
//! Every slot has a buffer, always. When the device has filled one, a new buffer takes its place
//! before the filled one is given away; if there is none, the frame is dropped and its buffer is
//! posted again. So the ring never runs dry for want of memory.

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr;

use ipoib_netdev::napi::{Binding, Context};
use ipoib_netdev::page_pool::{FilledBuf, PagePool, RxBuf, GRH_LEN};
use ipoib_rings::generations::Generations;
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::{delay::fsleep, Delta};

use crate::cq::{wr_id, Claim, BATCH};
use crate::device::Device;
use crate::left::Left;
use crate::qp::{QpState, UdQp};
use crate::send::FLUSH_MS;

type PostFn = unsafe extern "C" fn(
    *mut bindings::ib_qp,
    *const bindings::ib_recv_wr,
    *mut *const bindings::ib_recv_wr,
) -> c_int;

/// What the first 40 octets of a datagram hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkHeader {
    /// A GRH of InfiniBand or RoCEv1.
    Grh,
    /// 20 octets of nothing and an IPv4 header.
    Ipv4,
    /// An IPv6 header, which has the layout of a GRH.
    Ipv6,
    /// The device did not say; on InfiniBand, a GRH.
    Unknown,
}

/// A datagram that was received.
#[must_use]
pub struct Received<'a> {
    /// Its octets, after 40 of [`NetworkHeader`], as many as the device says: fewer than 40, if it says so.
    pub buf: FilledBuf,
    wc: &'a bindings::ib_wc,
}

/// The kinds of network headers, by the numbers that devices have for them.
const NETWORK_HEADERS: [NetworkHeader; 4] = {
    let mut headers = [NetworkHeader::Unknown; 4];
    headers[bindings::rdma_network_type_RDMA_NETWORK_IB as usize] = NetworkHeader::Grh;
    headers[bindings::rdma_network_type_RDMA_NETWORK_ROCE_V1 as usize] = NetworkHeader::Grh;
    headers[bindings::rdma_network_type_RDMA_NETWORK_IPV4 as usize] = NetworkHeader::Ipv4;
    headers[bindings::rdma_network_type_RDMA_NETWORK_IPV6 as usize] = NetworkHeader::Ipv6;
    headers
};

impl Received<'_> {
    /// The queue pair that sent it, as it says.
    #[inline]
    pub fn src_qp(&self) -> u32 {
        self.wc.src_qp
    }

    /// What the first 40 octets hold, as the device says; None if nothing.
    #[inline]
    pub fn network(&self) -> Option<NetworkHeader> {
        if self.wc.wc_flags & (WC_GRH | WC_NETWORK) == WC_GRH | WC_NETWORK {
            let header = NETWORK_HEADERS.get(usize::from(self.wc.network_hdr_type));
            return Some(header.copied().unwrap_or(NetworkHeader::Unknown));
        }
        (self.wc.wc_flags & WC_GRH != 0).then_some(NetworkHeader::Unknown)
    }

    /// Whether the device has verified the checksums of the IP datagram in it.
    #[inline]
    pub fn csum_ok(&self) -> bool {
        self.wc.wc_flags & WC_CSUM_OK != 0
    }
}

/// What became of completions that brought nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReceiveReport {
    /// Datagrams dropped for want of a buffer.
    pub no_buffer: u32,
    /// Messages longer than their buffer, as the device says.
    pub malformed: u32,
    /// Receives that failed.
    pub errors: u32,
    /// Receives given back, since the queue pair is in error. Those of its own are not posted again,
    /// those of a shared receive queue are.
    pub flushed: u32,
    /// Completions of what is not posted; they are ignored.
    pub unknown: u32,
    /// Something is not 0.
    some: bool,
}

impl ReceiveReport {
    /// What there is to report since the last time; hardly ever anything.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Self> {
        self.some.then(|| core::mem::take(self))
    }

    /// Counts what hardly ever happens, out of the way.
    #[cold]
    #[inline(never)]
    pub(crate) fn count(&mut self, event: impl FnOnce(&mut Self) -> &mut u32) {
        self.some = true;
        let counter = event(self);
        *counter = counter.wrapping_add(1);
    }
}

/// A buffer and the work request that posts it.
struct Slot {
    wr: bindings::ib_recv_wr,
    sge: bindings::ib_sge,
    buf: RxBuf,
}

/// The identifier of a slot that is neither chained nor posted: no slot has such an index.
const IDLE: u64 = u64::MAX;

impl Slot {
    #[inline]
    fn id(&self) -> u64 {
        // SAFETY: Every view of the union is plain octets.
        unsafe { self.wr.__bindgen_anon_1.wr_id }
    }

    fn is_idle(&self) -> bool {
        self.id() == IDLE
    }

    fn set_idle(&mut self) {
        self.wr.__bindgen_anon_1.wr_id = IDLE;
    }

    /// Its receive has failed, with `status`.
    #[cold]
    fn fail(
        &mut self,
        index: usize,
        status: bindings::ib_wc_status,
        chain: &mut Chain,
        report: &mut ReceiveReport,
    ) {
        if status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
            // Posted again, it would only be flushed again.
            self.set_idle();
            report.count(|report| &mut report.flushed);
            return;
        }
        report.count(|report| &mut report.errors);
        chain.push(self, index);
    }
}

/// Work requests that are to be posted.
///
/// Each gets the next [generation](Generations). So an old completion is told from a new one, and what was
/// posted from what only will be.
///
/// # Invariants
///
/// * `first` to `last` are the work requests of the chained slots, linked, unless `first` is null;
///   the last one's link is null.
/// * `generations` has chained those, and posted what the device has.
struct Chain {
    first: *mut bindings::ib_recv_wr,
    last: *mut bindings::ib_recv_wr,
    generations: Generations,
}

impl Chain {
    /// Adds a slot with index `index` that is neither chained nor posted.
    #[inline]
    fn push(&mut self, slot: &mut Slot, index: usize) {
        let wr = &mut slot.wr;
        wr.__bindgen_anon_1.wr_id = self.generations.next_id(index as u32);
        wr.next = ptr::null_mut();
        let wr: *mut _ = wr;
        if self.first.is_null() {
            self.first = wr;
        } else {
            // SAFETY: `last` is the work request of a slot by the type invariant, another than this
            // one, and nobody has a reference to it.
            unsafe { (*self.last).next = wr };
        }
        self.last = wr;
    }

    /// Whether the device has the slot whose identifier this is.
    #[inline]
    fn is_posted(&self, id: u64) -> bool {
        // Receives complete in order, so that none is 2^32 generations behind.
        self.generations.is_posted(id)
    }

    /// What the device did with the chain: it has all, or all in front of `bad` if it refused some.
    #[inline]
    fn settle(&mut self, err: c_int, bad: *const bindings::ib_recv_wr) -> Result {
        if err != 0 {
            return self.refused(err, bad);
        }
        // INVARIANT: The device has what was chained.
        self.first = ptr::null_mut();
        self.generations.all_posted();
        Ok(())
    }

    #[cold]
    fn refused(&mut self, err: c_int, bad: *const bindings::ib_recv_wr) -> Result {
        let mut wr = self.first;
        while !wr.is_null() && !ptr::eq(wr, bad) {
            // SAFETY: A work request of the chain, to which nobody has a reference.
            wr = unsafe { (*wr).next };
        }
        // INVARIANT: What is chained is now the rest, whose last is as before. If the device named
        // none of ours, it may have all of them.
        self.first = wr;
        if wr.is_null() {
            self.generations.all_posted();
        } else {
            // SAFETY: As above; every view of the union is plain octets.
            let id = unsafe { (*wr).__bindgen_anon_1.wr_id };
            self.generations.posted_before(id);
        }
        to_result(err.min(0))
    }
}

/// The device that the buffers of a queue pair are mapped for.
struct Mapping {
    /// Not at all: the device uses the CPU's addresses.
    virt_dma: bool,
    device: Device,
}

impl Mapping {
    /// Returns where the device finds a buffer.
    #[inline(always)]
    fn address(&self, buf: &RxBuf) -> u64 {
        if self.virt_dma {
            buf.data().as_ptr() as u64
        } else {
            buf.dma()
        }
    }

    /// Gives the CPU the first `len` octets of the buffer at `addr`, which the device has no more.
    ///
    /// # Safety
    ///
    /// [`Self::address`] must have returned `addr`, of a buffer that takes `len` octets and still is there.
    #[inline]
    unsafe fn take(&self, addr: u64, len: u32) {
        if !self.virt_dma {
            let dev = self.device.as_raw();
            // SAFETY: The device is registered; the rest by this function's requirements.
            unsafe { bindings::ipoib_rs_ib_sync_rx(dev, addr, len as usize, true) };
        }
    }
}

/// Memory that the device may reach, and all that belongs to it.
///
/// # Invariants
///
/// * `slots` never moves its elements. A slot's work request refers to the slot's one element, and that
///   to the slot's buffer, which `pool` maps for the device.
/// * When it is dropped, the device has none of the buffers.
struct Memory {
    slots: KVec<Slot>,
    /// In front of `mapping`, which holds the device.
    pool: PagePool,
    mapping: Mapping,
    claim: Claim,
}

// SAFETY: The pointers are to the slots; all else is `Send`.
unsafe impl Send for Memory {}

impl Left for Memory {
    fn abandon(&mut self) {
        core::mem::forget(core::mem::take(&mut self.slots));
        self.pool.keep_mapped();
    }
}

/// The buffers of a queue pair, those that it has and those that it is to have.
///
/// # Invariants
///
/// * There is a power of two of slots. A slot's identifier is `IDLE`, or it is in `chain`, or the device
///   may have its buffer.
/// * `raw_qp` is the queue pair.
struct Buffers {
    memory: ManuallyDrop<Memory>,
    chain: Chain,
    raw_qp: *mut bindings::ib_qp,
}

// SAFETY: The pointers are to the slots and to the queue pair that the ring holds; all else is `Send`.
unsafe impl Send for Buffers {}

/// The receive ring.
///
/// # Invariants
///
/// * `wcs` has [`BATCH`] elements.
/// * `post_recv` is the operation of the queue pair's device.
/// * `buffers` are those of `qp`.
pub struct RecvRing {
    buffers: Buffers,
    wcs: KVec<bindings::ib_wc>,
    post_recv: PostFn,
    report: ReceiveReport,
    /// Where the buffers go if the device may still reach them when the ring is dropped.
    place: ManuallyDrop<KBox<MaybeUninit<Memory>>>,
    qp: Arc<UdQp>,
}

// SAFETY: The completions refer to nothing that is used but as a number; all else is `Send`.
unsafe impl Send for RecvRing {}

impl Buffers {
    /// Handles a completion.
    #[inline]
    fn complete<'a>(
        &mut self,
        context: &Context<'_>,
        wc: &'a bindings::ib_wc,
        report: &mut ReceiveReport,
    ) -> Option<Received<'a>> {
        let Self {
            memory,
            chain,
            raw_qp,
        } = self;
        let Memory {
            slots,
            mapping,
            pool,
            ..
        } = &mut **memory;
        let id = wr_id(wc);
        let index = id as u32 as usize;
        let slot = match slots.get_mut(index) {
            Some(slot) if slot.id() == id && chain.is_posted(id) && ptr::eq(wc.qp, *raw_qp) => slot,
            _ => {
                report.count(|report| &mut report.unknown);
                return None;
            }
        };
        // INVARIANT: A completed receive is not the device's any more; unless it failed, it is
        // chained below.
        if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
            slot.fail(index, wc.status, chain, report);
            return None;
        }
        let old = slot.sge.addr;
        let buf = pool.alloc(context).map(|new| {
            // INVARIANT: The element refers to the new buffer.
            slot.sge.addr = mapping.address(&new);
            core::mem::replace(&mut slot.buf, new)
        });
        chain.push(slot, index);
        let Some(buf) = buf else {
            report.count(|report| &mut report.no_buffer);
            return None;
        };
        match buf.filled(wc.byte_len) {
            Ok(buf) => {
                // SAFETY: The buffer was there, and takes that much.
                unsafe { mapping.take(old, wc.byte_len) };
                Some(Received { buf, wc })
            }
            Err(_) => {
                report.count(|report| &mut report.malformed);
                None
            }
        }
    }
}

impl RecvRing {
    /// Makes the receive ring of `qp`, with `size` (a power of two) buffers of `buf_len` octets.
    ///
    /// A buffer takes the 40 octets in front of every datagram too.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is no power of two, or more than the queue pair or its completion queue
    /// take, or the buffers are not longer than 40 octets; `EBUSY` if the completion queue has a
    /// ring; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it, which resets the queue pair if something
    /// is posted.
    pub fn new(qp: &Arc<UdQp>, buf_len: usize, size: u32) -> Result<Self> {
        if !size.is_power_of_two()
            || size > qp.caps().recv_wr
            || size > qp.recv_cq().entries()
            || qp.caps().recv_sge == 0
            || buf_len <= GRH_LEN
        {
            return Err(EINVAL);
        }
        let n = size as usize;
        let device = qp.pd().device();
        let dma = device.dma_device();
        // SAFETY: A device that is registered is bound to its driver; the pool is dropped before `mapping`.
        let pool = unsafe { PagePool::for_device(buf_len, n, dma)? };
        let post_recv = qp.ops().post_recv.ok_or(EOPNOTSUPP)?;
        let sge = bindings::ib_sge {
            addr: 0,
            length: pool.buf_len() as u32,
            lkey: qp.pd().local_dma_lkey(),
        };
        let mut wcs = KVec::with_capacity(BATCH, GFP_KERNEL)?;
        for _ in 0..BATCH {
            wcs.push(bindings::ib_wc::default(), GFP_KERNEL)?;
        }
        let slots = KVec::with_capacity(n, GFP_KERNEL)?;
        let place = KBox::new_uninit(GFP_KERNEL)?;
        let claim = qp.recv_cq().claim()?;
        // INVARIANT: There is no slot yet, and nothing is chained or posted.
        let mut ring = Self {
            buffers: Buffers {
                chain: Chain {
                    first: ptr::null_mut(),
                    last: ptr::null_mut(),
                    generations: Generations::after(claim.next),
                },
                raw_qp: qp.as_raw(),
                memory: ManuallyDrop::new(Memory {
                    slots,
                    pool,
                    mapping: Mapping {
                        virt_dma: dma.is_null(),
                        device: device.clone(),
                    },
                    claim,
                }),
            },
            wcs,
            post_recv,
            report: ReceiveReport::default(),
            place: ManuallyDrop::new(place),
            qp: qp.clone(),
        };
        let Memory {
            slots,
            mapping,
            pool,
            ..
        } = &mut *ring.buffers.memory;
        for _ in 0..n {
            let buf = pool.alloc_sleeping().ok_or(ENOMEM)?;
            let addr = mapping.address(&buf);
            let mut slot = Slot {
                wr: bindings::ib_recv_wr {
                    num_sge: 1,
                    ..Default::default()
                },
                sge: bindings::ib_sge { addr, ..sge },
                buf,
            };
            slot.set_idle();
            slots.push(slot, GFP_KERNEL)?;
        }
        for slot in slots.iter_mut() {
            // INVARIANT: The slots do not move any more.
            slot.wr.sg_list = &raw mut slot.sge;
        }
        Ok(ring)
    }

    /// Binds the buffers' pool to the NAPI instance that polls the ring, or unbinds it
    /// ([`Poll::bind_pools`](ipoib_netdev::napi::Poll::bind_pools)).
    ///
    /// # Context
    ///
    /// Process context, without NAPI; may sleep.
    pub fn bind_pool(&mut self, binding: &Binding<'_>) {
        self.buffers.memory.pool.bind(binding);
    }

    /// How many buffers it has.
    pub fn size(&self) -> u32 {
        self.buffers.memory.slots.len() as u32
    }

    /// Octets that a buffer takes.
    pub fn buf_len(&self) -> usize {
        self.buffers.memory.pool.buf_len()
    }

    /// Posts all buffers that the device does not have.
    ///
    /// # Errors
    ///
    /// Whatever the device says, such as `EINVAL` while the queue pair is reset; what it refused is
    /// posted at the next poll, or the next fill.
    ///
    /// # Context
    ///
    /// Process context, without NAPI.
    pub fn fill(&mut self) -> Result {
        for (index, slot) in self.buffers.memory.slots.iter_mut().enumerate() {
            if slot.is_idle() {
                self.buffers.chain.push(slot, index);
            }
        }
        self.post_chain()
    }

    /// Whether a poll may have something to do: completions of which there was an event, or what the
    /// device refused.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.qp.recv_cq().is_quiet() || !self.buffers.chain.first.is_null()
    }

    /// Takes up to `budget` completions, and gives what was received to `f`. Says how many it took: what
    /// the NAPI budget is charged with.
    #[inline]
    pub fn poll(
        &mut self,
        context: &Context<'_>,
        budget: usize,
        mut f: impl FnMut(Received<'_>),
    ) -> usize {
        let mut done = 0usize;
        while done < budget {
            let want = BATCH.min(budget.wrapping_sub(done));
            let wcs = self.qp.recv_cq().poll(&mut self.wcs, want);
            let n = wcs.len();
            for wc in wcs {
                if let Some(received) = self.buffers.complete(context, wc, &mut self.report) {
                    f(received);
                }
            }
            done = done.wrapping_add(n);
            // What was refused is posted at the next poll.
            let _ = self.post_chain();
            if n < want {
                break;
            }
        }
        done
    }

    /// What became of the completions since the last time that brought nothing; None if all did.
    #[inline]
    pub fn take_report(&mut self) -> Option<ReceiveReport> {
        self.report.take()
    }

    /// Posts what is to be posted.
    #[inline]
    fn post_chain(&mut self) -> Result {
        let first = self.buffers.chain.first;
        if first.is_null() {
            return Ok(());
        }
        // Some drivers leave this alone when they refuse all.
        let mut bad: *const bindings::ib_recv_wr = first;
        // A completion cannot be seen before this call returns: only we poll. So it is early enough
        // to note afterwards what was posted.
        //
        // SAFETY: The queue pair is valid, the chain is complete, and the buffers that it refers to
        // are owned by their slots until the device has completed them, or the queue pair is reset or
        // destroyed.
        let err = unsafe { (self.post_recv)(self.buffers.raw_qp, first, &raw mut bad) };
        self.buffers.chain.settle(err, bad)
    }

    /// Asks for an event at the next completion. True: poll again, there may be some already.
    #[inline]
    pub fn arm(&self) -> bool {
        self.qp.recv_cq().arm()
    }

    /// Takes all buffers back. The queue pair is reset afterwards, so that everything that was
    /// posted to send is forgotten as well: drain that ring first.
    ///
    /// What the device has received until now is dropped; [`Self::fill`] makes the ring usable
    /// again.
    ///
    /// # Errors
    ///
    /// The queue pair could not be reset, and the ring keeps what the device may still use.
    ///
    /// # Context
    ///
    /// Process context, with NAPI disabled; may sleep.
    pub fn drain(&mut self) -> Result {
        // Nothing is to be posted while we drain.
        //
        // INVARIANT: The chain is empty, and its slots are idle.
        self.buffers.chain.first = ptr::null_mut();
        for slot in &mut self.buffers.memory.slots {
            if !self.buffers.chain.is_posted(slot.id()) {
                slot.set_idle();
            }
        }
        let qp = self.qp.clone();
        if qp.state() != Ok(QpState::Reset) && qp.to_error().is_ok() {
            for _ in 0..FLUSH_MS {
                self.discard();
                if self.buffers.memory.slots.iter().all(Slot::is_idle) {
                    break;
                }
                fsleep(Delta::from_millis(1));
            }
        }
        qp.to_reset()?;
        self.discard();
        for slot in &mut self.buffers.memory.slots {
            // INVARIANT: A queue pair that was reset has nothing.
            slot.set_idle();
        }
        Ok(())
    }

    /// Takes all completions there are, without posting anything again.
    fn discard(&mut self) {
        loop {
            let wcs = self.qp.recv_cq().poll(&mut self.wcs, BATCH);
            let n = wcs.len();
            for wc in wcs {
                let id = wr_id(wc);
                if let Some(slot) = self.buffers.memory.slots.get_mut(id as u32 as usize) {
                    if slot.id() == id && ptr::eq(wc.qp, self.buffers.raw_qp) {
                        // INVARIANT: A completed receive is not the device's any more.
                        slot.set_idle();
                    }
                }
            }
            if n < BATCH {
                return;
            }
        }
    }
}

impl Drop for RecvRing {
    fn drop(&mut self) {
        // SAFETY: Neither is used again.
        let (mut memory, place) = unsafe {
            (
                ManuallyDrop::take(&mut self.buffers.memory),
                ManuallyDrop::take(&mut self.place),
            )
        };
        memory.claim.next = self.buffers.chain.generations.last();
        let chain = &self.buffers.chain;
        let posted = |slot: &Slot| !slot.is_idle() && chain.is_posted(slot.id());
        if memory.slots.iter().any(posted) && self.qp.to_reset().is_err() {
            // The device may still write the buffers, and complete them: all of it stays until the queue
            // pair is destroyed, and no other ring has the completion queue before.
            let memory = KBox::write(place, memory);
            self.qp.keep(memory);
        }
        // INVARIANT: Otherwise nothing is posted, or the queue pair was reset and has nothing.
    }
}

const WC_GRH: c_int = bindings::ib_wc_flags_IB_WC_GRH as c_int;
const WC_CSUM_OK: c_int = bindings::ib_wc_flags_IB_WC_IP_CSUM_OK as c_int;
const WC_NETWORK: c_int = bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE as c_int;
