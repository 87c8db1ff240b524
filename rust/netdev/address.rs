// SPDX-License-Identifier: GPL-2.0

//! The link-layer addresses that the stack wants an interface to receive.

use core::marker::PhantomData;

use ipoib_sys::bindings;

/// A snapshot of an interface's multicast address list.
///
/// # Invariants
///
/// `list` is a valid list that nobody changes during `'a`.
pub struct AddressList<'a> {
    list: *const bindings::netdev_hw_addr_list,
    _lifetime: PhantomData<&'a bindings::netdev_hw_addr_list>,
}

impl<'a> AddressList<'a> {
    /// Wraps the list that C passed.
    ///
    /// # Safety
    ///
    /// `list` must be valid and unchanged during `'a`.
    pub(crate) unsafe fn from_raw(list: *const bindings::netdev_hw_addr_list) -> Self {
        // INVARIANT: By this function's requirements.
        Self {
            list,
            _lifetime: PhantomData,
        }
    }

    /// The addresses, the first `N` bytes of each.
    pub fn iter<const N: usize>(&self) -> impl Iterator<Item = [u8; N]> + 'a {
        const { assert!(N <= bindings::MAX_ADDR_LEN as usize) };
        // SAFETY: `list` is valid by the type invariant.
        let head = unsafe { &raw const (*self.list).list };
        // SAFETY: As above; a list head's `next` is always valid.
        let mut next = unsafe { (*head).next.cast_const() };
        core::iter::from_fn(move || {
            if core::ptr::eq(next, head) {
                return None;
            }
            // SAFETY: `next` is not the head, hence a node inside a `netdev_hw_addr`, which is valid and unchanged
            // during `'a`.
            let entry = unsafe { kernel::container_of!(next, bindings::netdev_hw_addr, list) };
            let mut address = [0; N];
            // SAFETY: The entry is valid during `'a` and `N <= MAX_ADDR_LEN` was checked.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    (&raw const (*entry).addr).cast::<u8>(),
                    address.as_mut_ptr(),
                    N,
                );
            }
            // SAFETY: As above. The successor of a node is a node or the head.
            next = unsafe { (*next).next };
            Some(address)
        })
    }
}
