// SPDX-License-Identifier: GPL-2.0

//! Receive buffers of several parts, for messages of up to 64 KiB.
//!
//! C headers: [`include/net/page_pool/helpers.h`](srctree/include/net/page_pool/helpers.h).
//!
//! A buffer has a head, which is a fragment of a page, and bodies, which are whole pages of a
//! higher order. A device fills the head first. A received message takes the head away, which
//! becomes the head of an skb, and the bodies that were written, which become its page fragments,
//! without a copy. A message that fits the head leaves the bodies where they are, and costs what
//! it would without them.
//!
//! Sockets are charged for all the memory behind a message, and a body of 32 KiB behind 1000 bytes
//! would fill them with a few messages. So what is in the first body is copied if it is no more than
//! [three eighths](copied) of it: what is not costs no more than about three times its length.
//!
//! The head takes 580 bytes. Acknowledgements and small requests fit, and so do the headers of
//! whatever is longer, link and options included, which the stack wants to find in an skb's head
//! (at most 16 + 60 + 60 bytes). With the room in front of them and the `skb_shared_info` behind,
//! that makes fragments of 1 KiB where `MAX_SKB_FRAGS` is 17, four of which fill a page.
//!
//! There are two bodies at most, each as small as it can be then: 32 KiB for 64 KiB messages. Soft
//! devices look up every element of a receive for every packet that reaches it, and page fragments
//! cost something everywhere. Larger ones would cost the page allocator too much.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::ffi::c_uint;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use crate::napi::{Binding, Context};
pub use crate::packet::{Gso, GsoKind, Packet};
use crate::page_pool::fragment_order;
use crate::pool::Pool;
use crate::skb::RxSkb;

/// Bytes that a head takes.
pub const HEAD_LEN: usize = bindings::IPOIB_RS_HEAD_LEN as usize;

/// The most bodies that a buffer has.
pub const MAX_BODIES: usize = bindings::IPOIB_RS_MAX_BODIES as usize;

/// The most parts that a buffer has: the elements of a receive.
pub const MAX_PARTS: usize = 1 + MAX_BODIES;

const HEAD_ROOM: usize = bindings::IPOIB_RS_HEAD_ROOM as usize;

/// The largest body.
const MAX_BODY: usize = 65536;

/// Up to so many bytes in a body are copied: packets of 9000 bytes are, which many networks have,
/// where bodies have 32 KiB.
#[inline]
const fn copied(body_len: u32) -> usize {
    body_len as usize / 8 * 3
}

/// Copies begin at multiples of this.
const COPY_ALIGN: usize = 64;

// Bits of an unsigned field.
const _: () = {
    let encap = bindings::IPOIB_RS_ENCAP_LEN as usize;
    // A packet's header starts a cache line, behind the 64 bytes that the stack likes to have
    // (`NET_SKB_PAD`) at least, and the link-layer header has room whatever is stripped.
    assert!((HEAD_ROOM + encap) & 63 == 0 && HEAD_ROOM >= 64);
    assert!(HEAD_ROOM >= encap + bindings::IPOIB_RS_PSEUDO_LEN as usize);
    // All of them are counted in 16 bits.
    assert!(HEAD_ROOM + HEAD_LEN <= u16::MAX as usize);
};

/// A pool of buffers of several parts.
///
/// # Invariants
///
/// * `pools` refers to `heads`, and to `bodies` unless `count` is 0. Pages of `bodies` and of `copies`, which
///   are there unless `count` is 0, are of `pools.body_len` bytes. All three are bound to the same instance.
/// * A fragment of `pools.frag_size` bytes holds `HEAD_ROOM` and `HEAD_LEN` bytes, and the
///   `skb_shared_info` behind them.
/// * `count <= MAX_BODIES`, and `capacity` is what a head and `count` bodies take.
pub struct PartsPool {
    pools: bindings::ipoib_rs_parts_pools,
    heads: Pool,
    bodies: Option<Pool>,
    copies: Option<Pool>,
    count: usize,
    capacity: usize,
}

// SAFETY: The pointers are to the pools that it owns, which are `Send`.
unsafe impl Send for PartsPool {}
// SAFETY: As above; they are `Sync`.
unsafe impl Sync for PartsPool {}

impl PartsPool {
    /// A pool of buffers that take messages of `max_message` bytes, in no more than `max_parts`
    /// parts. It keeps about as many pages as `buffers` have, and half as many for copies.
    ///
    /// # Errors
    ///
    /// `EINVAL` if that many parts are not enough; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn new(max_message: usize, max_parts: usize, buffers: usize) -> Result<Self> {
        // SAFETY: There is no device.
        unsafe { Self::for_device(max_message, max_parts, buffers, ptr::null_mut()) }
    }

    /// Creates a pool as [`Self::new`] does, whose buffers are mapped for `dma` unless that is null
    /// ([`Parts::dma`]).
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
        max_message: usize,
        max_parts: usize,
        buffers: usize,
        dma: *mut bindings::device,
    ) -> Result<Self> {
        let rest = max_message.saturating_sub(HEAD_LEN);
        let most = max_parts.checked_sub(1).ok_or(EINVAL)?.min(MAX_BODIES);
        let order = (0..)
            .take_while(|&order| order == 0 || PAGE_SIZE << order <= MAX_BODY)
            .find(|&order| rest <= most * (PAGE_SIZE << order))
            .ok_or(EINVAL)?;
        let body_len = PAGE_SIZE << order;
        let count = rest.div_ceil(body_len);
        // SAFETY: A computation.
        let frag_size = unsafe {
            bindings::ipoib_rs_page_pool_buf_size(HEAD_ROOM as c_uint, HEAD_LEN as c_uint)
        };
        let head_order = fragment_order(frag_size as usize);
        let fragments = (PAGE_SIZE << head_order) / frag_size as usize;
        if fragments == 0 {
            return Err(EINVAL);
        }
        // SAFETY: By this function's requirements.
        let pool = |order, pages| unsafe { Pool::new(order, pages, dma) };
        let heads = pool(head_order, buffers.div_ceil(fragments))?;
        let (bodies, copies) = if count > 0 {
            let bodies = pool(order, buffers.saturating_mul(count))?;
            (Some(bodies), Some(pool(order, buffers / 2)?))
        } else {
            (None, None)
        };
        // INVARIANT: The sizes are as computed, and the pools were just made. `most` limits `count`.
        Ok(Self {
            pools: bindings::ipoib_rs_parts_pools {
                heads: heads.as_raw(),
                bodies: bodies.as_ref().map_or(ptr::null_mut(), Pool::as_raw),
                frag_size,
                body_len: body_len as u32,
            },
            heads,
            bodies,
            copies,
            count,
            capacity: HEAD_LEN + count * body_len,
        })
    }

    /// Calls `f` with each of the page pools.
    fn for_each(&mut self, mut f: impl FnMut(&mut Pool)) {
        f(&mut self.heads);
        self.bodies.as_mut().map(&mut f);
        self.copies.as_mut().map(&mut f);
    }

    /// Binds the pool to the NAPI instance that is being enabled, or unbinds it from the one that was
    /// disabled: to be called in [`crate::napi::Poll::bind_pools`].
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn bind(&mut self, binding: &Binding<'_>) {
        self.for_each(|pool| pool.bind(binding));
    }

    /// Leaves all pages mapped for ever: the device may still write to buffers that never come back.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn keep_mapped(&mut self) {
        self.for_each(Pool::keep_mapped);
    }

    /// Parts of a buffer.
    pub fn parts(&self) -> usize {
        1 + self.count
    }

    /// Bytes that part `i` of a buffer takes.
    pub fn part_len(&self, i: usize) -> usize {
        if i == 0 {
            HEAD_LEN
        } else if i <= self.count {
            self.pools.body_len as usize
        } else {
            0
        }
    }

    /// Bytes that a buffer takes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of memory that a buffer costs.
    pub fn buf_cost(&self) -> usize {
        self.pools.frag_size as usize + self.count * self.pools.body_len as usize
    }

    /// Allocates a buffer; may sleep for memory, None if there is none even so. A pool that is bound is no
    /// longer.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn alloc_sleeping(&mut self) -> Option<Parts> {
        self.for_each(Pool::unbind);
        let mut new = Parts::none();
        self.fill(&mut new, self.count, true).then_some(new)
    }

    /// Puts a head and `n` bodies, which is no more than `count`, into a buffer that has nothing. False:
    /// there is no memory, and it still has nothing.
    fn fill(&mut self, new: &mut Parts, n: usize, sleep: bool) -> bool {
        // SAFETY: The pools are valid by the type invariant, and `&mut self` makes us their only
        // user; there is room for all parts. The second one is not used if `n` is 0.
        //
        // INVARIANT: Of the pools, whose sizes are the ones that are asked for.
        unsafe {
            bindings::ipoib_rs_parts_alloc(
                &raw const self.pools,
                n as c_uint,
                sleep,
                &raw mut new.0,
            )
        }
    }

    /// Makes an skb of the message of `len` bytes in `parts`. New memory takes the place of the parts that the
    /// skb gets; a short body is copied, and stays. The skb is ready for [`RxSkb::gro_receive`]: its data are
    /// the packet, its link-layer header is as [`crate::page_pool::FilledBuf::into_frame`] makes it, and it is
    /// for this host.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the message does not hold what `packet` says, or not in the head, or if the buffer does
    /// not take that much; `ENOMEM` if there is no memory, or if the pool is bound to another NAPI instance.
    /// `parts` has all that it had then, or new memory in its place.
    ///
    /// # Safety
    ///
    /// `parts` must be of this pool, and no device may have it.
    // For every message; left to itself, the compiler calls it.
    #[inline(always)]
    pub unsafe fn exchange(
        &mut self,
        context: &Context<'_>,
        parts: &mut Parts,
        len: usize,
        packet: Packet,
        mut device: impl Exchange,
    ) -> Result<RxSkb> {
        // SAFETY: By this function's requirements.
        let head = unsafe { parts.head(len) };
        if !packet.fits(head.len())
            || (packet.gso != 0 && !packet.can_be_segmented(head, len))
            || len > self.capacity
        {
            return Err(EINVAL);
        }
        if !self.heads.serves(context) {
            return Err(ENOMEM);
        }
        device.lend(len);
        let rest = len.saturating_sub(HEAD_LEN);
        let skb = if 0 < rest && rest <= copied(self.pools.body_len) {
            // SAFETY: By this function's requirements; the message ends in the first body, and a NAPI poll
            // runs that may allocate from the pools.
            unsafe { self.exchange_copy(parts, len, packet) }
        } else {
            // SAFETY: The pools are valid by the type invariant, and `&mut self` makes us their only user but
            // for the softirqs of their instance, whose poll runs. `parts` has the message, in as many bodies
            // as it reaches, by this function's requirements, and none of them is a copy: only skbs have
            // those; its length fits a u32, as every buffer's does. The link headers are in the head, behind
            // the room that the stack's need. The checksum is within the head, and so are the headers of
            // what is to be segmented.
            //
            // INVARIANT: What was taken from it is new memory of the same pools.
            unsafe {
                bindings::ipoib_rs_rx_exchange(
                    &raw const self.pools,
                    &raw mut parts.0,
                    len as c_uint,
                    packet.link,
                    packet.gso,
                )
            }
        };
        // Some of it may be new even if there is no skb.
        device.follow(parts, len);
        let skb = NonNull::new(skb).ok_or(ENOMEM)?;
        // SAFETY: A fresh skb is ours alone.
        Ok(unsafe { RxSkb::from_non_null(skb) })
    }

    /// Makes an skb of a message that ends in the first body, with a copy of what is there. Null if there is no
    /// memory.
    ///
    /// # Safety
    ///
    /// As for [`Self::exchange`], in a poll that may allocate from the pools. `packet` must fit the message,
    /// which must end in the first body.
    #[inline(never)]
    unsafe fn exchange_copy(
        &mut self,
        parts: &mut Parts,
        len: usize,
        packet: Packet,
    ) -> *mut bindings::sk_buff {
        let rest = len.saturating_sub(HEAD_LEN);
        let size = rest.next_multiple_of(COPY_ALIGN) as u32;
        let mut new = Parts::none();
        if !self.fill(&mut new, 0, false) || !self.add_copy(&mut new, size) {
            return ptr::null_mut();
        }
        // SAFETY: By this function's requirements the first body is there and has that many bytes; the
        // copy has as many, by `add_copy`, and is memory of its own.
        unsafe {
            ptr::copy_nonoverlapping(parts.0.va[1].cast::<u8>(), new.0.va[1].cast::<u8>(), rest)
        };
        // INVARIANT: Both have what they had, of the same sizes.
        core::mem::swap(&mut parts.0.va[0], &mut new.0.va[0]);
        // SAFETY: `new` has the message: its head, and the copy, where it ends. The rest as in `exchange`.
        let skb = unsafe {
            bindings::ipoib_rs_rx_parts(
                &raw const new.0,
                len as c_uint,
                size,
                packet.link,
                packet.gso,
            )
        };
        if !skb.is_null() {
            // The skb owns both now.
            core::mem::forget(new);
        }
        skb
    }

    /// Gives a buffer without bodies one of its own for `size` bytes, which is no more than a body
    /// takes. A pool without bodies has no memory for that.
    fn add_copy(&mut self, new: &mut Parts, size: u32) -> bool {
        let Some(copies) = &self.copies else {
            return false;
        };
        // SAFETY: The pool is valid, and this value alone allocates from it, by the type invariant;
        // its pages have room for that.
        //
        // INVARIANT: A fragment of that size, which the buffer owns now, or none.
        unsafe { bindings::ipoib_rs_parts_add_copy(copies.as_raw(), size, &raw mut new.0) }
    }
}

/// The receive whose buffer is exchanged, which knows where the device finds the parts.
pub trait Exchange {
    /// Lends the CPU what the bodies hold of a message of `len` bytes.
    fn lend(&mut self, len: usize);

    /// Takes note of the buffer's parts. One whose memory is still the same is the device's again, what was
    /// lent of it for a message of `len` bytes included.
    fn follow(&mut self, parts: &Parts, len: usize);
}

/// A receive buffer of several parts.
///
/// # Context
///
/// May be dropped in any but hard interrupt.
///
/// # Invariants
///
/// * `va[0]` is the start of a fragment of a page pool, owned by this value, of the size that a
///   head takes; null only while it is being made.
/// * The others are null or the start of as many bytes as a body takes of a page pool, owned by this
///   value. They are whole pages but for a copy, which is a fragment, shorter, and the only one there is.
///   None that is null stands in front of one that is not. `pages` are the head pages of those that are
///   not null.
#[must_use = "the buffer goes back to its pool when it goes out of scope"]
pub struct Parts(bindings::ipoib_rs_parts);

// SAFETY: Fragments and pages may be used and given back by any thread.
unsafe impl Send for Parts {}
// SAFETY: Shared references only read.
unsafe impl Sync for Parts {}

impl Parts {
    /// Nothing.
    fn none() -> Self {
        // INVARIANT: It becomes a buffer when it gets a head; until then only its drop looks at it.
        Self(bindings::ipoib_rs_parts {
            va: [ptr::null_mut(); MAX_PARTS],
            pages: [ptr::null_mut(); MAX_BODIES],
        })
    }

    /// Returns where the device is to put the data of all parts; null for those that there are not.
    #[inline(always)]
    pub fn all(&self) -> [*mut u8; MAX_PARTS] {
        let mut all = self.0.va.map(|va| va.cast::<u8>());
        all[0] = all[0].wrapping_add(HEAD_ROOM);
        all
    }

    /// Returns those addresses for the device that the pool maps for; of a pool without one, any numbers.
    #[inline(never)]
    pub fn dma(&self) -> [u64; MAX_PARTS] {
        self.all().map(|va| {
            if va.is_null() {
                return 0;
            }
            // SAFETY: The part lies in a page of a page pool by the type invariant.
            unsafe { bindings::ipoib_rs_page_pool_dma(va.cast()) }
        })
    }

    /// The first `len` bytes of the head, or all.
    ///
    /// # Safety
    ///
    /// No device may have the buffer as long as they are referred to.
    #[inline]
    pub unsafe fn head(&self, len: usize) -> &[u8] {
        let head = self.0.va[0].cast::<u8>();
        // SAFETY: That many bytes lie behind `HEAD_ROOM` in the owned fragment by the type invariant, and
        // nobody writes them by this function's requirements. They are plain bytes in memory that the
        // device or, if it lied about the length, an earlier owner has written.
        unsafe { core::slice::from_raw_parts(head.add(HEAD_ROOM), len.min(HEAD_LEN)) }
    }
}

impl Drop for Parts {
    #[inline]
    fn drop(&mut self) {
        for &va in &self.0.va {
            if !va.is_null() {
                // SAFETY: Owned by the type invariant, and given up here.
                unsafe { bindings::ipoib_rs_page_pool_put(va) };
            }
        }
    }
}
