// SPDX-License-Identifier: GPL-2.0

//! Completions that are held back.

/// The newest completions of a queue that nobody is to see yet.
///
/// Time passes in turns: what was hidden in one is shown at the end of the next, so that a completion is late by one
/// turn at least, and by two at most.
///
/// # Invariants
///
/// `fresh` is `hidden` at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    hidden: usize,
    /// Completions that were hidden in this turn.
    fresh: usize,
    /// One of the hidden ones, or of those hidden with them, was solicited.
    solicited: bool,
    turn: u32,
}

impl Gate {
    /// Returns the number of completions that are hidden.
    #[inline]
    pub const fn hidden(&self) -> usize {
        self.hidden
    }

    /// Returns whether one of those that were hidden was solicited.
    pub const fn solicited(&self) -> bool {
        self.solicited
    }

    /// Hides a completion that has just been added to the queue.
    pub fn hide(&mut self, solicited: bool) {
        self.solicited = solicited || self.hidden > 0 && self.solicited;
        self.hidden = self.hidden.saturating_add(1);
        self.fresh = self.fresh.saturating_add(1);
    }

    /// Shows all of them. Returns whether there was one.
    pub fn open(&mut self) -> bool {
        let any = self.hidden > 0;
        (self.hidden, self.fresh) = (0, 0);
        any
    }

    /// Begins a turn, unless it is the present one. Returns whether completions were shown.
    pub fn pass(&mut self, turn: u32) -> bool {
        if turn == self.turn {
            return false;
        }
        self.turn = turn;
        let any = self.hidden > self.fresh;
        (self.hidden, self.fresh) = (self.fresh, 0);
        any
    }

    /// Forgets a completion that was removed from the queue. `before` is the gate as it was before the first was
    /// removed, and `newer` the number of completions that were in the queue behind this one then.
    pub fn forget(&mut self, before: &Gate, newer: usize) {
        if newer < before.hidden {
            self.hidden = self.hidden.saturating_sub(1);
        }
        if newer < before.fresh {
            self.fresh = self.fresh.saturating_sub(1);
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_fault_gate))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn late_by_one_turn_and_no_more_than_two() {
        let mut gate = Gate::default();
        assert!(!gate.open() && !gate.pass(1));
        gate.hide(false);
        assert!(!gate.pass(1) && !gate.pass(2));
        gate.hide(true);
        assert_eq!(gate.hidden(), 2);
        // The queue pairs that have the queue in common all tell of the turn.
        assert!(gate.pass(3) && !gate.pass(3));
        assert_eq!(gate.hidden(), 1);
        assert!(gate.pass(4));
        assert_eq!(gate.hidden(), 0);
    }

    #[test]
    fn all_are_shown_at_once() {
        let mut gate = Gate::default();
        gate.hide(true);
        gate.hide(false);
        assert!(gate.solicited() && gate.open() && !gate.open());
        // The solicited completion is visible by now; one that is not solicited is hidden.
        gate.hide(false);
        assert!(!gate.solicited() && gate.hidden() == 1);
    }

    /// Of completions that are visible, hidden in the last turn and hidden in this one, each can be removed.
    #[test]
    fn removed_from_the_queue() {
        let mut full = Gate::default();
        for turn in 1..3 {
            full.pass(turn);
            full.hide(false);
            full.hide(false);
        }
        for (newer, hidden, fresh) in [(0, 3, 1), (1, 3, 1), (2, 3, 2), (3, 3, 2), (4, 4, 2)] {
            let mut gate = full;
            gate.forget(&full, newer);
            assert_eq!((gate.hidden, gate.fresh), (hidden, fresh));
        }
        let mut gate = full;
        for newer in (0..6).rev() {
            gate.forget(&full, newer);
        }
        assert_eq!((gate.hidden, gate.fresh), (0, 0));
    }
}
