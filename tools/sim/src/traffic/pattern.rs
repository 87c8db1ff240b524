// SPDX-License-Identifier: GPL-2.0

//! Bytes that both ends know: those of SplitMix64 from a number.

/// A sequence of bytes.
#[derive(Clone, Copy)]
pub(super) struct Pattern(u64);

impl Pattern {
    /// The sequence of a seed and a number.
    pub(super) fn of(seed: u64, number: u64) -> Pattern {
        Pattern(mixed(seed ^ mixed(number)))
    }

    /// A length up to `most` that belongs to the sequence; most are short, some are long.
    pub(super) fn length(self, most: u64) -> usize {
        let random = mixed(!self.0);
        let most = most >> (random % 8);
        usize::try_from((random >> 8) % most.max(1)).unwrap_or(0)
    }

    /// Its first bytes.
    pub(super) fn bytes(self, length: usize) -> Vec<u8> {
        self.from(0, length)
    }

    /// So many of its bytes, from one on.
    pub(super) fn from(self, first: usize, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 16);
        let mut word = first / 8;
        let skipped = first % 8;
        while bytes.len() < skipped + length {
            bytes.extend(mixed(self.0.wrapping_add(word as u64)).to_le_bytes());
            word += 1;
        }
        bytes.drain(..skipped);
        bytes.truncate(length);
        bytes
    }
}

/// SplitMix64's output for a state.
fn mixed(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn parts_are_those_of_the_whole() {
        let pattern = Pattern::of(1, 2);
        let all = pattern.bytes(100);
        assert_eq!(all.len(), 100);
        for first in 0..40 {
            assert_eq!(pattern.from(first, 33), all[first..first + 33]);
        }
        assert_ne!(all, Pattern::of(1, 3).bytes(100));
        assert!((0..1000).all(|n| Pattern::of(0, n).length(2000) < 2000));
        assert!((0..1000).any(|n| Pattern::of(0, n).length(2000) > 1500));
    }
}
