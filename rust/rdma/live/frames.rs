// SPDX-License-Identifier: GPL-2.0

//! Frames in several parts, each byte of which is known.

use ipoib_netdev::live::Ends;
use ipoib_netdev::skb::TxSkb;
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::prelude::*;

/// Byte `at` of a frame: no two pages are alike.
pub(super) fn byte(at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8)) as u8
}

/// Returns true if those are the first bytes of a frame, or of what follows `from` bytes of it.
pub(super) fn is_whole(bytes: &[u8], from: usize) -> bool {
    bytes.iter().zip(from..).all(|(is, at)| *is == byte(at))
}

/// A frame of `head` bytes and, in page fragments, `rest` more, whose end is counted.
pub(super) fn frame(head: usize, rest: usize) -> Result<TxSkb> {
    let mut bytes = KVVec::with_capacity(head + rest, GFP_KERNEL)?;
    for at in 0..head + rest {
        bytes.push(byte(at), GFP_KERNEL)?;
    }
    let mut err = 0;
    // SAFETY: Any lengths are valid. The frame has that much room behind its data, and the fragments have what they are
    // said to have; all of it is written.
    unsafe {
        let skb = bindings::alloc_skb_with_frags(head, rest, 0, &raw mut err, 0);
        if skb.is_null() {
            return Err(ENOMEM);
        }
        (*skb).data_len = rest as u32;
        (*skb).tail = (*skb).tail.wrapping_add(head as u32);
        (*skb).len = (head + rest) as u32;
        let skb = Ends::watch(TxSkb::from_raw(skb));
        let len = bytes.len() as i32;
        to_result(bindings::skb_store_bits(
            skb.as_raw(),
            0,
            bytes.as_ptr().cast(),
            len,
        ))?;
        Ok(skb)
    }
}
