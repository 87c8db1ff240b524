// SPDX-License-Identifier: GPL-2.0

//! Receive buffers of several parts, for messages of up to 64 KiB.
//!
//! C headers: [`include/net/page_pool/helpers.h`](srctree/include/net/page_pool/helpers.h).
//!
//! A buffer has a head, which is a fragment of a page, and bodies, which are whole pages of higher orders.
//! A device fills the head first. A received message takes the head away, which becomes the head of an
//! skb, and the bodies that were written, which become its page fragments, without a copy. What a message
//! does not reach stays where it is, and costs nothing.
//!
//! Sockets are charged for all the memory behind a message, and a body of 32 KiB behind 1000 bytes
//! would fill them with a few messages. So what a message has in the last body that it reaches is copied if
//! it would cost more than three times its length otherwise. The sizes are worked out in `sizes.rs`.
//!
//! The head takes 580 bytes. Acknowledgements and small requests fit, and so do the headers of
//! whatever is longer, link and options included, which the stack wants to find in an skb's head
//! (at most 16 + 60 + 60 bytes). With the room in front of them and the `skb_shared_info` behind,
//! that makes fragments of 1 KiB where `MAX_SKB_FRAGS` is 17, four of which fill a page.
//!
//! There are three bodies at most. The first one is small: packets of 4 and of 8 KiB, which peers send that do
//! not send large ones, need no other. The other two are as small as they can be then: 32 KiB for 64 KiB
//! messages. Soft devices look up every element of a receive for every packet that reaches it, and page
//! fragments cost something everywhere. Larger ones would cost the page allocator too much.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::ffi::c_uint;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use crate::napi::{Binding, Context};
pub use crate::packet::Packet;
use crate::page_pool::{self, fragments};
use crate::pool::Pool;
use crate::sizes::{self, body_lens, copied};
use crate::skb::{DropReason, RxSkb};

/// Bytes that a head takes.
pub const HEAD_LEN: usize = bindings::IPOIB_RS_HEAD_LEN as usize;

/// The most bodies that a buffer has.
pub const MAX_BODIES: usize = sizes::MAX_BODIES;

/// The most parts that a buffer has: the elements of a receive.
pub const MAX_PARTS: usize = 1 + MAX_BODIES;

const HEAD_ROOM: usize = bindings::IPOIB_RS_HEAD_ROOM as usize;

// Bits of an unsigned field.
const _: () = {
    // A packet behind 4 bytes starts a cache line, behind the 64 bytes that the stack likes to have (`NET_SKB_PAD`) at
    // least, and the link-layer header has room whatever is stripped.
    assert!((HEAD_ROOM + 4) & 63 == 0 && HEAD_ROOM >= 64);
    assert!(HEAD_ROOM >= bindings::IPOIB_RS_LINK_ROOM as usize);
    assert!(MAX_BODIES == bindings::IPOIB_RS_MAX_BODIES as usize);
    // All of them are counted in 16 bits.
    assert!(HEAD_ROOM + HEAD_LEN <= u16::MAX as usize);
};

/// A pool of buffers of several parts.
///
/// # Examples
///
/// The KUnit tests of this file make frames of messages of all lengths.
///
/// # Invariants
///
/// * `pools` refers to `heads`, `copies` and, for the first `count` bodies, to one of `bodies`, whose pages are of
///   that body's length. The pages of `copies` hold as much as the longest of them. All are bound to the same
///   instance.
/// * `pools.heads` cuts up pages of `heads`, and owns what is left of the last one. A fragment holds `HEAD_ROOM`
///   and `HEAD_LEN` bytes, and the `skb_shared_info` behind them.
/// * `count <= MAX_BODIES`, and `capacity` is what a head and `count` bodies take.
pub struct PartsPool {
    pools: bindings::ipoib_rs_parts_pools,
    heads: Pool,
    /// Of the first body's length, and of the last one's if that is another.
    bodies: [Option<Pool>; 2],
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
        let most = max_parts.checked_sub(1).ok_or(EINVAL)?;
        let lens = body_lens(PAGE_SIZE, rest, most).ok_or(EINVAL)?;
        // SAFETY: By this function's requirements.
        let (heads, frags) = unsafe { fragments(HEAD_ROOM, HEAD_LEN, buffers, dma)? };
        // SAFETY: By this function's requirements.
        let pool = |order, pages| unsafe { Pool::new(order, pages, dma) };
        let count = lens.iter().filter(|&&len| len > 0).count();
        let of_len = |len: usize| -> Result<Option<Pool>> {
            let pages = buffers.saturating_mul(lens.iter().filter(|&&n| n == len).count());
            (len > 0)
                .then(|| pool((len / PAGE_SIZE).ilog2(), pages))
                .transpose()
        };
        let first = lens[0];
        let last = lens.into_iter().max().unwrap_or(0);
        let bodies = [of_len(first)?, of_len(if last > first { last } else { 0 })?];
        let copies = if count > 0 {
            // SAFETY: There is no device: it never sees copies.
            Some(unsafe { Pool::new((last / PAGE_SIZE).ilog2(), buffers / 2, ptr::null_mut())? })
        } else {
            None
        };
        let raw = |pool: &Option<Pool>| pool.as_ref().map_or(ptr::null_mut(), Pool::as_raw);
        // INVARIANT: The sizes are as computed, and the pools were just made. `lens` has so many.
        Ok(Self {
            pools: bindings::ipoib_rs_parts_pools {
                heads: frags,
                copies: raw(&copies),
                bodies: lens.map(|len| raw(&bodies[usize::from(len > first)])),
                body_len: lens.map(|len| len as u32),
                copied: core::array::from_fn(|n| copied(frags.size as usize, &lens, n) as u32),
            },
            heads,
            bodies,
            copies,
            count,
            capacity: HEAD_LEN + lens.iter().sum::<usize>(),
        })
    }

    /// Calls `f` with each of the page pools.
    fn for_each(&mut self, mut f: impl FnMut(&mut Pool)) {
        f(&mut self.heads);
        self.bodies.iter_mut().flatten().for_each(&mut f);
        self.copies.as_mut().map(f);
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

    /// Bytes that part `i` of a buffer takes; 0 if there is none.
    pub fn part_len(&self, i: usize) -> usize {
        match i.checked_sub(1) {
            None => HEAD_LEN,
            Some(n) => self.pools.body_len.get(n).map_or(0, |len| *len as usize),
        }
    }

    /// Bytes that a buffer takes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
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
        // SAFETY: The pools are valid by the type invariant, and `&mut self` makes us their only
        // user; there is room for all parts.
        //
        // INVARIANT: Of the pools, whose sizes are the ones that are asked for; or still nothing.
        let made = unsafe {
            bindings::ipoib_rs_parts_alloc(
                &raw mut self.pools,
                self.count as c_uint,
                &raw mut new.0,
            )
        };
        made.then_some(new)
    }

    /// Makes an skb of the message of `len` bytes in `parts`. New memory takes the place of the parts that the
    /// skb gets; what is copied stays. The skb is for this host, and its data are the packet.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the message does not hold what `packet` says, or not in the head; `ENOMEM` if there is no
    /// memory, or if the pool is bound to another NAPI instance. `parts` has all that it had then, or new memory
    /// in its place.
    ///
    /// # Safety
    ///
    /// `parts` must be of this pool, and no device may have it; `len` must be no more than [`Self::capacity`].
    /// Before anything else, the skb is given a [link-layer header](RxSkb::set_link_header).
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
        if !packet.fits(head.len()) || (packet.gso != 0 && !packet.can_be_segmented(head, len)) {
            return Err(EINVAL);
        }
        if !self.heads.serves(context) {
            return Err(ENOMEM);
        }
        device.lend(len);
        // SAFETY: By this function's requirements and what was just checked; a poll runs.
        let skb = unsafe { self.build(parts, len, packet) };
        // Some of it may be new even if there is no skb.
        device.follow(parts, len);
        skb
    }

    /// Makes the skb of [`Self::exchange`].
    ///
    /// # Safety
    ///
    /// Softirqs must be disabled, in a poll that the pool serves or while it is not bound. `parts` must have a
    /// message of that length, which fits a buffer of the pool, and `packet` must fit the message.
    #[inline(always)]
    unsafe fn build(&mut self, parts: &mut Parts, len: usize, packet: Packet) -> Result<RxSkb> {
        // SAFETY: The pool is valid by the type invariant, and `&mut self` makes us its only user but for the
        // softirqs of its instance, whose poll runs if there is one.
        let new = unsafe { page_pool::next(&mut self.pools.heads, || true, false) };
        let new = new.ok_or(ENOMEM)?;
        let at = HEAD_ROOM.wrapping_add(packet.strip().into());
        let end = HEAD_ROOM.wrapping_add(len.min(HEAD_LEN));
        // SAFETY: The head is a fragment by the type invariants, as long as any other. The link headers are in it,
        // behind the room that the stack's need, since the packet fits. Softirqs are disabled.
        let skb = unsafe {
            let va = NonNull::new_unchecked(parts.0.va[0].cast());
            page_pool::build(va, self.pools.heads.size, at, end)
        };
        let Some(skb) = skb else {
            // SAFETY: It was just taken.
            unsafe { bindings::ipoib_rs_page_pool_put(new.as_ptr().cast()) };
            return Err(ENOMEM);
        };
        // INVARIANT: The old head is the skb's, and the new one as long.
        parts.0.va[0] = new.as_ptr().cast();
        let raw = skb.as_ptr();
        // SAFETY: A fresh skb is ours alone.
        let mut skb = unsafe { RxSkb::from_non_null(skb) };
        // SAFETY: Its data begin there. It is new, and nothing was said of it.
        unsafe { skb.set_packet(&packet, at as u16) };
        if len <= HEAD_LEN && packet.gso == 0 {
            return Ok(skb);
        }
        // SAFETY: As above. `parts` has the rest of the message, in as many bodies as it reaches, by this
        // function's requirements; its length fits a u32, as every buffer's does. The checksum is within the head,
        // and so are the headers of what is to be segmented.
        //
        // INVARIANT: What was taken from it is new memory of the same pools.
        let whole = unsafe {
            bindings::ipoib_rs_rx_rest(
                &raw mut self.pools,
                &raw mut parts.0,
                raw,
                len as c_uint,
                packet.gso,
            )
        };
        if whole {
            return Ok(skb);
        }
        skb.drop_reason(DropReason::NoMemory);
        Err(ENOMEM)
    }
}

impl Drop for PartsPool {
    fn drop(&mut self) {
        // It may be dropped elsewhere than in the poll that it is bound to.
        self.heads.unbind();
        // SAFETY: Owned by the type invariant; the pool is valid until the fields are dropped.
        unsafe { bindings::ipoib_rs_frags_drain(&raw mut self.pools.heads) };
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
/// * The others are null or whole pages of a page pool, of the body's length, owned by this value. None that
///   is null stands in front of one that is not. `pages` are the head pages of those that are not null.
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

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_netdev_parts)]
mod tests {
    use super::*;

    const IP_MESSAGE: usize = 65_535 + 16;

    /// State of a buffer after a message.
    struct Reached {
        /// Page fragments of the skb.
        frags: u8,
        cost: usize,
        /// True if the parts of the buffer are new ones.
        new: [bool; MAX_PARTS],
    }

    /// Receives a message of `len` bytes, and checks that all of it arrives.
    fn receive(pool: &mut PartsPool, len: usize) -> Result<Reached> {
        let mut parts = pool.alloc_sleeping().ok_or(ENOMEM)?;
        let before = parts.0.va;
        let mut byte = 0u8;
        let mut left = len;
        for (i, va) in parts.all().into_iter().enumerate() {
            let here = left.min(pool.part_len(i));
            left -= here;
            for at in 0..here {
                // SAFETY: The part has that many bytes, and is ours.
                unsafe { va.add(at).write(byte) };
                byte = byte.wrapping_mul(5).wrapping_add(1);
            }
        }
        assert_eq!(left, 0);
        // SAFETY: The pool is not bound, and the buffer has a message of that length.
        let skb = unsafe {
            bindings::ipoib_rs_bh_disable();
            let skb = pool.build(&mut parts, len, Packet::new(0, bindings::ETH_P_IP as u16));
            bindings::ipoib_rs_bh_enable();
            skb?
        };
        assert_eq!(skb.len(), len);
        let mut bytes = KVec::from_elem(0u8, len, GFP_KERNEL)?;
        let raw = skb.as_raw();
        // SAFETY: The skb is ours, and has as many bytes as there is room for.
        let (frags, cost) = unsafe {
            let to = bytes.as_mut_ptr().cast();
            assert_eq!(bindings::skb_copy_bits(raw, 0, to, len as i32), 0);
            let info = (*raw).head.add((*raw).end as usize);
            let info = info.cast::<bindings::skb_shared_info>();
            ((*info).nr_frags, (*raw).truesize as usize)
        };
        let mut byte = 0u8;
        for (at, got) in bytes.into_iter().enumerate() {
            assert_eq!((at, got), (at, byte));
            byte = byte.wrapping_mul(5).wrapping_add(1);
        }
        let new = core::array::from_fn(|i| !ptr::eq(before[i], parts.0.va[i]));
        Ok(Reached { frags, cost, new })
    }

    /// Cost of a message's memory: its head, the bodies that it takes, and what the end is copied to.
    fn cost(pool: &PartsPool, len: usize, new: &[bool; MAX_PARTS]) -> usize {
        /// Unit that lengths are rounded up to: a cache line.
        const LINE: usize = 64;
        let skb = size_of::<bindings::sk_buff>().next_multiple_of(LINE);
        let mut cost = pool.pools.heads.size as usize + skb;
        let mut rest = len.saturating_sub(HEAD_LEN);
        for (i, is_new) in new.iter().enumerate().skip(1) {
            let here = rest.min(pool.part_len(i));
            rest -= here;
            cost += match is_new {
                true => pool.part_len(i),
                false => here.next_multiple_of(LINE),
            };
        }
        cost
    }

    /// A message takes what it reaches, but for an end that would cost too much, which is copied. Sockets are charged for all
    /// of it.
    #[test]
    fn messages_cost_what_they_need() -> Result {
        let mut pool = PartsPool::new(IP_MESSAGE, MAX_PARTS, 16)?;
        for (len, frags, new) in [
            (100, 0, [true, false, false, false]),
            (580, 0, [true, false, false, false]),
            (2048, 1, [true, false, false, false]),
            (4096, 1, [true, true, false, false]),
            (8192, 1, [true, true, false, false]),
            (9004, 2, [true, true, false, false]),
            (16384, 2, [true, true, true, false]),
            (65524, 3, [true, true, true, true]),
        ] {
            let reached = receive(&mut pool, len)?;
            if PAGE_SIZE == 4096 {
                assert_eq!((reached.frags, reached.new), (frags, new));
                assert!(len < 1000 || reached.cost <= (sizes::MOST_COST + 1) * len);
            }
            assert_eq!(reached.cost, cost(&pool, len, &reached.new));
        }
        // With fewer parts as well.
        let mut pool = PartsPool::new(IP_MESSAGE, 2, 16)?;
        assert_eq!(pool.parts(), 2);
        for len in [100, 4096, 65524] {
            let reached = receive(&mut pool, len)?;
            assert_eq!(reached.cost, cost(&pool, len, &reached.new));
        }
        Ok(())
    }
}
