// SPDX-License-Identifier: GPL-2.0

//! How much may wait for a connection, and for how long. All times are in milliseconds.
//!
//! A connection is reliable, so that what its peer does not take has to wait. The stack waits with it
//! while the peer takes something now and then; a peer that does not is given up.

/// What waits for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Frames.
    pub frames: usize,
    /// Octets of them.
    pub bytes: usize,
}

impl Waiting {
    /// The most that waits.
    pub const MOST: Waiting = Waiting {
        frames: 512,
        bytes: 4 << 20,
    };
    /// When the stack had better wait, too.
    const CROWD: Waiting = Waiting {
        frames: Self::MOST.frames / 4 * 3,
        bytes: Self::MOST.bytes / 4 * 3,
    };
    /// When it may go on.
    const HALF_A_CROWD: Waiting = Waiting {
        frames: Self::CROWD.frames / 2,
        bytes: Self::CROWD.bytes / 2,
    };

    const fn reaches(&self, limit: &Waiting) -> bool {
        self.frames >= limit.frames || self.bytes >= limit.bytes
    }

    /// Whether so much waits that the stack had better wait, too.
    #[inline]
    pub const fn is_crowd(&self) -> bool {
        self.reaches(&Self::CROWD)
    }
}

/// How long the peer of a connection may keep frames waiting.
const STALL_MS: u64 = 5_000;
/// For how long after that none waits for a connection.
const HOPELESS_MS: u64 = 60_000;

/// What is remembered of those that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// When the oldest frame that waits began to, or one went after that.
    stalled_since: u64,
    /// The stack has had to wait since then, and half of what waited has waited since.
    crowded_since: Option<u64>,
    /// None is to wait for a connection before this time.
    hope_again: u64,
}

impl Patience {
    /// Nothing waits.
    pub const fn new(now: u64) -> Patience {
        Patience {
            stalled_since: now,
            crowded_since: None,
            hope_again: 0,
        }
    }

    /// A connection begins. That frames can go does not mean that they do: those that wait have no more time
    /// than before.
    pub fn begin(&mut self) {
        self.crowded_since = None;
    }

    /// The first frame begins to wait, or one of those that wait has gone.
    #[inline]
    pub fn moves(&mut self, now: u64) {
        self.stalled_since = now;
    }

    /// The stack is to wait.
    pub fn stops(&mut self, now: u64) {
        self.crowded_since.get_or_insert(now);
    }

    /// Takes note of how much waits while a connection `is_up` or not. Whether the stack is to wait still.
    pub fn look(&mut self, waiting: Waiting, is_up: bool) -> bool {
        if !is_up || !waiting.reaches(&Waiting::HALF_A_CROWD) {
            self.crowded_since = None;
        }
        self.crowded_since.is_some()
    }

    /// Whether frames have waited for too long, as of the last look: none of them went, or they went so
    /// slowly that the stack has had to wait all the time.
    pub fn is_at_its_end(&self, waiting: Waiting, now: u64) -> bool {
        let too_long = |since| now.saturating_sub(since) >= STALL_MS;
        waiting.frames > 0 && too_long(self.stalled_since)
            || self.crowded_since.is_some_and(too_long)
    }

    /// The peer is given up for a while.
    pub fn lose_hope(&mut self, now: u64) {
        self.hope_again = now.saturating_add(HOPELESS_MS);
    }

    /// Whether frames may wait.
    #[inline]
    pub const fn hopes(&self, now: u64) -> bool {
        now >= self.hope_again
    }

    /// When time alone changes something.
    pub fn deadline(&self, waiting: Waiting, now: u64) -> Option<u64> {
        let stalled = (waiting.frames > 0).then(|| self.stalled_since.saturating_add(STALL_MS));
        let crowded = self
            .crowded_since
            .map(|since| since.saturating_add(STALL_MS));
        let hope = (self.hope_again > now).then_some(self.hope_again);
        [stalled, crowded, hope].into_iter().flatten().min()
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_patience))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::{Patience, Waiting};

    const fn frames(frames: usize) -> Waiting {
        Waiting {
            frames,
            bytes: frames,
        }
    }

    const fn bytes(bytes: usize) -> Waiting {
        Waiting { frames: 1, bytes }
    }

    #[test]
    fn a_crowd_is_many_or_much() {
        assert!(!frames(383).is_crowd() && frames(384).is_crowd());
        let much = 3 << 20;
        assert!(!bytes(much - 1).is_crowd() && bytes(much).is_crowd());
        // What still waits then has room behind a crowd.
        assert!(Waiting::MOST.is_crowd());
    }

    #[test]
    fn the_stack_waits_until_half_of_them_are_gone() {
        for (crowd, half, less) in [
            (frames(384), frames(192), frames(191)),
            (bytes(3 << 20), bytes(3 << 19), bytes((3 << 19) - 1)),
        ] {
            let mut patience = Patience::new(0);
            // A crowd of which the stack does not know.
            assert!(!patience.look(crowd, true));
            patience.stops(10);
            assert!(patience.look(crowd, true) && patience.look(half, true));
            assert!(!patience.look(less, true) && !patience.look(half, true));
            // It waits for a connection, not for none.
            patience.stops(20);
            assert!(!patience.look(crowd, false) && !patience.look(crowd, true));
            // Nor for another one.
            patience.stops(30);
            patience.begin();
            assert!(!patience.look(crowd, true));
        }
    }

    #[test]
    fn who_takes_nothing_is_given_up() {
        let mut patience = Patience::new(0);
        assert!(!patience.is_at_its_end(frames(0), 90_000));
        assert!(patience.deadline(frames(0), 90_000).is_none());
        patience.moves(90_000);
        assert!(patience.deadline(frames(1), 90_000) == Some(95_000));
        assert!(!patience.is_at_its_end(frames(1), 94_999));
        assert!(patience.is_at_its_end(frames(1), 95_000));
        // One frame goes, and the others have as long again.
        patience.moves(94_000);
        assert!(!patience.is_at_its_end(frames(1), 98_999));
        assert!(patience.is_at_its_end(frames(1), 99_000));
        // Another connection is no frame.
        patience.begin();
        assert!(patience.is_at_its_end(frames(1), 99_000));
    }

    /// A peer takes one frame every few seconds, so that there is always one that went of late.
    #[test]
    fn who_lets_the_stack_wait_for_long_is_given_up() {
        let mut patience = Patience::new(0);
        patience.stops(1_000);
        for now in [2_000, 3_000, 4_000, 5_000] {
            patience.moves(now);
            // Once is enough.
            patience.stops(now);
            assert!(patience.look(frames(380), true) && !patience.is_at_its_end(frames(380), now));
        }
        assert!(patience.deadline(frames(380), 5_000) == Some(6_000));
        assert!(patience.look(frames(380), true) && patience.is_at_its_end(frames(380), 6_000));
        // If they are gone at last, it has been slow, no more.
        assert!(!patience.look(frames(100), true) && !patience.is_at_its_end(frames(100), 6_000));
    }

    #[test]
    fn hope_comes_back() {
        let mut patience = Patience::new(0);
        assert!(patience.hopes(0));
        patience.lose_hope(5_000);
        assert!(!patience.hopes(64_999) && patience.hopes(65_000));
        assert!(patience.deadline(frames(0), 6_000) == Some(65_000));
        assert!(patience.deadline(frames(0), 65_000).is_none());
        patience.lose_hope(u64::MAX);
        assert!(!patience.hopes(u64::MAX - 1));
    }
}
