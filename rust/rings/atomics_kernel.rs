// SPDX-License-Identifier: GPL-2.0

//! Atomics of the kernel.

use ipoib_netdev::relaxed::Relax;
use kernel::sync::atomic::{Acquire, Atomic, Full, Release};

use crate::ops::{Add, Ops};

/// A flag.
pub type AtomicBool = Atomic<bool>;
/// A count.
pub type AtomicU32 = Atomic<u32>;
/// A sum.
pub type AtomicUsize = Atomic<usize>;
/// A pointer.
pub type AtomicPtr<T> = Atomic<*mut T>;

macro_rules! ops {
    ($($value:ty $(, $generic:ident)?;)*) => {$(
        impl$(<$generic>)? Ops<$value> for Atomic<$value> {
            #[inline(always)]
            fn get(&self) -> $value {
                Relax::get(self)
            }
            #[inline(always)]
            fn set(&self, value: $value) {
                Relax::set(self, value);
            }
            #[inline(always)]
            fn load_acquire(&self) -> $value {
                self.load(Acquire)
            }
            #[inline(always)]
            fn store_release(&self, value: $value) {
                self.store(value, Release);
            }
            #[inline(always)]
            fn swap_full(&self, value: $value) -> $value {
                self.xchg(value, Full)
            }
            #[inline(always)]
            fn replace_full(&self, old: $value, new: $value) -> Result<$value, $value> {
                self.cmpxchg(old, new, Full)
            }
        }
    )*};
}

ops! {
    bool;
    u32;
    usize;
    *mut T, T;
}

impl Add<u32> for AtomicU32 {
    #[inline(always)]
    fn add_full(&self, value: u32) -> u32 {
        self.fetch_add(value, Full)
    }
}

impl Add<usize> for AtomicUsize {
    #[inline(always)]
    fn add_full(&self, value: usize) -> usize {
        self.fetch_add(value, Full)
    }
}
