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
    pub fn iter<const N: usize>(&self) -> Addresses<'a, N> {
        const { assert!(N <= bindings::MAX_ADDR_LEN as usize) };
        // SAFETY: `list` is valid by the type invariant.
        let head = unsafe { &raw const (*self.list).list };
        Addresses {
            head,
            // SAFETY: As above; a list head's `next` is always valid.
            next: unsafe { (*head).next },
            _lifetime: PhantomData,
        }
    }
}

/// Iterator over an [`AddressList`].
///
/// # Invariants
///
/// `next` is `head` or a list node inside a `netdev_hw_addr`, both valid and unchanged during `'a`.
pub struct Addresses<'a, const N: usize> {
    head: *const bindings::list_head,
    next: *const bindings::list_head,
    _lifetime: PhantomData<&'a bindings::netdev_hw_addr_list>,
}

impl<const N: usize> Iterator for Addresses<'_, N> {
    type Item = [u8; N];

    fn next(&mut self) -> Option<[u8; N]> {
        if core::ptr::eq(self.next, self.head) {
            return None;
        }
        // SAFETY: By the type invariant, `next` is not the head, hence a node inside a
        // `netdev_hw_addr`.
        let entry = unsafe { kernel::container_of!(self.next, bindings::netdev_hw_addr, list) };
        let mut address = [0; N];
        // SAFETY: The entry is valid during `'a` and `N <= MAX_ADDR_LEN` was checked by `iter`.
        unsafe {
            core::ptr::copy_nonoverlapping(
                (&raw const (*entry).addr).cast::<u8>(),
                address.as_mut_ptr(),
                N,
            );
        }
        // SAFETY: As above. INVARIANT: The successor of a node is a node or the head.
        self.next = unsafe { (*self.next).next };
        Some(address)
    }
}
