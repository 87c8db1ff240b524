// SPDX-License-Identifier: GPL-2.0

//! Memory for the tables of `proto/`, which do not allocate.

use core::borrow::{Borrow, BorrowMut};

use kernel::prelude::*;

/// A fixed number of elements in one allocation.
pub(crate) struct Storage<E>(KVVec<E>);

impl<E> Storage<E> {
    /// `len` elements, each made by `element`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `element`.
    pub(crate) fn new(len: usize, mut element: impl FnMut() -> Result<E>) -> Result<Self> {
        let mut elements = KVVec::with_capacity(len, GFP_KERNEL)?;
        for _ in 0..len {
            elements.push(element()?, GFP_KERNEL)?;
        }
        Ok(Self(elements))
    }
}

impl<E> Borrow<[E]> for Storage<E> {
    #[inline]
    fn borrow(&self) -> &[E] {
        &self.0
    }
}

impl<E> BorrowMut<[E]> for Storage<E> {
    #[inline]
    fn borrow_mut(&mut self) -> &mut [E] {
        &mut self.0
    }
}
