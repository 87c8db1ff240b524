// SPDX-License-Identifier: GPL-2.0

//! Admission of requests for connections: how many are accepted before one of them is confirmed.
//!
//! A request can be forged in the name of any peer (ReDMArk, USENIX Security 2021), and an accepted one takes a
//! queue pair until it is confirmed or given up. So there are few places, and fewer for one GID. Some are kept
//! from strangers, for peers that we want a connection with anyway.

use crate::wire::cm::MAX_CHANNELS;

/// The most requests of strangers that are accepted and not confirmed.
pub const MAX_UNCONFIRMED: usize = 16;
/// The most that are, those of wanted peers included.
pub const MAX_WITH_WANTED: usize = 2 * MAX_UNCONFIRMED;
/// The most of strangers with one GID: as many as one peer has reason to ask for.
pub const MAX_OF_GID: usize = MAX_CHANNELS;
/// The most connections that have ended and are not over yet, while others are accepted.
pub const MAX_ENDING: u32 = 16;

/// Sender of a request, as the request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// We have nothing for it.
    Stranger,
    /// We have frames for it, or a connection with it, or ask for one ourselves.
    Wanted {
        /// An earlier request of its own makes room, one that nobody has confirmed.
        replaces: bool,
    },
}

/// Requests and connections that take room at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Connections that have ended and are not over yet.
    pub ending: u32,
    /// Accepted, and not confirmed.
    pub unconfirmed: usize,
    /// Of these, those with the GID of the one that asks now.
    pub of_gid: usize,
}

impl Load {
    /// Returns true if there is room for one more request.
    pub const fn admits(&self, asker: Asker) -> bool {
        if self.ending >= MAX_ENDING {
            return false;
        }
        match asker {
            Asker::Stranger => self.unconfirmed < MAX_UNCONFIRMED && self.of_gid < MAX_OF_GID,
            Asker::Wanted { replaces } => self.unconfirmed < MAX_WITH_WANTED || replaces,
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_admission))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const WANTED: Asker = Asker::Wanted { replaces: false };
    const AGAIN: Asker = Asker::Wanted { replaces: true };

    fn load(unconfirmed: usize, of_gid: usize) -> Load {
        Load {
            ending: 0,
            unconfirmed,
            of_gid,
        }
    }

    /// How many of one asker's requests are accepted, in the name of so many GIDs in turn.
    fn accepted(asker: Asker, mut unconfirmed: usize, gids: usize) -> usize {
        let mut of_gid = [0; 64];
        let mut accepted = 0;
        for n in 0..1000 {
            let at = n % gids;
            if load(unconfirmed, of_gid[at]).admits(asker) {
                unconfirmed += 1;
                of_gid[at] += 1;
                accepted += 1;
            }
        }
        accepted
    }

    #[test]
    fn strangers_have_few_places() {
        assert_eq!(accepted(Asker::Stranger, 0, 64), 16);
        assert_eq!(accepted(Asker::Stranger, 10, 64), 6);
        assert_eq!(accepted(Asker::Stranger, 16, 64), 0);
    }

    #[test]
    fn strangers_with_one_gid_have_fewer() {
        assert_eq!(accepted(Asker::Stranger, 0, 1), 8);
        assert_eq!(accepted(Asker::Stranger, 0, 2), 16);
    }

    #[test]
    fn strangers_do_not_take_the_places_of_who_is_wanted() {
        let strangers = accepted(Asker::Stranger, 0, 64);
        assert_eq!(accepted(WANTED, strangers, 1), 16);
        assert_eq!(accepted(WANTED, strangers, 64), 16);
    }

    #[test]
    fn who_is_wanted_has_a_limit_too() {
        assert_eq!(accepted(WANTED, 0, 1), 32);
        assert_eq!(accepted(WANTED, 0, 64), 32);
        assert!(!load(usize::MAX, 0).admits(WANTED));
        // What they take, strangers lack.
        assert_eq!(accepted(Asker::Stranger, 32, 64), 0);
    }

    #[test]
    fn what_takes_the_place_of_another_needs_none() {
        assert!(load(32, 32).admits(AGAIN));
    }

    #[test]
    fn what_has_ended_takes_room() {
        for asker in [Asker::Stranger, WANTED, AGAIN] {
            let with = |ending| Load {
                ending,
                ..load(0, 0)
            };
            assert!(with(15).admits(asker));
            assert!(!with(16).admits(asker) && !with(u32::MAX).admits(asker));
        }
    }
}
