// SPDX-License-Identifier: GPL-2.0

//! Frames that are to be sent.

use core::ptr::NonNull;
use core::slice;

use ipoib_sys::bindings;

/// The payload of a frame that is to be sent, without the device's header.
///
/// # Invariants
///
/// `skb` is a socket buffer that this owns, linear, and nobody else has. `bytes` are its `len` bytes, initialised.
pub struct Frame {
    skb: NonNull<bindings::sk_buff>,
    bytes: NonNull<u8>,
    len: usize,
}

// SAFETY: A socket buffer that nobody else has may be used by any thread.
unsafe impl Send for Frame {}

impl Frame {
    /// Makes one of `len` zeroes; `None` if there is no memory.
    ///
    /// # Context
    ///
    /// Any.
    pub fn new(len: usize) -> Option<Self> {
        let size = u32::try_from(len).ok().filter(|&size| size <= 1 << 16)?;
        let mut bytes = core::ptr::null_mut();
        // SAFETY: `bytes` is valid for writes.
        let skb = unsafe { bindings::raw_ether_alloc(size, &mut bytes) };
        // INVARIANT: The helper returns a new buffer, and has set `bytes` to its zeroed bytes.
        Some(Self {
            skb: NonNull::new(skb)?,
            bytes: NonNull::new(bytes)?,
            len,
        })
    }

    /// Bytes of the payload.
    // It may be asked for a length of zero, and nobody does.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The payload.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: By the type invariant, nobody else has them.
        unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len) }
    }

    /// The socket buffer, to be given to C.
    pub(crate) fn into_raw(self) -> *mut bindings::sk_buff {
        let skb = self.skb.as_ptr();
        core::mem::forget(self);
        skb
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, this owns it.
        unsafe { bindings::raw_ether_drop(self.skb.as_ptr()) };
    }
}
