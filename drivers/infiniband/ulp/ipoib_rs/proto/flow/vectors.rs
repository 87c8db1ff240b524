// SPDX-License-Identifier: GPL-2.0

//! Completion vectors: which of a device's interrupts an interface's queues use, and so which CPUs.

use core::num::NonZero;

/// The vectors of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// For what is received, by datagrams and by connections, since one poll takes both.
    pub receive: u32,
    /// For what was sent.
    pub send: u32,
}

impl Vectors {
    /// Returns the vectors of the `n`th interface on a device with `count` vectors. Its two polls run side by side, and
    /// interfaces take turns, as long as there are enough.
    pub fn new(n: u32, count: NonZero<u32>) -> Vectors {
        let first = n.wrapping_mul(2);
        Vectors {
            receive: first % count,
            send: first.wrapping_add(1) % count,
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_vectors))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn interfaces_use_all_vectors_alike() {
        for count in 1..=9 {
            let Some(vectors) = NonZero::new(count) else {
                continue;
            };
            let mut used = [0; 9];
            for n in 0..count {
                let Vectors { receive, send } = Vectors::new(n, vectors);
                assert!(receive < count && send < count);
                assert!(receive != send || count == 1);
                used[receive as usize] += 1;
                used[send as usize] += 1;
            }
            assert!(used.iter().take(count as usize).all(|uses| *uses == 2));
        }
    }

    #[test]
    fn numbers_may_wrap() {
        let count = NonZero::<u32>::MIN;
        assert_eq!(
            Vectors::new(u32::MAX, count),
            Vectors {
                receive: 0,
                send: 0
            }
        );
    }
}
