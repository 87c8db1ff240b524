// SPDX-License-Identifier: GPL-2.0

//! A reliable connection to one peer: when to ask for one, whose request to accept, when to give up.
//!
//! Frames go by UD whenever there is no connection. `C` is the driver's connection, a queue pair with its CM
//! ID; each event that ends one returns it, to be destroyed. Events name their connection by its ticket, and
//! those of a connection that is gone have no effect. All times are in milliseconds.
//!
//! A peer that asks has no connection, whatever we think; but its request may be forged, be it by a user of the
//! peer's host, who sees our answer and confirms it. So an accepted request is an offer, beside the connection
//! or request that there is, until the peer has answered a challenge ([`crate::wire::challenge`]), which nobody else
//! can. Only then do we send by it, and it replaces the connection that is up, or our own request. The peer is
//! challenged when it has confirmed the offer, or sent a frame by it, and again while it does not answer. The
//! first offer that is not proven keeps us from asking for a second; those after it do not.
//!
//! When both ends ask at the same time (RFC 4755, section 3.3), the one whose link-layer address, flags
//! aside, is the smaller number accepts the other's request, and the other rejects its. An end whose own
//! request was accepted of late rejects, too: the other end's request crossed that.

use crate::flow::backoff::Backoff;
use crate::fsm::ticket::{Ticket, Tickets};
use crate::wire::hwaddr::HwAddr;

/// Time until a request, or an offer, has to be established, which leaves the CM some retries.
pub const CONNECT_MS: u64 = 5_000;
/// Delay of the next attempt after a failure.
const BACKOFF: Backoff = Backoff::new(1_000, 64_000);
/// The longest that a message is on its way. After our own request was accepted, one of the peer's may have been sent
/// before it knew; after a rejection that announced the peer's own, we wait for that; the peer has so long to prove
/// an offer before we ask ourselves; and a challenge without an answer is sent again.
const CROSSING_MS: u64 = 1_000;
/// Delay of the next attempt where there will be room on the device.
const RETRY_MS: u64 = 100;
/// Failures in a row after which frames do not wait for the next attempt.
const MAX_FAILURES: u8 = 2;
/// Time after a peer was given up for which no frame waits for a connection to it.
const HOLD_OFF_MS: u64 = 60_000;

/// Reason for the end of a connection, or of the attempt at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The device has no room for it, but will have some.
    NoRoom,
    /// Our request was rejected since the peer's own is on its way.
    Yielded,
    /// Nothing was ever sent by it. If it was up, it says nothing about the next one.
    Unused,
    /// The connection could not be made, was rejected, or ended by the peer or by an error.
    Failed,
}

#[derive(Debug)]
enum State<C> {
    /// There is no connection, and a request may be made.
    Down,
    /// A request is being made.
    Starting { ticket: Ticket },
    /// A request was sent.
    Requested {
        ticket: Ticket,
        connection: C,
        deadline: u64,
    },
    /// Frames can be sent.
    Up {
        ticket: Ticket,
        connection: C,
        /// Time until which a request of the peer's may have crossed our own, which this comes of.
        crossing: u64,
    },
    /// No request of our own before this time; those of the peer are accepted.
    Waiting { until: u64 },
}

/// A request of the peer's that was accepted, and that it has not proven to be its own.
#[derive(Debug)]
struct Offer<C> {
    ticket: Ticket,
    connection: C,
    since: u64,
    /// Time of the next challenge; None until the peer has confirmed the offer, and hears of one.
    challenge_at: Option<u64>,
}

/// Effect of a proof.
#[derive(Debug, PartialEq, Eq)]
pub enum Proven<C> {
    /// None: it is not about the offer.
    Nothing,
    /// The offer is the connection now. The one before it, if any, is to be destroyed.
    Up(Option<C>),
    /// The peer's request had crossed ours, whose connection stays: the offer is to be destroyed.
    Crossed(C),
}

/// A connection to a peer, or none.
#[derive(Debug)]
pub struct Connection<C> {
    state: State<C>,
    offer: Option<Offer<C>>,
    /// The last offer was not proven.
    doubted: bool,
    /// Our address is a smaller number than the peer's.
    smaller: bool,
    last_used: u64,
    tickets: Tickets,
    /// Time without a frame after which it ends.
    idle_ms: u64,
    backoff: Backoff,
    /// Attempts that failed since there was a connection that worked.
    failures: u8,
    /// No frame waits before this time.
    held_off_until: u64,
}

impl<C> Connection<C> {
    /// Makes the state machine for two addresses, without a connection.
    pub fn new(own: &HwAddr, peer: &HwAddr, idle_ms: u64, now: u64) -> Self {
        Connection {
            state: State::Down,
            offer: None,
            doubted: false,
            // Network byte order, without the byte of flags.
            smaller: own.as_bytes().get(1..) < peer.as_bytes().get(1..),
            last_used: now,
            tickets: Tickets::new(),
            idle_ms,
            backoff: BACKOFF,
            failures: 0,
            held_off_until: 0,
        }
    }

    /// Returns the connection if frames can be sent: the hot path.
    #[inline]
    pub fn transmit(&mut self, now: u64) -> Option<&mut C> {
        match &mut self.state {
            State::Up { connection, .. } => {
                self.last_used = now;
                Some(connection)
            }
            _ => None,
        }
    }

    /// Returns the connection, or the one that was requested.
    #[inline]
    pub fn present(&self) -> Option<&C> {
        match &self.state {
            State::Requested { connection, .. } | State::Up { connection, .. } => Some(connection),
            _ => None,
        }
    }

    /// Returns the present connection and the offer, with their tickets.
    pub fn all(&self) -> impl Iterator<Item = (Ticket, &C)> + '_ {
        let present = self.ticket().zip(self.present());
        present.into_iter().chain(self.offer())
    }

    /// Returns true if frames can be sent.
    pub const fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Returns the offer, with its ticket: a request of the peer's that was accepted and is not proven.
    pub fn offer(&self) -> Option<(Ticket, &C)> {
        let offer = self.offer.as_ref()?;
        Some((offer.ticket, &offer.connection))
    }

    /// Returns true if a frame that only a connection can carry should wait: one is being made, by either end, or
    /// attempts have not failed often enough to say that none comes.
    pub const fn may_queue(&self, now: u64) -> bool {
        let is_coming = self.offer.is_some()
            || matches!(self.state, State::Starting { .. } | State::Requested { .. });
        !self.is_held_off(now) && (is_coming || self.failures < MAX_FAILURES)
    }

    /// Event: the peer has let frames wait for too long. None waits for it for a while.
    pub fn hold_off(&mut self, now: u64) {
        self.held_off_until = now.saturating_add(HOLD_OFF_MS);
    }

    /// Returns true if the peer was given up so recently that no frame waits for it.
    #[inline]
    pub const fn is_held_off(&self, now: u64) -> bool {
        now < self.held_off_until
    }

    /// Returns the end of the hold-off, at which [`Connection::is_blank`] may change.
    pub const fn held_off_until(&self) -> u64 {
        self.held_off_until
    }

    /// Time from which on [`Connection::want`] makes an attempt; None if there is a connection or an attempt.
    pub fn may_ask_at(&self) -> Option<u64> {
        let from = match self.state {
            State::Down => 0,
            State::Waiting { until } => until,
            _ => return None,
        };
        Some(from.max(self.offer_awaited_until()))
    }

    /// Returns true if [`Connection::want`] makes an attempt now.
    pub fn may_ask(&self, now: u64) -> bool {
        self.may_ask_at().is_some_and(|from| now >= from)
    }

    /// Returns true if there is neither a connection nor an attempt at one.
    pub fn is_vacant(&self) -> bool {
        self.offer.is_none() && self.may_ask_at().is_some()
    }

    /// Returns true if we have asked for one, and there is no answer.
    pub const fn is_asked(&self) -> bool {
        matches!(self.state, State::Starting { .. } | State::Requested { .. })
    }

    /// Returns true if an attempt has failed since a connection last worked.
    pub const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Returns true if the state is that of a new one, without a connection, a back-off or a hold-off, and may be
    /// dropped.
    pub fn is_blank(&self, now: u64) -> bool {
        self.may_ask(now) && self.offer.is_none() && !self.is_held_off(now)
    }

    /// Time until which the offer makes a request of our own needless.
    fn offer_awaited_until(&self) -> u64 {
        let offer = self.offer.as_ref().filter(|_| !self.doubted);
        offer.map_or(0, |offer| offer.since.saturating_add(CROSSING_MS))
    }

    /// Event: a frame was received, so that the connection is in use.
    pub fn used(&mut self, now: u64) {
        self.last_used = now;
    }

    /// Event: a frame has passed through the connection, in either direction, which ends the back-off. To be
    /// accepted is not enough: the CM of a peer may answer when its queue pairs do not.
    pub fn works(&mut self) {
        if self.is_up() {
            self.failures = 0;
            self.backoff.reset();
        }
    }

    /// Changes the time without a frame after which the connection ends.
    pub fn set_idle(&mut self, idle_ms: u64) {
        self.idle_ms = idle_ms;
    }

    /// Time of the last frame in either direction: where there are too many connections, the least recently used
    /// one goes.
    pub const fn last_used(&self) -> u64 {
        self.last_used
    }

    /// Returns the name of the state, for diagnostics.
    pub const fn state(&self) -> &'static str {
        match &self.state {
            State::Down => "down",
            State::Starting { .. } => "starting",
            State::Requested { .. } => "requested",
            State::Up { .. } => "up",
            State::Waiting { .. } => "waiting",
        }
    }

    /// Event: a frame for the peer went by UD. Returns a ticket if a connection is to be made: make a queue
    /// pair and send a request; answer with [`Connection::requested`] or [`Connection::failed`].
    pub fn want(&mut self, now: u64) -> Option<Ticket> {
        if !self.may_ask(now) {
            return None;
        }
        let ticket = self.tickets.issue();
        self.last_used = now;
        self.state = State::Starting { ticket };
        Some(ticket)
    }

    /// Event: a request is about to be sent. Returns the connection, and it is not to be sent, if it was
    /// overtaken or the peer has asked meanwhile.
    pub fn requested(&mut self, about: Ticket, connection: C, now: u64) -> Option<C> {
        match self.state {
            State::Starting { ticket } if ticket == about => {
                if now < self.offer_awaited_until() {
                    self.state = State::Down;
                    return Some(connection);
                }
                self.state = State::Requested {
                    ticket,
                    connection,
                    deadline: now.saturating_add(CONNECT_MS),
                };
                None
            }
            _ => Some(connection),
        }
    }

    /// Event: the peer has accepted our request. True: confirm it, frames can be sent. False: it was
    /// overtaken, reject it.
    pub fn accepted(&mut self, about: Ticket, now: u64) -> bool {
        match self.take() {
            State::Requested {
                ticket, connection, ..
            } if ticket == about => {
                self.up(ticket, connection, now);
                if let State::Up { crossing, .. } = &mut self.state {
                    *crossing = now.saturating_add(CROSSING_MS);
                }
                true
            }
            other => {
                self.state = other;
                false
            }
        }
    }

    /// Returns true if a request of the peer's may be accepted at present. If so, make a queue pair, accept it, and
    /// say so with [`Connection::accept`]. False: it crosses our own, which is on its way or was accepted
    /// just now, and which is the one that counts.
    pub fn may_accept(&self, now: u64) -> bool {
        match &self.state {
            State::Starting { .. } | State::Requested { .. } => self.smaller,
            _ => !self.is_crossed(now),
        }
    }

    /// Event: the peer's request was accepted. Returns a ticket for the offer, and the offer before it, which is
    /// to be destroyed.
    ///
    /// # Errors
    ///
    /// Returns the connection if the request must not be accepted any more.
    pub fn accept(&mut self, connection: C, now: u64) -> Result<(Ticket, Option<C>), C> {
        if !self.may_accept(now) {
            return Err(connection);
        }
        let ticket = self.tickets.issue();
        let before = self.offer.replace(Offer {
            ticket,
            connection,
            since: now,
            challenge_at: None,
        });
        self.doubted |= before.is_some();
        if !self.is_up() {
            self.last_used = now;
        }
        Ok((ticket, before.map(|offer| offer.connection)))
    }

    /// Event: the peer has confirmed the offer, or sent a frame by it, which is as good: it can be challenged.
    pub fn confirmed(&mut self, about: Ticket, now: u64) {
        if let Some(offer) = self.offer.as_mut().filter(|offer| offer.ticket == about) {
            offer.challenge_at.get_or_insert(now);
        }
    }

    /// Returns the offer if the peer is to be challenged now.
    pub fn challenge(&mut self, now: u64) -> Option<&C> {
        let offer = self.offer.as_mut()?;
        let at = offer.challenge_at.as_mut().filter(|at| now >= **at)?;
        *at = now.saturating_add(CROSSING_MS);
        Some(&offer.connection)
    }

    /// Event: the peer has answered the challenge by the offer.
    pub fn proven(&mut self, about: Ticket, now: u64) -> Proven<C> {
        let Some(offer) = self.offer.take_if(|offer| offer.ticket == about) else {
            return Proven::Nothing;
        };
        let Offer {
            ticket, connection, ..
        } = offer;
        if self.is_crossed(now) && !self.smaller {
            return Proven::Crossed(connection);
        }
        let before = self.take().into_connection();
        self.up(ticket, connection, now);
        Proven::Up(before)
    }

    /// Event: a connection or an attempt has ended. Returns the connection, to be destroyed.
    pub fn ended(&mut self, about: Ticket, end: End, now: u64) -> Option<C> {
        if let Some(offer) = self.offer.take_if(|offer| offer.ticket == about) {
            // It was not our attempt, and perhaps not the peer's.
            self.doubted = true;
            return Some(offer.connection);
        }
        if self.ticket() != Some(about) {
            return None;
        }
        let until = match end {
            // If the peer's request does not come, ours is the next.
            End::Yielded => now.saturating_add(CROSSING_MS),
            End::NoRoom => now.saturating_add(RETRY_MS),
            End::Unused if self.is_up() => {
                let mut first = BACKOFF;
                first.fail(now)
            }
            End::Unused | End::Failed => {
                self.failures = self.failures.saturating_add(1);
                self.backoff.fail(now)
            }
        };
        self.end(until)
    }

    /// Event: a connection or an attempt has failed. Returns the connection, to be destroyed.
    pub fn failed(&mut self, about: Ticket, now: u64) -> Option<C> {
        self.ended(about, End::Failed, now)
    }

    /// Event: the time is `now`. Returns a connection that took too long or has been idle, to be destroyed; to
    /// be called until it returns None.
    pub fn poll(&mut self, now: u64) -> Option<C> {
        if self
            .offer_deadline()
            .is_some_and(|deadline| now >= deadline)
        {
            self.doubted = true;
            return self.offer.take().map(|offer| offer.connection);
        }
        match &self.state {
            State::Requested {
                ticket, deadline, ..
            } if now >= *deadline => self.failed(*ticket, now),
            State::Up { .. } if self.idle_at().is_some_and(|idle| now >= idle) => self.evict(),
            _ => None,
        }
    }

    fn offer_deadline(&self) -> Option<u64> {
        let offer = self.offer.as_ref()?;
        Some(offer.since.saturating_add(CONNECT_MS))
    }

    /// Time at which it will have been idle for too long. An offer shows that the peer wants it.
    fn idle_at(&self) -> Option<u64> {
        let idle = self.is_up() && self.offer.is_none();
        idle.then(|| self.last_used.saturating_add(self.idle_ms))
    }

    /// Time at which [`Connection::poll`] or [`Connection::challenge`] has something to do, if no event comes before.
    pub fn deadline(&self) -> Option<u64> {
        let own = match &self.state {
            State::Requested { deadline, .. } => Some(*deadline),
            _ => self.idle_at(),
        };
        let challenge_at = self.offer.as_ref().and_then(|offer| offer.challenge_at);
        let all = [own, self.offer_deadline(), challenge_at];
        all.into_iter().flatten().min()
    }

    /// Event: room is needed. Returns a connection to be destroyed; to be called until it returns None. The next
    /// frame may ask for another one.
    pub fn evict(&mut self) -> Option<C> {
        if let Some(offer) = self.offer.take() {
            return Some(offer.connection);
        }
        self.take().into_connection()
    }

    /// Event: room is needed for another peer. Returns as [`Connection::evict`] does; no request is made before `until`.
    pub fn evict_until(&mut self, until: u64) -> Option<C> {
        let offer = self.offer.take().map(|offer| offer.connection);
        offer.or_else(|| self.end(until))
    }

    /// Ticket of the present connection, or of the attempt at one.
    pub const fn ticket(&self) -> Option<Ticket> {
        match &self.state {
            State::Down | State::Waiting { .. } => None,
            State::Starting { ticket }
            | State::Requested { ticket, .. }
            | State::Up { ticket, .. } => Some(*ticket),
        }
    }

    /// Returns true if our own request was accepted so recently that one of the peer's may have crossed it.
    fn is_crossed(&self, now: u64) -> bool {
        matches!(self.state, State::Up { crossing, .. } if now < crossing)
    }

    fn up(&mut self, ticket: Ticket, connection: C, now: u64) {
        self.doubted = false;
        self.last_used = now;
        self.state = State::Up {
            ticket,
            connection,
            crossing: now,
        };
    }

    /// Ends the connection, with no request before `until`.
    fn end(&mut self, until: u64) -> Option<C> {
        let ended = self.take().into_connection();
        self.state = State::Waiting { until };
        ended
    }

    fn take(&mut self) -> State<C> {
        core::mem::replace(&mut self.state, State::Down)
    }
}

impl<C> State<C> {
    fn into_connection(self) -> Option<C> {
        match self {
            State::Down | State::Starting { .. } | State::Waiting { .. } => None,
            State::Requested { connection, .. } | State::Up { connection, .. } => Some(connection),
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_connection))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::wire::gid::Gid;
    use crate::wire::hwaddr::{Flags, Qpn};

    fn address(last: u8) -> HwAddr {
        let mut gid = [0xfe; 16];
        gid[15] = last;
        let qpn = Qpn::unicast(0x11).unwrap_or(Qpn::MULTICAST);
        // The flags do not decide.
        HwAddr::new(Flags(0xff ^ last), qpn, Gid(gid))
    }

    fn smaller() -> Connection<u32> {
        Connection::new(&address(1), &address(2), 60_000, 0)
    }

    fn larger() -> Connection<u32> {
        Connection::new(&address(2), &address(1), 60_000, 0)
    }

    fn start(connection: &mut Connection<u32>, handle: u32, now: u64) -> Ticket {
        let Some(ticket) = connection.want(now) else {
            unreachable!("it may start");
        };
        assert!(connection.requested(ticket, handle, now).is_none());
        ticket
    }

    #[test]
    fn want_of_room_is_no_failure() {
        let mut connection = smaller();
        let Some(ticket) = connection.want(0) else {
            unreachable!("it may start");
        };
        assert!(connection.ended(ticket, End::NoRoom, 10).is_none());
        assert!(!connection.has_failed() && connection.may_queue(10));
        assert!(connection.may_ask_at() == Some(10 + RETRY_MS));
        // However often that happens.
        for n in 1..10 {
            let now = n * 1_000;
            let Some(ticket) = connection.want(now) else {
                unreachable!("it may start");
            };
            assert!(connection.ended(ticket, End::NoRoom, now).is_none());
            assert!(connection.may_queue(now) && connection.may_ask(now + RETRY_MS));
        }
    }

    #[test]
    fn an_evicted_connection_waits() {
        let mut connection = smaller();
        let ticket = start(&mut connection, 7, 0);
        assert!(connection.accepted(ticket, 10));
        assert!(connection.evict_until(2_000) == Some(7));
        assert!(!connection.may_ask(1_999) && connection.may_ask(2_000));
        assert!(!connection.has_failed() && connection.evict_until(3_000).is_none());
        assert!(connection.may_ask_at() == Some(3_000));
    }

    #[test]
    fn asked_for_and_accepted() {
        let mut connection = smaller();
        assert!(connection.transmit(0).is_none());
        let ticket = start(&mut connection, 7, 0);
        // One request at a time.
        assert!(connection.want(1).is_none());
        assert!(connection.accepted(ticket, 10));
        assert!(connection.transmit(11) == Some(&mut 7));
        assert!(connection.all().eq([(ticket, &7)]) && connection.present() == Some(&7));
        assert!(!connection.is_blank(u64::MAX));
        // A second time is somebody's mistake.
        assert!(!connection.accepted(ticket, 12));
        assert!(connection.failed(ticket, 20) == Some(7));
        assert!(connection.transmit(21).is_none());
    }

    #[test]
    fn what_there_is_not() {
        let mut connection = smaller();
        assert!(connection.is_vacant() && !connection.has_failed());
        assert!(!connection.is_asked());
        let ticket = start(&mut connection, 7, 0);
        assert!(!connection.is_vacant() && connection.is_asked());
        assert!(connection.failed(ticket, 20) == Some(7));
        // Though there is none before the back-off is over.
        assert!(connection.is_vacant() && connection.has_failed() && !connection.is_asked());
        accept(&mut connection, 9, 21);
        assert!(!connection.is_vacant());
    }

    #[test]
    fn accepted_and_proven() {
        let mut connection = larger();
        assert!(connection.may_accept(0));
        let ticket = connection.accept(9, 0);
        assert!(ticket.is_ok_and(|(_, before)| before.is_none()));
        assert!(connection.transmit(1).is_none());
        assert!(connection.offer().is_some() && !connection.is_up());
        assert!(!connection.is_blank(1) && connection.want(1).is_none());
        if let Ok((ticket, _)) = ticket {
            assert!(connection.proven(ticket, 2) == Proven::Up(None));
            assert!(connection.proven(ticket, 2) == Proven::Nothing);
        }
        assert!(connection.is_up() && connection.offer().is_none());
        assert!(connection.transmit(3) == Some(&mut 9));
    }

    /// A user of the peer's host asks in the peer's name, sees the answer, confirms it and sends frames: nothing goes by
    /// that, and the peer has what it had.
    #[test]
    fn to_confirm_is_no_proof() {
        for is_up in [false, true] {
            let mut connection = if is_up { up().0 } else { smaller() };
            let (offered, _) = accept(&mut connection, 9, 10);
            for now in 10..100 {
                connection.confirmed(offered, now);
                assert!(connection.transmit(now) == is_up.then_some(&mut 1));
            }
            assert!(connection.poll(10 + CONNECT_MS) == Some(9));
            assert!(connection.transmit(10 + CONNECT_MS) == is_up.then_some(&mut 1));
        }
    }

    /// The peer is challenged once it hears of that, and again for as long as it does not answer.
    #[test]
    fn challenges_are_repeated() {
        let mut connection = smaller();
        let (before, _) = accept(&mut connection, 8, 0);
        let (ticket, _) = accept(&mut connection, 9, 0);
        connection.confirmed(before, 1);
        assert!(connection.challenge(1).is_none() && connection.deadline() == Some(CONNECT_MS));
        connection.confirmed(ticket, 3);
        assert!(connection.deadline() == Some(3) && connection.challenge(2).is_none());
        let mut at = 3;
        while at < CONNECT_MS {
            assert!(connection.challenge(at) == Some(&9) && connection.challenge(at).is_none());
            // To confirm it again changes nothing.
            connection.confirmed(ticket, at + 1);
            at += CROSSING_MS;
            assert!(connection.challenge(at - 1).is_none());
            assert!(connection.deadline() == Some(at.min(CONNECT_MS)));
        }
        assert!(connection.proven(ticket, at) == Proven::Up(None));
        assert!(connection.challenge(u64::MAX).is_none());
    }

    /// RFC 4755, section 3.3: of two requests that cross, the larger address's is accepted.
    #[test]
    fn rfc4755_3_3_crossing_requests() {
        for is_told_first in [false, true] {
            let (mut small, mut large) = (smaller(), larger());
            let other = start(&mut small, 1, 0);
            let kept = start(&mut large, 2, 0);
            assert!(!large.may_accept(0));
            assert!(small.may_accept(0));
            let (ticket, before) = accept(&mut small, 3, 1);
            assert!(before.is_none() && small.all().eq([(other, &1), (ticket, &3)]));
            assert!(large.accepted(kept, 2));
            if is_told_first {
                assert!(small.ended(other, End::Yielded, 2) == Some(1));
                assert!(small.proven(ticket, 3) == Proven::Up(None));
            } else {
                assert!(small.proven(ticket, 3) == Proven::Up(Some(1)));
                // What comes of the other one is of no interest.
                assert!(
                    small.ended(other, End::Yielded, 4).is_none()
                        && small.failed(other, 4).is_none()
                );
            }
            assert!(small.transmit(4) == Some(&mut 3) && large.transmit(4) == Some(&mut 2));
        }
    }

    /// The peer's request was sent before it accepted ours, and arrives after that.
    #[test]
    fn a_request_that_was_overtaken() {
        for mut connection in [smaller(), larger()] {
            let ticket = start(&mut connection, 1, 0);
            assert!(connection.accepted(ticket, 10));
            assert!(!connection.may_accept(10 + CROSSING_MS - 1));
            assert!(connection.accept(2, 10 + CROSSING_MS - 1) == Err(2));
            // By then the peer would know: it has begun anew.
            assert!(connection.may_accept(10 + CROSSING_MS));
        }
        // It has accepted nothing of ours.
        let (connection, _) = up();
        assert!(connection.may_accept(1));
    }

    /// Both ask, and an earlier offer is proven when both have what they asked for:
    /// both keep what the larger one asked for.
    #[test]
    fn two_that_were_accepted() {
        for is_larger in [false, true] {
            let mut connection = if is_larger { larger() } else { smaller() };
            // Somebody else's, so that we ask beside the peer's.
            accept(&mut connection, 2, 0);
            let (ticket, _) = accept(&mut connection, 3, 1);
            let own = start(&mut connection, 1, 2);
            assert!(connection.accepted(own, 3));
            let proven = connection.proven(ticket, 4);
            if is_larger {
                assert!(proven == Proven::Crossed(3));
                assert!(connection.transmit(5) == Some(&mut 1));
            } else {
                assert!(proven == Proven::Up(Some(1)));
                assert!(connection.transmit(5) == Some(&mut 3));
            }
        }
    }

    /// The peer asks while our queue pair is being made: ours is not needed.
    #[test]
    fn a_request_in_time_makes_ours_needless() {
        let mut connection = smaller();
        let own = connection.want(0);
        let (ticket, _) = accept(&mut connection, 3, 1);
        assert!(own.is_some_and(|own| connection.requested(own, 1, 2) == Some(1)));
        assert!(connection.want(3).is_none());
        assert!(connection.proven(ticket, 4) == Proven::Up(None));
    }

    /// Somebody asks in the peer's name while we ask: what we asked for comes nevertheless.
    #[test]
    fn a_forged_request_replaces_none_of_ours() {
        let mut connection = smaller();
        let own = start(&mut connection, 1, 0);
        let (forged, _) = accept(&mut connection, 2, 1);
        assert!(connection.accepted(own, 2) && connection.transmit(2) == Some(&mut 1));
        let limit = 1 + CONNECT_MS;
        assert!(connection.deadline() == Some(limit) && connection.poll(limit) == Some(2));
        assert!(connection.proven(forged, limit) == Proven::Nothing);
        assert!(connection.transmit(limit) == Some(&mut 1));
    }

    /// Somebody asks in the peer's name before we do, again and again.
    #[test]
    fn forged_requests_keep_us_from_asking_once() {
        let limit = CONNECT_MS;
        for ends in [Connection::poll, |c: &mut Connection<u32>, now| {
            // Or another one comes before its time is over.
            accept(c, 2, now).1
        }] {
            let mut connection = smaller();
            accept(&mut connection, 2, 0);
            assert!(connection.want(CROSSING_MS - 1).is_none());
            assert!(ends(&mut connection, limit) == Some(2));
            accept(&mut connection, 2, limit);
            assert!(connection.may_ask(limit) && !connection.is_blank(limit));
            let own = start(&mut connection, 1, limit);
            assert!(connection.accepted(own, limit) && connection.is_up());
        }
        // It may still be the peer's: it stays beside our own.
        let mut connection = smaller();
        let (ticket, _) = accept(&mut connection, 2, 0);
        assert!(connection.may_ask_at() == Some(CROSSING_MS));
        let own = start(&mut connection, 1, CROSSING_MS);
        assert!(connection.all().eq([(own, &1), (ticket, &2)]));
        // After a failure, it is whatever comes last that is waited for.
        assert!(connection.failed(own, CROSSING_MS) == Some(1));
        assert!(connection.may_ask_at() == Some(CROSSING_MS + 1_000));
        accept(&mut connection, 3, CROSSING_MS + 900);
        assert!(connection.may_ask_at() == Some(CROSSING_MS + 1_000));
        // One that is proven says that it was the peer's.
        let mut connection = smaller();
        accept(&mut connection, 2, 0);
        let (ticket, _) = accept(&mut connection, 3, 1);
        assert!(connection.proven(ticket, 2) == Proven::Up(None));
        assert!(connection.failed(ticket, 3) == Some(3));
        accept(&mut connection, 4, 100_000);
        assert!(connection.want(100_000).is_none());
    }

    /// It says of a request of its own that ours crosses it: no more of that.
    #[test]
    fn a_peer_that_yields_what_it_asked_for() {
        let mut connection = smaller();
        let (ticket, _) = accept(&mut connection, 1, 0);
        assert!(connection.ended(ticket, End::Yielded, 1) == Some(1));
        assert!(connection.offer().is_none() && connection.want(1).is_some());
    }

    /// The rejection arrives before the request that it speaks of.
    #[test]
    fn a_crossing_request_is_waited_for() {
        let mut connection = smaller();
        let ticket = start(&mut connection, 1, 0);
        assert!(connection.ended(ticket, End::Yielded, 10) == Some(1));
        assert!(connection.want(20).is_none());
        assert!(connection.accept(2, 30).is_ok());
        // Or it does not come.
        let mut connection = smaller();
        let ticket = start(&mut connection, 1, 0);
        assert!(connection.ended(ticket, End::Yielded, 10) == Some(1));
        assert!(connection.want(10 + CROSSING_MS).is_some());
    }

    #[test]
    fn attempts_become_rarer() {
        let mut connection = smaller();
        let mut now = 0;
        for delay in [1_000, 2_000, 4_000] {
            assert!(connection.may_queue(now) == (delay < 4_000));
            let ticket = start(&mut connection, 1, now);
            assert!(connection.failed(ticket, now) == Some(1));
            assert!(connection.may_ask_at() == Some(now + delay));
            assert!(connection.want(now + delay - 1).is_none());
            now += delay;
        }
        // Nothing passes through one that is up: that is no better.
        let ticket = start(&mut connection, 1, now);
        connection.works();
        assert!(connection.accepted(ticket, now));
        assert!(connection.failed(ticket, now) == Some(1));
        assert!(connection.may_ask_at() == Some(now + 8_000) && !connection.may_queue(now));
        now += 8_000;
        let ticket = start(&mut connection, 1, now);
        assert!(connection.accepted(ticket, now) && !connection.may_queue(now));
        // A connection that nothing was sent by does not count as failed.
        assert!(connection.ended(ticket, End::Unused, now) == Some(1));
        assert!(connection.may_ask_at() == Some(now + 1_000) && !connection.may_queue(now));
        now += 1_000;
        let ticket = start(&mut connection, 1, now);
        assert!(connection.ended(ticket, End::Unused, now) == Some(1));
        assert!(connection.may_ask_at() == Some(now + 16_000));
        now += 16_000;
        let ticket = start(&mut connection, 1, now);
        assert!(connection.accepted(ticket, now));
        connection.works();
        assert!(connection.failed(ticket, now) == Some(1));
        assert!(connection.present().is_none() && connection.may_queue(now));
        assert!(!connection.is_blank(now + 999) && connection.is_blank(now + 1_000));
        assert!(connection.want(now + 1_000).is_some());
    }

    #[test]
    fn no_frame_waits_for_a_peer_that_was_given_up() {
        let mut connection = smaller();
        assert!(connection.may_queue(0) && connection.is_blank(0));
        connection.hold_off(5_000);
        assert!(connection.held_off_until() == 65_000);
        assert!(connection.is_held_off(64_999) && !connection.is_held_off(65_000));
        assert!(!connection.may_queue(64_999) && !connection.is_blank(64_999));
        assert!(connection.may_queue(65_000) && connection.is_blank(65_000));
        // But one is asked for, and frames may go by it.
        let ticket = start(&mut connection, 1, 6_000);
        assert!(!connection.may_queue(6_000) && connection.may_queue(65_000));
        assert!(connection.accepted(ticket, 6_000) && connection.transmit(6_000).is_some());
    }

    /// One that is coming is waited for, whatever has failed before.
    #[test]
    fn frames_wait_for_one_that_is_coming() {
        let mut connection = smaller();
        for now in [0, 1_000] {
            let ticket = start(&mut connection, 1, now);
            assert!(connection.failed(ticket, now) == Some(1));
        }
        assert!(!connection.may_queue(3_000));
        let (ticket, _) = accept(&mut connection, 2, 3_000);
        assert!(connection.may_queue(3_000));
        assert!(connection.failed(ticket, 3_000) == Some(2) && !connection.may_queue(3_000));
        assert!(connection.want(3_000).is_some() && connection.may_queue(3_000));
    }

    /// A lost REP, from either side.
    #[test]
    fn what_takes_too_long_is_given_up() {
        let limit = CONNECT_MS;
        let mut connection = smaller();
        start(&mut connection, 1, 0);
        assert!(connection.deadline() == Some(limit));
        assert!(connection.poll(limit - 1).is_none());
        assert!(connection.poll(limit) == Some(1));
        let mut connection = smaller();
        assert!(connection.accept(2, 0).is_ok());
        assert!(connection.poll(limit) == Some(2));
        assert!(connection.poll(limit).is_none());
        // Who asks and does not go on, or is somebody else, does not keep us from asking.
        for now in [limit, 2 * limit, 3 * limit] {
            let (ticket, _) = accept(&mut connection, 3, now);
            assert!(connection.offer() == Some((ticket, &3)));
            assert!(connection.failed(ticket, now) == Some(3));
        }
        assert!(connection.may_queue(3 * limit) && connection.want(3 * limit).is_some());
    }

    fn accept(connection: &mut Connection<u32>, handle: u32, now: u64) -> (Ticket, Option<u32>) {
        match connection.accept(handle, now) {
            Ok(accepted) => accepted,
            Err(_) => unreachable!("it may be accepted"),
        }
    }

    fn up() -> (Connection<u32>, Ticket) {
        let mut connection = smaller();
        let (ticket, _) = accept(&mut connection, 1, 0);
        assert!(connection.proven(ticket, 1) == Proven::Up(None));
        (connection, ticket)
    }

    /// The peer has forgotten us and asks again: what there was stays until it proves that.
    #[test]
    fn a_peer_that_restarts() {
        let (mut connection, ticket) = up();
        let (again, before) = accept(&mut connection, 2, 2);
        assert!(before.is_none() && connection.offer().is_some());
        assert!(connection.all().eq([(ticket, &1), (again, &2)]));
        assert!(connection.transmit(3) == Some(&mut 1));
        assert!(connection.proven(again, 4) == Proven::Up(Some(1)));
        assert!(connection.transmit(5) == Some(&mut 2) && connection.offer().is_none());
        assert!(connection.failed(ticket, 6).is_none());
    }

    /// Somebody asks in the peer's name, again and again: the peer never proves that.
    #[test]
    fn a_forged_request_ends_nothing() {
        let (mut connection, ticket) = up();
        assert!(accept(&mut connection, 2, 2).1.is_none());
        let (last, before) = accept(&mut connection, 3, 3);
        assert!(before == Some(2));
        let limit = 3 + CONNECT_MS;
        assert!(connection.deadline() == Some(limit) && connection.poll(limit - 1).is_none());
        assert!(connection.poll(limit) == Some(3));
        assert!(connection.proven(last, limit) == Proven::Nothing);
        // The peer was asked, and says that it has not asked.
        let (refused, _) = accept(&mut connection, 4, limit);
        assert!(connection.failed(refused, limit) == Some(4) && connection.may_queue(limit));
        assert!(connection.transmit(limit) == Some(&mut 1) && connection.ticket() == Some(ticket));
    }

    /// The connection ends before the offer is proven, and the other way around.
    #[test]
    fn each_of_two_ends() {
        let (mut connection, ticket) = up();
        let (again, _) = accept(&mut connection, 2, 2);
        assert!(connection.failed(ticket, 3) == Some(1));
        assert!(!connection.is_up() && connection.offer().is_some());
        assert!(connection.proven(again, 4) == Proven::Up(None));
        let (mut connection, _) = up();
        accept(&mut connection, 2, 2);
        assert!(connection.evict() == Some(2) && connection.evict() == Some(1));
        assert!(connection.evict().is_none());
        let (mut connection, _) = up();
        accept(&mut connection, 2, 100_000);
        // Not idle: somebody wants it.
        assert!(connection.poll(100_000).is_none() && connection.deadline() == Some(105_000));
    }

    #[test]
    fn idle_ones_end_without_a_grudge() {
        let mut connection = smaller();
        let ticket = start(&mut connection, 1, 0);
        assert!(connection.accepted(ticket, 0));
        assert!(connection.transmit(1_000).is_some());
        assert!(connection.poll(60_999).is_none());
        connection.used(2_000);
        assert!(connection.poll(61_000).is_none() && connection.deadline() == Some(62_000));
        assert!(connection.poll(62_000) == Some(1));
        assert!(connection.want(62_000).is_some());
    }

    /// Diagnostics have the state and the last use; an answer to an earlier attempt is of no use to a later one;
    /// and how long it may be idle can be changed while it is up.
    #[test]
    fn what_is_told_of_it() {
        let mut connection = smaller();
        assert!(connection.state() == "down");
        let first = connection.want(5);
        assert!(connection.state() == "starting" && connection.last_used() == 5);
        assert!(first.is_some_and(|first| connection.failed(first, 6).is_none()));
        assert!(connection.state() == "waiting");
        let second = connection.want(1_000_000);
        assert!(first.is_some_and(|first| connection.requested(first, 7, 1_000_001) == Some(7)));
        assert!(connection.state() == "starting");
        let Some(second) = second else {
            unreachable!("it may start");
        };
        assert!(connection.requested(second, 8, 1_000_001).is_none());
        assert!(connection.state() == "requested");
        assert!(first.is_some_and(|first| !connection.accepted(first, 1_000_002)));
        assert!(connection.accepted(second, 1_000_002) && connection.state() == "up");
        assert!(connection.transmit(1_000_010) == Some(&mut 8));
        assert!(connection.last_used() == 1_000_010);
        connection.set_idle(50);
        assert!(connection.deadline() == Some(1_000_060));
        assert!(connection.evict() == Some(8) && connection.state() == "down");
    }

    /// Another one may come at once, in each state.
    #[test]
    fn evicted_in_every_state() {
        let states: [fn(&mut Connection<u32>); 6] = [
            |_| (),
            |c| assert!(c.want(0).is_some()),
            |c| assert!(start(c, 1, 0) == start(&mut smaller(), 1, 0)),
            |c| assert!(c.accept(1, 0).is_ok()),
            |c| {
                let ticket = start(c, 1, 0);
                assert!(c.accepted(ticket, 0));
            },
            |c| {
                let ticket = start(c, 1, 0);
                assert!(c.failed(ticket, 0) == Some(1));
            },
        ];
        for (n, reach) in states.into_iter().enumerate() {
            let mut connection = smaller();
            reach(&mut connection);
            let ended = connection.evict();
            assert!(ended.is_some() == (2..5).contains(&n));
            assert!(connection.may_accept(1) && connection.transmit(1).is_none());
            assert!(connection.want(1_000_000).is_some());
        }
    }

    /// A connection that was being made when the mode changed is destroyed when it is there.
    #[test]
    fn a_request_that_nobody_wants_any_more() {
        let mut connection = smaller();
        let ticket = connection.want(0);
        assert!(connection.evict().is_none());
        assert!(ticket.is_some_and(|ticket| connection.requested(ticket, 4, 1) == Some(4)));
    }

    /// An offer is a use of what is not there yet, and none of what is.
    #[test]
    fn an_offer_keeps_no_connection_in_use() {
        let mut connection = smaller();
        accept(&mut connection, 1, 700);
        assert!(connection.last_used() == 700);
        let (mut connection, _) = up();
        accept(&mut connection, 2, 700);
        assert!(connection.last_used() == 1);
    }
}
