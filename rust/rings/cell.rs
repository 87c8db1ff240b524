// SPDX-License-Identifier: GPL-2.0

//! A cell that belongs to one thread at a time.

use core::cell::UnsafeCell;

/// A value to which a pointer can be had through a shared reference.
#[repr(transparent)]
#[derive(Default)]
pub struct Cell<T>(UnsafeCell<T>);

// SAFETY: Whoever dereferences a pointer to the value ensures that nobody else does.
unsafe impl<T: Send> Sync for Cell<T> {}

impl<T> Cell<T> {
    /// A cell with a value.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer to read the value by.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer to change the value by.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
