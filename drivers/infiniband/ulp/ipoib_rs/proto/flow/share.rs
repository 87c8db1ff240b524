// SPDX-License-Identifier: GPL-2.0

//! Shares of the connections that a device may have: which interface may have one more, and which one has to
//! give one up for that.
//!
//! All interfaces together have no more than the device's limit. One that finds none left leaves its [`Need`]
//! for all to see. There is one need at a time, that of the interface with the fewest connections, and the
//! next connection that comes free is reserved for it. All times are in milliseconds.

/// Time for which a connection is reserved: a peer that was refused asks again after a second or two.
pub const NEED_MS: u64 = 3_000;
/// A connection that is to make room has not been used for at least so long.
pub const IDLE_MS: u64 = 100;
/// For how long an interface may use its share where there are fewer connections than interfaces.
const TURN_MS: u64 = 10_000;

const HELD_BITS: u32 = 10;
const UNTIL_BITS: u32 = 38;
const HELD_MASK: u64 = MAX_HELD as u64;
const UNTIL_MASK: u64 = (1 << UNTIL_BITS) - 1;

/// The most connections of an interface that are told apart.
pub const MAX_HELD: u16 = (1 << HELD_BITS) - 1;

/// An interface that has found no connection left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    member: u16,
    held: u16,
    /// The lower bits of the time until which it counts.
    until: u64,
}

impl Need {
    /// Word that stands for no need.
    pub const NONE: u64 = 0;

    /// The interface `member` has `held` connections, and found none left at `now`.
    pub fn new(member: u16, held: usize, now: u64) -> Need {
        Need {
            member,
            held: u16::try_from(held).unwrap_or(MAX_HELD).min(MAX_HELD),
            until: now.wrapping_add(NEED_MS) & UNTIL_MASK,
        }
    }

    /// Packs it into a word, which is stored at once.
    pub const fn to_word(self) -> u64 {
        ((self.member as u64) << (HELD_BITS + UNTIL_BITS))
            | ((self.held as u64) << UNTIL_BITS)
            | self.until
    }

    /// Unpacks a stored word, unless it is out of date.
    pub const fn from_word(word: u64, now: u64) -> Option<Need> {
        let need = Need {
            member: (word >> (HELD_BITS + UNTIL_BITS)) as u16,
            held: ((word >> UNTIL_BITS) & HELD_MASK) as u16,
            until: word & UNTIL_MASK,
        };
        let left = need.until.wrapping_sub(now) & UNTIL_MASK;
        if word != Need::NONE && left != 0 && left <= NEED_MS {
            Some(need)
        } else {
            None
        }
    }

    /// Returns true if it goes before another one.
    pub fn goes_before(&self, other: Option<Need>) -> bool {
        other.is_none_or(|other| self.member == other.member || self.held < other.held)
    }

    /// Returns true if an interface is to leave it the last one.
    pub fn holds_up(&self, member: u16, held: usize) -> bool {
        self.member != member && held >= self.held.into()
    }
}

/// Returns true if an interface that has `held` connections may have one more, where `taken` of `limit` are in use
/// and another one may be in need.
pub fn may_take(taken: u32, limit: u32, member: u16, held: usize, need: Option<Need>) -> bool {
    let reserved = u32::from(need.is_some_and(|need| need.holds_up(member, held)));
    taken.saturating_add(reserved) < limit
}

/// Connection that an interface could give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// How many connections it has.
    pub held: usize,
    /// Last use of the least recently used one.
    pub last_used: u64,
    /// Time at which that one was made.
    pub since: u64,
}

/// How good a reason there is to take a connection away: the greater, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The connection is in use, and its interface has more than the one in need: so many, and not used for so long.
    Share(usize, u64),
    /// The connection was not used for so long.
    Idle(u64),
}

impl Holder {
    /// Returns why its least recently used connection may go for an interface in need, if it may.
    pub fn gives(&self, need: &Need, now: u64) -> Option<Reason> {
        let (held, theirs) = (self.held, usize::from(need.held));
        let unused = now.saturating_sub(self.last_used);
        if unused >= IDLE_MS {
            return Some(Reason::Idle(unused));
        }
        // Not one that would be missing there then, unless they take turns.
        let fair = held > theirs.saturating_add(1);
        let turn = held > theirs && now.saturating_sub(self.since) >= TURN_MS;
        (fair || turn).then_some(Reason::Share(held, unused))
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_share))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const NOW: u64 = 1 << 33;

    fn holder(held: usize, unused: u64, age: u64) -> Holder {
        Holder {
            held,
            last_used: NOW - unused,
            since: NOW - age,
        }
    }

    #[test]
    fn a_need_is_stored_and_forgotten() {
        // The stored bits of the time may turn over meanwhile.
        for now in [NOW, 1 << UNTIL_BITS, (1 << UNTIL_BITS) - 1] {
            for (member, held) in [(0, 0), (1, 64), (u16::MAX, MAX_HELD)] {
                let need = Need::new(member, held.into(), now);
                let word = need.to_word();
                assert!(Need::from_word(word, now) == Some(need));
                assert!(Need::from_word(word, now + NEED_MS - 1) == Some(need));
                assert!(Need::from_word(word, now + NEED_MS).is_none());
                assert!(Need::from_word(word, now + 20 * NEED_MS).is_none());
            }
        }
        assert!(Need::from_word(Need::NONE, 0).is_none());
        // More than there is room for is as many as there is room for.
        for held in [MAX_HELD as usize, 5_000, 1 << 20] {
            assert!(Need::new(1, held, NOW) == Need::new(1, MAX_HELD.into(), NOW));
        }
        assert!(Need::from_word(Need::NONE, (1 << UNTIL_BITS) - 1).is_none());
    }

    #[test]
    fn the_limit_is_never_exceeded() {
        let needs = [None, Some(Need::new(1, 0, NOW)), Some(Need::new(2, 9, NOW))];
        for need in needs {
            for member in 0..3 {
                for held in [0, 1, 8, 9, 10, 300] {
                    assert!(!may_take(4, 4, member, held, need));
                    assert!(!may_take(u32::MAX, 4, member, held, need));
                    assert!(!may_take(0, 0, member, held, need));
                    // One that is needed, no more.
                    assert!(may_take(2, 4, member, held, need));
                }
            }
        }
    }

    #[test]
    fn the_last_one_is_for_who_needs_it() {
        let need = Some(Need::new(1, 2, NOW));
        assert!(may_take(3, 4, 1, 2, need) && may_take(3, 4, 1, 5, need));
        assert!(!may_take(3, 4, 2, 2, need) && !may_take(3, 4, 2, 3, need));
        // Who has fewer was only not fast enough to say so.
        assert!(may_take(3, 4, 2, 1, need));
        assert!(may_take(3, 4, 2, 9, None));
    }

    #[test]
    fn the_poorest_goes_first() {
        let need = Need::new(1, 2, NOW);
        assert!(need.goes_before(None) && need.goes_before(Some(need)));
        assert!(need.goes_before(Some(Need::new(1, 0, NOW))));
        assert!(need.goes_before(Some(Need::new(2, 3, NOW))));
        assert!(!need.goes_before(Some(Need::new(2, 2, NOW))));
        assert!(!need.goes_before(Some(Need::new(2, 1, NOW))));
    }

    #[test]
    fn what_is_not_used_goes_first() {
        let need = Need::new(1, 2, NOW);
        let idle = holder(2, IDLE_MS, 500).gives(&need, NOW);
        assert!(idle == Some(Reason::Idle(IDLE_MS)));
        assert!(holder(2, IDLE_MS - 1, 500).gives(&need, NOW).is_none());
        // Longer ago, and then all that is in use.
        assert!(holder(9, 5_000, 9_000).gives(&need, NOW) > idle);
        assert!(holder(60, 5, 9_000)
            .gives(&need, NOW)
            .is_some_and(|in_use| Some(in_use) < idle));
    }

    #[test]
    fn who_has_more_shares() {
        let need = Need::new(1, 2, NOW);
        let richer = holder(4, 0, 0).gives(&need, NOW);
        assert!(richer == Some(Reason::Share(4, 0)));
        assert!(holder(5, 0, 0).gives(&need, NOW) > richer);
        assert!(holder(4, 50, 50).gives(&need, NOW) > richer);
        // They would have changed places.
        assert!(holder(3, 0, 0).gives(&need, NOW).is_none());
        assert!(holder(2, 0, TURN_MS).gives(&need, NOW).is_none());
        // But not for ever.
        assert!(holder(3, 0, TURN_MS).gives(&need, NOW) == Some(Reason::Share(3, 0)));
        assert!(holder(1, 0, TURN_MS)
            .gives(&Need::new(1, 0, NOW), NOW)
            .is_some());
    }

    /// Interfaces that always use what they have, each of which wants so many connections: for how long one
    /// of them had none at most, and what they have after two minutes.
    fn all_busy<const N: usize>(limit: u32, wants: [usize; N]) -> (u64, [usize; N]) {
        let (mut held, mut since, mut had) = ([0; N], [NOW; N], [NOW; N]);
        let (mut word, mut longest, mut dice, mut loser) = (Need::NONE, 0, 1u32, 0);
        let taken = |held: &[usize; N]| held.iter().sum::<usize>() as u32;
        for now in (NOW..NOW + 120_000).step_by(20) {
            // The one that has lost one wants it back at once; chance decides.
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for at in 0..=N {
                let others = (at + (dice >> 16) as usize) % N;
                let at = if at == 0 { loser } else { others };
                let need = Need::from_word(word, now);
                if held[at] < wants[at] {
                    if may_take(taken(&held), limit, at as u16, held[at], need) {
                        if need.is_some_and(|need| !need.holds_up(at as u16, held[at])) {
                            word = Need::NONE;
                        }
                        (held[at], since[at]) = (held[at] + 1, now);
                    } else {
                        let own = Need::new(at as u16, held[at], now);
                        if own.goes_before(need) {
                            word = own.to_word();
                        }
                    }
                }
                if held[at] > 0 {
                    had[at] = now;
                }
                longest = longest.max(now - had[at]);
            }
            assert!(taken(&held) <= limit);
            let Some(need) = Need::from_word(word, now).filter(|_| taken(&held) == limit) else {
                continue;
            };
            let gives = |at: usize| {
                let holder = Holder {
                    held: held[at],
                    last_used: now,
                    since: since[at],
                };
                (held[at] > 0).then(|| holder.gives(&need, now)).flatten()
            };
            let best = (0..N).filter_map(|at| Some((gives(at)?, at))).max();
            if let Some((_, at)) = best {
                (held[at], loser) = (held[at] - 1, at);
            }
        }
        (longest, held)
    }

    #[test]
    fn nobody_is_left_out() {
        // Enough for all.
        assert!(all_busy(64, [20, 20, 20]) == (0, [20, 20, 20]));
        // Those that want little have that, the others share evenly.
        let (longest, held) = all_busy(64, [64, 3, 64, 64]);
        assert!(longest < 1_000 && held[1] == 3);
        assert!([0, 2, 3].iter().all(|at| (19..=22).contains(&held[*at])));
        // Fewer connections than interfaces: they take turns.
        for limit in 1..3 {
            let (longest, _) = all_busy(limit, [1, 9, 9]);
            assert!((TURN_MS / 2..8 * TURN_MS).contains(&longest));
        }
    }
}
