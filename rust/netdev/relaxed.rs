// SPDX-License-Identifier: GPL-2.0

//! Relaxed loads and stores without a call.
//!
//! Those of the `kernel` crate are calls of C functions, for want of inlining across languages. In the
//! kernel's memory model they are volatile accesses, which need none.

use kernel::sync::atomic::{Atomic, AtomicType};

mod private {
    pub trait Sealed {}
}

/// Atomics with relaxed loads and stores.
pub trait Word: AtomicType + Copy + private::Sealed {}

impl private::Sealed for bool {}
impl Word for bool {}
impl private::Sealed for u32 {}
impl Word for u32 {}
impl private::Sealed for usize {}
impl Word for usize {}
impl private::Sealed for u64 {}
impl Word for u64 {}
impl<T> private::Sealed for *mut T {}
impl<T> Word for *mut T {}

/// The accesses.
pub trait Relax<T> {
    /// Loads the value, relaxed.
    fn get(&self) -> T;

    /// Stores the value, relaxed.
    fn set(&self, value: T);
}

impl<T: Word> Relax<T> for Atomic<T> {
    #[inline(always)]
    fn get(&self) -> T {
        // SAFETY: The pointer is valid as long as the reference, and a volatile load of a word is no
        // data race in the kernel's memory model.
        unsafe { self.as_ptr().read_volatile() }
    }

    #[inline(always)]
    fn set(&self, value: T) {
        // SAFETY: As above.
        unsafe { self.as_ptr().write_volatile(value) };
    }
}
