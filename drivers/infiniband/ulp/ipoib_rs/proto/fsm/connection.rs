// SPDX-License-Identifier: GPL-2.0

//! A reliable connection that we ask a peer for, to send by: when to ask, when to give up, when it has been idle.
//!
//! Frames go by UD whenever there is no connection. `C` is the driver's connection, a queue pair with its CM
//! ID; each event that ends one returns it, to be destroyed. Events name their connection by its ticket, and
//! those of a connection that is gone have no effect. All times are in milliseconds.
//!
//! The peer asks for a connection of its own if it sends to us ([`crate::fsm::inbound`]), as `ib_ipoib` does. So nothing is
//! sent by a connection that was asked for in the peer's name, which may be forged, and requests of both ends do not cross.

use crate::flow::backoff::Backoff;
use crate::fsm::ticket::{Ticket, Tickets};

/// Time until a request has to be established, which leaves the CM some retries.
pub const CONNECT_MS: u64 = 5_000;
/// Delay of the next attempt after a failure.
const BACKOFF: Backoff = Backoff::new(1_000, 64_000);
/// Delay of the next attempt where that may succeed soon.
const RETRY_MS: u64 = 100;
/// Failures in a row after which frames do not wait for the next attempt.
const MAX_FAILURES: u8 = 2;

/// Reason for the end of a connection, or of the attempt at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Another attempt may succeed soon: the device will have room, or the peer has closed a connection that worked.
    Soon,
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
    Up { ticket: Ticket, connection: C },
    /// No request before this time.
    Waiting { until: u64 },
}

/// A connection to a peer, or none.
#[derive(Debug)]
pub struct Connection<C> {
    state: State<C>,
    last_used: u64,
    tickets: Tickets,
    /// Time without a frame after which it ends.
    idle_ms: u64,
    backoff: Backoff,
    /// Attempts that failed since there was a connection that worked.
    failures: u8,
}

impl<C> Connection<C> {
    /// Makes the state machine, without a connection.
    pub fn new(idle_ms: u64, now: u64) -> Self {
        Connection {
            state: State::Down,
            last_used: now,
            tickets: Tickets::new(),
            idle_ms,
            backoff: BACKOFF,
            failures: 0,
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

    /// Returns true if frames can be sent.
    pub const fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Returns true if a frame that only a connection can carry should wait: one is being made, or attempts have not failed
    /// often enough to say that none comes.
    pub const fn may_queue(&self) -> bool {
        self.is_asked() || self.failures < MAX_FAILURES
    }

    /// Time from which on [`Connection::want`] makes an attempt; None if there is a connection or an attempt.
    pub const fn may_ask_at(&self) -> Option<u64> {
        match self.state {
            State::Down => Some(0),
            State::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// Returns true if [`Connection::want`] makes an attempt now. Unless one is wanted, the state machine may be dropped.
    pub fn may_ask(&self, now: u64) -> bool {
        self.may_ask_at().is_some_and(|from| now >= from)
    }

    /// Returns true if we have asked for one, and there is no answer.
    pub const fn is_asked(&self) -> bool {
        matches!(self.state, State::Starting { .. } | State::Requested { .. })
    }

    /// Returns true if an attempt has failed since a connection last worked.
    pub const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Event: the peer takes what is sent by the connection, which ends the back-off. To be accepted is not enough: the CM of
    /// a peer may answer when its queue pairs do not.
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

    /// Time of the last frame: where there are too many connections, the least recently used one goes.
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

    /// Event: a request is about to be sent. Returns the connection if the attempt has ended: no request is to be
    /// sent.
    pub fn requested(&mut self, about: Ticket, connection: C, now: u64) -> Option<C> {
        match self.state {
            State::Starting { ticket } if ticket == about => {
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

    /// Event: the peer has accepted our request. Returns true if frames can be sent: confirm it. If not, the attempt has
    /// ended: reject it.
    pub fn accepted(&mut self, about: Ticket, now: u64) -> bool {
        match self.take() {
            State::Requested {
                ticket, connection, ..
            } if ticket == about => {
                self.last_used = now;
                self.state = State::Up { ticket, connection };
                true
            }
            other => {
                self.state = other;
                false
            }
        }
    }

    /// Event: a connection or an attempt has ended. Returns the connection, to be destroyed.
    pub fn ended(&mut self, about: Ticket, end: End, now: u64) -> Option<C> {
        if self.ticket() != Some(about) {
            return None;
        }
        let until = match end {
            End::Soon => now.saturating_add(RETRY_MS),
            End::Unused if self.is_up() => {
                let mut first = BACKOFF;
                first.fail(now)
            }
            End::Unused | End::Failed => {
                self.failures = self.failures.saturating_add(1);
                self.backoff.fail(now)
            }
        };
        self.evict_until(until)
    }

    /// Event: a connection or an attempt has failed. Returns the connection, to be destroyed.
    pub fn failed(&mut self, about: Ticket, now: u64) -> Option<C> {
        self.ended(about, End::Failed, now)
    }

    /// Event: the time is `now`. Returns a connection that took too long or has been idle, to be destroyed.
    pub fn poll(&mut self, now: u64) -> Option<C> {
        match &self.state {
            State::Requested {
                ticket, deadline, ..
            } if now >= *deadline => self.failed(*ticket, now),
            State::Up { .. } if self.deadline().is_some_and(|idle| now >= idle) => self.evict(),
            _ => None,
        }
    }

    /// Time at which [`Connection::poll`] has something to do, if no event comes before.
    pub const fn deadline(&self) -> Option<u64> {
        match &self.state {
            State::Requested { deadline, .. } => Some(*deadline),
            State::Up { .. } => Some(self.last_used.saturating_add(self.idle_ms)),
            _ => None,
        }
    }

    /// Event: the connection is not wanted any more. Returns it, to be destroyed. The next frame may ask for another one.
    pub fn evict(&mut self) -> Option<C> {
        self.take().into_connection()
    }

    /// Event: the connection is to end. Returns it, to be destroyed; no request is made before `until`.
    pub fn evict_until(&mut self, until: u64) -> Option<C> {
        let ended = self.evict();
        self.state = State::Waiting { until };
        ended
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

    fn new() -> Connection<u32> {
        Connection::new(60_000, 0)
    }

    fn start(connection: &mut Connection<u32>, handle: u32, now: u64) -> Ticket {
        let Some(ticket) = connection.want(now) else {
            unreachable!("it may start");
        };
        assert!(connection.requested(ticket, handle, now).is_none());
        ticket
    }

    #[test]
    fn what_may_succeed_soon_has_not_failed() {
        let mut connection = new();
        let Some(ticket) = connection.want(0) else {
            unreachable!("it may start");
        };
        assert!(connection.ended(ticket, End::Soon, 10).is_none());
        assert!(!connection.has_failed() && connection.may_queue());
        assert!(connection.may_ask_at() == Some(10 + RETRY_MS));
        // However often that happens.
        for n in 1..10 {
            let now = n * 1_000;
            let Some(ticket) = connection.want(now) else {
                unreachable!("it may start");
            };
            assert!(connection.ended(ticket, End::Soon, now).is_none());
            assert!(connection.may_queue() && connection.may_ask(now + RETRY_MS));
        }
    }

    #[test]
    fn an_evicted_connection_waits() {
        let mut connection = new();
        let ticket = start(&mut connection, 7, 0);
        assert!(connection.accepted(ticket, 10));
        assert!(connection.evict_until(2_000) == Some(7));
        assert!(!connection.may_ask(1_999) && connection.may_ask(2_000));
        assert!(!connection.has_failed() && connection.evict_until(3_000).is_none());
        assert!(connection.may_ask_at() == Some(3_000));
    }

    #[test]
    fn asked_for_and_accepted() {
        let mut connection = new();
        assert!(connection.transmit(0).is_none());
        let ticket = start(&mut connection, 7, 0);
        // One request at a time.
        assert!(connection.want(1).is_none());
        assert!(connection.accepted(ticket, 10));
        assert!(connection.transmit(11) == Some(&mut 7));
        assert!(connection.ticket() == Some(ticket) && connection.present() == Some(&7));
        assert!(!connection.may_ask(u64::MAX));
        // A second time is somebody's mistake.
        assert!(!connection.accepted(ticket, 12));
        assert!(connection.failed(ticket, 20) == Some(7));
        assert!(connection.transmit(21).is_none());
    }

    #[test]
    fn what_there_is_not() {
        let mut connection = new();
        assert!(!connection.has_failed() && !connection.is_asked());
        let ticket = start(&mut connection, 7, 0);
        assert!(connection.is_asked());
        assert!(connection.failed(ticket, 20) == Some(7));
        assert!(connection.has_failed() && !connection.is_asked());
    }

    #[test]
    fn attempts_become_rarer() {
        let mut connection = new();
        let mut now = 0;
        for delay in [1_000, 2_000, 4_000] {
            assert!(connection.may_queue() == (delay < 4_000));
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
        assert!(connection.may_ask_at() == Some(now + 8_000) && !connection.may_queue());
        now += 8_000;
        let ticket = start(&mut connection, 1, now);
        assert!(connection.accepted(ticket, now) && !connection.may_queue());
        // A connection that nothing was sent by does not count as failed.
        assert!(connection.ended(ticket, End::Unused, now) == Some(1));
        assert!(connection.may_ask_at() == Some(now + 1_000) && !connection.may_queue());
        now += 1_000;
        let ticket = start(&mut connection, 1, now);
        assert!(connection.ended(ticket, End::Unused, now) == Some(1));
        assert!(connection.may_ask_at() == Some(now + 16_000));
        now += 16_000;
        let ticket = start(&mut connection, 1, now);
        assert!(connection.accepted(ticket, now));
        connection.works();
        assert!(connection.failed(ticket, now) == Some(1));
        assert!(connection.present().is_none() && connection.may_queue());
        assert!(!connection.may_ask(now + 999) && connection.may_ask(now + 1_000));
        assert!(connection.want(now + 1_000).is_some());
    }

    /// One that is coming is waited for, whatever has failed before.
    #[test]
    fn frames_wait_for_one_that_is_coming() {
        let mut connection = new();
        for now in [0, 1_000] {
            let ticket = start(&mut connection, 1, now);
            assert!(connection.failed(ticket, now) == Some(1));
        }
        assert!(!connection.may_queue());
        assert!(connection.want(3_000).is_some() && connection.may_queue());
    }

    /// A lost REQ or REP.
    #[test]
    fn what_takes_too_long_is_given_up() {
        let limit = CONNECT_MS;
        let mut connection = new();
        start(&mut connection, 1, 0);
        assert!(connection.deadline() == Some(limit));
        assert!(connection.poll(limit - 1).is_none());
        assert!(connection.poll(limit) == Some(1));
        assert!(connection.poll(limit).is_none() && connection.has_failed());
    }

    #[test]
    fn idle_ones_end_without_a_grudge() {
        let mut connection = new();
        let ticket = start(&mut connection, 1, 0);
        assert!(connection.accepted(ticket, 0));
        assert!(connection.transmit(1_000).is_some());
        assert!(connection.poll(60_999).is_none());
        assert!(connection.transmit(2_000).is_some());
        assert!(connection.poll(61_000).is_none() && connection.deadline() == Some(62_000));
        assert!(connection.poll(62_000) == Some(1));
        assert!(connection.want(62_000).is_some());
    }

    /// Diagnostics have the state and the last use; an answer to an earlier attempt is of no use to a later one;
    /// and how long it may be idle can be changed while it is up.
    #[test]
    fn what_is_told_of_it() {
        let mut connection = new();
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
        let states: [fn(&mut Connection<u32>); 5] = [
            |_| (),
            |c| assert!(c.want(0).is_some()),
            |c| assert!(start(c, 1, 0) == start(&mut new(), 1, 0)),
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
            let mut connection = new();
            reach(&mut connection);
            let ended = connection.evict();
            assert!(ended.is_some() == (2..4).contains(&n));
            assert!(connection.transmit(1).is_none());
            assert!(connection.want(1_000_000).is_some());
        }
    }

    /// A connection that was being made when the mode changed is destroyed when it is there.
    #[test]
    fn a_request_that_nobody_wants_any_more() {
        let mut connection = new();
        let ticket = connection.want(0);
        assert!(connection.evict().is_none());
        assert!(ticket.is_some_and(|ticket| connection.requested(ticket, 4, 1) == Some(4)));
    }
}
