// SPDX-License-Identifier: GPL-2.0

//! Chains of send requests, each posted with one call.

use core::ptr;

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;

use crate::pd::Pd;

/// The most requests that are posted at once, and completed by one completion.
const CHAIN: usize = 16;

/// A kind of send request: `ib_send_wr`, or a structure that begins with one.
///
/// # Safety
///
/// `ib_send_wr` is the first field.
pub(crate) unsafe trait SendWr: Clone {
    fn base(&mut self) -> &mut bindings::ib_send_wr;
}

// SAFETY: It is that structure.
unsafe impl SendWr for bindings::ib_send_wr {
    #[inline(always)]
    fn base(&mut self) -> &mut bindings::ib_send_wr {
        self
    }
}

// SAFETY: As include/rdma/ib_verbs.h has it.
unsafe impl SendWr for bindings::ib_ud_wr {
    #[inline(always)]
    fn base(&mut self) -> &mut bindings::ib_send_wr {
        &mut self.wr
    }
}

/// A chain of send requests that are to be posted. Only the last one is signalled.
///
/// # Invariants
///
/// * `wrs` has [`CHAIN`] elements, each linked to the next one, the last to none. Each refers to `max_sge`
///   elements of `_sges` that are its own. Neither vector ever moves its elements.
/// * The first `pending` of them are complete; `pending <= CHAIN`.
pub(crate) struct SendChain<W> {
    wrs: KVec<W>,
    /// Owned here, used through the requests.
    _sges: KVec<bindings::ib_sge>,
    pending: usize,
}

// SAFETY: The pointers in the requests are to the chain's own vectors.
unsafe impl<W> Send for SendChain<W> {}

/// How many requests of a chain the device has taken, and refused.
pub(crate) struct Posted {
    pub(crate) taken: usize,
    pub(crate) refused: usize,
    pub(crate) result: Result,
}

impl<W: SendWr> SendChain<W> {
    /// An empty chain of requests like `wr`, each of up to `max_sge` elements in memory of `pd`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pd: &Pd, max_sge: u32, wr: W) -> Result<Self> {
        let max_sge = max_sge as usize;
        let sge = bindings::ib_sge {
            lkey: pd.local_dma_lkey(),
            ..Default::default()
        };
        let mut sges = KVec::from_elem(sge, CHAIN * max_sge, GFP_KERNEL)?;
        let mut wrs = KVec::from_elem(wr, CHAIN, GFP_KERNEL)?;
        let mut next = ptr::null_mut();
        for (wr, sges) in wrs.iter_mut().zip(sges.chunks_exact_mut(max_sge)).rev() {
            let wr = wr.base();
            wr.sg_list = sges.as_mut_ptr();
            wr.next = next;
            next = wr;
        }
        // INVARIANT: As was just built; nothing is pending.
        Ok(Self {
            wrs,
            _sges: sges,
            pending: 0,
        })
    }

    /// Changes what requests are like, except for those that are pending.
    pub(crate) fn change(&mut self, f: impl Fn(&mut W)) {
        self.wrs.iter_mut().skip(self.pending).for_each(f);
    }

    #[inline(always)]
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.pending == CHAIN
    }

    /// The elements of the request that is filled next, which nobody has a reference to.
    ///
    /// # Safety
    ///
    /// The chain must not be full.
    #[inline(always)]
    pub(crate) unsafe fn elements(&mut self) -> *mut bindings::ib_sge {
        // SAFETY: By this function's requirements, the index is below the length.
        unsafe { self.wrs.get_unchecked_mut(self.pending) }
            .base()
            .sg_list
    }

    /// Adds a request to send, of which `num_sge` elements are filled, unsignalled; `fill` completes it.
    ///
    /// # Safety
    ///
    /// The chain must not be full, and the elements be there.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, id: u64, num_sge: c_int, fill: impl FnOnce(&mut W)) {
        // SAFETY: By this function's requirements, the index is below the length.
        let wr = unsafe { self.wrs.get_unchecked_mut(self.pending) };
        let base = wr.base();
        base.__bindgen_anon_1.wr_id = id;
        base.num_sge = num_sge;
        base.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        base.send_flags = 0;
        fill(wr);
        // INVARIANT: It is complete.
        self.pending = self.pending.wrapping_add(1);
    }

    /// Drops the requests that were not posted; returns how many.
    pub(crate) fn clear(&mut self) -> usize {
        core::mem::take(&mut self.pending)
    }

    /// Posts the chain by `post`, which gets its first request, and where to store the first one that the
    /// device refuses. The chain is empty then.
    ///
    /// # Safety
    ///
    /// It must not be empty.
    #[inline]
    pub(crate) unsafe fn post(
        &mut self,
        post: impl FnOnce(*const bindings::ib_send_wr, *mut *const bindings::ib_send_wr) -> c_int,
    ) -> Posted {
        let pending = core::mem::take(&mut self.pending);
        let wrs = self.wrs.as_mut_ptr();
        // SAFETY: `1 <= pending <= CHAIN`, the length of the vector, by this function's requirements and the
        // type invariant; nobody has a reference. A request begins with an `ib_send_wr`.
        let last = unsafe {
            &mut *wrs
                .add(pending.wrapping_sub(1))
                .cast::<bindings::ib_send_wr>()
        };
        last.send_flags |= bindings::ib_send_flags_IB_SEND_SIGNALED as c_int;
        let next = core::mem::replace(&mut last.next, ptr::null_mut());
        let last: *mut bindings::ib_send_wr = last;
        let first = wrs.cast_const().cast();
        // Some drivers do not set it when they refuse all.
        let mut bad: *const bindings::ib_send_wr = first;
        let err = post(first, &raw mut bad);
        // SAFETY: As above. INVARIANT: The chain is linked as before.
        unsafe { (*last).next = next };
        if err != 0 {
            return self.refused(pending, bad, err);
        }
        Posted {
            taken: pending,
            refused: 0,
            result: Ok(()),
        }
    }

    #[cold]
    fn refused(&self, pending: usize, bad: *const bindings::ib_send_wr, err: c_int) -> Posted {
        // If the device names none of ours, it may have taken any of them: they stay until they complete or the
        // queue pair is reset.
        let sent = self.wrs.iter().take(pending);
        let taken = sent
            .into_iter()
            .position(|wr| ptr::eq(ptr::from_ref(wr).cast(), bad))
            .unwrap_or(pending);
        Posted {
            taken,
            refused: pending.wrapping_sub(taken),
            result: to_result(err.min(0)).and(Err(EIO)),
        }
    }
}
