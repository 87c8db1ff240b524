// SPDX-License-Identifier: GPL-2.0

//! Atomics of the host, those of `crate::atomic`, with the orderings that the kernel's have.

pub use crate::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};

use crate::atomic::fence;
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::ops::{Add, Ops};

/// Runs an operation in full order.
fn fully<R>(f: impl FnOnce() -> R) -> R {
    fence(SeqCst);
    let result = f();
    fence(SeqCst);
    result
}

macro_rules! ops {
    ($($atomic:ty, $value:ty $(, $generic:ident)?;)*) => {$(
        impl$(<$generic>)? Ops<$value> for $atomic {
            fn get(&self) -> $value {
                self.load(Relaxed)
            }
            fn set(&self, value: $value) {
                self.store(value, Relaxed);
            }
            fn load_acquire(&self) -> $value {
                self.load(Acquire)
            }
            fn store_release(&self, value: $value) {
                self.store(value, Release);
            }
            fn swap_full(&self, value: $value) -> $value {
                fully(|| self.swap(value, AcqRel))
            }
            fn replace_full(&self, old: $value, new: $value) -> Result<$value, $value> {
                fully(|| self.compare_exchange(old, new, AcqRel, Relaxed))
            }
        }
    )*};
}

ops! {
    AtomicBool, bool;
    AtomicU32, u32;
    AtomicUsize, usize;
    AtomicPtr<T>, *mut T, T;
}

impl Add<u32> for AtomicU32 {
    fn add_full(&self, value: u32) -> u32 {
        fully(|| self.fetch_add(value, AcqRel))
    }
}

impl Add<usize> for AtomicUsize {
    fn add_full(&self, value: usize) -> usize {
        fully(|| self.fetch_add(value, AcqRel))
    }
}
