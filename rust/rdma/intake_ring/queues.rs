// SPDX-License-Identifier: GPL-2.0

//! Receive queues that queue pairs have of their own, where they cannot share one.
//!
//! A queue pair gets as many of the ring's slots as its queue takes. What it has received is posted to it
//! again. When it fails, its slots come back as the device flushes them, or at the latest when it was
//! destroyed.

use ipoib_netdev::parts::{Parts, MAX_PARTS};
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::rc::{Fate, QpKey, RcQp};
use crate::recv_chain::{RecvChain, RecvWr};

type PostFn = unsafe extern "C" fn(
    *mut bindings::ib_qp,
    *const bindings::ib_recv_wr,
    *mut *const bindings::ib_recv_wr,
) -> c_int;

/// A buffer and the request that posts it.
pub(super) struct Slot {
    pub(super) wr: RecvWr,
    pub(super) sge: [bindings::ib_sge; MAX_PARTS],
    pub(super) parts: Parts,
    /// The index of the queue that has it, where queue pairs have receive queues of their own.
    pub(super) queue: usize,
}

/// The most queue pairs at a time, those whose slots have not come back included.
const MAX_QUEUES: usize = 512;

/// Receive queue of a queue pair.
struct Queue {
    key: QpKey,
    /// The queue pair to post to; None if nothing is posted any more.
    qp: Option<Arc<RcQp>>,
    fate: Arc<Fate>,
    /// Slots that it has.
    held: u32,
}

/// All receive queues.
///
/// # Invariants
///
/// * `list` and `idle` never grow beyond the capacity that they are made with.
/// * A slot is in `idle`, and its request is idle, or the queue with the number
///   `slot.queue` holds it.
/// * What is chained is of the queue with the number `chained`, whose `qp` is there.
/// * `post_recv` is the operation of the queue pairs' device.
pub(super) struct Queues {
    list: KVec<Option<Queue>>,
    idle: KVec<u32>,
    chained: usize,
    refused: Option<QpKey>,
    post_recv: PostFn,
}

impl Queues {
    /// Begins without queues; no slot is chained.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(slots: &mut [Slot], post_recv: PostFn) -> Result<Self> {
        let mut idle = KVec::with_capacity(slots.len(), GFP_KERNEL)?;
        for (index, slot) in slots.iter_mut().enumerate() {
            slot.wr.set_idle();
            idle.push(index as u32, GFP_KERNEL)?;
        }
        // INVARIANT: All slots are idle.
        Ok(Self {
            list: KVec::with_capacity(MAX_QUEUES, GFP_KERNEL)?,
            idle,
            chained: 0,
            refused: None,
            post_recv,
        })
    }

    /// Gives a queue pair as many slots as its receive queue takes, and posts them.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are not as many; whatever the device says. After that it may have some: end it.
    pub(super) fn begin(
        &mut self,
        qp: &Arc<RcQp>,
        slots: &mut [Slot],
        chain: &mut RecvChain,
    ) -> Result {
        let n = qp.recv_wr() as usize;
        if self.idle.len() < n || self.list.iter().flatten().count() == MAX_QUEUES {
            self.reclaim(slots);
        }
        if self.idle.len() < n {
            return Err(ENOSPC);
        }
        let _ = self.post(slots, chain);
        let at = self.vacancy()?;
        let mut held = 0;
        while held < n as u32 {
            let Some(index) = self.idle.pop() else { break };
            if let Some(slot) = slots.get_mut(index as usize) {
                // INVARIANT: It is not in `idle` any more; nothing else is chained.
                slot.queue = at;
                // SAFETY: It was idle. The slots stay, and are not touched while they are chained.
                unsafe { chain.push(&mut slot.wr, index as usize) };
                held += 1;
            }
        }
        self.chained = at;
        if let Some(place) = self.list.get_mut(at) {
            *place = Some(Queue {
                key: qp.key(),
                qp: Some(qp.clone()),
                fate: qp.fate().clone(),
                held,
            });
        }
        self.post(slots, chain)
    }

    /// A vacant place in the list.
    fn vacancy(&mut self) -> Result<usize> {
        match self.list.iter().position(Option::is_none) {
            Some(at) => Ok(at),
            None => {
                self.list.push_within_capacity(None).map_err(|_| ENOSPC)?;
                Ok(self.list.len() - 1)
            }
        }
    }

    /// Posts nothing more to a queue pair.
    pub(super) fn end(&mut self, key: QpKey, slots: &mut [Slot], chain: &mut RecvChain) {
        // It may have been chained for it.
        let _ = self.post(slots, chain);
        for place in &mut self.list {
            // A destroyed queue pair may have had the same address.
            match place {
                Some(queue) if queue.key == key && queue.qp.is_some() => {
                    queue.qp = None;
                    if queue.held == 0 {
                        *place = None;
                    }
                }
                _ => {}
            }
        }
    }

    /// The number of slots that a queue pair has.
    pub(super) fn held(&self, key: QpKey) -> u32 {
        let mut queues = self.list.iter().flatten();
        queues
            .find(|queue| queue.key == key && queue.qp.is_some())
            .map_or(0, |queue| queue.held)
    }

    /// Handles the completion of a slot's receive. The slot is chained again, unless its queue pair is in
    /// error.
    #[inline]
    pub(super) fn completed(
        &mut self,
        index: usize,
        ok: bool,
        slots: &mut [Slot],
        chain: &mut RecvChain,
    ) {
        let Some(at) = slots.get(index).map(|slot| slot.queue) else {
            return;
        };
        if at != self.chained {
            let _ = self.post(slots, chain);
            self.chained = at;
        }
        let (Some(place), Some(slot)) = (self.list.get_mut(at), slots.get_mut(index)) else {
            return;
        };
        match place {
            // SAFETY: The receive has completed; as in `begin`.
            Some(queue) if ok && queue.qp.is_some() => unsafe { chain.push(&mut slot.wr, index) },
            _ => self.give_back(index, slots),
        }
    }

    /// Makes a slot idle.
    #[cold]
    fn give_back(&mut self, index: usize, slots: &mut [Slot]) {
        let Some(slot) = slots.get_mut(index).filter(|slot| !slot.wr.is_idle()) else {
            return;
        };
        slot.wr.set_idle();
        // There is room for all slots.
        let _ = self.idle.push_within_capacity(index as u32);
        if let Some(place) = self.list.get_mut(slot.queue) {
            if let Some(queue) = place {
                queue.held = queue.held.saturating_sub(1);
                if queue.held == 0 && queue.qp.is_none() {
                    *place = None;
                }
            }
        }
    }

    /// Takes back the slots of queue pairs that were destroyed.
    #[cold]
    fn reclaim(&mut self, slots: &mut [Slot]) {
        for index in 0..slots.len() {
            let queue = slots.get(index).and_then(|slot| self.list.get(slot.queue));
            let is_left = |queue: &Queue| queue.qp.is_none() && queue.fate.is_destroyed();
            if queue.is_some_and(|queue| queue.as_ref().is_some_and(is_left)) {
                self.give_back(index, slots);
            }
        }
    }

    /// Posts the chain.
    ///
    /// # Errors
    ///
    /// Whatever the device says. What it refused is idle then, and [`Self::take_refused`] names the
    /// queue pair.
    #[inline]
    pub(super) fn post(&mut self, slots: &mut [Slot], chain: &mut RecvChain) -> Result {
        if chain.is_empty() {
            return Ok(());
        }
        let queue = self.list.get(self.chained).and_then(Option::as_ref);
        let Some(qp) = queue.and_then(|queue| queue.qp.as_ref()) else {
            return Err(EINVAL);
        };
        let (key, raw, post_recv) = (qp.key(), qp.as_raw(), self.post_recv);
        // SAFETY: The queue pair is valid, the chain is complete, and the buffers that it refers to are
        // owned by their slots until the device has completed them or the queue pair is destroyed.
        let result = chain.post(|first, bad| unsafe { post_recv(raw, first, bad) });
        if result.is_err() {
            self.refused(key, slots, chain);
        }
        result
    }

    #[cold]
    fn refused(&mut self, key: QpKey, slots: &mut [Slot], chain: &mut RecvChain) {
        while let Some(index) = chain.pop() {
            self.give_back(index, slots);
        }
        self.refused = Some(key);
    }

    /// A queue pair that has refused a receive since the last call. It has fewer buffers than its peer
    /// believes.
    pub(super) fn take_refused(&mut self) -> Option<QpKey> {
        self.refused.take()
    }
}
