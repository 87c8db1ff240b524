// SPDX-License-Identifier: GPL-2.0

//! Atomics of the kernel.

use core::sync::atomic::{compiler_fence, Ordering};

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

/// True if the processor keeps loads in front of all that follows, and stores behind all that came before, so that
/// only the compiler has to be kept from reordering them, as in `smp_load_acquire()` and `smp_store_release()`. The
/// `kernel` crate's are calls of C functions.
const KEEPS_ORDER: bool = cfg!(CONFIG_X86_64);

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
                if !KEEPS_ORDER {
                    return self.load(Acquire);
                }
                let value = Relax::get(self);
                compiler_fence(Ordering::Acquire);
                value
            }
            #[inline(always)]
            fn store_release(&self, value: $value) {
                if !KEEPS_ORDER {
                    return self.store(value, Release);
                }
                compiler_fence(Ordering::Release);
                Relax::set(self, value);
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
