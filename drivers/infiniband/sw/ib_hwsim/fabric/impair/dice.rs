// SPDX-License-Identifier: GPL-2.0

//! Numbers from a seed.

/// A sequence of numbers from a seed: SplitMix64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dice(u64);

/// The step from a state to the next one: an odd number near 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of a state.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Dice {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The sequence of a thing, of which a seed has as many as there are names and numbers.
    pub fn of(seed: u64, name: &str, number: u8) -> Dice {
        let first = mix(seed.wrapping_add(STEP));
        let add = |state: u64, byte: u8| mix(state.wrapping_add(STEP) ^ u64::from(byte));
        Dice(add(name.bytes().fold(first, add), number))
    }

    /// Returns the next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns a number below `sides`; 0 if that is 0.
    pub fn below(&mut self, sides: u32) -> u32 {
        let high = self.roll() >> 32;
        (high.wrapping_mul(u64::from(sides)) >> 32) as u32
    }

    /// Draws whether something happens that does in `ppm` cases of a million.
    pub fn draw(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < ppm
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_dice))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// The numbers of the authors' own program for this seed.
    #[test]
    fn the_sequence_is_splitmix64() {
        let mut dice = Dice::new(1_234_567);
        for number in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ] {
            assert_eq!(dice.roll(), number);
        }
    }

    #[test]
    fn each_thing_has_a_sequence_of_its_own() {
        let mut seen = [0; 8];
        for (i, place) in (0u8..).zip(&mut seen) {
            let name = if i & 2 != 0 { "one" } else { "two" };
            *place = Dice::of(u64::from(i >> 2), name, i & 1).roll();
        }
        for (i, a) in seen.iter().enumerate() {
            assert!(!seen[i + 1..].contains(a));
        }
        assert_eq!(Dice::of(7, "one", 1), Dice::of(7, "one", 1));
    }

    #[test]
    fn what_never_and_what_always_happens() {
        let mut dice = Dice::new(1);
        for _ in 0..10_000 {
            assert!(!dice.draw(0));
            assert!(dice.draw(1_000_000));
            assert_eq!(dice.below(0), 0);
            assert_eq!(dice.below(1), 0);
            assert!(dice.below(3) < 3);
        }
    }
}
