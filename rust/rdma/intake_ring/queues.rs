// SPDX-License-Identifier: GPL-2.0

//! Receive queues that queue pairs have of their own, where they cannot share one.
//!
//! A queue pair gets as many of the ring's slots as its queue takes. What it has received is posted to it
//! again. When it fails, its slots come back as the device flushes them, or at the latest when it was
//! destroyed.

use ipoib_netdev::parts::{Parts, MAX_PARTS};
use ipoib_rings::shares::{Place, Shares};
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::rc::{Fate, QpKey, RcQp};
use crate::recv_chain::{PostFn, RecvChain, RecvWr};

/// A buffer and the request that posts it.
pub(super) struct Slot {
    pub(super) wr: RecvWr,
    pub(super) sge: [bindings::ib_sge; MAX_PARTS],
    pub(super) parts: Parts,
}

/// The most queue pairs at a time, those whose slots have not come back included.
const MAX_QUEUES: usize = 512;

/// Receive queue of a queue pair.
struct Queue {
    key: QpKey,
    /// The queue pair to post to; None if nothing is posted any more.
    qp: Option<Arc<RcQp>>,
    fate: Arc<Fate>,
}

/// All receive queues.
///
/// # Invariants
///
/// * `list` never grows beyond the capacity that it is made with. It has a queue at each place that is taken in
///   `shares`, and at no other. A queue's `qp` is there until it is ended in `shares`.
/// * A slot is idle in `shares`, and so is its request, or the queue at its user's place has it.
/// * What is chained is of the queue with the number `chained`, whose `qp` is there.
/// * `post_recv` is the operation of the queue pairs' device.
pub(super) struct Queues {
    list: KVec<Option<Queue>>,
    shares: Shares<KVec<u32>, KVec<Place>>,
    chained: usize,
    refused: Option<QpKey>,
    post_recv: PostFn<bindings::ib_qp>,
}

impl Queues {
    /// Begins without queues; no slot is chained.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(slots: &mut [Slot], post_recv: PostFn<bindings::ib_qp>) -> Result<Self> {
        for slot in &mut *slots {
            slot.wr.set_idle();
        }
        let numbers = || KVec::from_elem(0, slots.len(), GFP_KERNEL);
        let places = KVec::from_elem(Place::default(), MAX_QUEUES, GFP_KERNEL)?;
        // INVARIANT: All slots are idle.
        Ok(Self {
            list: KVec::with_capacity(MAX_QUEUES, GFP_KERNEL)?,
            shares: Shares::new(numbers()?, numbers()?, places).ok_or(EINVAL)?,
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
        let n = qp.caps().recv_wr as usize;
        if self.shares.idle() < n || !self.shares.has_vacancy() {
            self.reclaim(slots);
        }
        if self.shares.idle() < n {
            return Err(ENOSPC);
        }
        let _ = self.post(slots, chain);
        let at = self.shares.begin().ok_or(ENOSPC)?;
        let queue = Queue {
            key: qp.key(),
            qp: Some(qp.clone()),
            fate: qp.fate().clone(),
        };
        // The first vacant place is in the list, or the next one.
        match self.list.get_mut(at) {
            Some(place) => *place = Some(queue),
            None => {
                let _ = self.list.push_within_capacity(Some(queue));
            }
        }
        for index in (0..n).map_while(|_| self.shares.take(at)) {
            if let Some(slot) = slots.get_mut(index) {
                // SAFETY: It was idle. The slots stay, and are not changed while they are chained.
                unsafe { chain.push(&mut slot.wr, index) };
            }
        }
        // INVARIANT: Nothing else is chained.
        self.chained = at;
        self.post(slots, chain)
    }

    /// Posts nothing more to a queue pair.
    pub(super) fn end(&mut self, key: QpKey, slots: &mut [Slot], chain: &mut RecvChain) {
        // It may have been chained for it.
        let _ = self.post(slots, chain);
        for (at, place) in self.list.iter_mut().enumerate() {
            // A destroyed queue pair may have had the same address.
            match place {
                Some(queue) if queue.key == key && queue.qp.is_some() => {
                    queue.qp = None;
                    if self.shares.end(at) {
                        *place = None;
                    }
                }
                _ => {}
            }
        }
    }

    /// The number of slots that a queue pair has.
    pub(super) fn held(&self, key: QpKey) -> u32 {
        let is_of = |place: &Option<Queue>| {
            let queue = place.as_ref();
            queue.is_some_and(|queue| queue.key == key && queue.qp.is_some())
        };
        let at = self.list.iter().position(is_of);
        at.map_or(0, |at| self.shares.held(at))
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
        let Some(at) = self.shares.user(index) else {
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
        if let Some(slot) = slots.get_mut(index) {
            slot.wr.set_idle();
        }
        if let Some((at, true)) = self.shares.give_back(index) {
            if let Some(place) = self.list.get_mut(at) {
                *place = None;
            }
        }
    }

    /// Takes back the slots of queue pairs that were destroyed.
    #[cold]
    fn reclaim(&mut self, slots: &mut [Slot]) {
        for index in 0..slots.len() {
            let queue = self.shares.user(index).and_then(|at| self.list.get(at));
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
