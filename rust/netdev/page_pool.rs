// SPDX-License-Identifier: GPL-2.0

//! Receive buffers that are recycled.
//!
//! C headers: [`include/net/page_pool/helpers.h`](srctree/include/net/page_pool/helpers.h).
//!
//! A buffer is a fragment of a page that belongs to a page pool. It becomes the head of an skb
//! without a copy, and comes back to the pool when the stack is done with it.

use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::ffi::c_uint;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use crate::napi::{Binding, Context};
use crate::pool::Pool;
use crate::sizes::{fragment_order, MAX_ORDER};
use crate::skb::RxSkb;

/// Room that the stack likes to have in front of a packet (`NET_SKB_PAD`).
const PAD: usize = 64;

const _: () = assert!(PAD >= bindings::IPOIB_RS_LINK_ROOM as usize);

/// Creates a pool of pages for `buffers` fragments, each of `len` bytes behind `headroom`, and with it the state from
/// which they are taken: nothing is left of any page.
///
/// # Errors
///
/// `EINVAL` if no page has room for one, and those of [`Pool::new`].
///
/// # Safety
///
/// As for [`Pool::new`].
pub(crate) unsafe fn fragments(
    headroom: usize,
    len: usize,
    buffers: usize,
    dma: *mut bindings::device,
) -> Result<(Pool, bindings::ipoib_rs_frags)> {
    // SAFETY: A computation.
    let size = unsafe { bindings::ipoib_rs_page_pool_buf_size(headroom as c_uint, len as c_uint) };
    let order = fragment_order(PAGE_SIZE, size as usize);
    let per_page = (PAGE_SIZE << order) / size as usize;
    if per_page == 0 {
        return Err(EINVAL);
    }
    // SAFETY: By this function's requirements.
    let pool = unsafe { Pool::new(order, buffers.div_ceil(per_page), dma)? };
    let frags = bindings::ipoib_rs_frags {
        pool: pool.as_raw(),
        next: ptr::null_mut(),
        end: ptr::null_mut(),
        size,
        per_page: per_page as u32,
    };
    Ok((pool, frags))
}

/// Takes a fragment, of a new page if nothing is left of the last one. None: there is no memory, or `may_begin` does not
/// let it take a page.
///
/// # Safety
///
/// `frags` must be those of a valid pool, which nobody else uses meanwhile if `may_begin` returns true. To `sleep` for
/// memory, the caller must be in process context; otherwise softirqs must be disabled.
#[inline(always)]
pub(crate) unsafe fn next(
    frags: &mut bindings::ipoib_rs_frags,
    may_begin: impl FnOnce() -> bool,
    sleep: bool,
) -> Option<NonNull<u8>> {
    if frags.next == frags.end {
        if !may_begin() {
            return None;
        }
        // SAFETY: By this function's requirements.
        return NonNull::new(unsafe { bindings::ipoib_rs_frags_begin(frags, sleep) }.cast());
    }
    let va: *mut u8 = frags.next.cast();
    frags.next = frags.next.wrapping_byte_add(frags.size as usize);
    // SAFETY: `next` points into a page while fragments are left. The first spares callers the check of the `Option`.
    unsafe {
        core::hint::assert_unchecked(!va.is_null());
        Some(NonNull::new_unchecked(va))
    }
}

/// Builds an skb around a fragment of `size` bytes, which owns it then: its data are what lies from `at` up to `end` in
/// the fragment. None: there is no memory.
///
/// # Safety
///
/// The fragment at `va` must be the caller's, of a page pool, and `size` bytes long; what is behind `end` must have room for the
/// `skb_shared_info`. Softirqs must be disabled, so that the CPU's cache of skbs is ours.
#[inline(always)]
pub(crate) unsafe fn build(
    va: NonNull<u8>,
    size: u32,
    at: usize,
    end: usize,
) -> Option<NonNull<bindings::sk_buff>> {
    // SAFETY: By this function's requirements.
    let skb = NonNull::new(unsafe { bindings::napi_build_skb(va.as_ptr().cast(), size) })?;
    // SAFETY: The skb is new and ours, and the data lie within it by this function's requirements.
    unsafe {
        let raw = skb.as_ptr();
        (*raw).data = va.as_ptr().add(at);
        (*raw).tail = end as c_uint;
        (*raw).len = end.wrapping_sub(at) as c_uint;
        (*raw).set_pp_recycle(1);
    }
    Some(skb)
}

/// A pool of receive buffers of one size, laid out for packets behind `LEAD` bytes that a device writes in front of
/// them.
///
/// # Examples
///
/// The KUnit tests of this file allocate buffers, fill them, and make frames of them.
///
/// # Invariants
///
/// `frags` cuts up pages of `pool`, and owns what is left of the last one. A fragment holds the headroom,
/// `buf_len` bytes of data, and the `skb_shared_info` behind them.
pub struct PagePool<const LEAD: usize> {
    frags: bindings::ipoib_rs_frags,
    buf_len: u32,
    pool: Pool,
}

// SAFETY: The pointers are to the pool that it owns, which is `Send`, and to fragments that are its own.
unsafe impl<const LEAD: usize> Send for PagePool<LEAD> {}
// SAFETY: As above; shared references only read.
unsafe impl<const LEAD: usize> Sync for PagePool<LEAD> {}

impl<const LEAD: usize> PagePool<LEAD> {
    /// Creates a pool whose buffers take `buf_len` bytes of data, and that keeps about `buffers` of them.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `buf_len` is 0 or beyond what fits; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn new(buf_len: usize, buffers: usize) -> Result<Self> {
        // SAFETY: There is no device.
        unsafe { Self::for_device(buf_len, buffers, ptr::null_mut()) }
    }

    /// Creates a pool as [`Self::new`] does, whose buffers are mapped for `dma` unless that is null
    /// ([`RxBuf::dma`]). Before a buffer is [filled](Self::filled), the caller syncs for the CPU what the
    /// device has written to it. The pool syncs for the device what returns.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    ///
    /// # Safety
    ///
    /// `dma` must be null, or a device that stays bound to its driver until the pool is dropped.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub unsafe fn for_device(
        buf_len: usize,
        buffers: usize,
        dma: *mut bindings::device,
    ) -> Result<Self> {
        let max = PAGE_SIZE << MAX_ORDER;
        if buf_len == 0 || buf_len >= max {
            return Err(EINVAL);
        }
        // SAFETY: By this function's requirements.
        let (pool, frags) = unsafe { fragments(RxBuf::<LEAD>::HEADROOM, buf_len, buffers, dma)? };
        // INVARIANT: Nothing is left of any page.
        Ok(Self {
            frags,
            buf_len: u32::try_from(buf_len)?,
            pool,
        })
    }

    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Binds the pool to the NAPI instance that is being enabled, or unbinds it from the one that was
    /// disabled: to be called in [`crate::napi::Poll::bind_pools`].
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn bind(&mut self, binding: &Binding<'_>) {
        self.pool.bind(binding);
    }

    /// Leaves all pages mapped for ever: the device may still write to buffers that never come back.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn keep_mapped(&mut self) {
        self.pool.keep_mapped();
    }

    /// Bytes of data that a buffer takes.
    #[inline]
    pub fn buf_len(&self) -> usize {
        self.buf_len as usize
    }

    /// Allocates an empty buffer in a poll. None if there is no memory, or if that would take a page from a
    /// pool that is bound to another NAPI instance.
    #[inline]
    pub fn alloc(&mut self, context: &Context<'_>) -> Option<RxBuf<LEAD>> {
        let Self { frags, pool, .. } = self;
        // SAFETY: A poll runs. The pool is valid, and `&mut self` makes us its only user but for the softirqs of its
        // instance, whose poll this is if there is one, or nothing is taken from it.
        let va = unsafe { next(frags, || pool.serves(context), false) };
        // INVARIANT: It was taken from `frags`.
        va.map(|va| RxBuf { va })
    }

    /// Allocates an empty buffer; may sleep for memory, None if there is none even so. A pool that is bound
    /// is no longer.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn alloc_sleeping(&mut self) -> Option<RxBuf<LEAD>> {
        self.pool.unbind();
        // SAFETY: Process context. The pool is valid, and `&mut self` makes us its only user, as it is not bound.
        let va = unsafe { next(&mut self.frags, || true, true) };
        // INVARIANT: It was taken from `frags`.
        va.map(|va| RxBuf { va })
    }

    /// Says that the device has put `len` bytes into a buffer.
    ///
    /// # Safety
    ///
    /// The buffer must be of this pool. The device must have completed a receive into it, and say that it has written so
    /// much. That must be no more than [`Self::buf_len`].
    #[inline(always)]
    pub unsafe fn filled(&self, buf: RxBuf<LEAD>, len: u32) -> FilledBuf<LEAD> {
        let size = self.frags.size;
        // INVARIANT: By this function's requirements.
        FilledBuf { buf, size, len }
    }
}

impl<const LEAD: usize> Drop for PagePool<LEAD> {
    fn drop(&mut self) {
        // It may be dropped elsewhere than in the poll that it is bound to.
        self.pool.unbind();
        // SAFETY: Owned by the type invariant; the pool is valid until the fields are dropped.
        unsafe { bindings::ipoib_rs_frags_drain(&raw mut self.frags) };
    }
}

/// A receive buffer.
///
/// # Context
///
/// May be dropped in any but hard interrupt.
///
/// # Invariants
///
/// `va` is the start of a fragment of a page pool, owned by this value: the headroom, data, and the `skb_shared_info`
/// behind them.
#[must_use = "the buffer goes back to its pool when it goes out of scope"]
pub struct RxBuf<const LEAD: usize> {
    va: NonNull<u8>,
}

// SAFETY: A fragment may be used and given back by any thread.
unsafe impl<const LEAD: usize> Send for RxBuf<LEAD> {}
// SAFETY: Shared references only read.
unsafe impl<const LEAD: usize> Sync for RxBuf<LEAD> {}

/// Metadata of a received frame for the stack.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Offset of the packet in the buffer.
    pub offset: u16,
    /// EtherType, in host order.
    pub protocol: u16,
    /// The device has verified the checksums.
    pub verified: bool,
}

impl<const LEAD: usize> RxBuf<LEAD> {
    /// Room in front of a buffer's data: so much more than [`PAD`] that the packet starts a cache line.
    const HEADROOM: usize = (PAD + LEAD).next_multiple_of(64) - LEAD;

    /// Where the device is to put data.
    #[inline]
    pub fn data(&self) -> NonNull<u8> {
        // SAFETY: The fragment is longer than the headroom by the type invariant.
        unsafe { self.va.add(Self::HEADROOM) }
    }

    /// Returns that address for the device that the pool maps for; of a pool without one, any number.
    #[inline(always)]
    pub fn dma(&self) -> u64 {
        // SAFETY: The data lie in a page of a page pool by the type invariant.
        unsafe { bindings::ipoib_rs_page_pool_dma(self.data().as_ptr().cast()) }
    }
}

impl<const LEAD: usize> Drop for RxBuf<LEAD> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: An owned fragment by the type invariant, which is given up here.
        unsafe { bindings::ipoib_rs_page_pool_put(self.va.as_ptr().cast()) };
    }
}

/// A receive buffer that something was received into.
///
/// # Invariants
///
/// * `size` is that of the fragment.
/// * `len` is no more than the data that it takes, and what a device says that it has written there.
#[must_use = "the buffer goes back to its pool when it goes out of scope"]
pub struct FilledBuf<const LEAD: usize> {
    buf: RxBuf<LEAD>,
    size: u32,
    len: u32,
}

impl<const LEAD: usize> FilledBuf<LEAD> {
    /// Returns the received bytes, as many as the device says.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from there lie in the owned fragment by the type invariants. They are
        // plain bytes in memory that the device or, if it lied about the length, an earlier owner
        // has written.
        unsafe { core::slice::from_raw_parts(self.buf.data().as_ptr(), self.len as usize) }
    }

    /// Makes an skb of it, without a copy, that is ready for [`RxSkb::poll_receive`]: its data are the packet, in front
    /// of which it has the link-layer header `link`. GRO merges only frames in which that is the same.
    ///
    /// # Errors
    ///
    /// The buffer, if there is no memory for the skb or no packet at `offset`.
    #[inline]
    pub fn into_frame<const N: usize>(
        self,
        _context: &Context<'_>,
        frame: Frame,
        link: &[u8; N],
    ) -> core::result::Result<RxSkb, Self> {
        // SAFETY: A NAPI poll runs.
        let mut skb = unsafe { self.build_frame(frame.offset) }?;
        // SAFETY: It is new, and nothing was said of it.
        unsafe { skb.describe(&frame) };
        // SAFETY: `build_frame` has put the data there.
        unsafe {
            skb.set_link_header_at(
                (RxBuf::<LEAD>::HEADROOM as u16).wrapping_add(frame.offset),
                link,
            )
        };
        Ok(skb)
    }

    /// Makes the skb of [`Self::into_frame`].
    ///
    /// # Safety
    ///
    /// Softirqs must be disabled, so that the CPU's cache of skbs is ours.
    #[inline]
    unsafe fn build_frame(self, offset: u16) -> core::result::Result<RxSkb, Self> {
        let offset = usize::from(offset);
        let Some(len) = (self.len as usize).checked_sub(offset) else {
            return Err(self);
        };
        let at = RxBuf::<LEAD>::HEADROOM.wrapping_add(offset);
        let end = at.wrapping_add(len);
        // SAFETY: The fragment is owned by the type invariant, and is `size` bytes long. `len` bytes from `offset` lie within what
        // was received, behind the headroom. The CPU's cache of skbs is ours by this function's requirements.
        let Some(skb) = (unsafe { build(self.buf.va, self.size, at, end) }) else {
            return Err(self);
        };
        // The skb owns the fragment now.
        let _ = ManuallyDrop::new(self);
        // SAFETY: It is new and ours.
        Ok(unsafe { RxSkb::from_non_null(skb) })
    }

    /// Copies the frame into an skb of its own size, which is as [`Self::into_frame`] makes it. The
    /// buffer goes back to its pool.
    ///
    /// # Errors
    ///
    /// The buffer, if there is no memory for the skb or no packet at `offset`.
    pub fn copy_frame<const N: usize>(
        self,
        context: &Context<'_>,
        frame: Frame,
        link: &[u8; N],
    ) -> core::result::Result<RxSkb, Self> {
        let Some(packet) = self.bytes().get(usize::from(frame.offset)..) else {
            return Err(self);
        };
        let Some(mut skb) = copy(context, packet) else {
            return Err(self);
        };
        // SAFETY: As in `into_frame`.
        unsafe { skb.describe(&frame) };
        skb.set_link_header(link);
        Ok(skb)
    }
}

/// Copies a packet into an skb, which is still to be given its protocol and its link-layer header; None without memory.
// Frames are copied only if a user wants that.
#[cold]
#[inline(never)]
fn copy(context: &Context<'_>, packet: &[u8]) -> Option<RxSkb> {
    let (at, len) = (packet.as_ptr().cast(), packet.len() as c_uint);
    // SAFETY: The poll of the context's NAPI runs; the bytes are copied.
    let skb = unsafe { bindings::ipoib_rs_rx_copy(context.as_raw(), at, len) };
    // SAFETY: A fresh skb is ours alone.
    NonNull::new(skb).map(|skb| unsafe { RxSkb::from_non_null(skb) })
}

#[kunit_tests(rust_netdev_page_pool)]
mod tests {
    use super::*;
    use crate::skb::TxSkb;

    /// Bytes in front of a packet.
    const LEAD: usize = 10;

    type PagePool = super::PagePool<LEAD>;

    /// A frame in a buffer of a pool, as if it were to be sent.
    fn frame(pool: &mut PagePool, len: u32) -> Result<TxSkb> {
        let offset = LEAD as u32;
        let wanted = offset + len;
        let buf = pool.alloc_sleeping().ok_or(ENOMEM)?;
        assert!(wanted as usize <= pool.buf_len());
        // SAFETY: There is room for so much, and nobody reads what is not written.
        let buf = unsafe { pool.filled(buf, wanted) };
        // SAFETY: Softirqs are disabled meanwhile.
        let skb = unsafe {
            bindings::ipoib_rs_bh_disable();
            let skb = buf.build_frame(offset as u16);
            bindings::ipoib_rs_bh_enable();
            skb
        };
        let skb = skb.map_err(|_| ENOMEM)?;
        // SAFETY: The skb is owned, and given up here.
        Ok(unsafe { TxSkb::from_raw(ManuallyDrop::new(skb).as_raw()) })
    }

    /// Pages that the pool has ever had from the page allocator.
    fn pages(pool: &PagePool) -> u32 {
        // SAFETY: Valid by the type invariant, and ours alone.
        unsafe { (*pool.pool.as_raw()).pages_state_hold_cnt }
    }

    /// Checks that `f` returns its buffers to the pool: repeating it takes no more pages.
    fn comes_back(mut f: impl FnMut(&mut PagePool) -> Result) -> Result {
        let mut pool = PagePool::new(2000, 64)?;
        f(&mut pool)?;
        // One more for what was left of a page.
        let most = pages(&pool) + 1;
        for _ in 0..20 {
            f(&mut pool)?;
        }
        assert!(pages(&pool) <= most);
        Ok(())
    }

    /// Buffers are their owner's until that drops them, and then the pool's. A packet starts a cache line.
    #[test]
    fn buffers_come_back() -> Result {
        comes_back(|pool| {
            let mut bufs = KVec::new();
            for _ in 0..48 {
                bufs.push(pool.alloc_sleeping().ok_or(ENOMEM)?, GFP_KERNEL)?;
            }
            let mut at = KVec::new();
            for buf in &bufs {
                assert_eq!((buf.data().addr().get() + LEAD) % 64, 0);
                at.push(buf.data(), GFP_KERNEL)?;
            }
            // No two have the same memory.
            for (i, one) in at.iter().enumerate() {
                let apart = |other: &NonNull<u8>| {
                    one.addr().get().abs_diff(other.addr().get()) >= pool.buf_len()
                };
                assert!(at.iter().skip(i + 1).all(apart));
            }
            Ok(())
        })
    }

    /// A frame owns its buffer, which comes back with it.
    #[test]
    fn frames_give_their_buffers_back() -> Result {
        comes_back(|pool| {
            for len in [1, 100, 1900] {
                let skb = frame(pool, len)?;
                assert_eq!(skb.len(), len as usize);
            }
            Ok(())
        })
    }

    /// So many bytes are a negative number to C, which stops the kernel.
    #[test]
    fn a_head_has_only_so_much_room() -> Result {
        let mut pool = PagePool::new(2000, 64)?;
        let mut skb = frame(&mut pool, 100)?;
        assert_eq!(skb.cow_head(1 << 31), Err(EINVAL));
        assert_eq!(skb.header_mut::<4>().map(|header| header.len()), Ok(4));
        Ok(())
    }

    /// Size that sockets are charged for, length, and what is said of the checksums: [`bindings::CHECKSUM_NONE`] and the like.
    type Described = (u32, u32, u32);

    /// Makes a frame of a buffer with `len` bytes of a packet, copied or not.
    fn described(
        pool: &mut PagePool,
        len: u32,
        verified: bool,
        is_copied: bool,
    ) -> Result<Described> {
        let frame = Frame {
            offset: LEAD as u16,
            protocol: bindings::ETH_P_IP as u16,
            verified,
        };
        let buf = pool.alloc_sleeping().ok_or(ENOMEM)?;
        // SAFETY: There is room for so much, and nobody reads what is not written.
        let buf = unsafe { pool.filled(buf, LEAD as u32 + len) };
        let make = |context: &Context<'_>| match is_copied {
            true => buf.copy_frame(context, frame, &[0; 24]),
            false => buf.into_frame(context, frame, &[0; 24]),
        };
        // SAFETY: The instance only says whose the memory of a copy is.
        let skb = unsafe { crate::napi::as_a_poll(make) }?.map_err(|_| ENOMEM)?;
        // SAFETY: The skb is ours; every view of the union holds integers only.
        Ok(unsafe {
            let raw = skb.as_raw();
            let summed = (*raw).__bindgen_anon_4.headers.as_ref().ip_summed();
            ((*raw).truesize, (*raw).len, u32::from(summed))
        })
    }

    /// A frame costs its whole buffer, however short it is; a copy of a short one costs less.
    #[test]
    fn frames_cost_their_memory() -> Result {
        let mut pool = PagePool::new(2000, 64)?;
        let skb = size_of::<bindings::sk_buff>().next_multiple_of(64) as u32;
        let whole = pool.frags.size + skb;
        for len in [1, 100, 1900] {
            let made = described(&mut pool, len, false, false)?;
            assert_eq!(made, (whole, len, bindings::CHECKSUM_NONE));
        }
        let (cost, len, _) = described(&mut pool, 100, false, true)?;
        assert!(cost < whole / 2 && cost > len && len == 100);
        Ok(())
    }

    /// The stack verifies the checksums of a frame unless the device has found them right.
    #[test]
    fn verified_checksums_are_told_of() -> Result {
        let mut pool = PagePool::new(2000, 64)?;
        for is_copied in [false, true] {
            for (verified, summed) in [
                (true, bindings::CHECKSUM_UNNECESSARY),
                (false, bindings::CHECKSUM_NONE),
            ] {
                let (_, _, told) = described(&mut pool, 100, verified, is_copied)?;
                assert_eq!(told, summed);
            }
        }
        Ok(())
    }

    /// Frames that wait come out in order, once, within the bounds; those that do not are dropped.
    #[test]
    fn frames_wait_in_a_queue() -> Result {
        use crate::skb::{DropReason, SkbQueue};
        comes_back(|pool| {
            let mut queue = SkbQueue::new(3, 250);
            for len in [100, 101] {
                assert!(queue.push(frame(pool, len)?).is_ok());
            }
            // Too many bytes, then just as many as there may be, then too many frames.
            assert!(queue
                .push(frame(pool, 50)?)
                .is_err_and(|skb| skb.len() == 50));
            assert!(queue.push(frame(pool, 49)?).is_ok());
            assert!(queue.push(frame(pool, 1)?).is_err());
            assert_eq!((queue.len(), queue.bytes()), (3, 250));
            let first = queue.pop().ok_or(EINVAL)?;
            assert_eq!((first.len(), queue.bytes()), (100, 150));
            // SAFETY: The frame is ours.
            let next = unsafe { (*first.as_raw()).__bindgen_anon_1.__bindgen_anon_1.next };
            assert!(next.is_null());
            assert_eq!(queue.purge(DropReason::QueuePurge), 2);
            assert!(queue.is_empty() && queue.pop().is_none());
            // The first is taken however long it is.
            assert!(queue.push(frame(pool, 1900)?).is_ok());
            Ok(())
        })
    }
}
