// SPDX-License-Identifier: GPL-2.0

//! Frames that we make: of bytes, or of a part of another frame.

use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::ffi::c_uint;
use kernel::prelude::*;

use super::TxSkb;

impl TxSkb {
    /// A new frame of these bytes, with room for a link-layer address in front of them, charged to no
    /// socket.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    pub fn new(bytes: &[u8]) -> Result<TxSkb> {
        // With the room in front, a longer one could overflow in C.
        let len: c_uint = u16::try_from(bytes.len()).map_err(|_| EINVAL)?.into();
        // SAFETY: There are that many bytes.
        let skb = unsafe { bindings::ipoib_rs_skb_new(bytes.as_ptr().cast(), len) };
        let skb = NonNull::new(skb).ok_or(ENOMEM)?;
        // INVARIANT: Just made, and ours.
        Ok(TxSkb { skb })
    }

    /// A new frame that begins with the first `link` bytes of this one, then has `header`, then
    /// the `len` bytes of this one's packet from `offset` on; the packet is what lies behind those
    /// `link` bytes.
    ///
    /// It is for the same device, of the same EtherType, flow, priority and mark, has all bytes in
    /// its head and room for a link-layer address in front of them, and is charged to no socket.
    ///
    /// # Errors
    ///
    /// `EINVAL` if this frame has a checksum or a segmentation that is yet to be made, or has no
    /// such bytes, or not the first `link` of them in its head, or if its packet is shorter than
    /// `header`; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Any but hard interrupt.
    pub fn copy_part(
        &self,
        link: usize,
        header: &[u8],
        offset: usize,
        len: usize,
    ) -> Result<TxSkb> {
        if self.needs_checksum() || self.is_gso() || link > self.headlen() {
            return Err(EINVAL);
        }
        let packet = self.len() - link;
        if offset > packet || len > packet - offset || header.len() > packet {
            return Err(EINVAL);
        }
        // All are no more than the frame's length.
        let (link, offset, len) = (link as c_uint, offset as c_uint, len as c_uint);
        // SAFETY: Valid by the type invariant and unchanged meanwhile; the lengths were checked.
        let skb = unsafe {
            bindings::ipoib_rs_skb_copy_part(
                self.as_raw(),
                link,
                header.as_ptr().cast(),
                header.len() as c_uint,
                offset,
                len,
            )
        };
        let skb = NonNull::new(skb).ok_or(ENOMEM)?;
        // INVARIANT: Just made, and ours.
        Ok(TxSkb { skb })
    }
}
