// SPDX-License-Identifier: GPL-2.0

//! Shares of the budget of a poll that receives from two sources of frames.

/// Turn of two sources of frames: which of them has the odd unit of the next budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    first_larger: bool,
}

/// The shares of one poll.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    budget: usize,
    first: usize,
}

impl Turn {
    /// The first source has the larger half next.
    pub const fn new() -> Turn {
        Turn {
            first_larger: false,
        }
    }

    /// Shares a budget between the sources: neither may starve the other, even if it is 1. The second one gets all that
    /// the first leaves.
    pub fn share(&mut self, budget: usize) -> Shares {
        self.first_larger = !self.first_larger;
        let odd = if self.first_larger { budget & 1 } else { 0 };
        Shares {
            budget,
            first: (budget >> 1).saturating_add(odd),
        }
    }
}

impl Shares {
    /// Frames that the first source may receive.
    pub const fn first(&self) -> usize {
        self.first
    }

    /// Frames that the second one may receive after the first has used `first` of its share.
    pub const fn second(&self, first: usize) -> usize {
        self.budget.saturating_sub(first)
    }

    /// Budget that the poll reports as used, after the sources have used `first` and `second` of their shares: all of it
    /// if the first may have more, so that there is another poll.
    pub const fn used(&self, first: usize, second: usize) -> usize {
        if first >= self.first {
            self.budget
        } else {
            first.saturating_add(second)
        }
    }
}

/// Budget that a source reports as used which has received `had` frames, of the `batch` that it takes at a time: all of
/// it if there may be more, so that there is another poll.
#[inline]
pub const fn charge(budget: usize, batch: usize, had: usize) -> usize {
    if had >= batch {
        budget
    } else {
        had
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_turn))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// Frames that wait at either source, which takes up to `batch` at a time; `u32::MAX` does not become less. Returns
    /// what they have used of their shares, and what the poll has.
    fn poll(
        turn: &mut Turn,
        (budget, batch): (usize, usize),
        waiting: &mut [u32; 2],
    ) -> ([usize; 2], usize) {
        let mut take = |at: usize, most: usize| {
            let left = &mut waiting[at];
            let had = most.min(batch).min(*left as usize);
            if *left != u32::MAX {
                *left -= had as u32;
            }
            charge(most, batch, had)
        };
        let shares = turn.share(budget);
        let first = take(0, shares.first());
        let second = take(1, shares.second(first));
        ([first, second], shares.used(first, second))
    }

    #[test]
    fn neither_starves_the_other() {
        for budget in [1, 2, 3, 64, 65] {
            let mut turn = Turn::new();
            let mut had = [0; 2];
            for _ in 0..100 {
                let (both, used) = poll(&mut turn, (budget, 64), &mut [u32::MAX; 2]);
                assert!(both[0] + both[1] == budget && used == budget);
                had[0] += both[0];
                had[1] += both[1];
            }
            assert!(had == [50 * budget; 2]);
        }
    }

    /// A poll that has used less than its budget is not called again.
    #[test]
    fn nothing_is_left_when_a_poll_is_the_last() {
        for (budget, batch) in (1..6).flat_map(|budget| [1, 2, 64].map(|batch| (budget, batch))) {
            for start in 0..64 {
                let mut turn = Turn::new();
                let mut waiting = [start % 8, start / 8];
                let mut polls = 0;
                while poll(&mut turn, (budget, batch), &mut waiting).1 == budget {
                    polls += 1;
                    assert!(polls < 64);
                }
                assert!(waiting == [0, 0]);
            }
        }
    }

    /// With netpoll there is nothing to share.
    #[test]
    fn no_budget() {
        let mut turn = Turn::new();
        let shares = turn.share(0);
        assert!(shares.first() == 0 && shares.second(0) == 0 && shares.used(0, 0) == 0);
    }
}
