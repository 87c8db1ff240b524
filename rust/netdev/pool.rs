// SPDX-License-Identifier: GPL-2.0

//! A page pool and its owner.
//!
//! C headers: [`include/net/page_pool/helpers.h`](srctree/include/net/page_pool/helpers.h).
//!
//! Pages of a pool that is bound to a NAPI instance return to the pool without a lock when they are freed
//! in softirq on the CPU that polls the instance. Nobody but that poll may allocate from the pool then. A
//! driver is free to move a pool about, so this is checked at run time.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::from_err_ptr;
use kernel::ffi::c_uint;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::napi::{Binding, Context, Instance};

/// A page pool.
///
/// # Invariants
///
/// * `raw` is a valid page pool, from which only the owner of this value allocates.
/// * `napi` is null if the pool is not bound. Otherwise the pool is bound to this instance, which `owner`
///   keeps in memory.
pub(crate) struct Pool {
    raw: NonNull<bindings::page_pool>,
    napi: *mut bindings::napi_struct,
    owner: Option<Arc<dyn Instance>>,
}

// SAFETY: A page pool may be used by any one thread at a time; `napi` is only compared.
unsafe impl Send for Pool {}
// SAFETY: Shared references only read.
unsafe impl Sync for Pool {}

impl Pool {
    /// Creates a pool that keeps about `pages` pages of order `order`, mapped for `dma` unless that is null.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `dma` must be null, or a device that stays bound to its driver until the pool is dropped.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) unsafe fn new(
        order: c_uint,
        pages: usize,
        dma: *mut bindings::device,
    ) -> Result<Self> {
        let pages = pages.clamp(16, 4096) as c_uint;
        // SAFETY: Any order that the page allocator knows and that number of pages are valid; `dma` by this
        // function's requirements.
        let raw = unsafe { bindings::ipoib_rs_page_pool_create(order, pages, dma) };
        // INVARIANT: It was just created, not bound.
        Ok(Self {
            raw: NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?,
            napi: ptr::null_mut(),
            owner: None,
        })
    }

    /// The C side.
    #[inline(always)]
    pub(crate) fn as_raw(&self) -> *mut bindings::page_pool {
        self.raw.as_ptr()
    }

    /// Returns true if a poll may allocate from the pool: it is bound to that poll's instance, or not at all.
    #[inline(always)]
    pub(crate) fn serves(&self, context: &Context<'_>) -> bool {
        self.napi.is_null() || ptr::eq(self.napi, context.as_raw())
    }

    /// Binds the pool to an instance that is being enabled, or unbinds it from one that was disabled.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn bind(&mut self, binding: &Binding<'_>) {
        let napi = binding.instance.as_raw();
        if binding.enables {
            self.unbind();
            // SAFETY: Valid by the type invariant, and not bound; the instance is registered.
            unsafe { bindings::page_pool_enable_direct_recycling(self.as_raw(), napi) };
            // INVARIANT: It was just bound.
            self.napi = napi;
            self.owner = Some(binding.instance.clone());
        } else if ptr::eq(self.napi, napi) {
            // SAFETY: Valid by the type invariant. The instance was disabled, and all softirqs have ended
            // that might have found it enabled.
            unsafe { self.forget_napi() };
        }
    }

    /// Unbinds the pool, if it is bound: it was taken away from the poll. The kernel warns if that is enabled still.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn unbind(&mut self) {
        if self.napi.is_null() {
            return;
        }
        // SAFETY: The pool is valid and the instance is in memory by the type invariant. Softirqs that
        // have still found the pool bound are waited for before anybody allocates from it.
        unsafe {
            let owner = self.owner.take();
            self.forget_napi();
            bindings::synchronize_net();
            drop(owner);
        }
    }

    /// Ends the binding.
    ///
    /// # Safety
    ///
    /// Nobody may allocate from the pool before softirqs have ended that have found it bound.
    unsafe fn forget_napi(&mut self) {
        // SAFETY: Valid by the type invariant, as is the instance that it is bound to.
        unsafe { bindings::page_pool_disable_direct_recycling(self.as_raw()) };
        // INVARIANT: It is not bound any more.
        self.napi = ptr::null_mut();
        self.owner = None;
    }

    /// Leaves pages mapped for ever, since the device may still write to some of them.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn keep_mapped(&mut self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::ipoib_rs_page_pool_keep_mapped(self.as_raw()) };
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.unbind();
        // SAFETY: Valid by the type invariant and given up here. The pool's memory stays until all
        // of its pages have come back.
        unsafe { bindings::page_pool_destroy(self.as_raw()) };
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_netdev_pool)]
mod tests {
    use kernel::sync::atomic::{Atomic, Relaxed};
    use kernel::time::{delay::fsleep, Delta};

    use super::*;
    use crate::dummy::{Registered, Seen};
    use crate::mapper::Mapper;
    use crate::napi::{Napi, Poll, Source};

    type PagePool = crate::page_pool::PagePool<0>;

    /// Length of a buffer: a page holds one.
    const BUF_LEN: usize = kernel::page::PAGE_SIZE - 700;

    impl Pool {
        /// Returns true if the kernel has it bound to a NAPI instance.
        fn is_bound(&self) -> bool {
            // SAFETY: Valid by the type invariant; nobody binds it meanwhile.
            unsafe { !(*self.as_raw()).p.napi.is_null() }
        }

        /// Pages that it can allocate without a lock.
        fn cached(&self) -> u32 {
            // SAFETY: Valid by the type invariant, and only the caller allocates from it.
            unsafe { (*self.as_raw()).alloc.count }
        }
    }

    /// Findings of polls.
    struct Found {
        polls: Atomic<u32>,
        refused: Atomic<u32>,
        bound: Atomic<u32>,
        /// Buffers that returned without a lock.
        direct: Atomic<u32>,
    }

    impl Found {
        /// Nothing yet.
        fn new() -> Result<Arc<Self>> {
            let found = Self {
                polls: Atomic::new(0),
                refused: Atomic::new(0),
                bound: Atomic::new(0),
                direct: Atomic::new(0),
            };
            Ok(Arc::new(found, GFP_KERNEL)?)
        }
    }

    /// A poll that allocates from a pool.
    struct Allocates {
        pool: Option<PagePool>,
        binds: bool,
        found: Arc<Found>,
    }

    struct Quiet;

    impl Source for Quiet {
        fn arm(&self) -> bool {
            false
        }
    }

    impl Poll for Allocates {
        const TX: bool = false;
        type Source = Quiet;

        fn bind_pools(&mut self, binding: &Binding<'_>) {
            if let Some(pool) = self.pool.as_mut().filter(|_| self.binds) {
                pool.bind(binding);
            }
        }

        fn poll(&mut self, context: &Context<'_>, _budget: usize) -> usize {
            if let Some(pool) = &mut self.pool {
                match (pool.alloc(context), pool.alloc(context)) {
                    // The pool gives the first page up when it begins the second.
                    (Some(first), Some(_second)) => {
                        let before = pool.pool().cached();
                        drop(first);
                        let direct = pool.pool().cached().wrapping_sub(before);
                        self.found.direct.fetch_add(direct, Relaxed);
                    }
                    _ => {
                        self.found.refused.fetch_add(1, Relaxed);
                    }
                }
                self.found
                    .bound
                    .fetch_add(u32::from(pool.pool().is_bound()), Relaxed);
            }
            self.found.polls.fetch_add(1, Relaxed);
            0
        }
    }

    /// Polls once.
    fn poll(
        napi: &mut Napi<Allocates>,
        pool: PagePool,
        binds: bool,
    ) -> Result<(PagePool, Arc<Found>)> {
        let found = Found::new()?;
        let state = Allocates {
            pool: Some(pool),
            binds,
            found: found.clone(),
        };
        napi.enable(state, Quiet)?;
        napi.handle().schedule();
        for _ in 0..1000 {
            if found.polls.load(Relaxed) > 0 {
                break;
            }
            fsleep(Delta::from_millis(10));
        }
        let pool = napi.disable().and_then(|state| state.pool).ok_or(EINVAL)?;
        assert_eq!(found.polls.load(Relaxed), 1);
        Ok((pool, found))
    }

    /// Pages return without a lock while the poll of the pool's instance runs, and only then.
    #[test]
    fn pages_return_without_a_lock() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let mut napi = Napi::new(registered.device())?;
        let (pool, found) = poll(&mut napi, PagePool::new(BUF_LEN, 64)?, true)?;
        assert!(!pool.pool().is_bound());
        assert_eq!(found.refused.load(Relaxed), 0);
        assert_eq!(found.bound.load(Relaxed), 1);
        assert_eq!(found.direct.load(Relaxed), 1);
        // It can be bound again, or not.
        let (pool, found) = poll(&mut napi, pool, false)?;
        assert_eq!(found.bound.load(Relaxed), 0);
        assert_eq!(found.direct.load(Relaxed), 0);
        let (_, found) = poll(&mut napi, pool, true)?;
        assert_eq!(found.bound.load(Relaxed), 1);
        Ok(())
    }

    /// A pool that was taken away from its poll serves no other, until it is unbound, and outlives the instance.
    #[test]
    fn a_pool_serves_one_poll() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let mut napi = Napi::new(registered.device())?;
        let found = Found::new()?;
        let state = Allocates {
            pool: Some(PagePool::new(BUF_LEN, 64)?),
            binds: true,
            found,
        };
        napi.enable(state, Quiet)?;
        let pool = napi.handle().ask(|poll| poll.pool.take())?.ok_or(EINVAL)?;
        assert!(pool.pool().is_bound());
        drop(napi);
        let mut other = Napi::new(registered.device())?;
        let (mut pool, found) = poll(&mut other, pool, false)?;
        assert_eq!(found.refused.load(Relaxed), 1);
        assert!(pool.alloc_sleeping().is_some());
        assert!(!pool.pool().is_bound());
        let (_, found) = poll(&mut other, pool, false)?;
        assert_eq!(found.refused.load(Relaxed), 0);
        Ok(())
    }

    /// A pool whose pages are mapped.
    fn mapped(mapper: &Mapper) -> Result<PagePool> {
        // SAFETY: The device stays until the end of the test, which drops the pool before.
        unsafe { PagePool::for_device(BUF_LEN, 64, mapper.as_raw()) }
    }

    /// The kernel is told that a pool is not used any more.
    #[test]
    fn a_pool_is_given_up() -> Result {
        let pool = PagePool::new(BUF_LEN, 64)?;
        let raw = pool.pool().as_raw();
        // SAFETY: With a second user, the pool is there until that gives it up. The kernel counts it here, and nobody else does
        // meanwhile.
        let users = unsafe { &raw mut (*raw).user_cnt.refs.counter };
        // SAFETY: As above.
        unsafe { *users += 1 };
        drop(pool);
        // SAFETY: As above.
        assert_eq!(unsafe { *users }, 1);
        // SAFETY: The second user gives it up.
        unsafe { bindings::page_pool_destroy(raw) };
        Ok(())
    }

    /// Returns true if pages of a pool are mapped, as far as the pool notes it. Where a pointer has no bits to spare,
    /// as on UML, it does not.
    ///
    /// # Safety
    ///
    /// The pool must be in memory.
    unsafe fn notes_mapped(pool: *mut bindings::page_pool) -> bool {
        // SAFETY: By this function's requirements.
        unsafe { !(*pool).dma_mapped.xa_head.is_null() }
    }

    /// Buffers are where the device finds them, until the pool goes: it unmaps those that are in use, too.
    #[test]
    fn pools_map_their_pages() -> Result {
        let mapper = Mapper::new()?;
        let mut pool = mapped(&mapper)?;
        let raw = pool.pool().as_raw();
        let one = pool.alloc_sleeping().ok_or(ENOMEM)?;
        let other = pool.alloc_sleeping().ok_or(ENOMEM)?;
        assert!(one.dma() != 0);
        assert_eq!(
            one.dma().wrapping_sub(other.dma()),
            (one.data().as_ptr() as u64).wrapping_sub(other.data().as_ptr() as u64)
        );
        drop((pool, other));
        // SAFETY: The pool stays in memory as long as there is a buffer.
        assert!(!unsafe { notes_mapped(raw) });
        drop(one);
        Ok(())
    }

    /// The device finds a buffer where its pool says, and what it writes there is the buffer's.
    #[test]
    fn devices_find_their_buffers() -> Result {
        let mapper = Mapper::new()?;
        let mut pool = mapped(&mapper)?;
        for _ in 0..3 {
            let buf = pool.alloc_sleeping().ok_or(ENOMEM)?;
            let at = mapper.find(buf.dma()).ok_or(EFAULT)?;
            assert!(at == buf.data());
            // Neither the CPU's address nor that of the memory.
            assert!(mapper.find(at.as_ptr() as u64).is_none());
            assert!(mapper.find(0).is_none());
        }
        Ok(())
    }

    /// The pool gives all of a page to the device when it comes back, which the CPU may have written to; a pool
    /// without a device gives nobody anything.
    #[test]
    fn pools_sync_what_comes_back() -> Result {
        let mapper = Mapper::new()?;
        let syncs = |pool: &PagePool| {
            let raw = pool.pool().as_raw();
            // SAFETY: Valid by the type invariant; nobody changes these meanwhile.
            unsafe {
                let params = &(*raw).p;
                let range = (params.offset, params.max_len, 1 << params.order);
                ((*raw).dma_map(), (*raw).dma_sync(), range, params.dma_dir)
            }
        };
        let (maps, syncs_back, (offset, len, pages), dir) = syncs(&mapped(&mapper)?);
        assert!(maps && syncs_back && offset == 0);
        assert_eq!(len as usize, pages * kernel::page::PAGE_SIZE);
        assert_eq!(dir, bindings::dma_data_direction_DMA_FROM_DEVICE);
        let (maps, syncs_back, ..) = syncs(&PagePool::new(BUF_LEN, 64)?);
        assert!(!maps && !syncs_back);
        Ok(())
    }

    /// A device that may still write to a buffer finds it mapped, although the pool has gone.
    #[test]
    fn pages_may_stay_mapped() -> Result {
        let mapper = Mapper::new()?;
        let mut pool = mapped(&mapper)?;
        let raw = pool.pool().as_raw();
        let buf = pool.alloc_sleeping().ok_or(ENOMEM)?;
        pool.keep_mapped();
        // The pool unmaps what it has noted. On x86, the kernel warns of a page that comes back with a note.
        //
        // SAFETY: The pool stays in memory as long as there is a buffer.
        assert!(!unsafe { notes_mapped(raw) });
        drop(pool);
        drop(buf);
        Ok(())
    }
}
