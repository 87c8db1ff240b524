// SPDX-License-Identifier: GPL-2.0

//! The receive ring of a shared receive queue, from which connections receive.
//!
//! As in [`crate::recv`], every slot has a buffer, always. What differs is that receives complete in
//! any order, since many queue pairs take them, and that the queue outlives the queue pairs: what
//! one of them fails to receive is posted again.
//!
//! A queue pair that is destroyed in the middle of a message may take a slot with it, which never
//! completes. Nor can it be posted again, since nobody says which it was, and since the device may
//! still write to what merely takes long. [`SrqRing::overtaken`] counts those slots.
//!
//! Nor can posted buffers be taken back, short of destroying the shared receive queue, which its
//! queue pairs hold. So a ring that is dropped leaves its memory to the [`Srq`], which gives it back
//! when it was destroyed, and with it the right to poll the completion queue.

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr;

use ipoib_netdev::napi::{Context, MAX_BUDGET};
use ipoib_netdev::parts::{Exchange, Packet, Parts, PartsPool, HEAD_LEN, MAX_PARTS};
use ipoib_netdev::skb::RxSkb;
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::cq::{wr_id, Claim, Cq};
use crate::left::Left;
use crate::pd::Pd;
use crate::rc::QpKey;
use crate::recv::ReceiveReport;
use crate::srq::Srq;

type PostFn = unsafe extern "C" fn(
    *mut bindings::ib_srq,
    *const bindings::ib_recv_wr,
    *mut *const bindings::ib_recv_wr,
) -> c_int;

/// The most slots: so few that what was posted for each of them several times is still far from all
/// generations.
const MAX_SIZE: u32 = 1 << 16;

/// A slot is overtaken when all slots were posted so many times since it was.
const OVERTAKEN: u32 = 4;

/// A message that was received. It is still where the device has put it, and dropped there unless
/// [`Self::into_frame`] takes it.
pub struct RcReceived<'a> {
    /// Who received it.
    pub qp: QpKey,
    len: usize,
    /// Where its head is mapped, which the CPU was lent, if it is.
    lent: Option<u64>,
    sge: &'a mut [bindings::ib_sge; MAX_PARTS],
    parts: &'a mut Parts,
    pool: &'a mut PartsPool,
    mapping: &'a Mapping,
}

impl RcReceived<'_> {
    /// How many octets were received.
    #[inline]
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first of them, up to [`HEAD_LEN`], the wire header first.
    #[inline]
    pub fn head(&self) -> &[u8] {
        // SAFETY: The device has completed the slot's receive, and the ring, which posts it again, is
        // borrowed until this value is gone.
        unsafe { self.parts.head(self.len) }
    }

    /// Makes an skb of it ([`PartsPool::exchange`]).
    ///
    /// # Errors
    ///
    /// As that; the message is dropped.
    #[inline(always)]
    pub fn into_frame(self, context: &Context<'_>, packet: Packet) -> Result<RxSkb> {
        let mut this = ManuallyDrop::new(self);
        let Self {
            len,
            sge,
            parts,
            pool,
            mapping,
            ..
        } = &mut *this;
        // INVARIANT: The elements refer to the new parts, which are mapped, and are exchanged for
        // the old ones whenever that says so.
        //
        // SAFETY: As in `head`; the slot's buffer is of the pool by the type invariant of `Memory`.
        let skb = unsafe { pool.exchange(context, parts, *len, packet, Elements { sge, mapping }) };
        if skb.is_err() {
            this.give_back();
        }
        skb
    }

    /// Ends what the CPU was lent, unless the part is another one now: that cannot be at the same
    /// address, since it was mapped before this one was unmapped.
    #[inline]
    fn give_back(&self) {
        if self.lent == Some(self.sge[0].addr) {
            self.mapping
                .sync(self.sge, 0, self.len.min(HEAD_LEN), false);
        }
    }
}

impl Drop for RcReceived<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lent.is_some() {
            self.give_back();
        }
    }
}

/// A buffer and the work request that posts it.
struct Slot {
    wr: bindings::ib_recv_wr,
    sge: [bindings::ib_sge; MAX_PARTS],
    parts: Parts,
}

impl Slot {
    #[inline]
    fn id(&self) -> u64 {
        // SAFETY: Every view of the union is plain octets.
        unsafe { self.wr.__bindgen_anon_1.wr_id }
    }
}

/// Work requests that are to be posted.
///
/// Each gets the next generation, the upper half of its identifier. The lower half is the slot's
/// index. So an old completion is told from a new one, and what was posted from what only will be.
///
/// # Invariants
///
/// * `first` to `last` are the work requests of the chained slots, linked, unless `first` is null;
///   the last one's link is null.
/// * Their generations are those after `posted`, up to `generation`.
struct Chain {
    first: *mut bindings::ib_recv_wr,
    last: *mut bindings::ib_recv_wr,
    generation: u32,
    posted: u32,
}

impl Chain {
    /// Adds a slot with index `index` that is neither chained nor posted.
    #[inline]
    fn push(&mut self, slot: &mut Slot, index: usize) {
        self.generation = self.generation.wrapping_add(1);
        let wr = &mut slot.wr;
        wr.__bindgen_anon_1.wr_id = u64::from(self.generation) << 32 | index as u64;
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

    /// Whether the slot whose identifier this is is not chained, so that the device may have it.
    ///
    /// Of a slot that was posted 2^32 receives ago, it may say that it is not.
    #[inline]
    fn is_posted(&self, id: u64) -> bool {
        self.generation.wrapping_sub((id >> 32) as u32) >= self.generation.wrapping_sub(self.posted)
    }

    /// How many receives were posted since that of the slot whose identifier this is.
    fn age(&self, id: u64) -> u32 {
        self.posted.wrapping_sub((id >> 32) as u32)
    }

    /// What the device did with the chain: it has all, or all in front of `bad` if it refused some.
    #[inline]
    fn settle(&mut self, err: c_int, bad: *const bindings::ib_recv_wr) -> Result {
        if err != 0 {
            return self.refused(err, bad);
        }
        // INVARIANT: The device has what was chained.
        self.first = ptr::null_mut();
        self.posted = self.generation;
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
        self.posted = if wr.is_null() {
            self.generation
        } else {
            // SAFETY: As above; every view of the union is plain octets.
            let id = unsafe { (*wr).__bindgen_anon_1.wr_id };
            ((id >> 32) as u32).wrapping_sub(1)
        };
        to_result(err.min(0))
    }
}

/// How buffers are mapped for DMA.
struct Mapping {
    /// Not at all: the device uses the CPU's addresses.
    virt_dma: bool,
    /// Octets that each part takes.
    lens: [usize; MAX_PARTS],
    pd: Arc<Pd>,
}

impl Mapping {
    /// Maps the first `n` parts of a buffer, or none.
    #[inline]
    fn map(&self, parts: &Parts, n: usize) -> Option<[u64; MAX_PARTS]> {
        if self.virt_dma {
            Self::map_virt(parts, n)
        } else {
            self.map_dma(parts, n)
        }
    }

    /// The same where addresses are the CPU's.
    #[inline(always)]
    fn map_virt(parts: &Parts, n: usize) -> Option<[u64; MAX_PARTS]> {
        let mut addrs = [0; MAX_PARTS];
        for (i, addr) in addrs.iter_mut().enumerate().take(n) {
            *addr = parts.part(i)?.as_ptr() as u64;
        }
        Some(addrs)
    }

    #[inline(never)]
    fn map_dma(&self, parts: &Parts, n: usize) -> Option<[u64; MAX_PARTS]> {
        let mut addrs = [0; MAX_PARTS];
        for i in 0..n {
            let mut failed = true;
            if let Some(va) = parts.part(i) {
                // SAFETY: The device is registered, and the part takes that much.
                addrs[i] = unsafe {
                    bindings::ipoib_rs_ib_map_rx(
                        self.pd.device().as_raw(),
                        va.as_ptr().cast(),
                        self.lens[i],
                        &raw mut failed,
                    )
                };
            }
            if failed {
                // SAFETY: So many were mapped just now, and nobody knows of them.
                unsafe { self.unmap(addrs, i, false) };
                return None;
            }
        }
        Some(addrs)
    }

    /// Unmaps `n` parts; if the CPU was lent the head, what is there stays as it was seen.
    ///
    /// # Safety
    ///
    /// `map` must have mapped the parts there. The device must not have them, and they must not be
    /// unmapped again.
    #[inline]
    unsafe fn unmap(&self, addrs: [u64; MAX_PARTS], n: usize, lent: bool) {
        if self.virt_dma {
            return;
        }
        let device = self.pd.device().as_raw();
        for (i, (addr, len)) in addrs.into_iter().zip(self.lens).take(n).enumerate() {
            // SAFETY: The device is registered; the rest by this function's requirements.
            unsafe { bindings::ipoib_rs_ib_unmap_rx(device, addr, len, lent && i == 0) };
        }
    }

    /// Lends the CPU the head of a message of `len` octets, which the device has no more; says where that
    /// is mapped, if it is.
    #[inline]
    fn lend(&self, sge: &[bindings::ib_sge; MAX_PARTS], len: usize) -> Option<u64> {
        if self.virt_dma {
            return None;
        }
        self.sync(sge, 0, len.min(HEAD_LEN), true);
        Some(sge[0].addr)
    }

    /// Lends the CPU the first `len` octets of a part that the device has no more, and gives them back.
    #[inline]
    fn sync(&self, sge: &[bindings::ib_sge], part: usize, len: usize, for_cpu: bool) {
        match sge.get(part) {
            Some(sge) if !self.virt_dma && len <= sge.length as usize => {
                let raw = self.pd.device().as_raw();
                // SAFETY: The device is registered, and the part is mapped there for that much.
                unsafe { bindings::ipoib_rs_ib_sync_rx(raw, sge.addr, len, for_cpu) };
            }
            _ => {}
        }
    }
}

/// The elements of a slot, whose buffer's parts are exchanged.
struct Elements<'a> {
    sge: &'a mut [bindings::ib_sge; MAX_PARTS],
    mapping: &'a Mapping,
}

impl Exchange for Elements<'_> {
    #[inline(always)]
    fn is_direct(&self) -> bool {
        self.mapping.virt_dma
    }

    #[inline(always)]
    fn follow(&mut self, parts: &Parts) {
        for (sge, at) in self.sge.iter_mut().zip(parts.all()) {
            sge.addr = at as u64;
        }
    }

    fn take(&mut self, new: &Parts, n: usize) -> bool {
        if !self.mapping.virt_dma {
            return self.take_mapped(new, n);
        }
        match Mapping::map_virt(new, n) {
            Some(addrs) => {
                self.set(addrs, n);
                true
            }
            None => false,
        }
    }

    fn read(&mut self, part: usize, len: usize) {
        self.mapping.sync(self.sge, part, len, true);
    }

    fn leave(&mut self, part: usize, len: usize) {
        self.mapping.sync(self.sge, part, len, false);
    }
}

impl Elements<'_> {
    fn set(&mut self, addrs: [u64; MAX_PARTS], n: usize) {
        for (sge, addr) in self.sge.iter_mut().zip(addrs).take(n) {
            sge.addr = addr;
        }
    }

    /// `take` for a device that maps; kept apart, so that what needs no mapping saves no registers for this.
    #[inline(never)]
    fn take_mapped(&mut self, new: &Parts, n: usize) -> bool {
        let Some(addrs) = self.mapping.map_dma(new, n) else {
            return false;
        };
        // SAFETY: The slot's parts are mapped by the type invariant of `Memory`, and not the device's any
        // more. The elements refer to the new ones from now on.
        unsafe { self.mapping.unmap(self.sge.map(|sge| sge.addr), n, true) };
        self.set(addrs, n);
        true
    }
}

/// What a ring leaves behind.
///
/// # Invariants
///
/// * `slots` never moves its elements. Their buffers are of `pool`. A slot's work request refers to the
///   slot's elements, and those to all parts of the slot's buffer, which are mapped.
/// * The slots complete on the completion queue of `claim`.
/// * Who drops it knows that the device has none of it.
struct Memory {
    slots: KVec<Slot>,
    /// Behind `slots`: a pool that is given up before its memory has come back looks for it once a second
    /// only, and keeps what has come meanwhile.
    pool: PartsPool,
    mapping: Mapping,
    claim: Claim,
}

// SAFETY: The pointers are to the memory's own slots; all else is `Send`.
unsafe impl Send for Memory {}

impl Memory {
    /// Handles a completion: what was received, if it is a message. The slot is chained again, but not
    /// posted before the caller says so, who has the message until then.
    #[inline(always)]
    fn complete(
        &mut self,
        wc: &bindings::ib_wc,
        chain: &mut Chain,
        report: &mut ReceiveReport,
        failed: impl FnOnce(QpKey),
    ) -> Option<RcReceived<'_>> {
        let id = wr_id(wc);
        let index = id as u32 as usize;
        let Memory {
            slots,
            mapping,
            pool,
            ..
        } = self;
        let slot = match slots.get_mut(index) {
            Some(slot) if slot.id() == id && chain.is_posted(id) => slot,
            _ => {
                report.count(|report| &mut report.unknown);
                return None;
            }
        };
        // INVARIANT: A completed receive is not the device's any more; it is chained.
        chain.push(slot, index);
        let qp = QpKey::of(wc.qp);
        if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
            count_failure(wc.status, report);
            failed(qp);
            return None;
        }
        // Some devices say that there is a GRH in front of the message. There never is.
        let len = wc.byte_len as usize;
        // An RDMA write with immediate data takes a receive, too, and puts nothing there.
        if wc.opcode != bindings::ib_wc_opcode_IB_WC_RECV || len > pool.capacity() {
            report.count(|report| &mut report.malformed);
            return None;
        }
        let Slot { sge, parts, .. } = slot;
        Some(RcReceived {
            qp,
            len,
            lent: mapping.lend(sge, len),
            sge,
            parts,
            pool,
            mapping,
        })
    }
}

impl Left for Memory {
    fn abandon(&mut self) {
        core::mem::forget(core::mem::take(&mut self.slots));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for slot in &self.slots {
            let n = slot.wr.num_sge as usize;
            // SAFETY: Mapped by the type invariant, and the device has none of it.
            unsafe { self.mapping.unmap(slot.sge.map(|sge| sge.addr), n, false) };
        }
    }
}

/// The receive ring of a shared receive queue.
///
/// # Invariants
///
/// * A slot is chained, or the device may have its buffer.
/// * `late` has an element for every slot. If it is the slot's identifier, the slot was overtaken.
/// * `wcs` has [`Self::BATCH`] elements.
/// * `post_recv` is the operation of the shared receive queue's device, and `raw_srq` the queue.
/// * The ring has claimed `srq`, and posts to it what `memory` holds, which nobody drops before
///   that is destroyed.
pub struct SrqRing {
    memory: ManuallyDrop<Memory>,
    wcs: KVec<bindings::ib_wc>,
    chain: Chain,
    post_recv: PostFn,
    raw_srq: *mut bindings::ib_srq,
    report: ReceiveReport,
    late: KVec<u64>,
    overtaken: usize,
    /// The generation that was posted last when slots were looked at for being overtaken.
    looked: u32,
    /// How many receives are posted after that of a slot until that is.
    old: u32,
    /// Where `memory` goes.
    place: Option<KBox<MaybeUninit<Memory>>>,
    cq: Arc<Cq>,
    srq: Arc<Srq>,
}

// SAFETY: The pointers are to the ring's own slots and the queue it holds; all else is `Send`.
unsafe impl Send for SrqRing {}

impl SrqRing {
    /// Makes the receive ring of `srq`, with `size` buffers of `pool`'s. All queue pairs that
    /// receive from it complete on `cq`.
    ///
    /// There is one ring in the life of a shared receive queue, and the completion queue is the
    /// ring's until the shared receive queue is destroyed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is 0, or more than the shared receive queue or the completion queue take,
    /// or than 65536, or buffers have more parts than a receive has elements, or queue pairs of
    /// `srq` complete on another queue; `EBUSY` if either queue has a ring, or `srq` had one;
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it.
    pub fn new(srq: &Arc<Srq>, cq: &Arc<Cq>, pool: PartsPool, size: u32) -> Result<Self> {
        let parts = pool.parts();
        if size == 0
            || size > srq.max_wr()
            || size > cq.entries()
            || size > MAX_SIZE
            || parts > srq.max_sge() as usize
            || parts > MAX_PARTS
        {
            return Err(EINVAL);
        }
        let n = size as usize;
        let pd = srq.pd();
        // SAFETY: The device is registered; its operations are constant.
        let ops = unsafe { &(*pd.device().as_raw()).ops };
        let post_recv = ops.post_srq_recv.ok_or(EOPNOTSUPP)?;
        srq.bind(cq)?;
        let claim = cq.claim()?;
        let generation = claim.next;
        let mut lens = [0; MAX_PARTS];
        for (i, len) in lens.iter_mut().enumerate() {
            *len = pool.part_len(i);
        }

        let mut wcs = KVec::with_capacity(Self::BATCH, GFP_KERNEL)?;
        for _ in 0..Self::BATCH {
            wcs.push(bindings::ib_wc::default(), GFP_KERNEL)?;
        }
        let mut late = KVec::with_capacity(n, GFP_KERNEL)?;
        let place = KBox::new_uninit(GFP_KERNEL)?;
        // The slots come one by one as they are mapped, so that dropping the memory unmaps what is.
        let mut memory = Memory {
            slots: KVec::with_capacity(n, GFP_KERNEL)?,
            pool,
            mapping: Mapping {
                virt_dma: pd.device().virt_dma(),
                lens,
                pd: pd.clone(),
            },
            claim,
        };
        for _ in 0..n {
            let buf = memory.pool.alloc_sleeping().ok_or(ENOMEM)?;
            let addrs = memory.mapping.map(&buf, parts).ok_or(EIO)?;
            let mut slot = Slot {
                wr: bindings::ib_recv_wr {
                    num_sge: parts as c_int,
                    ..Default::default()
                },
                sge: [bindings::ib_sge {
                    lkey: pd.local_dma_lkey(),
                    ..Default::default()
                }; MAX_PARTS],
                parts: buf,
            };
            for (sge, (addr, len)) in slot.sge.iter_mut().zip(addrs.into_iter().zip(lens)) {
                sge.addr = addr;
                sge.length = len as u32;
            }
            // There is room for it, so that it does not fail with the buffer mapped.
            memory.slots.push(slot, GFP_KERNEL)?;
        }
        let mut chain = Chain {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            generation,
            posted: generation,
        };
        for (index, slot) in memory.slots.iter_mut().enumerate() {
            // INVARIANT: The slots do not move any more.
            slot.wr.sg_list = slot.sge.as_mut_ptr();
            chain.push(slot, index);
            late.push(u64::MAX, GFP_KERNEL)?;
        }
        srq.claim()?;
        // INVARIANT: All slots are chained; no slot has the identifier of those that are late.
        Ok(Self {
            memory: ManuallyDrop::new(memory),
            wcs,
            chain,
            post_recv,
            raw_srq: srq.as_raw(),
            report: ReceiveReport::default(),
            late,
            overtaken: 0,
            looked: generation,
            old: OVERTAKEN * size,
            place: Some(place),
            cq: cq.clone(),
            srq: srq.clone(),
        })
    }

    /// How many buffers it has.
    pub fn size(&self) -> u32 {
        self.late.len() as u32
    }

    /// Octets that a buffer takes.
    pub fn capacity(&self) -> usize {
        self.memory.pool.capacity()
    }

    /// Octets of memory that a buffer costs.
    pub fn buf_cost(&self) -> usize {
        self.memory.pool.buf_cost()
    }

    /// Posts all buffers that the device does not have.
    ///
    /// # Errors
    ///
    /// Whatever the device says; what it refused is posted at the next poll, or the next fill.
    ///
    /// # Context
    ///
    /// Process context, without NAPI.
    pub fn fill(&mut self) -> Result {
        self.post_chain()
    }

    /// How many slots have not completed while others were posted more than four times as often as
    /// there are slots. A queue pair took them with it, or waits for the rest of a message; only
    /// the latter come back.
    ///
    /// That is known only while something is received: should queue pairs take all slots with them,
    /// nothing is, and this stays as it is. Each can take one.
    pub fn overtaken(&self) -> usize {
        self.overtaken
    }

    /// Whether a poll may have something to do: completions of which there was an event, or what the
    /// device refused.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.cq.is_quiet() || !self.chain.first.is_null()
    }

    /// Takes up to `most` completions, or as many as one call can, and says how many: what the NAPI
    /// budget is charged with. [`Self::message`] shows what they are, and [`Self::post`] comes after that.
    ///
    /// # Context
    ///
    /// Softirq, or process context without NAPI.
    #[inline]
    pub fn fetch(&mut self, most: usize) -> usize {
        self.cq.poll(&mut self.wcs, most).len()
    }

    /// The most that [`Self::fetch`] takes: all that a poll may do.
    pub const BATCH: usize = MAX_BUDGET as usize;

    /// What completion `i` of those that were fetched last has brought, if it is a message that was not
    /// shown before. `failed` is told if it says that a queue pair is in error.
    #[inline(always)]
    pub fn message(&mut self, i: usize, failed: impl FnOnce(QpKey)) -> Option<RcReceived<'_>> {
        let Self {
            memory,
            chain,
            wcs,
            report,
            ..
        } = self;
        memory.complete(wcs.get(i)?, chain, report, failed)
    }

    /// Posts again what was received.
    #[inline]
    pub fn post(&mut self) {
        // What is refused is posted the next time.
        let _ = self.post_chain();
        if self.chain.posted.wrapping_sub(self.looked) >= self.old {
            self.look();
        }
    }

    /// What became of the completions since the last time that brought nothing; None if all did.
    #[inline]
    pub fn take_report(&mut self) -> Option<ReceiveReport> {
        self.report.take()
    }

    /// Notes which slots were overtaken.
    ///
    /// What is noted stays so until the slot is posted again. So it does no harm that ages begin
    /// anew after 2^32 receives: this runs far more often.
    #[cold]
    fn look(&mut self) {
        self.overtaken = 0;
        for (slot, late) in self.memory.slots.iter().zip(&mut self.late) {
            let id = slot.id();
            if self.chain.is_posted(id) && self.chain.age(id) > self.old {
                *late = id;
            }
            if *late == id {
                self.overtaken += 1;
            }
        }
        self.looked = self.chain.posted;
    }

    /// Posts what is to be posted.
    #[inline]
    fn post_chain(&mut self) -> Result {
        let first = self.chain.first;
        if first.is_null() {
            return Ok(());
        }
        // Some drivers leave this alone when they refuse all.
        let mut bad: *const bindings::ib_recv_wr = first;
        // A completion cannot be seen before this call returns: only we poll. So it is early enough
        // to note afterwards what was posted.
        //
        // SAFETY: The queue is valid, the chain is complete, and the buffers that it refers to are
        // owned by their slots until the device has completed them or the queue is destroyed.
        let err = unsafe { (self.post_recv)(self.raw_srq, first, &raw mut bad) };
        self.chain.settle(err, bad)
    }

    /// Asks for an event at the next completion. True: poll again, there may be some already.
    #[inline]
    pub fn arm(&self) -> bool {
        self.cq.arm()
    }
}

#[cold]
fn count_failure(status: bindings::ib_wc_status, report: &mut ReceiveReport) {
    if status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
        report.count(|report| &mut report.flushed);
    } else {
        report.count(|report| &mut report.errors);
    }
}

impl Drop for SrqRing {
    fn drop(&mut self) {
        self.memory.claim.next = self.chain.generation;
        // SAFETY: It is not used again.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        match self.place.take() {
            Some(place) => {
                let memory = KBox::write(place, memory);
                self.srq.keep(memory);
            }
            // There is a place until here.
            None => core::mem::forget(memory),
        }
    }
}
