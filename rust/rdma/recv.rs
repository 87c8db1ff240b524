// SPDX-License-Identifier: GPL-2.0

//! The receive ring of a UD queue pair.
//!
//! Every slot always has a buffer. When the device has filled one, a new buffer takes its place before the
//! filled one is passed on; without memory for a new one, the frame is dropped and its buffer posted again.
//! So the ring never runs empty for want of memory.

use core::mem::{ManuallyDrop, MaybeUninit};

use ipoib_netdev::napi::{Binding, Context, MAX_BUDGET};
use ipoib_netdev::page_pool::{PagePool, RxBuf};
use ipoib_rings::generations::Generations;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::cq::{wr_id, Claim};
use crate::device::Device;
use crate::flush_time::FlushTime;
use crate::left::Left;
use crate::qp::{QpState, UdQp};
use crate::recv_chain::{PostFn, RecvChain, RecvWr};

mod received;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub use received::{Completion, NetworkHeader, Receive, ReceiveReport, Received};

/// Bytes that a receive begins with on a UD queue pair, whether they hold a GRH or not.
pub const GRH_LEN: usize = 40;

/// A buffer and the request that posts it, which comes first: chains refer to it. They have a cache line of their own.
#[repr(C, align(64))]
struct Slot<const LEAD: usize> {
    wr: RecvWr,
    sge: bindings::ib_sge,
    buf: RxBuf<LEAD>,
}

impl<const LEAD: usize> Slot<LEAD> {
    /// Handles a receive that has failed, as `wc` says.
    #[cold]
    fn fail(
        &mut self,
        index: usize,
        wc: &bindings::ib_wc,
        chain: &mut RecvChain,
        report: &mut ReceiveReport,
    ) {
        if wc.status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
            // Posted again, it would only be flushed again.
            self.wr.set_idle();
            report.count(|report| &mut report.flushed);
            return;
        }
        report.count(|report| &mut report.errors);
        // SAFETY: The receive has completed. The slot stays, and is not changed while it is chained.
        unsafe { chain.push(&mut self.wr, index) };
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
    fn address<const LEAD: usize>(&self, buf: &RxBuf<LEAD>) -> u64 {
        if self.virt_dma {
            buf.data().as_ptr() as u64
        } else {
            buf.dma()
        }
    }

    /// Gives the CPU the first `len` bytes of the buffer at `addr`, which the device has no more. Returns where it finds
    /// `new`, which it gets instead.
    ///
    /// # Safety
    ///
    /// [`Self::address`] must have returned `addr`, of a buffer that takes `len` bytes and still is there.
    #[inline(always)]
    unsafe fn exchange<const LEAD: usize>(&self, addr: u64, len: u32, new: &RxBuf<LEAD>) -> u64 {
        if !self.virt_dma {
            let dev = self.device.as_raw();
            // SAFETY: The device is registered; the rest by this function's requirements.
            unsafe { bindings::ipoib_rs_ib_sync_rx(dev, addr, len as usize, true) };
            return new.dma();
        }
        new.data().as_ptr() as u64
    }
}

/// Memory that the device may reach, and all that belongs to it.
///
/// # Invariants
///
/// * `slots` never moves its elements. A slot's work request refers to the slot's one element, and that
///   to the slot's buffer, which `pool` maps for the device. Its length is at most
///   the capacity of each buffer of `pool`.
/// * When it is dropped, the device has none of the buffers.
struct Memory<const LEAD: usize> {
    slots: KVVec<Slot<LEAD>>,
    /// In front of `mapping`, which holds the device.
    pool: PagePool<LEAD>,
    mapping: Mapping,
    claim: Claim,
}

// SAFETY: The pointers are to the slots; all else is `Send`.
unsafe impl<const LEAD: usize> Send for Memory<LEAD> {}

impl<const LEAD: usize> Memory<LEAD> {
    /// Makes `n` slots, for which there is room, each with a buffer to which an element like `sge` refers.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn fill_slots(&mut self, n: usize, sge: bindings::ib_sge) -> Result {
        for _ in 0..n {
            let buf = self.pool.alloc_sleeping().ok_or(ENOMEM)?;
            let slot = Slot {
                wr: RecvWr::new(1),
                sge: bindings::ib_sge {
                    addr: self.mapping.address(&buf),
                    ..sge
                },
                buf,
            };
            self.slots.push(slot, GFP_KERNEL)?;
        }
        for slot in &mut self.slots {
            // INVARIANT: The slots do not move any more.
            slot.wr.set_elements(&raw mut slot.sge);
        }
        Ok(())
    }
}

impl<const LEAD: usize> Left for Memory<LEAD> {
    fn abandon(&mut self) {
        core::mem::forget(core::mem::take(&mut self.slots));
        self.pool.keep_mapped();
    }
}

/// The buffers of a queue pair, those that it has and those that it is to have.
///
/// # Invariants
///
/// * There is a power of two of slots. A slot's request is idle or in `chain`, or the device may have its
///   buffer.
/// * `raw_qp` is `qp`, and `post_recv` the operation of its device.
struct Buffers<const LEAD: usize> {
    memory: ManuallyDrop<Memory<LEAD>>,
    chain: RecvChain,
    raw_qp: *mut bindings::ib_qp,
    post_recv: PostFn<bindings::ib_qp>,
    /// The queue pair's epoch at the last post since a drain, if any.
    posted: Option<u32>,
    qp: Arc<UdQp>,
}

// SAFETY: The pointers are to the slots and to the queue pair; all else is `Send`.
unsafe impl<const LEAD: usize> Send for Buffers<LEAD> {}

/// The receive ring. Its buffers are laid out for packets behind `LEAD` bytes: [`GRH_LEN`], and the header of a
/// protocol on top.
///
/// # Examples
///
/// `samples/ud_loopback.rs` fills one, and waits for a datagram.
///
/// # Invariants
///
/// `wcs` has an element at least.
pub struct RecvRing<const LEAD: usize> {
    buffers: Buffers<LEAD>,
    wcs: KVec<bindings::ib_wc>,
    report: ReceiveReport,
    /// Place for the buffers if the device may still reach them when the ring is dropped.
    place: ManuallyDrop<KBox<MaybeUninit<Memory<LEAD>>>>,
}

// SAFETY: The completions refer to nothing that is used but as a number; all else is `Send`.
unsafe impl<const LEAD: usize> Send for RecvRing<LEAD> {}

impl<const LEAD: usize> Buffers<LEAD> {
    /// Handles a completion.
    // For every datagram; left to itself, the compiler calls it.
    #[inline(always)]
    fn complete<'a>(
        &mut self,
        wc: &'a bindings::ib_wc,
        report: &mut ReceiveReport,
        alloc: impl FnOnce(&mut PagePool<LEAD>) -> Option<RxBuf<LEAD>>,
    ) -> Option<Received<'a, LEAD>> {
        let Self { memory, chain, .. } = self;
        let Memory {
            slots,
            mapping,
            pool,
            ..
        } = &mut **memory;
        let id = wr_id(wc);
        let index = id as u32 as usize;
        let slot = match slots.get_mut(index) {
            Some(slot) if slot.wr.id() == id && chain.is_posted(id) => slot,
            _ => {
                report.count(|report| &mut report.unknown);
                return None;
            }
        };
        // INVARIANT: A completed receive is not the device's any more; unless it failed, it is
        // chained below.
        if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
            slot.fail(index, wc, chain, report);
            return None;
        }
        let Some(new) = alloc(pool) else {
            report.count(|report| &mut report.no_buffer);
            // SAFETY: The receive has completed. The slot stays, and is not changed while it is chained.
            unsafe { chain.push(&mut slot.wr, index) };
            return None;
        };
        let len = wc.byte_len;
        if len > slot.sge.length {
            report.count(|report| &mut report.malformed);
            // SAFETY: As above.
            unsafe { chain.push(&mut slot.wr, index) };
            return None;
        }
        // SAFETY: The element is the slot's buffer by the invariant; `len` is at most its length.
        //
        // INVARIANT: The element refers to the new buffer.
        slot.sge.addr = unsafe { mapping.exchange(slot.sge.addr, len, &new) };
        let buf = core::mem::replace(&mut slot.buf, new);
        // SAFETY: As above.
        unsafe { chain.push(&mut slot.wr, index) };
        // SAFETY: The slots' buffers are the pool's. The receive has succeeded, and `len` is at most the element's
        // length, so the pool's.
        let buf = unsafe { pool.filled(buf, len) };
        Some(Received::new(buf, wc))
    }
}

impl<const LEAD: usize> Buffers<LEAD> {
    /// Posts the chain.
    #[inline]
    fn post(&mut self) -> Result {
        if self.chain.is_empty() {
            return Ok(());
        }
        let (post_recv, qp) = (self.post_recv, self.raw_qp);
        // SAFETY: The queue pair is valid, the chain is complete, and the buffers that it refers to
        // are owned by their slots until the device has completed them, or the queue pair is reset or
        // destroyed.
        let post = |first, bad| unsafe { post_recv(qp, first, bad) };
        let result = self.chain.post(post);
        self.posted = Some(self.qp.epoch());
        result
    }

    /// Handles a completion whose receive is not to be posted again.
    #[cold]
    fn discard(&mut self, wc: &bindings::ib_wc, report: &mut ReceiveReport) {
        let id = wr_id(wc);
        let slot = self.memory.slots.get_mut(id as u32 as usize);
        match slot.filter(|slot| slot.wr.id() == id) {
            // INVARIANT: A completed receive is not the device's any more.
            Some(slot) => slot.wr.set_idle(),
            None => return report.count(|report| &mut report.unknown),
        }
        let counter: fn(&mut ReceiveReport) -> &mut u32 = match wc.status {
            bindings::ib_wc_status_IB_WC_SUCCESS => |report| &mut report.stopped,
            bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR => |report| &mut report.flushed,
            _ => |report| &mut report.errors,
        };
        report.count(counter);
    }
}

impl<const LEAD: usize> RecvRing<LEAD> {
    /// Makes the receive ring of `qp`, with `size` (a power of two) buffers of `buf_len` bytes.
    ///
    /// A buffer takes the 40 bytes in front of every datagram too.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is no power of two, or more than the queue pair or its completion queue
    /// take, or than 2^16, or the buffers are not longer than 40 bytes; `EBUSY` if the completion queue
    /// has a ring; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it, which resets the queue pair if something
    /// is posted.
    pub fn new(qp: &Arc<UdQp>, buf_len: usize, size: u32) -> Result<Self> {
        if !size.is_power_of_two()
            || size > qp.caps().recv_wr
            || size > qp.recv_cq().entries()
            || size > Generations::MOST
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
        // A poll posts its buffers again at its end: not all of a small ring's are to be with the CPU until then.
        let most = (n / 2).clamp(1, MAX_BUDGET as usize);
        let wcs = KVec::from_elem(bindings::ib_wc::default(), most, GFP_KERNEL)?;
        let slots = KVVec::with_capacity(n, GFP_KERNEL)?;
        let place = KBox::new_uninit(GFP_KERNEL)?;
        let claim = qp.recv_cq().claim()?;
        let chain = RecvChain::after(claim.next)?;
        // INVARIANT: There is no slot yet, and nothing is chained or posted.
        let mut ring = Self {
            buffers: Buffers {
                chain,
                raw_qp: qp.as_raw(),
                post_recv,
                posted: None,
                qp: qp.clone(),
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
            report: ReceiveReport::default(),
            place: ManuallyDrop::new(place),
        };
        ring.buffers.memory.fill_slots(n, sge)?;
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
            if slot.wr.is_idle() {
                // SAFETY: The slot stays, and is not changed while it is chained.
                unsafe { self.buffers.chain.push(&mut slot.wr, index) };
            }
        }
        self.buffers.post()
    }

    /// Returns true if a poll may have something to do: completions of which there was an event, or what the
    /// device refused.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.buffers.qp.recv_cq().is_quiet() || !self.buffers.chain.is_empty()
    }

    /// The most completions that one call of [`Self::poll`] takes: there may be more if it has taken as many.
    #[inline]
    pub fn batch(&self) -> usize {
        self.wcs.len()
    }

    /// Takes up to `budget` completions, but no more than a [batch](Self::batch), and passes their datagrams to `to`.
    /// Returns the number of completions, which counts against the NAPI budget.
    // The one caller has saved all registers already.
    #[inline(always)]
    pub fn poll(
        &mut self,
        context: &Context<'_>,
        budget: usize,
        to: &mut impl Receive<LEAD>,
    ) -> usize {
        self.poll_with(budget, |pool| pool.alloc(context), to)
    }

    /// Takes some completions, as [`Self::poll`] does.
    ///
    /// # Context
    ///
    /// Process context, without NAPI; may sleep.
    pub fn poll_sleeping(&mut self, mut f: impl FnMut(Received<'_, LEAD>)) -> usize {
        self.poll_with(usize::MAX, PagePool::alloc_sleeping, &mut f)
    }

    /// Takes up to `most` completions, with new buffers by `alloc`, and posts what is chained.
    #[inline(always)]
    fn poll_with(
        &mut self,
        most: usize,
        alloc: impl Fn(&mut PagePool<LEAD>) -> Option<RxBuf<LEAD>>,
        to: &mut impl Receive<LEAD>,
    ) -> usize {
        let Self {
            buffers,
            wcs,
            report,
            ..
        } = self;
        let wcs = buffers.qp.recv_cq().poll(wcs, most);
        to.begin(wcs.len());
        for wc in wcs {
            if let Some(received) = buffers.complete(wc, report, &alloc) {
                to.receive(received);
            }
        }
        let n = wcs.len();
        if buffers.post().is_err() {
            report.count(|report| &mut report.refused);
        }
        n
    }

    /// Takes the counts of receives that brought no datagram since the last call; None if there were none.
    #[inline]
    pub fn take_report(&mut self) -> Option<ReceiveReport> {
        self.report.take()
    }

    /// Takes all buffers back and resets the queue pair, which has some `time` to flush them. That drops sends as
    /// well: drain that ring first.
    ///
    /// Datagrams that were received and not polled are dropped; [`Self::fill`] makes the ring usable again. Adds the
    /// number of completions to `done`; [`Self::take_report`] says what they were.
    ///
    /// # Errors
    ///
    /// The queue pair could not be reset, and the ring keeps what the device may still use.
    ///
    /// # Context
    ///
    /// Process context, with NAPI disabled; may sleep.
    pub fn drain(&mut self, time: &mut FlushTime<'_>, done: &mut usize) -> Result {
        // Nothing must be posted from here on.
        //
        // INVARIANT: The chain is empty, and its slots are idle.
        for slot in &mut self.buffers.memory.slots {
            if !self.buffers.chain.is_posted(slot.wr.id()) {
                slot.wr.set_idle();
            }
        }
        self.buffers.chain.clear();
        let qp = self.buffers.qp.clone();
        if qp.state() != Ok(QpState::Reset) && qp.to_error().is_ok() {
            loop {
                *done += self.discard();
                let mut slots = self.buffers.memory.slots.iter();
                if slots.all(|slot| slot.wr.is_idle()) || !time.wait() {
                    break;
                }
            }
        }
        qp.to_reset(self.buffers.posted)?;
        self.buffers.posted = None;
        *done += self.discard();
        for slot in &mut self.buffers.memory.slots {
            // INVARIANT: A queue pair that was reset has nothing.
            slot.wr.set_idle();
        }
        Ok(())
    }

    /// Takes all completions there are, without posting anything again. Says how many.
    fn discard(&mut self) -> usize {
        let (mut done, most) = (0, self.wcs.len());
        // That many there may be at most, whatever the device says.
        while done < self.buffers.qp.recv_cq().entries() as usize {
            let wcs = self.buffers.qp.recv_cq().poll(&mut self.wcs, most);
            for wc in wcs {
                self.buffers.discard(wc, &mut self.report);
            }
            done += wcs.len();
            if wcs.len() < most {
                break;
            }
        }
        done
    }
}

impl<const LEAD: usize> Drop for RecvRing<LEAD> {
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
        let posted = |slot: &Slot<LEAD>| !slot.wr.is_idle() && chain.is_posted(slot.wr.id());
        if memory.slots.iter().any(posted) && self.buffers.qp.to_reset(self.buffers.posted).is_err()
        {
            // The device may still write the buffers, and complete them: all of it stays until the queue
            // pair is destroyed, and no other ring has the completion queue before.
            let memory = KBox::write(place, memory);
            self.buffers.qp.keep(memory);
        }
        // INVARIANT: Otherwise nothing is posted, or the queue pair was reset and has nothing.
    }
}
