// SPDX-License-Identifier: GPL-2.0

//! Chains of send requests, each posted with one call.

use core::ptr;

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;

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
    /// An empty chain of requests like `wr`, each of up to `max_sge` elements, whose memory has the key `lkey`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(lkey: u32, max_sge: u32, wr: W) -> Result<Self> {
        let max_sge = max_sge as usize;
        let sge = bindings::ib_sge {
            lkey,
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

    /// Changes what requests are like, also those that are pending.
    pub(crate) fn change(&mut self, f: impl Fn(&mut W)) {
        self.wrs.iter_mut().for_each(f);
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

    /// Adds a request to send, of which `num_sge` elements are filled, unsignalled. The caller completes it.
    ///
    /// # Safety
    ///
    /// The chain must not be full, and the elements be there.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, id: u64, num_sge: c_int) -> &mut W {
        // SAFETY: By this function's requirements, the index is below the length.
        let wr = unsafe { self.wrs.get_unchecked_mut(self.pending) };
        let base = wr.base();
        base.__bindgen_anon_1.wr_id = id;
        base.num_sge = num_sge;
        base.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        base.send_flags = 0;
        // INVARIANT: It is complete, or is so before the caller does anything else with the chain.
        self.pending = self.pending.wrapping_add(1);
        wr
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

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_send_chain)]
mod tests {
    use super::*;

    const SIGNALED: u32 = bindings::ib_send_flags_IB_SEND_SIGNALED as u32;

    type Wr = bindings::ib_ud_wr;

    /// Identifier, Q_Key and flags of a request that was posted.
    type Seen = (u64, u32, u32);

    fn chain(qkey: u32) -> Result<SendChain<Wr>> {
        let wr = Wr {
            remote_qkey: qkey,
            ..Default::default()
        };
        SendChain::new(7, 2, wr)
    }

    fn push(chain: &mut SendChain<Wr>, id: u64) {
        assert!(!chain.is_full());
        // SAFETY: The chain is not full, and has two elements for each request.
        unsafe { chain.push(id, 1) };
    }

    /// Posts what is pending; the device refuses the request with the identifier `refuses` and all behind it.
    fn post(chain: &mut SendChain<Wr>, refuses: Option<u64>) -> Result<(KVec<Seen>, Posted)> {
        let mut seen = KVec::with_capacity(CHAIN, GFP_KERNEL)?;
        let device = |first: *const bindings::ib_send_wr, bad: *mut *const bindings::ib_send_wr| {
            let mut next = first;
            while !next.is_null() {
                // SAFETY: The requests are linked, each the beginning of one for datagrams.
                let wr = unsafe { &*next.cast::<Wr>() };
                // SAFETY: Every view of the union is plain bytes.
                let id = unsafe { wr.wr.__bindgen_anon_1.wr_id };
                if refuses == Some(id) {
                    // SAFETY: There is room for the address.
                    unsafe { *bad = next };
                    return ENOMEM.to_errno();
                }
                let one = (id, wr.remote_qkey, wr.wr.send_flags as u32);
                assert!(seen.push_within_capacity(one).is_ok());
                next = wr.wr.next;
            }
            0
        };
        // SAFETY: Something is pending.
        let posted = unsafe { chain.post(device) };
        Ok((seen, posted))
    }

    /// Another Q_Key holds for each request from then on, those that are pending included, and for all that their
    /// places are used for later.
    #[test]
    fn a_change_is_for_all() -> Result {
        let mut chain = chain(1)?;
        push(&mut chain, 10);
        push(&mut chain, 11);
        chain.change(|wr| wr.remote_qkey = 2);
        push(&mut chain, 12);
        let (seen, _) = post(&mut chain, None)?;
        assert_eq!(&seen[..], &[(10, 2, 0), (11, 2, 0), (12, 2, SIGNALED)]);
        push(&mut chain, 13);
        let (seen, _) = post(&mut chain, None)?;
        assert_eq!(&seen[..], &[(13, 2, SIGNALED)]);
        Ok(())
    }

    /// Only the last request of a chain is signalled, and the chain can be filled again behind it.
    #[test]
    fn chains_are_linked_again() -> Result {
        let mut chain = chain(1)?;
        for len in [1, 3, CHAIN, 2, CHAIN] {
            for id in 0..len {
                push(&mut chain, id as u64);
            }
            assert_eq!(chain.is_full(), len == CHAIN);
            let (seen, posted) = post(&mut chain, None)?;
            assert_eq!((posted.taken, posted.refused), (len, 0));
            assert!(posted.result.is_ok());
            assert_eq!((seen.len(), chain.pending()), (len, 0));
            for (at, one) in seen.iter().enumerate() {
                let flags = if at + 1 == len { SIGNALED } else { 0 };
                assert_eq!(*one, (at as u64, 1, flags));
            }
        }
        Ok(())
    }

    /// Refused requests are those from the one that the device names.
    #[test]
    fn refusals_are_counted() -> Result {
        let mut chain = chain(1)?;
        for refused in 0..4 {
            for id in 0..4 {
                push(&mut chain, id);
            }
            let (seen, posted) = post(&mut chain, Some(refused))?;
            assert_eq!(
                (posted.taken as u64, posted.refused as u64),
                (refused, 4 - refused)
            );
            assert_eq!(posted.result, Err(ENOMEM));
            assert_eq!(seen.len() as u64, refused);
        }
        push(&mut chain, 0);
        assert_eq!(chain.clear(), 1);
        assert_eq!(chain.pending(), 0);
        Ok(())
    }
}
