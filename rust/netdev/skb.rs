// SPDX-License-Identifier: GPL-2.0

//! Socket buffers, owned.
//!
//! C headers: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h).
//!
//! A [`TxSkb`] is a frame on its way out, an [`RxSkb`] one on its way in. Each owns its buffer and
//! leaves through a function that takes it by value: consumed when it was sent, dropped with a
//! [`DropReason`] when it was not, handed to GRO when it was received. One that merely goes out of
//! scope is freed as part of a queue that is thrown away.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_uint};
use kernel::prelude::*;

use crate::device::RawDevice;
use crate::napi;

mod metadata;
mod offload;
mod part;
mod path_mtu;
mod queue;
mod reason;

pub use crate::packet::{Gso, GsoKind};
pub use offload::{Keep, PartialChecksum, Segments, TcpSegments};
pub use queue::SkbQueue;
pub use reason::DropReason;

/// The most pieces that a frame consists of: its head and as many fragments as there may be.
pub const MAX_PARTS: usize = bindings::MAX_SKB_FRAGS as usize + 1;

/// Destination of a received frame other than this host alone, which a fresh skb is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketType {
    /// A multicast group.
    Multicast,
    /// Everybody on the link.
    Broadcast,
}

impl PacketType {
    #[inline]
    pub(crate) fn as_raw(self) -> u8 {
        let raw = match self {
            Self::Broadcast => bindings::PACKET_BROADCAST,
            Self::Multicast => bindings::PACKET_MULTICAST,
        };
        raw as u8
    }
}

/// # Safety
///
/// `skb` must be owned by the caller, who gives it up.
#[inline]
unsafe fn free(skb: NonNull<bindings::sk_buff>, reason: DropReason) {
    // SAFETY: Owned by this function's requirements. No socket is to be charged.
    unsafe { bindings::sk_skb_reason_drop(core::ptr::null(), skb.as_ptr(), reason.as_raw()) };
}

/// Bytes of `skb` that lie in its head.
///
/// # Safety
///
/// `skb` must be valid and unchanged meanwhile.
#[inline]
pub(crate) unsafe fn headlen(skb: *const bindings::sk_buff) -> usize {
    // SAFETY: Valid by this function's requirements; `data_len <= len` holds for every skb.
    unsafe { (*skb).len.wrapping_sub((*skb).data_len) as usize }
}

/// Returns the shared info behind the head of `skb`.
///
/// # Safety
///
/// `skb` must be valid.
#[inline]
unsafe fn shared_info(skb: *const bindings::sk_buff) -> *mut bindings::skb_shared_info {
    // SAFETY: Valid by this function's requirements; the shared info lies at `end` of every skb's
    // head.
    unsafe { (*skb).head.add((*skb).end as usize).cast() }
}

/// Returns true if `skb` is a GSO super-frame.
///
/// # Safety
///
/// `skb` must be valid and unchanged meanwhile.
#[inline]
pub(crate) unsafe fn is_gso(skb: *const bindings::sk_buff) -> bool {
    // SAFETY: By this function's requirements.
    unsafe { (*shared_info(skb)).gso_size != 0 }
}

/// Returns true if `skb` is a packet of this host's that may be fragmented though its header forbids that.
///
/// # Safety
///
/// `skb` must be valid and unchanged meanwhile.
#[inline]
pub(crate) unsafe fn ignores_df(skb: *const bindings::sk_buff) -> bool {
    // SAFETY: By this function's requirements; every view of the union holds integers only.
    unsafe { (*skb).__bindgen_anon_4.headers.as_ref().ignore_df() != 0 }
}

/// A frame on its way out.
///
/// # Invariants
///
/// `skb` is a valid skb, one reference to which is owned by this value, and which nobody else
/// changes.
#[must_use = "a frame is dropped when it goes out of scope; leave through a named exit"]
#[repr(transparent)]
pub struct TxSkb {
    skb: NonNull<bindings::sk_buff>,
}

// SAFETY: An owned skb may be handled and freed by any thread.
unsafe impl Send for TxSkb {}
// SAFETY: Shared references only read.
unsafe impl Sync for TxSkb {}

impl TxSkb {
    /// Takes over an skb that the stack hands to the driver.
    ///
    /// # Safety
    ///
    /// `skb` must be valid, not null, and the caller must own the reference that it gives up, as
    /// `ndo_start_xmit` does.
    #[inline]
    pub unsafe fn from_raw(skb: *mut bindings::sk_buff) -> Self {
        // INVARIANT: By this function's requirements.
        Self {
            // SAFETY: Not null by this function's requirements.
            skb: unsafe { NonNull::new_unchecked(skb) },
        }
    }

    /// Gives the skb up to the caller, who has to free it or give it back to the stack.
    #[inline]
    pub fn into_raw(self) -> *mut bindings::sk_buff {
        ManuallyDrop::new(self).skb.as_ptr()
    }

    /// The C side, still owned by this value.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sk_buff {
        self.skb.as_ptr()
    }

    #[inline]
    fn shared_info(&self) -> *mut bindings::skb_shared_info {
        // SAFETY: Valid by the type invariant.
        unsafe { shared_info(self.as_raw()) }
    }

    /// Bytes from the start of the data to the end of the frame.
    #[inline]
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.as_raw()).len as usize }
    }

    /// The address of the first byte of the data. Bytes that were taken off lie in front of it.
    #[inline]
    pub fn front(&self) -> *const u8 {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.as_raw()).data }
    }

    /// Bytes of it in the head, which [`Self::linear`] shows.
    #[inline]
    pub fn headlen(&self) -> usize {
        // SAFETY: Valid by the type invariant.
        unsafe { headlen(self.as_raw()) }
    }

    /// Returns true if all of it is in the head.
    #[inline]
    pub fn is_linear(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.as_raw()).data_len == 0 }
    }

    /// Page fragments behind the head.
    #[inline]
    pub fn nr_frags(&self) -> usize {
        // SAFETY: The shared info is valid.
        unsafe { usize::from((*self.shared_info()).nr_frags) }
    }

    /// Returns true if this is a GSO super-frame.
    #[inline]
    pub fn is_gso(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { is_gso(self.as_raw()) }
    }

    /// Returns true if this host, which has made the packet, may fragment it though its header forbids that.
    #[inline]
    pub fn ignores_df(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { ignores_df(self.as_raw()) }
    }

    /// The bytes in the head.
    #[inline]
    pub fn linear(&self) -> &[u8] {
        // SAFETY: The head holds `headlen` initialised bytes at `data`, and nobody changes them
        // by the type invariant.
        unsafe { core::slice::from_raw_parts((*self.as_raw()).data, self.headlen()) }
    }

    /// The first `N` bytes, to be changed: copied first if somebody shares them. What TCP shares with its clones is the
    /// payload only.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the head is shorter; `ENOMEM` if that copy could not be made.
    #[inline]
    pub fn header_mut<const N: usize>(&mut self) -> Result<&mut [u8; N]> {
        self.cow(0, N)?;
        if self.headlen() < N {
            return Err(EMSGSIZE);
        }
        // SAFETY: The head holds so many bytes, which nobody shares.
        Ok(unsafe { &mut *(*self.as_raw()).data.cast::<[u8; N]>() })
    }

    /// Takes `n` bytes off the front.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the frame is shorter or the head could not be extended by that much; the
    /// frame is then as it was.
    #[inline]
    pub fn pull(&mut self, n: usize) -> Result {
        if n > self.headlen() {
            let len = c_uint::try_from(n).map_err(|_| EMSGSIZE)?;
            // SAFETY: Valid and owned by the type invariant.
            if !unsafe { bindings::ipoib_rs_skb_may_pull(self.as_raw(), len) } {
                return Err(EMSGSIZE);
            }
        }
        let skb = self.as_raw();
        // SAFETY: Valid and owned by the type invariant; the head holds `n` bytes as was checked.
        unsafe {
            (*skb).len = (*skb).len.wrapping_sub(n as c_uint);
            (*skb).data = (*skb).data.add(n);
        }
        Ok(())
    }

    /// Takes `n` bytes off the front, and writes what follows over.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the frame is shorter or the head could not be extended by that much, `ENOMEM` if it
    /// could not be made ours to change; the frame is then as it was.
    #[inline]
    pub fn overwrite<const N: usize>(&mut self, n: usize, bytes: &[u8; N]) -> Result {
        let wanted = n.saturating_add(N);
        if self.headlen() < wanted || self.shares(wanted) {
            self.make_front(wanted)?;
        }
        let skb = self.as_raw();
        // SAFETY: Valid and owned by the type invariant; the head holds that many bytes, which nobody
        // shares.
        unsafe {
            (*skb).len = (*skb).len.wrapping_sub(n as c_uint);
            (*skb).data = (*skb).data.add(n);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), (*skb).data, N);
        }
        Ok(())
    }

    /// Makes the first `n` bytes ours to change.
    #[cold]
    fn make_front(&mut self, n: usize) -> Result {
        self.pull(n)?;
        let skb = self.as_raw();
        // SAFETY: Valid and owned by the type invariant; they were just taken off.
        unsafe {
            (*skb).len = (*skb).len.wrapping_add(n as c_uint);
            (*skb).data = (*skb).data.sub(n);
        }
        self.cow(0, n)
    }

    /// Puts `N` bytes in front of the data.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there was no room and none could be made; the frame is then as it was.
    #[inline]
    pub fn push<const N: usize>(&mut self, bytes: &[u8; N]) -> Result {
        self.cow_head(N)?;
        let skb = self.as_raw();
        // SAFETY: Valid and owned by the type invariant; `skb_cow_head` made `N` bytes of headroom
        // that nobody shares.
        unsafe {
            (*skb).data = (*skb).data.sub(N);
            (*skb).len = (*skb).len.wrapping_add(N as c_uint);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), (*skb).data, N);
        }
        Ok(())
    }

    /// Makes `headroom` bytes in front of the data, and the headers, ours to change.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than 65535, since where headers are is noted in 16 bits; `ENOMEM`.
    #[inline]
    pub fn cow_head(&mut self, headroom: usize) -> Result {
        self.cow(headroom, 0)
    }

    /// As [`Self::cow_head`], with the first `n` bytes of the data, as far as they are in the head.
    #[inline]
    fn cow(&mut self, headroom: usize, n: usize) -> Result {
        // They nearly always are.
        if headroom <= self.headroom() && !self.shares(n) {
            return Ok(());
        }
        self.make_head(headroom)
    }

    #[cold]
    fn make_head(&mut self, headroom: usize) -> Result {
        // C takes one from 2^31 on for a negative number, with which it stops the kernel.
        let headroom = u16::try_from(headroom).map_err(|_| EINVAL)?.into();
        // SAFETY: Valid and owned by the type invariant.
        to_result(unsafe { bindings::ipoib_rs_skb_cow(self.as_raw(), headroom) })
    }

    /// Bytes in front of the data.
    #[inline]
    pub(crate) fn headroom(&self) -> usize {
        let skb = self.as_raw();
        // SAFETY: Valid by the type invariant; the data lie behind the head's begin.
        unsafe { ((*skb).data as usize).wrapping_sub((*skb).head as usize) }
    }

    /// Returns true if somebody else may look at the headers or at the first `n` bytes, as `skb_clone_writable` has it.
    #[inline]
    fn shares(&self, n: usize) -> bool {
        let skb = self.as_raw();
        // SAFETY: Valid by the type invariant.
        if unsafe { (*skb).cloned() } == 0 {
            return false;
        }
        // SAFETY: The shared info is valid. The count is a word that others may write.
        let references =
            unsafe { (&raw const (*self.shared_info()).dataref.counter).read_volatile() as c_uint };
        // The upper half counts those of them that look at the payload only.
        let payload_only = references >> bindings::SKB_DATAREF_SHIFT;
        let headers = (references & bindings::SKB_DATAREF_MASK).wrapping_sub(payload_only);
        // SAFETY: Valid by the type invariant.
        let payload = usize::from(unsafe { (*skb).hdr_len });
        headers != 1 || (payload_only != 0 && self.headroom().wrapping_add(n) > payload)
    }

    /// The EtherType, in host order.
    #[inline]
    pub fn protocol(&self) -> u16 {
        // SAFETY: Valid by the type invariant; every view of the union holds integers only.
        u16::from_be(unsafe { (*self.as_raw()).__bindgen_anon_4.headers.as_ref().protocol })
    }

    /// Moves all fragments into the head.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the frame is then as it was.
    pub fn linearize(&mut self) -> Result {
        // SAFETY: Valid and owned by the type invariant.
        to_result(unsafe { bindings::ipoib_rs_skb_linearize(self.as_raw()) })
    }

    /// Frees a frame that was not sent.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline]
    pub fn drop_reason(self, reason: DropReason) {
        // SAFETY: `self` owned it and is forgotten.
        unsafe { free(ManuallyDrop::new(self).skb, reason) };
    }

    /// Frees a frame that was sent.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline]
    pub fn consume(self) {
        self.napi_consume(None);
    }

    /// Frees a frame that was sent, in bulk with others in a NAPI poll.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline]
    pub fn napi_consume(self, poll: Option<&napi::Context<'_>>) {
        let budget = c_int::from(poll.is_some());
        // SAFETY: `self` owned it and `into_raw` gave it up. With a budget the CPU's cache of skbs is ours,
        // since a NAPI poll runs on it.
        unsafe { bindings::napi_consume_skb(self.into_raw(), budget) };
    }
}

impl TxSkb {
    /// Has `dev` receive the frame, which has no link-layer header, instead of sending it.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    pub fn loop_back(self, dev: &RawDevice) {
        // SAFETY: `self` owned it and `into_raw` gave it up; the device is valid.
        unsafe { bindings::ipoib_rs_skb_loop_back(self.into_raw(), dev.as_raw()) };
    }

    /// Tells the socket that sent the frame the time, if it has asked for software timestamps: to be called when the device
    /// gets the frame.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline(always)]
    pub fn timestamp(&self) {
        const ASKED: u8 = (bindings::SKBTX_SW_TSTAMP | bindings::SKBTX_BPF) as u8;
        // SAFETY: The shared info is valid.
        if unsafe { (*self.shared_info()).tx_flags } & ASKED != 0 {
            self.report_time();
        }
    }

    #[cold]
    fn report_time(&self) {
        // SAFETY: Valid by the type invariant. A clone goes to the socket, and the frame stays as it is.
        unsafe { bindings::skb_tstamp_tx(self.as_raw(), core::ptr::null_mut()) };
    }

    /// Gives up a frame that a device may read at any time, for ever: its memory is lost. Nothing waits
    /// for it any more, such as a socket for its room, or the end of a namespace.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[cold]
    pub fn abandon(self) {
        // SAFETY: `self` owned it, and nobody frees it from now on.
        unsafe { bindings::ipoib_rs_skb_abandon(self.into_raw()) };
    }
}

impl Drop for TxSkb {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Owned by the type invariant.
        unsafe { free(self.skb, DropReason::QueuePurge) };
    }
}

/// A frame on its way in.
///
/// # Invariants
///
/// `skb` is a valid skb, the only reference to which is owned by this value. There are `IPOIB_RS_LINK_ROOM` bytes in
/// its head in front of its data, which are the packet.
#[must_use = "a frame is dropped when it goes out of scope; leave through a named exit"]
#[repr(transparent)]
pub struct RxSkb {
    skb: NonNull<bindings::sk_buff>,
}

// SAFETY: An owned skb may be handled and freed by any thread.
unsafe impl Send for RxSkb {}
// SAFETY: Shared references only read.
unsafe impl Sync for RxSkb {}

impl RxSkb {
    /// Takes over an skb.
    ///
    /// # Safety
    ///
    /// `skb` must be valid and owned by the caller alone, who gives it up, and has the room in front of its data that
    /// the type's invariant says. Before anything else, it is given a [link-layer header](Self::set_link_header).
    #[inline]
    pub(crate) unsafe fn from_non_null(skb: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By this function's requirements.
        Self { skb }
    }

    /// The C side, still owned by this value.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sk_buff {
        self.skb.as_ptr()
    }

    /// Bytes from the start of the data to the end of the frame.
    #[inline]
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.as_raw()).len as usize }
    }

    /// Passes the frame up the stack, as one that the device of `napi` received; through GRO, unless it came `alone`: then
    /// there is nothing to merge it with.
    ///
    /// # Context
    ///
    /// The NAPI poll that `napi` stands for.
    // For every frame; left to itself, the compiler calls it.
    #[inline(always)]
    pub fn poll_receive(self, napi: &napi::Context<'_>, alone: bool) {
        let skb = ManuallyDrop::new(self).skb.as_ptr();
        let napi = napi.as_raw();
        // SAFETY: The skb was owned and is given up; the poll of `napi` runs now, so that its
        // device is valid and its GRO state ours.
        unsafe {
            (*skb)
                .__bindgen_anon_1
                .__bindgen_anon_1
                .__bindgen_anon_1
                .dev = (*napi).dev;
            if alone {
                bindings::ipoib_rs_rx_alone(napi, skb);
            } else {
                bindings::gro_receive_skb(&raw mut (*napi).gro, skb);
            }
        }
    }

    /// Passes the frame up the stack, as one that `dev` received, when there is no NAPI poll.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn receive(self, dev: &RawDevice) {
        let skb = ManuallyDrop::new(self).skb.as_ptr();
        // SAFETY: The skb was owned and is given up; the device is valid.
        unsafe { bindings::ipoib_rs_skb_receive(skb, dev.as_raw()) };
    }

    /// Frees a frame that was not received.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    #[inline]
    pub fn drop_reason(self, reason: DropReason) {
        // SAFETY: `self` owned it and is forgotten.
        unsafe { free(ManuallyDrop::new(self).skb, reason) };
    }
}

impl Drop for RxSkb {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Owned by the type invariant.
        unsafe { free(self.skb, DropReason::QueuePurge) };
    }
}
