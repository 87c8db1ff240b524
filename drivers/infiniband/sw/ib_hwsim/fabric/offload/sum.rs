// SPDX-License-Identifier: GPL-2.0

//! The sum of the Internet's checksums (RFC 1071).

/// One's complement sum of 16-bit words in network order, of bytes that come in blocks of any length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    total: u64,
    /// The bytes so far end within a word.
    odd: bool,
}

/// Adds the carries of a sum to its low 16 bits.
fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff).wrapping_add(total >> 16);
    }
    total as u16
}

impl Sum {
    /// Returns the sum of nothing.
    pub const fn new() -> Sum {
        Sum {
            total: 0,
            odd: false,
        }
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let words = bytes.chunks(2).map(|word| match *word {
            [high, low] => u16::from_be_bytes([high, low]),
            // The last word is padded with zero.
            [high] => u16::from_be_bytes([high, 0]),
            _ => 0,
        });
        // There are fewer than 2^48 words.
        let sum = words.fold(0u64, |sum, word| sum.wrapping_add(word.into()));
        self.append(fold(sum), bytes.len());
    }

    /// Adds a block of bytes, of which the sum is known: over words in the order of the machine, with the carries in
    /// the upper half, as `csum_partial()` returns it.
    pub fn add_block(&mut self, sum: u32, len: usize) {
        let native = fold(sum.into()).to_ne_bytes();
        self.append(u16::from_be_bytes(native), len);
    }

    /// Adds a number as a word of its own.
    pub(super) fn add_word(&mut self, word: u16) {
        self.add(&word.to_be_bytes());
    }

    /// Adds a block's sum. Behind an odd number of bytes, its high bytes are the low ones of these words.
    fn append(&mut self, sum: u16, len: usize) {
        let sum = if self.odd { sum.swap_bytes() } else { sum };
        // There are fewer than 2^48 blocks.
        self.total = self.total.wrapping_add(sum.into());
        self.odd ^= len % 2 != 0;
    }

    /// Returns the checksum, which is the complement.
    pub fn checksum(&self) -> u16 {
        !fold(self.total)
    }

    /// Tells whether the bytes, of which some are their checksum, are as they should be.
    pub fn is_right(&self) -> bool {
        self.checksum() == 0
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_offload_sum))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// The example of RFC 1071, section 3.
    const EXAMPLE: [u8; 8] = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];

    #[test]
    fn example_of_rfc_1071() {
        let mut sum = Sum::new();
        sum.add(&EXAMPLE);
        assert_eq!(sum.checksum(), !0xddf2);
        sum.add(&(!0xddf2u16).to_be_bytes());
        assert!(sum.is_right());
    }

    #[test]
    fn blocks_of_any_length() {
        for first in 0..=EXAMPLE.len() {
            for second in first..=EXAMPLE.len() {
                let mut sum = Sum::new();
                for range in [0..first, first..second, second..EXAMPLE.len()] {
                    sum.add(&EXAMPLE[range]);
                }
                assert_eq!(sum.checksum(), !0xddf2);
            }
        }
    }

    #[test]
    fn blocks_that_the_machine_has_summed() {
        for at in 0..=EXAMPLE.len() {
            let (first, second) = EXAMPLE.split_at(at);
            let mut sum = Sum::new();
            sum.add(first);
            let native = second.chunks(2).fold(0u32, |sum, word| {
                let low = word.get(1).copied().unwrap_or(0);
                sum + u32::from(u16::from_ne_bytes([word[0], low]))
            });
            sum.add_block(native, second.len());
            assert_eq!(sum.checksum(), !0xddf2);
        }
    }
}
