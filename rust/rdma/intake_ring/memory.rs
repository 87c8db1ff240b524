// SPDX-License-Identifier: GPL-2.0

//! Buffers of a receive ring, and the messages that come in them.

use core::mem::ManuallyDrop;

use ipoib_netdev::napi::Context;
use ipoib_netdev::parts::{Packet, PartsPool, HEAD_LEN};
use ipoib_netdev::skb::RxSkb;
use ipoib_sys::bindings;
use kernel::prelude::*;

use super::mapping::{Elements, Mapping};
use super::queues::{Queues, Slot};
use crate::cq::{wr_id, Claim};
use crate::left::Left;
use crate::rc::QpKey;
use crate::recv::ReceiveReport;
use crate::recv_chain::{RecvChain, RecvWr};

/// A message that was received. It is still where the device has put it, and dropped there unless
/// [`Self::into_frame`] takes it.
///
/// # Invariants
///
/// The buffer of `slot` is of `pool`, which takes `len` bytes.
pub struct RcReceived<'a> {
    /// The queue pair that received it.
    pub qp: QpKey,
    len: usize,
    /// DMA address of the head, if the head is mapped: the CPU was lent it.
    lent: Option<u64>,
    slot: &'a mut Slot,
    pool: &'a mut PartsPool,
    mapping: &'a Mapping,
}

impl RcReceived<'_> {
    /// How many bytes were received.
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
        unsafe { self.slot.parts.head(self.len) }
    }

    /// Makes an skb of it ([`PartsPool::exchange`]), with the link-layer header `link`, that is ready for
    /// [`RxSkb::poll_receive`].
    ///
    /// # Errors
    ///
    /// As that; the message is dropped.
    #[inline(always)]
    pub fn into_frame<const N: usize>(
        self,
        context: &Context<'_>,
        packet: Packet,
        link: &[u8; N],
    ) -> Result<RxSkb> {
        let mut this = ManuallyDrop::new(self);
        let Self {
            len,
            slot,
            pool,
            mapping,
            ..
        } = &mut *this;
        let Slot { sge, parts, .. } = &mut **slot;
        // INVARIANT: The elements refer to the buffer's parts, old or new, when it returns.
        //
        // SAFETY: As in `head`; the slot's buffer is of the pool, which takes that much, by the type invariant. The
        // skb gets its link-layer header below.
        let skb = unsafe { pool.exchange(context, parts, *len, packet, Elements { sge, mapping }) };
        match skb {
            Ok(mut skb) => {
                skb.set_link_header(link);
                Ok(skb)
            }
            Err(error) => {
                this.give_back();
                Err(error)
            }
        }
    }

    /// Ends what the CPU was lent, unless the part is another one now: that is not at the same address,
    /// since it was allocated before this one was given away.
    #[inline]
    fn give_back(&self) {
        let head = &self.slot.sge[0];
        if self.lent == Some(head.addr) {
            self.mapping.sync(head, self.len.min(HEAD_LEN), false);
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
impl RcReceived<'_> {
    /// Calls `is_so` with the offset and the bytes of each part. Returns true if each call does.
    ///
    /// # Safety
    ///
    /// The device must use the kernel's addresses, as soft-RoCE does.
    pub(crate) unsafe fn is_like(&self, is_so: impl Fn(usize, &[u8]) -> bool) -> bool {
        let mut at = 0;
        self.slot.sge.iter().all(|sge| {
            let len = (self.len - at).min(sge.length as usize);
            if len == 0 {
                return true;
            }
            // SAFETY: By this function's requirements the address is the kernel's: that of one of the buffer's parts, which is
            // ours while the message is, and which the device has filled that far.
            let part = unsafe { core::slice::from_raw_parts(sge.addr as *const u8, len) };
            at += len;
            is_so(at - len, part)
        })
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

/// Memory that a ring leaves behind.
///
/// # Invariants
///
/// * `slots` never moves its elements. Their buffers are of `pool`. A slot's work request refers to the
///   slot's elements, and those to all parts of the slot's buffer, which are mapped.
/// * The slots complete on the completion queue of `claim`.
/// * Who drops it knows that the device has none of it.
pub(super) struct Memory {
    pub(super) slots: KVVec<Slot>,
    /// Behind `slots`: a pool that is given up before its memory has come back looks for it once a second
    /// only, and keeps what has come meanwhile. In front of `mapping`, which holds the device.
    pub(super) pool: PartsPool,
    pub(super) mapping: Mapping,
    pub(super) claim: Claim,
}

// SAFETY: The pointers are to the memory's own slots; all else is `Send`.
unsafe impl Send for Memory {}

impl Memory {
    /// Handles a completion: what was received, if it is a message. The slot is chained again, but not
    /// posted before the caller says so, who has the message until then.
    #[inline(always)]
    pub(super) fn complete(
        &mut self,
        wc: &bindings::ib_wc,
        chain: &mut RecvChain,
        queues: Option<&mut Queues>,
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
        // INVARIANT: A completed receive is not the device's any more; it is chained, or idle.
        match slots.get_mut(index) {
            Some(slot) if slot.wr.id() == id && chain.is_posted(id) => match queues {
                // SAFETY: The receive has completed. The slot stays, and nobody changes its request while it is
                // chained.
                None => unsafe { chain.push(&mut slot.wr, index) },
                Some(queues) => {
                    let ok = wc.status == bindings::ib_wc_status_IB_WC_SUCCESS;
                    queues.completed(index, ok, slots, chain);
                }
            },
            _ => {
                report.count(|report| &mut report.unknown);
                return None;
            }
        }
        let slot = slots.get_mut(index)?;
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
        // INVARIANT: The slot's buffer is of the pool by the type invariant; the length was just checked.
        Some(RcReceived {
            qp,
            len,
            lent: mapping.lend(&slot.sge, len),
            slot,
            pool,
            mapping,
        })
    }
}

impl Memory {
    /// Makes `size` slots, each with a buffer of `pool`'s, whose requests are idle.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        pool: PartsPool,
        mapping: Mapping,
        claim: Claim,
        size: usize,
    ) -> Result<Self> {
        let mut memory = Self {
            slots: KVVec::with_capacity(size, GFP_KERNEL)?,
            pool,
            mapping,
            claim,
        };
        let lkey = memory.mapping.pd.local_dma_lkey();
        for _ in 0..size {
            let parts = memory.pool.alloc_sleeping().ok_or(ENOMEM)?;
            let addresses = memory.mapping.addresses(&parts);
            let slot = Slot {
                wr: RecvWr::new(memory.pool.parts()),
                sge: core::array::from_fn(|i| bindings::ib_sge {
                    addr: addresses[i],
                    length: memory.pool.part_len(i) as u32,
                    lkey,
                }),
                parts,
            };
            memory.slots.push(slot, GFP_KERNEL)?;
        }
        for slot in &mut memory.slots {
            // INVARIANT: The slots do not move any more.
            slot.wr.set_elements(slot.sge.as_mut_ptr());
        }
        Ok(memory)
    }
}

impl Left for Memory {
    fn abandon(&mut self) {
        core::mem::forget(core::mem::take(&mut self.slots));
        self.pool.keep_mapped();
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
