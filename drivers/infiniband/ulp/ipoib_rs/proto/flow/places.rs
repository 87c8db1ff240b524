// SPDX-License-Identifier: GPL-2.0

//! Places in the table of channels: which one a new peer gets, and what is to be done if there is none.
//!
//! Peers that have not answered take at most half of the places, and make room for each other. A peer that asks us may
//! have any. Peers with one GID have a part of all places, and make room for each other, too.

use crate::flow::admission::max_channels_of_gid;
use crate::wire::gid::Gid;

/// A channel that has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The peer's GID.
    pub gid: Gid,
    /// Use of the channel.
    pub usage: Usage,
}

/// The use of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A connection.
    Connected,
    /// A request in the peer's name that was accepted and is not proven.
    Offered,
    /// The peer is asked, or about to be.
    Asking,
    /// No connection came for a while: it may be replaced. The smallest of these in order goes first.
    Silent {
        /// Frames do not wait for it, since it was given up.
        held_off: bool,
        /// It was not asked yet.
        is_new: bool,
        /// Until when its frames count, in milliseconds.
        wanted_until: u64,
    },
}

/// The place of a new channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// An empty one.
    Place(usize),
    /// That of a silent peer, which is replaced.
    Replace(usize),
    /// None: peers with that GID have all of theirs. One of their connections is to make room.
    Crowd,
    /// None: connections have more than half of the places. One of them is to make room.
    Full,
    /// None: peers that have not answered have half or more. One of them makes room soon.
    Soon,
}

/// Failures to find a place, which is not to be tried again for each frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    /// There is none for any peer before this time.
    full_until: u64,
    /// There is none for a peer with this GID before this time.
    crowd: Option<(Gid, u64)>,
}

impl Tried {
    /// Returns true if there was none a moment ago for a peer with this GID.
    pub fn holds(&self, gid: Gid, now: u64) -> bool {
        let is_crowd = |(other, until)| other == gid && now < until;
        now < self.full_until || self.crowd.is_some_and(is_crowd)
    }

    /// Notes a choice for a peer with this GID: if it was none that costs nothing, the next is to be made at `again`.
    pub fn note(&mut self, choice: Choice, gid: Gid, again: u64) {
        match choice {
            Choice::Place(_) => {}
            // Whoever is replaced forgets that it was asked of late.
            Choice::Replace(_) => self.full_until = again,
            Choice::Crowd => self.crowd = Some((gid, again)),
            Choice::Full | Choice::Soon => self.full_until = again,
        }
    }
}

/// Chooses the place of a new channel to a peer with `gid`, who has `asked` for a connection, or whom we ask. No more than
/// `cap` channels can have a connection.
pub fn choose(
    places: impl ExactSizeIterator<Item = Option<Occupant>>,
    gid: Gid,
    asked: bool,
    cap: usize,
) -> Choice {
    let half = places.len() / 2;
    let (mut of_gid, mut connected, mut unanswered) = (0_usize, 0_usize, 0_usize);
    let mut empty = None;
    // The first to be replaced, of all and of those with the GID.
    let (mut silent, mut silent_of_gid) = (None, None);
    for (at, occupant) in places.enumerate() {
        let Some(occupant) = occupant else {
            empty = empty.or(Some(at));
            continue;
        };
        let is_same = occupant.gid == gid;
        // Whoever forges requests in the name of a peer does not keep us from asking it.
        let counts = is_same && (asked || occupant.usage != Usage::Offered);
        of_gid = of_gid.saturating_add(usize::from(counts));
        match occupant.usage {
            Usage::Connected | Usage::Offered => {
                connected = connected.saturating_add(1);
                continue;
            }
            Usage::Asking => {}
            Usage::Silent {
                held_off,
                is_new,
                wanted_until,
            } => {
                let this = Some((held_off, is_new, wanted_until, at));
                let first = |before: Option<_>| before.map_or(this, |_| before.min(this));
                silent = first(silent);
                if is_same {
                    silent_of_gid = first(silent_of_gid);
                }
            }
        }
        unanswered = unanswered.saturating_add(1);
    }
    let is_crowd = of_gid >= max_channels_of_gid(cap);
    let empty = empty.filter(|_| !is_crowd && (asked || unanswered < half));
    let replaced = if is_crowd { silent_of_gid } else { silent };
    match (empty, replaced) {
        (Some(at), _) => Choice::Place(at),
        (None, Some((.., at))) => Choice::Replace(at),
        (None, None) if is_crowd => Choice::Crowd,
        (None, None) if connected > half => Choice::Full,
        (None, None) => Choice::Soon,
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_places))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// Sixteen places, which are a part for each of two GIDs.
    type Places = [Option<Occupant>; 16];

    fn gid(number: u8) -> Gid {
        Gid([number; 16])
    }

    fn connected(number: u8) -> Option<Occupant> {
        Some(Occupant {
            gid: gid(number),
            usage: Usage::Connected,
        })
    }

    fn asking(number: u8) -> Option<Occupant> {
        Some(Occupant {
            gid: gid(number),
            usage: Usage::Asking,
        })
    }

    fn silent(number: u8, held_off: bool, wanted_until: u64) -> Option<Occupant> {
        Some(Occupant {
            gid: gid(number),
            usage: Usage::Silent {
                held_off,
                is_new: false,
                wanted_until,
            },
        })
    }

    fn new(number: u8) -> Option<Occupant> {
        Some(Occupant {
            gid: gid(number),
            usage: Usage::Silent {
                held_off: false,
                is_new: true,
                wanted_until: 0,
            },
        })
    }

    fn offered(number: u8) -> Option<Occupant> {
        Some(Occupant {
            gid: gid(number),
            usage: Usage::Offered,
        })
    }

    fn choose(places: &Places, number: u8, asked: bool) -> Choice {
        super::choose(places.iter().copied(), gid(number), asked, 16)
    }

    /// A table whose first `count` places have these occupants; the others are empty.
    fn table(of: impl Fn(u8) -> Option<Occupant>, count: usize) -> Places {
        let mut places = [None; 16];
        for (number, place) in (100..).zip(places.iter_mut().take(count)) {
            *place = of(number);
        }
        places
    }

    #[test]
    fn the_first_empty_one() {
        assert_eq!(choose(&[None; 16], 1, false), Choice::Place(0));
        assert_eq!(choose(&table(connected, 15), 1, false), Choice::Place(15));
        assert_eq!(choose(&table(connected, 16), 1, false), Choice::Full);
        assert_eq!(choose(&table(connected, 16), 1, true), Choice::Full);
    }

    #[test]
    fn who_does_not_answer_leaves_half_to_who_asks() {
        assert_eq!(choose(&table(asking, 7), 1, false), Choice::Place(7));
        assert_eq!(choose(&table(asking, 8), 1, false), Choice::Soon);
        assert_eq!(choose(&table(asking, 8), 1, true), Choice::Place(8));
        // Connections do not count, nor do a few of them make room for who waits for others.
        let mut places = table(asking, 7);
        places[7..15].fill(connected(1));
        assert_eq!(choose(&places, 2, false), Choice::Place(15));
        places[15] = asking(3);
        assert_eq!(choose(&places, 2, false), Choice::Soon);
        places[0] = connected(4);
        assert_eq!(choose(&places, 2, false), Choice::Full);
    }

    #[test]
    fn the_silent_make_room() {
        let mut places = table(asking, 8);
        places[3] = silent(3, false, 20);
        places[4] = silent(4, false, 10);
        places[5] = silent(5, true, 0);
        assert_eq!(choose(&places, 1, false), Choice::Replace(4));
        assert_eq!(choose(&places, 1, true), Choice::Place(8));
        places[3] = silent(3, false, 9);
        assert_eq!(choose(&places, 1, false), Choice::Replace(3));
        // Those that were not asked go last but for those that were given up of late.
        places[3] = new(3);
        assert_eq!(choose(&places, 1, false), Choice::Replace(4));
        places[4] = asking(4);
        assert_eq!(choose(&places, 1, false), Choice::Replace(3));
        places[3] = asking(3);
        assert_eq!(choose(&places, 1, false), Choice::Replace(5));
    }

    #[test]
    fn failures_are_remembered() {
        let mut tried = Tried::default();
        assert!(!tried.holds(gid(1), 0));
        tried.note(Choice::Place(3), gid(1), 10);
        assert!(!tried.holds(gid(1), 0));
        tried.note(Choice::Crowd, gid(1), 10);
        assert!(tried.holds(gid(1), 9) && !tried.holds(gid(1), 10) && !tried.holds(gid(2), 9));
        for choice in [Choice::Full, Choice::Soon, Choice::Replace(3)] {
            let mut tried = Tried::default();
            tried.note(choice, gid(1), 10);
            assert!(tried.holds(gid(2), 9) && !tried.holds(gid(2), 10));
        }
    }

    #[test]
    fn one_gid_has_a_part() {
        let mut places = table(connected, 12);
        places[..8].fill(connected(1));
        assert_eq!(choose(&places, 1, true), Choice::Crowd);
        assert_eq!(choose(&places, 2, true), Choice::Place(12));
        // Its own that does not answer makes room, and no other one's.
        places[9] = silent(2, false, 1);
        assert_eq!(choose(&places, 1, false), Choice::Crowd);
        places[5] = silent(1, true, 5);
        assert_eq!(choose(&places, 1, false), Choice::Replace(5));
        places[7] = connected(3);
        assert_eq!(choose(&places, 1, false), Choice::Place(12));
    }

    /// Requests in a peer's name keep others in its name out, and not the one that we make.
    #[test]
    fn forged_requests_do_not_keep_us_from_asking() {
        let mut places = [None; 16];
        places[..8].fill(offered(1));
        assert_eq!(choose(&places, 1, true), Choice::Crowd);
        assert_eq!(choose(&places, 1, false), Choice::Place(8));
    }
}
