// SPDX-License-Identifier: GPL-2.0

//! Admission of requests for connections: how many are accepted before one of them is confirmed.
//!
//! A request can be forged in the name of any peer (ReDMArk, USENIX Security 2021), and an accepted one takes a
//! queue pair until it is confirmed or given up. So there are few places, and fewer for one [`Origin`]. Where all are taken
//! by requests that nobody confirms, one of them makes room.
//!
//! A sender that knows no credit has no buffers set aside for it: a message that finds none waits. But in the middle of a
//! message, each connection may keep one for as long as it likes. So there are half as many connections as there are buffers.

use core::cmp::Reverse;

use crate::wire::cm::MAX_CHANNELS;
use crate::wire::gid::Gid;

/// The most requests that are accepted and not confirmed.
pub const MAX_UNCONFIRMED: usize = 16;
/// The most of one origin: as many as one interface of a host has reason to ask for.
pub const MAX_OF_ORIGIN: usize = MAX_CHANNELS;
/// Time that a peer has to confirm before another one's request may take the place of its own, in milliseconds: a round
/// trip, and a host that is busy.
const GRACE_MS: u64 = 1_000;
/// The most connections that have ended and are not over yet, while others are accepted.
pub const MAX_ENDING: u32 = 16;

/// The most connections that others send by, however many buffers there are.
pub const MAX_SENDERS: usize = 512;
/// Time for which buffers are kept, in milliseconds, however many are missing: whoever takes them takes the next ones as
/// well, and to replace them interrupts everybody.
pub const KEPT_MS: u64 = 60_000;
/// Time without any message after which there may be no buffer left, in milliseconds: a message that finds none is sent
/// again far sooner.
pub const DRY_MS: u64 = 5_000;
/// One host has a quarter of all places, so that its users leave places for others.
const PARTS: usize = 4;

/// Returns how many connections others may send by where all connections share so many buffers.
pub const fn max_senders(buffers: u32) -> usize {
    let half = buffers as usize / 2;
    if half < MAX_SENDERS {
        half
    } else {
        MAX_SENDERS
    }
}

/// Returns by how many of these others of one origin may send.
pub const fn max_of_origin(buffers: u32) -> usize {
    max_senders(buffers).div_ceil(PARTS)
}

/// Returns true if queue pairs that are gone have taken more than a quarter of the buffers with them. Of those that were
/// `overtaken`, each of the `senders`, connections that others send by, may have one that comes back. All other connections
/// together have less than a quarter, since a window of several is set aside for each.
pub const fn is_short(buffers: u32, overtaken: usize, senders: usize) -> bool {
    overtaken > senders.saturating_add(buffers as usize / 4)
}

/// Returns true if there may be no buffer left: queue pairs that are gone have up to so many, and each of the `others` may
/// be in the middle of a message.
pub const fn may_be_dry(buffers: u32, gone: usize, others: usize) -> bool {
    gone.saturating_add(others) >= buffers as usize
}

/// Origin of a request, by which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On InfiniBand, the LID of the port that it came from: a user of any host can ask with any GID, and the answer goes to
    /// this LID.
    Lid(u16),
    /// On RoCE, the Ethernet address that the answer goes to: root of any host can ask with any GID. Hosts behind a router
    /// share that of the router; groups, and so interfaces, do not reach beyond it.
    Mac([u8; 6]),
    /// On soft-RoCE, the GID that the request names, since the answer goes to that, by an IP route.
    Gid(Gid),
}

/// Connections that others send by, at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Senders {
    /// All of them.
    pub all: usize,
    /// Those of the origin that asks now.
    pub of_origin: usize,
}

/// Those of which one has to go before another one comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowd {
    /// Those of the same origin.
    OfOrigin,
    /// All of them.
    All,
}

impl Senders {
    /// Returns those that are too many, where all connections share so many buffers. None: there is room for one more.
    pub const fn crowd(&self, buffers: u32) -> Option<Crowd> {
        if self.of_origin >= max_of_origin(buffers) {
            Some(Crowd::OfOrigin)
        } else if self.all >= max_senders(buffers) {
            Some(Crowd::All)
        } else {
            None
        }
    }
}

/// A request that was accepted and is not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// Where it came from.
    pub origin: Origin,
    /// When it was accepted, in milliseconds.
    pub since: u64,
}

/// Returns the place of the request that makes room for one of `origin`, if any may go. One may go once it has had its
/// time, or at once if its own origin has three or more, and at least two more than `origin`. If `origin` has too many
/// itself, only its own may go, at once: with a flood from its own host, an honest request stays until eight more have come.
/// Of those that may, it is the oldest of the origin that has most.
pub fn gives_way(
    requests: impl Iterator<Item = Unconfirmed> + Clone,
    origin: Origin,
    now: u64,
) -> Option<usize> {
    let of = |origin| move |other: &Unconfirmed| other.origin == origin;
    let count = |origin: Origin| requests.clone().filter(of(origin)).count();
    let own = count(origin);
    let may_go = |request: &Unconfirmed| {
        if own >= MAX_OF_ORIGIN {
            return request.origin == origin;
        }
        let had_its_time = now.saturating_sub(request.since) >= GRACE_MS;
        had_its_time || count(request.origin) >= own.saturating_add(2).max(3)
    };
    let candidates = requests
        .clone()
        .enumerate()
        .filter(|(_, request)| may_go(request));
    candidates
        .min_by_key(|(_, request)| (Reverse(count(request.origin)), request.since))
        .map(|(at, _)| at)
}

/// Requests and connections that take room at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Connections that have ended and are not over yet.
    pub ending: u32,
    /// Requests that were accepted and are not confirmed.
    pub unconfirmed: usize,
    /// Of these, those of the origin that asks now.
    pub of_origin: usize,
}

impl Load {
    /// Returns true if there is room for one more request.
    pub const fn admits(&self) -> bool {
        self.ending < MAX_ENDING
            && self.unconfirmed < MAX_UNCONFIRMED
            && self.of_origin < MAX_OF_ORIGIN
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_admission))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    fn load(unconfirmed: usize, of_origin: usize) -> Load {
        Load {
            ending: 0,
            unconfirmed,
            of_origin,
        }
    }

    /// How many requests are accepted of so many origins in turn.
    fn accepted(mut unconfirmed: usize, origins: usize) -> usize {
        let mut of_origin = [0; 64];
        let mut accepted = 0;
        for n in 0..1000 {
            let at = n % origins;
            if load(unconfirmed, of_origin[at]).admits() {
                unconfirmed += 1;
                of_origin[at] += 1;
                accepted += 1;
            }
        }
        accepted
    }

    #[test]
    fn requests_have_few_places() {
        assert_eq!(accepted(0, 64), 16);
        assert_eq!(accepted(10, 64), 6);
        assert_eq!(accepted(16, 64), 0);
    }

    #[test]
    fn requests_of_one_origin_have_fewer() {
        assert_eq!(accepted(0, 1), 8);
        assert_eq!(accepted(0, 2), 16);
    }

    /// A third of them on each kind of port.
    fn origin(number: u8) -> Origin {
        let mut raw = [0; 16];
        raw[15] = number;
        match number % 3 {
            0 => Origin::Lid(number.into()),
            1 => Origin::Gid(Gid(raw)),
            _ => Origin::Mac([0, 0, 0, 0, 0, number]),
        }
    }

    /// Asks for a connection from `asker` where each of `held`, an origin and a time each, has one that is not confirmed.
    fn replaced(held: &[(u8, u64)], asker: u8, now: u64) -> Option<usize> {
        let requests = held.iter().map(|&(number, since)| Unconfirmed {
            origin: origin(number),
            since,
        });
        gives_way(requests, origin(asker), now)
    }

    #[test]
    fn who_has_most_makes_room() {
        let held = [(1, 100), (2, 300), (2, 200), (2, 400)];
        assert_eq!(replaced(&held, 9, 400), Some(2));
        assert_eq!(replaced(&held, 1, 400), Some(2));
        // Two interfaces of one host may ask.
        assert_eq!(replaced(&held[..3], 9, 400), None);
        assert_eq!(replaced(&held, 2, 1_199), Some(0));
        assert_eq!(replaced(&held, 2, 1_200), Some(2));
        assert_eq!(replaced(&[], 9, 5_000), None);
    }

    #[test]
    fn among_equals_nobody_makes_room_at_once() {
        let held = [(1, 100), (2, 90), (2, 110)];
        assert_eq!(replaced(&held, 1, 1_089), None);
        assert_eq!(replaced(&held, 1, 1_090), Some(1));
        assert_eq!(replaced(&held[..2], 9, 1_089), None);
        assert_eq!(replaced(&held[..2], 9, 1_090), Some(1));
    }

    #[test]
    fn an_origin_with_too_many_makes_room_itself() {
        let mut held = [(1, 100); 16];
        held[8..].fill((2, 50));
        held[3].1 = 60;
        assert_eq!(replaced(&held, 9, 5_000), Some(8));
        assert_eq!(replaced(&held, 1, 5_000), Some(3));
        assert_eq!(replaced(&held, 1, 61), Some(3));
    }

    /// Users of some hosts take all places again and again; one that asks once, and confirms soon, is let in.
    #[test]
    fn a_flood_keeps_no_peer_out() {
        for hosts in [1, 2, 3, 7] {
            let mut held: [(u8, u64); MAX_UNCONFIRMED] = [(0, 0); MAX_UNCONFIRMED];
            let mut turn = 0_u32;
            let mut flood = |held: &mut [(u8, u64)], now| {
                turn += 1;
                let host = (turn % hosts) as u8;
                if let Some(at) = replaced(held, host, now) {
                    held[at] = (host, now);
                }
            };
            for now in 0..3_000 {
                flood(&mut held, now);
            }
            let at = replaced(&held, 99, 3_000);
            assert!(at.is_some());
            held[at.unwrap_or(0)] = (99, 3_000);
            for now in 3_000..3_900 {
                flood(&mut held, now);
            }
            assert!(held.contains(&(99, 3_000)));
        }
    }

    /// Users of one host take a quarter of the places, whatever they do.
    #[test]
    fn who_sends_has_many_places_and_one_host_has_few() {
        for (buffers, origins, most) in [
            (512, 1, 64),
            (512, 3, 192),
            (512, 4, 256),
            (512, 100, 256),
            (64, 1, 8),
            (64, 100, 32),
            (1024, 1, 128),
            (8192, 1, 128),
            (8192, 100, 512),
            (2, 100, 1),
            (1, 100, 0),
        ] {
            let mut of_origin = [0; 100];
            let mut all = 0;
            for n in 0..1_000 {
                let at = n % origins;
                let senders = Senders {
                    all,
                    of_origin: of_origin[at],
                };
                match senders.crowd(buffers) {
                    None => {
                        of_origin[at] += 1;
                        all += 1;
                    }
                    Some(Crowd::OfOrigin) => {
                        assert!(all == most || of_origin[at] == most / origins)
                    }
                    Some(Crowd::All) => assert!(all == most),
                }
            }
            assert_eq!(all, most);
        }
    }

    /// If all connections are in the middle of a message, buffers are left, and none counts as lost. Nor do lost ones go
    /// unnoticed until there are none left.
    #[test]
    fn buffers_come_back_or_are_gone() {
        for buffers in 64..=8192 {
            let senders = max_senders(buffers);
            let others = usize::min(64, buffers as usize / 4);
            assert!(!is_short(buffers, senders + others, senders));
            assert!(senders + others < buffers as usize);
            assert!(is_short(buffers, buffers as usize * 3 / 4 + 1, senders));
            let quarter = buffers as usize / 4;
            assert!(!is_short(buffers, quarter, 0) && is_short(buffers, quarter + 1, 0));
            let rest = buffers as usize - senders - others;
            assert!(may_be_dry(buffers, rest, senders + others));
            assert!(!may_be_dry(buffers, rest - 1, senders + others));
        }
    }

    /// A request a millisecond is accepted and ends at once, on a device that needs two seconds for each queue pair.
    #[test]
    fn those_that_end_are_few() {
        let mut over_at = [0; 64];
        let mut accepted = 0;
        for now in 1..=10_000 {
            let is_ending = |at: &&u64| **at > now;
            let ending = over_at.iter().filter(is_ending).count() as u32;
            assert!(ending <= MAX_ENDING);
            let load = Load {
                ending,
                ..load(0, 0)
            };
            if load.admits() {
                over_at[accepted % 64] = now + 2_000;
                accepted += 1;
            }
        }
        // Each makes room when it is over.
        assert_eq!(accepted, 5 * MAX_ENDING as usize);
    }

    #[test]
    fn what_has_ended_takes_room() {
        let with = |ending| Load {
            ending,
            ..load(0, 0)
        };
        assert!(with(15).admits());
        assert!(!with(16).admits() && !with(u32::MAX).admits());
    }
}
