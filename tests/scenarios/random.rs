// SPDX-License-Identifier: GPL-2.0

//! Random numbers that come again with their seed.

/// Random numbers from a seed: xorshift64*.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(high).unwrap_or(0) % limit
    }

    /// One of several.
    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
