// SPDX-License-Identifier: GPL-2.0

//! The receive ring of an intake, from which connections receive.
//!
//! As in [`crate::recv`], every slot always has a buffer. But receives complete in any order, since many
//! queue pairs take them, and the ring outlives the queue pairs.
//!
//! Any queue pair takes any slot of a shared receive queue; what it fails to receive is posted again. A queue
//! pair that is destroyed in the middle of a message may take a slot with it, which never completes. It
//! cannot be posted again, since the device does not tell which one it was, and may still write to one that
//! is merely late. [`IntakeRing::overtaken`] counts those slots.
//!
//! A shared receive queue gets several slots with one call, so that a few wait for others. None does once a queue pair has
//! ended, until it is known that it took none with it: the few that wait might be all that are left.
//!
//! Queue pairs with receive queues of their own get some of the slots each (`queues.rs`).
//!
//! Posted buffers cannot be taken back, short of destroying the queues, which queue pairs hold. So a dropped
//! ring leaves its memory, and the claim on the completion queue, to the [`Intake`], which frees them after
//! the queues.

use core::mem::{ManuallyDrop, MaybeUninit};

use ipoib_netdev::napi::{Binding, MAX_BUDGET};
use ipoib_netdev::parts::{PartsPool, MAX_PARTS};
use ipoib_rings::generations::Generations;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::cq::Cq;
use crate::device::Device;
use crate::intake::Intake;
use crate::rc::{QpKey, RcQp};
use crate::recv::ReceiveReport;
use crate::recv_chain::{PostFn, RecvChain, RecvWr};

mod mapping;
mod memory;
mod queues;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use mapping::Mapping;
use memory::Memory;
pub use memory::RcReceived;
use queues::Queues;

/// The most slots: even several generations for each are far from 2^32.
const MAX_SIZE: u32 = 1 << 16;

const _: () = assert!(MAX_SIZE <= Generations::MOST);

/// A slot is overtaken when the ring has posted this many times its size since.
const OVERTAKEN: u32 = 4;

/// The most slots that wait until they are posted to a shared receive queue with one call.
const MOST_AT_ONCE: u32 = 16;
/// No more than one slot in so many waits.
const WAITING: u32 = 32;

/// A pool of receive buffers of several parts, which a device can write to.
pub struct MessagePool {
    /// In front of the device, which stays registered, and so bound to its driver, until this is dropped.
    pool: PartsPool,
    device: Device,
}

impl MessagePool {
    /// Creates a pool of buffers that take messages of `max_message` bytes, in no more than `max_parts`
    /// parts ([`PartsPool::new`]).
    ///
    /// # Errors
    ///
    /// `EINVAL` if that many parts are not enough; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn new(
        device: &Device,
        max_message: usize,
        max_parts: usize,
        buffers: usize,
    ) -> Result<Self> {
        let dma = device.dma_device();
        // SAFETY: A device that is registered is bound to its driver.
        let pool = unsafe { PartsPool::for_device(max_message, max_parts, buffers, dma)? };
        Ok(Self {
            pool,
            device: device.clone(),
        })
    }

    /// Parts of a buffer.
    pub fn parts(&self) -> usize {
        self.pool.parts()
    }
}

/// The queues that slots are posted to.
enum Post {
    /// The shared receive queue, by the device's operation.
    Shared(PostFn<bindings::ib_srq>, *mut bindings::ib_srq),
    /// Receive queues of queue pairs.
    Separate(Queues),
}

/// The receive ring of an intake.
///
/// # Invariants
///
/// * A slot is chained, or the device may have its buffer, or it is idle in the sense of `Queues`.
/// * `late` has an element for every slot of a shared receive queue. If it is the slot's identifier, the
///   slot was overtaken.
/// * `wcs` has [`Self::BATCH`] elements, of which the last fetch has filled the first `fetched`.
/// * `post` is as `intake` is.
/// * The ring has claimed `intake`, and posts what `memory` holds, which nobody drops before
///   that is destroyed.
pub struct IntakeRing {
    memory: ManuallyDrop<Memory>,
    wcs: KVec<bindings::ib_wc>,
    fetched: usize,
    chain: RecvChain,
    post: Post,
    report: ReceiveReport,
    /// So many are posted together; 0 if the device has refused some, which are to be posted soon.
    at_once: u32,
    late: KVec<u64>,
    overtaken: usize,
    /// Counts of queue pairs that have ended: since the last look at the slots, and between that and the look before.
    ended: [usize; 2],
    /// The generation that was posted last when [`Self::is_quiet`] was called.
    quiet_since: u32,
    /// The generation that was posted last when slots were looked at for being overtaken.
    looked: u32,
    /// The number of receives posted since that of a slot when the slot counts as overtaken.
    old: u32,
    /// The place for `memory` when the ring is dropped.
    place: Option<KBox<MaybeUninit<Memory>>>,
    cq: Arc<Cq>,
    intake: Arc<Intake>,
}

// SAFETY: The pointers are to the ring's own slots and the queue it holds; all else is `Send`.
unsafe impl Send for IntakeRing {}

impl IntakeRing {
    /// Makes the receive ring of `intake`, with `size` buffers of `pool`'s. All queue pairs that
    /// receive from it complete on `cq`.
    ///
    /// There is one ring in the life of an intake, and the completion queue is the ring's until the
    /// intake is destroyed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is 0, or more than the intake or the completion queue take, or than 65536,
    /// or buffers have more parts than a receive has elements, or are another device's, or queue pairs of
    /// `intake` complete on another queue; `EBUSY` if the completion queue has a ring, or `intake` has or had
    /// one; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it.
    pub fn new(intake: &Arc<Intake>, cq: &Arc<Cq>, pool: MessagePool, size: u32) -> Result<Self> {
        let parts = pool.parts();
        let MessagePool { device, pool } = pool; // The first of them is dropped last.
        if size == 0
            || !device.same(intake.pd().device())
            || size > intake.max_wr()
            || size > cq.entries()
            || size > MAX_SIZE
            || parts > intake.max_sge() as usize
            || parts > MAX_PARTS
        {
            return Err(EINVAL);
        }
        let ops = intake.pd().device().ops();
        intake.bind(cq)?;
        let claim = cq.claim()?;
        let generation = claim.next;
        let wcs = KVec::from_elem(bindings::ib_wc::default(), Self::BATCH, GFP_KERNEL)?;
        let mut late = KVec::with_capacity(size as usize, GFP_KERNEL)?;
        let place = KBox::new_uninit(GFP_KERNEL)?;
        let mapping = Mapping {
            virt_dma: device.dma_device().is_null(),
            pd: intake.pd().clone(),
        };
        let mut memory = Memory::new(pool, mapping, claim, size as usize)?;
        let mut chain = RecvChain::after(generation)?;
        let post = if intake.is_shared() {
            for (index, slot) in memory.slots.iter_mut().enumerate() {
                // SAFETY: The slots stay, and are not changed while they are chained.
                unsafe { chain.push(&mut slot.wr, index) };
                late.push(RecvWr::IDLE, GFP_KERNEL)?;
            }
            Post::Shared(ops.post_srq_recv.ok_or(EOPNOTSUPP)?, intake.as_raw())
        } else {
            let post_recv = ops.post_recv.ok_or(EOPNOTSUPP)?;
            Post::Separate(Queues::new(&mut memory.slots, post_recv)?)
        };
        intake.claim()?;
        // INVARIANT: All slots are chained, or idle; none is late.
        Ok(Self {
            memory: ManuallyDrop::new(memory),
            wcs,
            fetched: 0,
            chain,
            post,
            report: ReceiveReport::default(),
            at_once: 1,
            late,
            overtaken: 0,
            ended: [0; 2],
            quiet_since: generation,
            looked: generation,
            old: OVERTAKEN * size,
            place: Some(place),
            cq: cq.clone(),
            intake: intake.clone(),
        })
    }

    /// The most slots of a ring of `size` that wait from one poll to the next, so that the device does not have them. Queue
    /// pairs with receive queues of their own have all.
    pub fn most_waiting(intake: &Intake, size: u32) -> u32 {
        if intake.is_shared() {
            (size / WAITING).clamp(1, MOST_AT_ONCE) - 1
        } else {
            0
        }
    }

    /// How many slots are posted together: one by one if some may be missing.
    fn at_once(&self) -> u32 {
        if self.overtaken == 0 && self.ended == [0; 2] {
            Self::most_waiting(&self.intake, self.size()) + 1
        } else {
            1
        }
    }

    /// Binds the buffers' pool to the NAPI instance that polls the ring, or unbinds it
    /// ([`Poll::bind_pools`](ipoib_netdev::napi::Poll::bind_pools)).
    ///
    /// # Context
    ///
    /// Process context, without NAPI; may sleep.
    pub fn bind_pool(&mut self, binding: &Binding<'_>) {
        self.memory.pool.bind(binding);
    }

    /// The number of buffers.
    pub fn size(&self) -> u32 {
        self.memory.slots.len() as u32
    }

    /// Returns how many completions there can be that were not fetched.
    pub fn cq_entries(&self) -> u32 {
        self.cq.entries()
    }

    /// Posts all buffers that a shared receive queue does not have.
    ///
    /// # Errors
    ///
    /// Whatever the device says; what it refused is posted at the next poll, or the next fill.
    ///
    /// # Context
    ///
    /// Process context, without NAPI.
    pub fn fill(&mut self) -> Result {
        let result = self.post_chain();
        self.at_once = result.map_or(0, |()| self.at_once());
        result
    }

    /// Posts to a queue pair as much as its own receive queue takes, if it has one.
    ///
    /// # Errors
    ///
    /// `EINVAL` for one of another intake; `ENOSPC` if too many buffers are posted to others; whatever the
    /// device says. Some may be posted all the same.
    ///
    /// # Context
    ///
    /// Softirq, or process context without NAPI.
    pub fn begin(&mut self, qp: &Arc<RcQp>) -> Result {
        if !Arc::ptr_eq(qp.intake(), &self.intake) {
            return Err(EINVAL);
        }
        match &mut self.post {
            Post::Shared(..) => Ok(()),
            Post::Separate(queues) => queues.begin(qp, &mut self.memory.slots, &mut self.chain),
        }
    }

    /// Posts nothing more to a queue pair that [began](Self::begin). The buffers that it has of its own come back when they
    /// are flushed, or when it was destroyed.
    ///
    /// # Context
    ///
    /// As [`Self::begin`].
    pub fn end(&mut self, qp: QpKey) {
        if let Post::Separate(queues) = &mut self.post {
            return queues.end(qp, &mut self.memory.slots, &mut self.chain);
        }
        self.ended[0] += 1;
        self.post_all();
    }

    /// Returns true if nothing was received since this was called last: [`Self::overtaken`] does not change until something is.
    pub fn is_quiet(&mut self) -> bool {
        let posted = self.chain.generations.posted();
        core::mem::replace(&mut self.quiet_since, posted) == posted
    }

    /// Returns how many slots of a shared receive queue may never complete, if each QP that has ended took one with it.
    pub fn missing(&self) -> usize {
        let [last, before] = self.ended;
        self.overtaken + last + before
    }

    /// The number of buffers that a queue pair's own receive queue has.
    pub fn held(&self, qp: QpKey) -> u32 {
        match &self.post {
            Post::Shared(..) => 0,
            Post::Separate(queues) => queues.held(qp),
        }
    }

    /// A queue pair that has refused what was posted to it since the last time; it cannot go on.
    pub fn take_refused(&mut self) -> Option<QpKey> {
        match &mut self.post {
            Post::Shared(..) => None,
            Post::Separate(queues) => queues.take_refused(),
        }
    }

    /// How many slots have not completed while others were posted more than four times as often as
    /// there are slots. A queue pair took them with it, or waits for the rest of a message; only
    /// the latter come back.
    ///
    /// That is known only while something is received: should queue pairs take all slots with them,
    /// nothing is, and this stays as it is. Each can take one: see [`Self::missing`].
    pub fn overtaken(&self) -> usize {
        self.overtaken
    }

    /// Returns true if a poll may have something to do: completions of which there was an event, or what the
    /// device refused.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.cq.is_quiet() || self.at_once == 0
    }

    /// Takes up to `most` completions, or as many as one call can, and says how many: what the NAPI
    /// budget is charged with. [`Self::message`] shows what they are, and [`Self::post`] comes after that.
    ///
    /// # Context
    ///
    /// Softirq, or process context without NAPI.
    #[inline]
    pub fn fetch(&mut self, most: usize) -> usize {
        // SAFETY: By the type invariant.
        unsafe { core::hint::assert_unchecked(self.wcs.len() == Self::BATCH) };
        self.fetched = self.cq.poll(&mut self.wcs, most).len();
        self.fetched
    }

    /// The most that [`Self::fetch`] takes: all that a poll may do.
    pub const BATCH: usize = MAX_BUDGET as usize;

    /// Returns the message that completion `i` of those fetched last has brought, if there is one that was not
    /// shown before. Calls `failed` if the completion says that a queue pair is in error.
    #[inline(always)]
    pub fn message(&mut self, i: usize, failed: impl FnOnce(QpKey)) -> Option<RcReceived<'_>> {
        let Self {
            memory,
            chain,
            wcs,
            fetched,
            report,
            post,
            ..
        } = self;
        if i >= *fetched {
            return None;
        }
        // SAFETY: By the type invariant.
        let wc = unsafe { wcs.get_unchecked(i) };
        let queues = match post {
            Post::Shared(..) => None,
            Post::Separate(queues) => Some(queues),
        };
        memory.complete(wc, chain, queues, report, failed)
    }

    /// Posts again what was received, if it is worth a call.
    // For every message; left to itself, the compiler calls it.
    #[inline(always)]
    pub fn post(&mut self) {
        if self.chain.generations.chained() >= self.at_once {
            self.post_all();
        }
    }

    /// Posts again all that was received.
    #[inline(never)]
    fn post_all(&mut self) {
        let result = self.post_chain();
        if self.chain.generations.posted().wrapping_sub(self.looked) >= self.old {
            self.look();
        }
        self.at_once = self.at_once();
        if result.is_err() {
            self.at_once = 0;
            self.report.count(|report| &mut report.refused);
        }
    }

    /// Takes the report on completions that brought nothing since the last time; None if there were none.
    #[inline]
    pub fn take_report(&mut self) -> Option<ReceiveReport> {
        self.report.take()
    }

    /// Notes which slots were overtaken.
    ///
    /// A slot stays marked until it is posted again. So it does no harm that ages wrap after 2^32
    /// receives: this runs far more often.
    #[cold]
    fn look(&mut self) {
        self.overtaken = 0;
        for (slot, late) in self.memory.slots.iter().zip(&mut self.late) {
            let id = slot.wr.id();
            if self.chain.is_posted(id) && self.chain.generations.age(id) > self.old {
                *late = id;
            }
            if *late == id {
                self.overtaken += 1;
            }
        }
        self.looked = self.chain.generations.posted();
        // A slot that was lost before the last look counts as overtaken by now.
        self.ended = [0, self.ended[0]];
    }

    /// Posts the chain.
    #[inline]
    fn post_chain(&mut self) -> Result {
        match &mut self.post {
            Post::Shared(post_recv, srq) => self.chain.post(|first, bad| {
                // SAFETY: The queue is valid, the chain is complete, and the buffers that it refers to are
                // owned by their slots until the device has completed them or the queue is destroyed.
                unsafe { post_recv(*srq, first, bad) }
            }),
            Post::Separate(queues) => queues.post(&mut self.memory.slots, &mut self.chain),
        }
    }
}

impl Drop for IntakeRing {
    fn drop(&mut self) {
        self.memory.claim.next = self.chain.generations.last();
        // SAFETY: It is not used again.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        match self.place.take() {
            Some(place) => {
                let memory = KBox::write(place, memory);
                self.intake.keep(memory);
            }
            // There is a place until here.
            None => core::mem::forget(memory),
        }
    }
}
