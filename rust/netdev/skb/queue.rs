// SPDX-License-Identifier: GPL-2.0

//! A bounded queue of frames that wait.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;

use super::{DropReason, TxSkb};

/// Frames in the order in which they came, bounded in number and in bytes.
///
/// The frames are linked through themselves, so that queueing allocates nothing.
///
/// # Invariants
///
/// `head` is null or the first of a list of owned skbs linked by `next`, `len` long, whose lengths
/// sum up to `bytes`; the last is `tail` and has a null `next`. `tail` is meaningless if `head` is
/// null.
pub struct SkbQueue {
    head: *mut bindings::sk_buff,
    tail: *mut bindings::sk_buff,
    len: usize,
    bytes: usize,
    max_len: usize,
    max_bytes: usize,
}

// SAFETY: The queue owns its frames, which any thread may handle.
unsafe impl Send for SkbQueue {}
// SAFETY: Shared references only read counts.
unsafe impl Sync for SkbQueue {}

impl SkbQueue {
    /// An empty queue that holds at most `max_len` frames with `max_bytes` bytes in all; one
    /// frame is taken whatever its length.
    pub const fn new(max_len: usize, max_bytes: usize) -> Self {
        // INVARIANT: An empty list.
        Self {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
            len: 0,
            bytes: 0,
            max_len,
            max_bytes,
        }
    }

    /// How many frames wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// How many bytes wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts a frame at the end.
    ///
    /// # Errors
    ///
    /// The frame, if a bound would be broken.
    pub fn push(&mut self, skb: TxSkb) -> core::result::Result<(), TxSkb> {
        let bytes = self.bytes.saturating_add(skb.len());
        if self.len >= self.max_len || (self.len > 0 && bytes > self.max_bytes) {
            return Err(skb);
        }
        let skb = skb.into_raw();
        // SAFETY: `skb` is owned; its list fields belong to whoever owns it.
        unsafe { set_next(skb, ptr::null_mut()) };
        if self.head.is_null() {
            self.head = skb;
        } else {
            // SAFETY: `tail` is an owned skb by the type invariant.
            unsafe { set_next(self.tail, skb) };
        }
        // INVARIANT: `skb` was owned, was linked behind the last and has no successor.
        self.tail = skb;
        self.len += 1;
        self.bytes = bytes;
        Ok(())
    }

    /// Takes the first frame.
    pub fn pop(&mut self) -> Option<TxSkb> {
        let skb = NonNull::new(self.head)?.as_ptr();
        // SAFETY: `head` is an owned skb by the type invariant.
        unsafe {
            // INVARIANT: The successor is the first of what is left.
            self.head = (*skb).__bindgen_anon_1.__bindgen_anon_1.next;
            // The stack takes a successor for a segment of the same frame.
            set_next(skb, ptr::null_mut());
        }
        self.len -= 1;
        // SAFETY: Not null, and owned by the queue, which has unlinked it.
        let skb = unsafe { TxSkb::from_raw(skb) };
        self.bytes -= skb.len();
        Some(skb)
    }

    /// Drops all frames; says how many.
    pub fn purge(&mut self, reason: DropReason) -> usize {
        let len = self.len;
        while let Some(skb) = self.pop() {
            skb.drop_reason(reason);
        }
        len
    }
}

/// # Safety
///
/// `skb` must be owned by the caller.
pub(super) unsafe fn set_next(skb: *mut bindings::sk_buff, next: *mut bindings::sk_buff) {
    // SAFETY: Owned by this function's requirements.
    unsafe { (*skb).__bindgen_anon_1.__bindgen_anon_1.next = next };
}

impl Drop for SkbQueue {
    fn drop(&mut self) {
        self.purge(DropReason::QueuePurge);
    }
}
