// SPDX-License-Identifier: GPL-2.0

//! Frames in several parts, for tests.

use ipoib_netdev::skb::TxSkb;
use ipoib_sys::bindings;
use kernel::alloc::flags::__GFP_ZERO;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

/// Bytes of the heads, and in fragments.
pub(crate) const HEAD: usize = 100;
pub(crate) const REST: usize = PAGE_SIZE + 900;

/// A frame of `head` bytes and, in two page fragments, [`REST`] more.
pub(crate) fn frame(head: usize) -> Result<TxSkb> {
    let mut err = 0;
    // SAFETY: Any lengths are valid; no flag asks it to wait. The frame has that much room behind its data, and
    // the fragments have what they are said to have.
    let skb = unsafe {
        let skb = bindings::alloc_skb_with_frags(HEAD, REST, 0, &raw mut err, 0);
        if skb.is_null() {
            return Err(ENOMEM);
        }
        (*skb).data_len = REST as u32;
        (*skb).len = REST as u32;
        (*skb).tail = (*skb).tail.wrapping_add(head as u32);
        (*skb).len += head as u32;
        TxSkb::from_raw(skb)
    };
    let is_so = (skb.len(), skb.headlen(), skb.nr_frags()) == (head + REST, head, 2);
    is_so.then_some(skb).ok_or(EPROTO)
}

/// The kernel addresses of the parts of a frame.
pub(crate) fn parts(skb: &TxSkb) -> Result<KVec<u64>> {
    let mut parts = KVec::new();
    let mut sges = [bindings::ib_sge::default(); 3];
    let mut virt = KBox::<bindings::ib_device>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
    // SAFETY: A device without one that maps has kernel addresses; there are that many elements.
    let n = unsafe {
        bindings::ipoib_rs_ib_map_skb(virt.as_mut_ptr(), skb.as_raw(), sges.as_mut_ptr(), 3)
    };
    for sge in sges.iter().take(n as usize) {
        parts.push(sge.addr, GFP_KERNEL)?;
    }
    Ok(parts)
}
