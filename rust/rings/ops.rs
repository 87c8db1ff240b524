// SPDX-License-Identifier: GPL-2.0

//! Accesses to atomics, whosever they are.

/// Accesses to an atomic.
pub trait Ops<T> {
    /// Loads, relaxed.
    fn get(&self) -> T;
    /// Stores, relaxed.
    fn set(&self, value: T);
    /// Loads before all that comes later.
    fn load_acquire(&self) -> T;
    /// Stores after all that came earlier.
    fn store_release(&self, value: T);
    /// Exchanges, in full order.
    fn swap_full(&self, value: T) -> T;
    /// Exchanges `old` for `new`, in full order.
    ///
    /// # Errors
    ///
    /// The value, if it is not `old`.
    fn replace_full(&self, old: T, new: T) -> Result<T, T>;
}

/// Sums in atomics.
pub trait Add<T> {
    /// Adds, wrapping around, in full order; returns what there was before.
    fn add_full(&self, value: T) -> T;
}
