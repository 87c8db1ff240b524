// SPDX-License-Identifier: GPL-2.0

//! The receive ring of a UD queue pair.
//!
//! Every slot has a buffer, always. When the device has filled one, a new buffer takes its place
//! before the filled one is given away; if there is none, the frame is dropped and its buffer is
//! posted again. So the ring never runs dry for want of memory.

use core::mem::ManuallyDrop;
use core::ptr;

use ipoib_netdev::page_pool::{PagePool, RxBuf, GRH_LEN};
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::{delay::fsleep, Delta};

use crate::cq::{wr_id, Claim, BATCH};
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
    /// The device did not say; on InfiniBand, a GRH if there is one.
    Unknown,
    /// A GRH of InfiniBand or RoCEv1.
    Grh,
    /// 20 octets of nothing and an IPv4 header.
    Ipv4,
    /// An IPv6 header, which has the layout of a GRH.
    Ipv6,
}

/// A datagram that was received.
#[must_use]
pub struct Received {
    /// Its octets, after 40 of [`NetworkHeader`].
    pub buf: RxBuf,
    /// The queue pair that sent it, as it says.
    pub src_qp: u32,
    /// Whether the first 40 octets hold anything.
    pub has_grh: bool,
    /// What they hold.
    pub network: NetworkHeader,
    /// Whether the device has verified the checksums of the IP datagram in it.
    pub csum_ok: bool,
}

/// What became of the completions that a poll took.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReceiveReport {
    /// Completions taken; what the NAPI budget is charged with.
    pub done: usize,
    /// Datagrams given to the caller.
    pub frames: u32,
    /// Datagrams dropped for want of a buffer.
    pub no_buffer: u32,
    /// Datagrams longer than their buffer or shorter than the 40 octets, as the device says.
    pub malformed: u32,
    /// Receives that failed.
    pub errors: u32,
    /// Receives given back, since the queue pair is in error; they are not posted again.
    pub flushed: u32,
    /// Completions of what is not posted; they are ignored.
    pub unknown: u32,
    /// The last status of a failure: `IB_WC_*`.
    pub status: u32,
    /// Refused posts; what was refused is posted again at the next poll.
    pub post_errors: u32,
}

/// Where a slot's buffer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Here, and not to be posted until [`RecvRing::fill`].
    Idle,
    /// Here, in the chain of what is to be posted.
    Chained,
    /// With the device.
    Posted,
}

struct Slot {
    buf: RxBuf,
    place: Place,
    /// The count of the ring's posts at the slot's last one, so that an old completion is told from
    /// a new one.
    generation: u32,
}

/// The receive ring.
///
/// # Invariants
///
/// * `slots`, `wrs` and `sges` have as many elements, a power of two, and never move them. A slot's
///   work request refers to the slot's one element, and that to the slot's buffer, which is mapped
///   for DMA.
/// * The device has the buffers of the posted slots, at most, whose work requests' identifiers are
///   their index and generation.
/// * `first` to `last` are the work requests of the chained slots, linked, unless `first` is null;
///   the last one's link is null.
/// * `claim.next` is the generation of the last slot that was chained.
/// * `wcs` has [`BATCH`] elements.
/// * `post_recv` is the operation of the queue pair's device.
pub struct RecvRing {
    slots: KVec<Slot>,
    wrs: KVec<bindings::ib_recv_wr>,
    sges: KVec<bindings::ib_sge>,
    wcs: KVec<bindings::ib_wc>,
    first: *mut bindings::ib_recv_wr,
    last: *mut bindings::ib_recv_wr,
    post_recv: PostFn,
    virt_dma: bool,
    pool: PagePool,
    claim: ManuallyDrop<Claim>,
    qp: Arc<UdQp>,
}

// SAFETY: The pointers are to the ring's own vectors; all else is `Send`.
unsafe impl Send for RecvRing {}

impl RecvRing {
    /// Makes the receive ring of `qp`, with `size` (a power of two) buffers of `pool`'s.
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
    pub fn new(qp: &Arc<UdQp>, mut pool: PagePool, size: u32) -> Result<Self> {
        if !size.is_power_of_two()
            || size > qp.caps().recv_wr
            || size > qp.recv_cq().entries()
            || qp.caps().recv_sge == 0
            || pool.buf_len() <= GRH_LEN
        {
            return Err(EINVAL);
        }
        let n = size as usize;
        let post_recv = qp.ops().post_recv.ok_or(EOPNOTSUPP)?;
        let sge = bindings::ib_sge {
            addr: 0,
            length: pool.buf_len() as u32,
            lkey: qp.pd().local_dma_lkey(),
        };
        let mut slots = KVec::with_capacity(n, GFP_KERNEL)?;
        let mut wrs = KVec::with_capacity(n, GFP_KERNEL)?;
        let mut sges = KVec::from_elem(sge, n, GFP_KERNEL)?;
        let mut wcs = KVec::with_capacity(BATCH, GFP_KERNEL)?;
        for _ in 0..BATCH {
            wcs.push(bindings::ib_wc::default(), GFP_KERNEL)?;
        }
        for sge in &mut sges {
            let wr = bindings::ib_recv_wr {
                sg_list: sge,
                num_sge: 1,
                ..Default::default()
            };
            wrs.push(wr, GFP_KERNEL)?;
            let slot = Slot {
                buf: pool.alloc_sleeping().ok_or(ENOMEM)?,
                place: Place::Idle,
                generation: 0,
            };
            slots.push(slot, GFP_KERNEL)?;
        }
        let virt_dma = qp.pd().device().virt_dma();
        let claim = qp.recv_cq().claim()?;
        // INVARIANT: As was just built, but for the mapping; nothing is posted.
        let mut ring = Self {
            slots: KVec::new(),
            wrs,
            sges,
            wcs,
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            post_recv,
            virt_dma,
            pool,
            claim: ManuallyDrop::new(claim),
            qp: qp.clone(),
        };
        // The slots come one by one as they are mapped, so that dropping the ring unmaps what is.
        for (slot, sge) in slots.drain_all().zip(&mut ring.sges) {
            sge.addr = map(&ring.qp, virt_dma, &slot.buf)?;
            ring.slots.push(slot, GFP_KERNEL)?;
        }
        Ok(ring)
    }

    /// How many buffers it has.
    pub fn size(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Octets that a buffer takes.
    pub fn buf_len(&self) -> usize {
        self.pool.buf_len()
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
        for i in 0..self.slots.len() {
            if self.slots[i].place == Place::Idle {
                self.chain(i);
            }
        }
        self.post_chain()
    }

    /// Takes up to `budget` completions, and gives what was received to `f`.
    ///
    /// # Context
    ///
    /// Softirq, or process context without NAPI.
    #[inline]
    pub fn poll(&mut self, budget: usize, mut f: impl FnMut(Received)) -> ReceiveReport {
        let mut report = ReceiveReport::default();
        while report.done < budget {
            let want = BATCH.min(budget - report.done);
            let n = self.qp.recv_cq().poll(&mut self.wcs[..want]);
            for i in 0..n {
                if let Some(received) = self.complete(i, &mut report) {
                    f(received);
                }
            }
            report.done += n;
            if self.post_chain().is_err() {
                report.post_errors = report.post_errors.wrapping_add(1);
            }
            if n < want {
                break;
            }
        }
        report
    }

    /// Handles completion `i` of the batch.
    #[inline]
    fn complete(&mut self, i: usize, report: &mut ReceiveReport) -> Option<Received> {
        let wc = &self.wcs[i];
        let id = wr_id(wc);
        let index = id as u32 as usize;
        let known = self.slots.get(index).is_some_and(|slot| {
            slot.place == Place::Posted && slot.generation == (id >> 32) as u32
        });
        if !known || !ptr::eq(wc.qp, self.qp.as_raw()) {
            report.unknown = report.unknown.wrapping_add(1);
            return None;
        }
        if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
            let status = wc.status;
            self.fail(index, status, report);
            return None;
        }
        let len = wc.byte_len;
        let has_grh = wc.wc_flags & WC_GRH != 0;
        let csum_ok = wc.wc_flags & WC_CSUM_OK != 0;
        let src_qp = wc.src_qp;
        let network = if wc.wc_flags & WC_NETWORK == 0 {
            NetworkHeader::Unknown
        } else {
            match bindings::rdma_network_type::from(wc.network_hdr_type) {
                bindings::rdma_network_type_RDMA_NETWORK_IB
                | bindings::rdma_network_type_RDMA_NETWORK_ROCE_V1 => NetworkHeader::Grh,
                bindings::rdma_network_type_RDMA_NETWORK_IPV4 => NetworkHeader::Ipv4,
                bindings::rdma_network_type_RDMA_NETWORK_IPV6 => NetworkHeader::Ipv6,
                _ => NetworkHeader::Unknown,
            }
        };
        // INVARIANT: A completed receive is not the device's any more.
        self.slots[index].place = Place::Idle;
        if len as usize > self.pool.buf_len() || (len as usize) < GRH_LEN {
            report.malformed = report.malformed.wrapping_add(1);
            self.chain(index);
            return None;
        }
        let buf = self.exchange(index);
        self.chain(index);
        let Some(mut buf) = buf else {
            report.no_buffer = report.no_buffer.wrapping_add(1);
            return None;
        };
        buf.set_len(len).ok()?;
        report.frames = report.frames.wrapping_add(1);
        Some(Received {
            buf,
            src_qp,
            has_grh,
            network,
            csum_ok,
        })
    }

    #[cold]
    fn fail(&mut self, index: usize, status: bindings::ib_wc_status, report: &mut ReceiveReport) {
        // INVARIANT: A completed receive is not the device's any more.
        self.slots[index].place = Place::Idle;
        if status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
            // Posted again, it would only be flushed again.
            report.flushed = report.flushed.wrapping_add(1);
            return;
        }
        report.errors = report.errors.wrapping_add(1);
        report.status = status;
        self.chain(index);
    }

    /// Takes the buffer out of a slot that the device does not have, if another can take its place.
    #[inline]
    fn exchange(&mut self, index: usize) -> Option<RxBuf> {
        let new = self.pool.alloc()?;
        let addr = map(&self.qp, self.virt_dma, &new).ok()?;
        self.unmap(index);
        // INVARIANT: The element refers to the new buffer, which is mapped.
        self.sges[index].addr = addr;
        Some(core::mem::replace(&mut self.slots[index].buf, new))
    }

    #[inline]
    fn unmap(&self, index: usize) {
        if self.virt_dma {
            return;
        }
        // SAFETY: The device is registered; the buffer is mapped there by the type invariant, and
        // whoever calls this knows that it is not posted.
        unsafe {
            bindings::ipoib_rs_ib_unmap_rx(
                self.qp.pd().device().as_raw(),
                self.sges[index].addr,
                self.pool.buf_len(),
            );
        }
    }

    /// Adds an idle slot to what is to be posted.
    #[inline]
    fn chain(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.place = Place::Chained;
        self.claim.next = self.claim.next.wrapping_add(1);
        slot.generation = self.claim.next;
        let wr = &mut self.wrs[index];
        wr.__bindgen_anon_1.wr_id = u64::from(slot.generation) << 32 | index as u64;
        wr.next = ptr::null_mut();
        let wr: *mut _ = wr;
        if self.first.is_null() {
            self.first = wr;
        } else {
            // SAFETY: `last` is one of our work requests by the type invariant, and nobody has a
            // reference to it.
            unsafe { (*self.last).next = wr };
        }
        self.last = wr;
    }

    /// Posts what is to be posted.
    #[inline]
    fn post_chain(&mut self) -> Result {
        if self.first.is_null() {
            return Ok(());
        }
        let first = self.first;
        // Some drivers leave this alone when they refuse all.
        let mut bad: *const bindings::ib_recv_wr = first;
        // A completion cannot be seen before this call returns: only we poll. So it is early enough
        // to note afterwards what was posted.
        //
        // SAFETY: The queue pair is valid, the chain is complete, and the buffers that it refers to
        // are owned by their slots until the device has completed them or the queue pair is reset.
        let err = unsafe { (self.post_recv)(self.qp.as_raw(), first, &raw mut bad) };
        let mut wr = first;
        self.first = ptr::null_mut();
        while !wr.is_null() {
            if err != 0 && ptr::eq(wr, bad) {
                // INVARIANT: The rest of the chain, whose last is as before.
                self.first = wr;
                break;
            }
            // SAFETY: `wr` is one of our work requests by the type invariant, and so an element of
            // `wrs`; nobody has a reference to it.
            let (index, next) = unsafe {
                (
                    wr.cast_const().offset_from(self.wrs.as_ptr()) as usize,
                    (*wr).next,
                )
            };
            // INVARIANT: The device has it; or, if it refused something but named none of ours, may
            // have it.
            self.slots[index].place = Place::Posted;
            wr = next;
        }
        to_result(err.min(0))
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
        let mut wr = core::mem::replace(&mut self.first, ptr::null_mut());
        while !wr.is_null() {
            // SAFETY: As in `post_chain`.
            let (index, next) = unsafe {
                (
                    wr.cast_const().offset_from(self.wrs.as_ptr()) as usize,
                    (*wr).next,
                )
            };
            self.slots[index].place = Place::Idle;
            wr = next;
        }
        let qp = self.qp.clone();
        if qp.state() != Ok(QpState::Reset) && qp.to_error().is_ok() {
            for _ in 0..FLUSH_MS {
                self.discard();
                if self.slots.iter().all(|slot| slot.place == Place::Idle) {
                    break;
                }
                fsleep(Delta::from_millis(1));
            }
        }
        qp.to_reset()?;
        self.discard();
        for slot in &mut self.slots {
            // INVARIANT: A queue pair that was reset has nothing.
            slot.place = Place::Idle;
        }
        Ok(())
    }

    /// Takes all completions there are, without posting anything again.
    fn discard(&mut self) {
        loop {
            let n = self.qp.recv_cq().poll(&mut self.wcs);
            for wc in &self.wcs[..n] {
                let id = wr_id(wc);
                if let Some(slot) = self.slots.get_mut(id as u32 as usize) {
                    if slot.place == Place::Posted
                        && slot.generation == (id >> 32) as u32
                        && ptr::eq(wc.qp, self.qp.as_raw())
                    {
                        // INVARIANT: A completed receive is not the device's any more.
                        slot.place = Place::Idle;
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
        if self.slots.iter().any(|slot| slot.place == Place::Posted) {
            if let Err(err) = self.qp.to_reset() {
                // The device may still write the buffers, and complete them: they must stay for
                // ever, and no other ring may have the completion queue.
                pr_err!(
                    "receive ring leaked, the queue pair cannot be reset: {:?}\n",
                    err
                );
                core::mem::forget(core::mem::take(&mut self.slots));
                return;
            }
        }
        for index in 0..self.slots.len() {
            self.unmap(index);
        }
        // SAFETY: It is not used again.
        unsafe { ManuallyDrop::drop(&mut self.claim) };
    }
}

/// The DMA address of a buffer.
#[inline]
fn map(qp: &UdQp, virt_dma: bool, buf: &RxBuf) -> Result<u64> {
    let va = buf.data().as_ptr();
    if virt_dma {
        return Ok(va as u64);
    }
    let mut failed = false;
    // SAFETY: The device is registered, and the buffer takes that much.
    let addr = unsafe {
        bindings::ipoib_rs_ib_map_rx(
            qp.pd().device().as_raw(),
            va.cast(),
            buf.capacity(),
            &raw mut failed,
        )
    };
    if failed {
        return Err(EIO);
    }
    Ok(addr)
}

const WC_GRH: c_int = bindings::ib_wc_flags_IB_WC_GRH as c_int;
const WC_CSUM_OK: c_int = bindings::ib_wc_flags_IB_WC_IP_CSUM_OK as c_int;
const WC_NETWORK: c_int = bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE as c_int;
