// SPDX-License-Identifier: GPL-2.0

//! Places in the table of channels: which one a new peer gets, and what is to be done if there is none.
//!
//! Peers that do not answer make room for each other and for those that were not asked yet. A connection is ended for a new
//! peer only if more than half of the places have one.

/// The use of a channel that has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A connection.
    Connected,
    /// The peer is asked, or about to be.
    Asking,
    /// No connection came for a while: it may be replaced. The smallest of these in order goes first.
    Silent {
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
    /// None: connections have more than half of the places. One of them is to make room.
    Full,
    /// None: peers that have not answered have half or more. One of them makes room soon.
    Soon,
}

/// Chooses the place of a new channel.
pub fn choose(places: impl ExactSizeIterator<Item = Option<Usage>>) -> Choice {
    let half = places.len() / 2;
    let mut connected = 0_usize;
    // The first to be replaced.
    let mut silent = None;
    for (at, usage) in places.enumerate() {
        match usage {
            None => return Choice::Place(at),
            Some(Usage::Connected) => connected = connected.saturating_add(1),
            Some(Usage::Asking) => {}
            Some(Usage::Silent {
                is_new,
                wanted_until,
            }) => {
                let this = Some((is_new, wanted_until, at));
                silent = silent.map_or(this, |_| silent.min(this));
            }
        }
    }
    match silent {
        Some((.., at)) => Choice::Replace(at),
        None if connected > half => Choice::Full,
        None => Choice::Soon,
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_places))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    type Places = [Option<Usage>; 16];

    const CONNECTED: Option<Usage> = Some(Usage::Connected);
    const ASKING: Option<Usage> = Some(Usage::Asking);
    const NEW: Option<Usage> = Some(Usage::Silent {
        is_new: true,
        wanted_until: 0,
    });

    fn silent(wanted_until: u64) -> Option<Usage> {
        Some(Usage::Silent {
            is_new: false,
            wanted_until,
        })
    }

    fn choose(places: &Places) -> Choice {
        super::choose(places.iter().copied())
    }

    #[test]
    fn the_first_empty_one() {
        let mut places = [CONNECTED; 16];
        assert_eq!(choose(&places), Choice::Full);
        places[15] = None;
        assert_eq!(choose(&places), Choice::Place(15));
        places[3] = None;
        places[1] = silent(0);
        assert_eq!(choose(&places), Choice::Place(3));
    }

    #[test]
    fn who_does_not_answer_ends_no_more_than_half() {
        let mut places = [ASKING; 16];
        assert_eq!(choose(&places), Choice::Soon);
        places[..8].fill(CONNECTED);
        assert_eq!(choose(&places), Choice::Soon);
        places[8] = CONNECTED;
        assert_eq!(choose(&places), Choice::Full);
    }

    #[test]
    fn the_silent_make_room() {
        let mut places = [ASKING; 16];
        places[3] = silent(20);
        places[4] = silent(10);
        assert_eq!(choose(&places), Choice::Replace(4));
        places[3] = silent(9);
        assert_eq!(choose(&places), Choice::Replace(3));
        // Those that were not asked go last.
        places[3] = NEW;
        assert_eq!(choose(&places), Choice::Replace(4));
        places[4] = ASKING;
        assert_eq!(choose(&places), Choice::Replace(3));
    }
}
