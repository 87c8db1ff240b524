// SPDX-License-Identifier: GPL-2.0

//! Receive requests, and chains of those that are to be posted.

use core::ptr;

use ipoib_rings::generations::Generations;
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::types::Opaque;

/// The operation that posts receive requests to a queue: of a queue pair, or a shared one.
pub(crate) type PostFn<Q> = unsafe extern "C" fn(
    *mut Q,
    *const bindings::ib_recv_wr,
    *mut *const bindings::ib_recv_wr,
) -> c_int;

/// A receive request. Its identifier is its slot's index, with the [generation](Generations) in which it was
/// chained last.
///
/// Chains refer to it by pointers, which remain valid while there are references to its slot.
#[repr(transparent)]
pub(crate) struct RecvWr(Opaque<bindings::ib_recv_wr>);

impl RecvWr {
    /// The identifier of a request that is neither chained nor posted: no slot has such an index.
    pub(crate) const IDLE: u64 = u64::MAX;

    /// An idle request of `num_sge` elements, which [`Self::set_elements`] names.
    pub(crate) fn new(num_sge: usize) -> Self {
        let mut wr = Self(Opaque::new(bindings::ib_recv_wr {
            num_sge: num_sge as c_int,
            ..Default::default()
        }));
        wr.set_idle();
        wr
    }

    /// Has the request refer to its elements.
    pub(crate) fn set_elements(&mut self, sges: *mut bindings::ib_sge) {
        // SAFETY: It is ours.
        unsafe { (*self.0.get()).sg_list = sges };
    }

    #[inline]
    pub(crate) fn id(&self) -> u64 {
        // SAFETY: Nobody writes to it while there is a reference. Every view of the union is plain bytes.
        unsafe { (*self.0.get()).__bindgen_anon_1.wr_id }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.id() == Self::IDLE
    }

    pub(crate) fn set_idle(&mut self) {
        // SAFETY: It is ours.
        unsafe { (*self.0.get()).__bindgen_anon_1.wr_id = Self::IDLE };
    }
}

/// A chain of receive requests that are to be posted.
///
/// Each gets the next [generation](Generations), which tells a late completion from one of the request as it
/// is now, and a posted request from one that is only chained.
///
/// # Invariants
///
/// * The chained requests are those behind `head`, linked, up to `last`, which is `head` if there are none. The last
///   one's link is anything.
/// * `generations` has chained those, and posted what the device has.
pub(crate) struct RecvChain {
    /// No request: with it in front, the first one is linked as all others are.
    head: KBox<Opaque<bindings::ib_recv_wr>>,
    last: *mut bindings::ib_recv_wr,
    pub(crate) generations: Generations,
}

impl RecvChain {
    /// An empty chain, whose first request gets the generation after `last`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn after(last: u32) -> Result<Self> {
        let head = KBox::new(Opaque::new(Default::default()), GFP_KERNEL)?;
        // INVARIANT: Nothing is chained.
        Ok(Self {
            last: head.get(),
            head,
            generations: Generations::after(last),
        })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        ptr::eq(self.last, self.head.get())
    }

    /// Adds the request of slot `index`.
    ///
    /// # Safety
    ///
    /// It must neither be chained nor posted, and stay where it is, unchanged, until it is posted or taken out.
    #[inline]
    pub(crate) unsafe fn push(&mut self, wr: &mut RecvWr, index: usize) {
        let wr = wr.0.get();
        // SAFETY: It is ours, neither chained nor posted. `last` is `head` or a chained request by the type invariant, another
        // one than this, and nobody changes it.
        unsafe {
            (*wr).__bindgen_anon_1.wr_id = self.generations.next_id(index as u32);
            (*self.last).next = wr;
        }
        self.last = wr;
    }

    /// The first request of a chain that is not empty.
    #[inline]
    fn first(&self) -> *mut bindings::ib_recv_wr {
        // SAFETY: `head` is there, and nobody else changes it.
        unsafe { (*self.head.get()).next }
    }

    /// Removes all requests in front of `wr`, one of the chain.
    fn begin_with(&mut self, wr: *mut bindings::ib_recv_wr) {
        // SAFETY: As in `first`.
        unsafe { (*self.head.get()).next = wr };
    }

    /// Takes the first request out; returns its slot's index.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        if self.is_empty() {
            // INVARIANT: Nothing is chained.
            self.generations.all_posted();
            return None;
        }
        let wr = self.first();
        // SAFETY: A request of the chain, which nobody changes; every view of the union is plain bytes.
        let (next, id) = unsafe { ((*wr).next, (*wr).__bindgen_anon_1.wr_id) };
        // INVARIANT: What is chained is now the rest, if there is any.
        if ptr::eq(wr, self.last) {
            self.last = self.head.get();
        } else {
            self.begin_with(next);
        }
        self.generations.posted_through(id);
        Some(id as u32 as usize)
    }

    /// Forgets all requests: they are idle, or the device has them.
    pub(crate) fn clear(&mut self) {
        // INVARIANT: Nothing is chained.
        self.last = self.head.get();
        self.generations.all_posted();
    }

    /// Returns true if the request with this identifier is not chained, so that the device may have it.
    ///
    /// May return false for a request that was posted nearly 2^32 receives ago.
    #[inline]
    pub(crate) fn is_posted(&self, id: u64) -> bool {
        self.generations.is_posted(id)
    }

    /// Posts the chain by `post`, which gets its first request, and where to store the first one that the
    /// device refuses. The refused requests stay chained.
    ///
    /// A completion cannot be seen before this returns, since only the ring's owner polls. So it is early
    /// enough to note afterwards what was posted.
    ///
    /// # Errors
    ///
    /// Whatever the device says.
    // For nearly every message; left to itself, the compiler calls it.
    #[inline(always)]
    pub(crate) fn post(
        &mut self,
        post: impl FnOnce(*const bindings::ib_recv_wr, *mut *const bindings::ib_recv_wr) -> c_int,
    ) -> Result {
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: A request of the chain, which nobody else changes.
        unsafe { (*self.last).next = ptr::null_mut() };
        let first = self.first();
        // Some drivers do not set it when they refuse all.
        let mut bad = first.cast_const();
        let err = post(first, &raw mut bad);
        if err != 0 {
            return self.refused(err, bad);
        }
        // INVARIANT: The device has what was chained.
        self.clear();
        Ok(())
    }

    #[cold]
    fn refused(&mut self, err: c_int, bad: *const bindings::ib_recv_wr) -> Result {
        let mut wr = self.first();
        while !wr.is_null() && !ptr::eq(wr, bad) {
            // SAFETY: A request of the chain, which nobody changes.
            wr = unsafe { (*wr).next };
        }
        // INVARIANT: What is chained is now the rest. If the device named none of ours, it may have all of them.
        if wr.is_null() {
            self.clear();
        } else {
            self.begin_with(wr);
            // SAFETY: As above; every view of the union is plain bytes.
            let id = unsafe { (*wr).__bindgen_anon_1.wr_id };
            self.generations.posted_before(id);
        }
        to_result(err.min(0)).and(Err(EIO))
    }
}
