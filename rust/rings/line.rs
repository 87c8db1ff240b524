// SPDX-License-Identifier: GPL-2.0

//! Cache lines.

use core::ops::Deref;

/// The size of a cache line in bytes, on all architectures that this is built for.
pub const LEN: usize = 64;

/// A value with cache lines of its own: writing it takes no other value from other CPUs' caches.
#[repr(align(64))]
pub struct Line<T>(T);

const _: () = assert!(align_of::<Line<u8>>() == LEN && size_of::<Line<u8>>() == LEN);

impl<T> Line<T> {
    /// A value in a line of its own.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Line<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
