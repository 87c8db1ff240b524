// SPDX-License-Identifier: GPL-2.0

//! The path to one unicast peer: from a link-layer address to an address handle, and what the
//! frames do that come before there is one. All times are in milliseconds.
//!
//! The machine is pulled: events change the state, and then [`Path::poll`] says what there is to
//! do, one [`Action`] at a time, until it returns `None`. Answers to a request carry its
//! [`Ticket`], so that one that was overtaken by another event is recognised.
//!
//! `A` is the driver's address handle, and `W` what its frames wait in. Both are owned by the machine while it
//! holds them and leave it by value, so that nothing is ever freed in here.

use crate::drop::DropReason;
use crate::flow::backoff::Backoff;
use crate::fsm::queue::{Verdict, Waiting};
use crate::fsm::ticket::{Ticket, Tickets};
use crate::seq::Sequence;
use crate::wire::hwaddr::HwAddr;

pub use crate::table::{InsertError, Seed, Slot, Table as PathTable};

/// Time for which an unused path is kept: as long as a stale neighbour entry.
pub const IDLE_MS: u64 = 60_000;
/// Time to wait for the answer to an [`Action::Resolve`].
const RESOLVE_MS: u64 = 4_000;
/// Frames that may wait for paths and groups together before each path is limited to [`FEW`].
const MANY: usize = 1_024;
/// As many frames as Linux's C driver lets wait for a path.
const FEW: usize = 3;
/// Refusals in a row after which a path that is known is given up: whoever is busy refuses as well.
const REFUSALS: u8 = 3;

/// Action that the driver has to carry out for a path.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an action holds a frame or an address handle, or is a request to be answered"]
pub enum Action<A, T> {
    /// Make an address handle for [`Path::addr`] and answer with [`Path::resolved`] or
    /// [`Path::resolve_failed`].
    Resolve(Ticket),
    /// Transmit this frame, which waited, with [`Path::handle`].
    Transmit(T),
    /// Free this frame and count the reason.
    Drop(T, DropReason),
    /// Destroy this address handle.
    Release(A),
    /// Take the path out of the table and drop it: it holds nothing any more.
    Remove,
}

#[derive(Debug)]
enum State<A> {
    /// Not resolved, and not asked for. Frames that wait to be asked for are given up at `until`; `u64::MAX` for never.
    Idle { until: u64 },
    /// Asked for.
    Resolving { ticket: Ticket, deadline: u64 },
    /// Usable.
    Ready(A),
    /// Usable, but maybe out of date: to be asked for anew when it is used next.
    Old {
        handle: A,
        /// The request, and when to give it up.
        request: Option<(Ticket, u64)>,
        /// No request before this time.
        retry_at: u64,
    },
    /// To be released before anything else happens.
    Stale(A),
    /// Not to be tried before.
    Failed { until: u64 },
}

impl<A> State<A> {
    const IDLE: Self = State::Idle { until: u64::MAX };

    /// The state without its request or its back-off.
    fn afresh(self) -> Self {
        match self {
            State::Resolving {
                deadline: until, ..
            } => State::Idle { until },
            State::Failed { .. } => State::IDLE,
            other => other,
        }
    }
}

/// The path to one peer.
#[derive(Debug)]
pub struct Path<A, W> {
    addr: HwAddr,
    state: State<A>,
    waiting: W,
    /// If set, the frames that wait are to be dropped for this reason.
    flush: Option<DropReason>,
    /// It is to be resolved though no frame waits here.
    wanted: bool,
    last_used: u64,
    sequence: Sequence,
    /// How often in a row the request for an old one was refused.
    refusals: u8,
    backoff: Backoff,
    tickets: Tickets,
}

impl<A, W: Waiting + Default> Path<A, W> {
    /// Makes a path to `addr` that is not resolved yet. Frames to it are numbered from `sequence`
    /// on.
    pub fn new(addr: HwAddr, sequence: Sequence, now: u64) -> Self {
        Path {
            addr,
            state: State::IDLE,
            waiting: W::default(),
            flush: None,
            wanted: false,
            last_used: now,
            sequence,
            refusals: 0,
            backoff: Backoff::DEFAULT,
            tickets: Tickets::new(),
        }
    }

    /// Returns the peer's address.
    #[inline]
    pub const fn addr(&self) -> &HwAddr {
        &self.addr
    }

    /// Returns the name of the state, for diagnostics.
    pub const fn state(&self) -> &'static str {
        match &self.state {
            State::Idle { .. } => "idle",
            State::Resolving { .. } => "resolving",
            State::Ready(_) => "ready",
            State::Old { .. } => "old",
            State::Stale(_) => "stale",
            State::Failed { .. } => "failed",
        }
    }

    /// Returns how many frames wait for the path.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns for how long nothing was sent, in milliseconds.
    pub const fn unused_for(&self, now: u64) -> u64 {
        now.saturating_sub(self.last_used)
    }

    /// Returns the address handle if frames can be transmitted right now, and their numbers: the
    /// hot path.
    ///
    /// It is `None` as long as other frames wait, since those come first.
    #[inline]
    pub fn transmit(&mut self, now: u64) -> Option<(&A, &mut Sequence)> {
        match &self.state {
            State::Ready(handle) if self.waiting.is_empty() => {
                self.last_used = now;
                Some((handle, &mut self.sequence))
            }
            _ => None,
        }
    }

    /// Returns the counter that numbers frames. Take a number only for a frame that [`Path::send`] or [`Path::poll`] says to
    /// transmit, and that is sent: one that is dropped must not leave a gap.
    #[inline]
    pub fn sequence(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    /// Returns the address handle for a frame from [`Action::Transmit`].
    #[inline]
    pub const fn handle(&self) -> Option<&A> {
        match &self.state {
            State::Ready(handle) | State::Old { handle, .. } => Some(handle),
            _ => None,
        }
    }

    /// Returns the address handle that it holds, to be used or to be released.
    pub const fn held(&self) -> Option<&A> {
        match &self.state {
            State::Stale(handle) => Some(handle),
            _ => self.handle(),
        }
    }

    /// How readily this path makes room for another one, a score for [`PathTable::victim`]; `None` while an answer
    /// is expected or frames are about to leave by it.
    ///
    /// An unresolved path goes first, and its waiting frames are dropped: made-up addresses drive out only each other.
    #[inline]
    pub fn eviction_score(&self, now: u64) -> Option<u64> {
        if self.has_request() {
            return None;
        }
        let unused = self.unused_for(now);
        if self.handle().is_none() {
            Some(unused.saturating_add(IDLE_MS))
        } else if self.waiting.is_empty() {
            Some(unused)
        } else {
            None
        }
    }

    const fn has_request(&self) -> bool {
        matches!(
            self.state,
            State::Resolving { .. }
                | State::Old {
                    request: Some(_),
                    ..
                }
        )
    }

    /// Returns true if it is to be resolved though no frame waits. Poll.
    #[inline]
    pub const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Event: a frame of `bytes` bytes is to be sent, while `all` frames wait for paths and groups.
    ///
    /// Many peers that do not answer neither take much memory nor all room from others.
    pub fn send(&mut self, frame: W::Frame, bytes: u32, all: usize, now: u64) -> Verdict<W::Frame> {
        self.last_used = now;
        if let Some(reason) = self.flush {
            return Verdict::Drop(frame, reason);
        }
        match self.state {
            State::Ready(_) if self.waiting.is_empty() => return Verdict::Transmit(frame),
            State::Old { .. } if self.waiting.is_empty() => {
                self.want_anew(now);
                return Verdict::Transmit(frame);
            }
            State::Failed { until } if now < until => {
                return Verdict::Drop(frame, DropReason::NoPath)
            }
            _ => {}
        }
        if self.waiting.len() >= FEW && all >= MANY {
            return Verdict::Drop(frame, DropReason::QueueFull);
        }
        if self.waiting.is_empty() {
            if let State::Idle { until } = &mut self.state {
                *until = now.saturating_add(RESOLVE_MS);
            }
        }
        match self.waiting.push(frame, bytes) {
            Ok(()) => Verdict::Queued,
            Err(frame) => Verdict::Drop(frame, DropReason::QueueFull),
        }
    }

    /// Event: the address handle is needed, though no frame waits for it. Poll.
    pub fn want(&mut self, now: u64) {
        self.last_used = now;
        self.expire(true, now);
        self.wanted = matches!(self.state, State::Idle { .. });
        self.want_anew(now);
    }

    /// Has an old one asked for anew, if that may be.
    const fn want_anew(&mut self, now: u64) {
        if let State::Old {
            request: None,
            retry_at,
            ..
        } = self.state
        {
            self.wanted = now >= retry_at;
        }
    }

    /// Event: the request was answered with an address handle.
    ///
    /// Returns the one that is to be destroyed: the one before, or this one if the request is no longer the
    /// current one.
    #[must_use = "an address handle is to be destroyed"]
    pub fn resolved(&mut self, ticket: Ticket, handle: A) -> Option<A> {
        if !self.is_current(ticket) {
            return Some(handle);
        }
        self.refusals = 0;
        self.backoff.reset();
        match core::mem::replace(&mut self.state, State::Ready(handle)) {
            State::Old { handle, .. } => Some(handle),
            _ => None,
        }
    }

    /// Event: the request failed. It is not repeated before the back-off is over, and then only if
    /// there is a frame to send.
    ///
    /// `gone` says that the request was refused: there is no such path, or the subnet administrator is busy. An
    /// address handle from before stays in use until the third refusal in a row. Without an answer it stays for as
    /// long as that takes: the subnet manager may be away for long, and packets find their way without it.
    pub fn resolve_failed(&mut self, ticket: Ticket, gone: bool, now: u64) {
        if !self.is_current(ticket) {
            return;
        }
        match self.state {
            State::Old { .. } => {
                self.refusals = self.refusals.saturating_add(u8::from(gone));
                if self.refusals < REFUSALS {
                    self.keep_old(now);
                } else {
                    self.invalidate();
                }
            }
            _ => self.fail(now),
        }
    }

    fn is_current(&self, ticket: Ticket) -> bool {
        match self.state {
            State::Resolving {
                ticket: current, ..
            }
            | State::Old {
                request: Some((current, _)),
                ..
            } => current == ticket,
            _ => false,
        }
    }

    /// Gives up the request for an old one.
    fn keep_old(&mut self, now: u64) {
        if let State::Old {
            request, retry_at, ..
        } = &mut self.state
        {
            *request = None;
            *retry_at = self.backoff.fail(now);
        }
    }

    fn fail(&mut self, now: u64) {
        self.wanted = false;
        self.state = State::Failed {
            until: self.backoff.fail(now),
        };
        self.flush_with(DropReason::NoPath);
    }

    /// Has all waiting frames dropped.
    fn flush_with(&mut self, reason: DropReason) {
        if !self.waiting.is_empty() {
            self.flush = Some(reason);
        }
    }

    /// Event: what was learned about the way to the peer is out of date (our GID has changed, the
    /// port was down). What waits goes on waiting.
    pub fn invalidate(&mut self) {
        self.state = match core::mem::replace(&mut self.state, State::IDLE) {
            State::Old { handle, .. } => {
                self.wanted = false;
                State::Stale(handle)
            }
            State::Ready(handle) => State::Stale(handle),
            other => other.afresh(),
        };
        self.refusals = 0;
        self.backoff.reset();
    }

    /// Event: the way to the peer may have changed (another subnet manager, another LID). The one that is known
    /// stays in use until the question that the next frame leads to is answered.
    pub fn refresh(&mut self) {
        self.wanted |= self.has_request();
        self.state = match core::mem::replace(&mut self.state, State::IDLE) {
            State::Ready(handle) | State::Old { handle, .. } => State::Old {
                handle,
                request: None,
                retry_at: 0,
            },
            other => other.afresh(),
        };
        self.refusals = 0;
        self.backoff.reset();
    }

    /// Event: the port went down: what waits is dropped.
    pub fn port_down(&mut self) {
        self.invalidate();
        self.flush_with(DropReason::LinkDown);
    }

    /// Says what there is to do at `now`; to be called after every event other than
    /// [`Path::transmit`], and when [`Path::deadline`] has come, until it returns `None` or
    /// [`Action::Remove`].
    pub fn poll(&mut self, now: u64) -> Option<Action<A, W::Frame>> {
        self.poll_unasked(true, now)
            .or_else(|| self.ask(now).map(Action::Resolve))
    }

    /// As [`Path::poll`], but without an [`Action::Resolve`]: no more questions may be asked now. Frames wait for that for no
    /// longer than for an answer.
    ///
    /// `open` says whether there is a link to ask by. Without one, frames are dropped without a back-off: nobody has refused.
    pub fn poll_unasked(&mut self, open: bool, now: u64) -> Option<Action<A, W::Frame>> {
        self.expire(open, now);
        if matches!(self.state, State::Stale(_)) {
            let until = if self.waiting.is_empty() {
                u64::MAX
            } else {
                now.saturating_add(RESOLVE_MS)
            };
            let idle = State::Idle { until };
            if let State::Stale(handle) = core::mem::replace(&mut self.state, idle) {
                return Some(Action::Release(handle));
            }
        }
        if let Some(reason) = self.flush {
            let frame = self.waiting.pop();
            if self.waiting.is_empty() {
                self.flush = None;
            }
            if let Some(frame) = frame {
                return Some(Action::Drop(frame, reason));
            }
        }
        match self.state {
            State::Ready(_) | State::Old { .. } => self.waiting.pop().map(Action::Transmit),
            State::Idle { .. } if self.waiting.is_empty() && self.is_unused(now) => {
                Some(Action::Remove)
            }
            _ => None,
        }
    }

    /// Returns true if [`Path::poll`] is to ask for the path, at once or when a back-off is over.
    pub fn has_question(&self) -> bool {
        match self.state {
            State::Idle { .. } => self.wanted || !self.waiting.is_empty(),
            State::Old { request: None, .. } => self.wanted,
            _ => false,
        }
    }

    /// Begins a request, if there is to be one now.
    fn ask(&mut self, now: u64) -> Option<Ticket> {
        if !self.has_question() {
            return None;
        }
        let deadline = now.saturating_add(RESOLVE_MS);
        let ticket = match &mut self.state {
            State::Old { request, .. } => {
                let ticket = self.tickets.issue();
                *request = Some((ticket, deadline));
                ticket
            }
            State::Idle { .. } => {
                let ticket = self.tickets.issue();
                self.state = State::Resolving { ticket, deadline };
                ticket
            }
            _ => return None,
        };
        self.wanted = false;
        Some(ticket)
    }

    /// Ends the states whose time is over, where `open` says whether there is a link.
    fn expire(&mut self, open: bool, now: u64) {
        if let State::Old {
            request: Some((_, deadline)),
            ..
        } = self.state
        {
            if now >= deadline {
                self.keep_old(now);
            }
        }
        match self.state {
            State::Resolving { deadline, .. } if now >= deadline => self.fail(now),
            State::Idle { until }
                if now >= until && !self.waiting.is_empty() && self.flush.is_none() =>
            {
                if open {
                    self.fail(now);
                } else {
                    self.flush_with(DropReason::LinkDown);
                }
            }
            State::Failed { until } if now >= until => {
                self.state = State::Idle {
                    until: now.saturating_add(RESOLVE_MS),
                };
            }
            State::Ready(_) | State::Old { request: None, .. }
                if self.waiting.is_empty() && self.is_unused(now) =>
            {
                self.invalidate();
            }
            _ => {}
        }
    }

    fn is_unused(&self, now: u64) -> bool {
        now.saturating_sub(self.last_used) >= IDLE_MS
    }

    /// Returns when time alone gives [`Path::poll`] something to do, if no event comes before.
    pub fn deadline(&self) -> u64 {
        let unused = self.last_used.saturating_add(IDLE_MS);
        match self.state {
            State::Resolving { deadline, .. } => deadline,
            State::Failed { until } => until.max(unused),
            State::Old {
                request: Some((_, deadline)),
                ..
            } => deadline,
            State::Idle { until } if !self.waiting.is_empty() => until,
            State::Idle { .. } | State::Ready(_) | State::Old { .. } | State::Stale(_) => unused,
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_path))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::fsm::queue::Queue;

    type TestPath = Path<&'static str, Queue<u8, 4>>;

    const PEER: HwAddr = HwAddr([
        0, 0, 0, 0x11, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0x5d, 0xff, 0xfe, 0, 0, 2,
    ]);

    fn path() -> TestPath {
        Path::new(PEER, Sequence::new(1), 0)
    }

    /// Sends a frame into a path that has to be resolved for it.
    fn resolving(path: &mut TestPath, frame: u8, now: u64) -> Result<Ticket, ()> {
        match (path.send(frame, 100, 0, now), path.poll(now)) {
            (Verdict::Queued, Some(Action::Resolve(ticket))) => Ok(ticket),
            _ => Err(()),
        }
    }

    fn ready(now: u64) -> Result<TestPath, ()> {
        let mut path = path();
        let ticket = resolving(&mut path, 1, now)?;
        if path.resolved(ticket, "ah").is_some() {
            return Err(());
        }
        match path.poll(now) {
            Some(Action::Transmit(1)) => Ok(path),
            _ => Err(()),
        }
    }

    /// An address handle that is to be released may not be used, but is there until then.
    #[test]
    fn a_handle_is_held_until_it_is_released() -> Result<(), ()> {
        assert_eq!(path().held(), None);
        let mut path = ready(0)?;
        assert_eq!(path.held(), Some(&"ah"));
        path.refresh();
        assert_eq!(path.held(), Some(&"ah"));
        path.invalidate();
        assert_eq!((path.handle(), path.held()), (None, Some(&"ah")));
        assert_eq!(path.poll(0), Some(Action::Release("ah")));
        assert_eq!(path.held(), None);
        Ok(())
    }

    #[test]
    fn frames_wait_and_leave_in_order() -> Result<(), ()> {
        let mut path = path();
        let ticket = resolving(&mut path, 1, 0)?;
        assert_eq!(path.send(2, 100, 0, 0), Verdict::Queued);
        assert_eq!(path.poll(0), None);
        assert_eq!(path.resolved(ticket, "ah"), None);
        assert_eq!(path.handle(), Some(&"ah"));
        // What comes now does not overtake what waits.
        assert_eq!(path.transmit(0).map(|(ah, _)| *ah), None);
        assert_eq!(path.send(3, 100, 0, 0), Verdict::Queued);
        for frame in 1..4 {
            assert_eq!(path.poll(0), Some(Action::Transmit(frame)));
        }
        assert_eq!(path.poll(0), None);
        assert_eq!(path.transmit(0).map(|(ah, _)| *ah), Some("ah"));
        assert_eq!(path.send(4, 100, 0, 0), Verdict::Transmit(4));
        Ok(())
    }

    /// The way may have changed before what waits has left: what comes now does not overtake it either.
    #[test]
    fn nothing_overtakes_on_an_old_path() -> Result<(), ()> {
        let mut path = path();
        let ticket = resolving(&mut path, 1, 0)?;
        assert_eq!(path.resolved(ticket, "ah"), None);
        path.refresh();
        assert_eq!(path.send(2, 100, 0, 0), Verdict::Queued);
        let mut left = [0; 2];
        for frame in &mut left {
            *frame = loop {
                match path.poll(0) {
                    Some(Action::Transmit(frame)) => break frame,
                    Some(Action::Resolve(_)) => {}
                    _ => return Err(()),
                }
            };
        }
        assert_eq!(left, [1, 2]);
        Ok(())
    }

    /// While other paths are resolved one after the other, and no answer comes.
    #[test]
    fn frames_wait_for_a_turn_no_longer_than_for_an_answer() -> Result<(), ()> {
        let mut path = path();
        assert_eq!(path.send(1, 100, 0, 5), Verdict::Queued);
        assert_eq!(path.poll_unasked(true, 5), None);
        // The first one counts.
        assert_eq!(path.send(2, 100, 0, 3_000), Verdict::Queued);
        assert_eq!(path.poll_unasked(true, 3_000), None);
        assert_eq!(path.deadline(), 5 + RESOLVE_MS);
        assert_eq!(path.poll_unasked(true, 4 + RESOLVE_MS), None);
        for frame in [1, 2] {
            let dropped = Action::Drop(frame, DropReason::NoPath);
            assert_eq!(path.poll_unasked(true, 5 + RESOLVE_MS), Some(dropped));
        }
        assert_eq!(path.poll_unasked(true, 5 + RESOLVE_MS), None);
        // It backs off, and may make room for another path.
        assert_eq!(
            path.send(3, 100, 0, 6 + RESOLVE_MS),
            Verdict::Drop(3, DropReason::NoPath)
        );
        assert!(path.eviction_score(6 + RESOLVE_MS).is_some());
        // Then there is another turn.
        resolving(&mut path, 4, 1_005 + RESOLVE_MS).map(|_| ())
    }

    #[test]
    fn resolved_without_a_frame() -> Result<(), ()> {
        let mut path = path();
        path.want(0);
        let Some(Action::Resolve(ticket)) = path.poll(0) else {
            return Err(());
        };
        path.want(1);
        assert_eq!(path.poll(1), None);
        path.resolve_failed(ticket, false, 2);
        // Not before its time.
        path.want(3);
        assert_eq!(path.poll(3), None);
        path.want(1_002);
        let Some(Action::Resolve(ticket)) = path.poll(1_002) else {
            return Err(());
        };
        assert_eq!(path.resolved(ticket, "ah"), None);
        path.want(1_003);
        assert_eq!(path.poll(1_003), None);
        Ok(())
    }

    #[test]
    fn the_queue_is_bounded() -> Result<(), ()> {
        let mut path = path();
        resolving(&mut path, 1, 0)?;
        for frame in 2..5 {
            assert_eq!(path.send(frame, 100, 0, 0), Verdict::Queued);
        }
        assert_eq!(
            path.send(5, 100, 0, 0),
            Verdict::Drop(5, DropReason::QueueFull)
        );
        Ok(())
    }

    /// Where many wait for others, a few may wait for each all the same.
    #[test]
    fn all_queues_are_bounded_together() {
        let mut path = path();
        for frame in 0..3 {
            assert_eq!(path.send(frame, 100, usize::MAX, 0), Verdict::Queued);
        }
        let refused = Verdict::Drop(3, DropReason::QueueFull);
        assert_eq!(path.send(3, 100, MANY, 0), refused);
        assert_eq!(path.send(3, 100, MANY - 1, 0), Verdict::Queued);
    }

    #[test]
    fn failure_drops_and_backs_off() -> Result<(), ()> {
        let mut path = path();
        let ticket = resolving(&mut path, 1, 0)?;
        path.resolve_failed(ticket, false, 10);
        assert_eq!(path.poll(10), Some(Action::Drop(1, DropReason::NoPath)));
        assert_eq!(path.poll(10), None);
        let refused = Verdict::Drop(2, DropReason::NoPath);
        assert_eq!(path.send(2, 100, 0, 1009), refused);
        let ticket = resolving(&mut path, 3, 1010)?;
        path.resolve_failed(ticket, false, 1010);
        assert_eq!(path.poll(1010), Some(Action::Drop(3, DropReason::NoPath)));
        // The second time it takes twice as long.
        let refused = Verdict::Drop(4, DropReason::NoPath);
        assert_eq!(path.send(4, 100, 0, 3009), refused);
        assert!(resolving(&mut path, 5, 3010).is_ok());
        Ok(())
    }

    #[test]
    fn no_answer_is_a_failure() -> Result<(), ()> {
        let mut path = path();
        let ticket = resolving(&mut path, 1, 0)?;
        assert_eq!(path.deadline(), 4_000);
        assert_eq!(path.poll(3_999), None);
        assert_eq!(path.poll(4_000), Some(Action::Drop(1, DropReason::NoPath)));
        assert_eq!(path.resolved(ticket, "late"), Some("late"));
        path.resolve_failed(ticket, false, 4_000);
        assert_eq!(path.poll(4_000), None);
        Ok(())
    }

    #[test]
    fn an_overtaken_answer_is_given_back() -> Result<(), ()> {
        let mut path = path();
        let old = resolving(&mut path, 1, 0)?;
        path.invalidate();
        let Some(Action::Resolve(new)) = path.poll(0) else {
            return Err(());
        };
        assert_eq!(path.resolved(old, "old"), Some("old"));
        assert_eq!(path.resolved(new, "new"), None);
        assert_eq!(path.poll(0), Some(Action::Transmit(1)));
        assert_eq!(path.resolved(new, "twice"), Some("twice"));
        Ok(())
    }

    #[test]
    fn invalidation_releases_then_resolves() -> Result<(), ()> {
        let mut path = ready(0)?;
        path.invalidate();
        assert_eq!(path.transmit(0).map(|(ah, _)| *ah), None);
        assert_eq!(path.send(2, 100, 0, 0), Verdict::Queued);
        assert_eq!(path.poll(0), Some(Action::Release("ah")));
        assert!(matches!(path.poll(0), Some(Action::Resolve(_))));
        Ok(())
    }

    #[test]
    fn port_down_drops_what_waits() -> Result<(), ()> {
        let mut path = path();
        resolving(&mut path, 1, 0)?;
        path.port_down();
        let refused = Verdict::Drop(2, DropReason::LinkDown);
        assert_eq!(path.send(2, 100, 0, 0), refused);
        assert_eq!(path.poll(0), Some(Action::Drop(1, DropReason::LinkDown)));
        assert_eq!(path.poll(0), None);
        assert!(resolving(&mut path, 3, 0).is_ok());
        Ok(())
    }

    #[test]
    fn an_unused_path_goes() -> Result<(), ()> {
        let mut path = ready(0)?;
        assert!(path.transmit(1_000).is_some());
        assert_eq!(path.deadline(), 61_000);
        assert_eq!(path.poll(60_999), None);
        assert_eq!(path.eviction_score(60_999), Some(59_999));
        assert_eq!(path.poll(61_000), Some(Action::Release("ah")));
        assert_eq!(path.poll(61_000), Some(Action::Remove));
        Ok(())
    }

    #[test]
    fn a_clock_that_runs_backwards_removes_nothing() -> Result<(), ()> {
        let mut path = ready(1_000_000)?;
        assert_eq!(path.poll(0), None);
        assert_eq!(path.eviction_score(0), Some(0));
        Ok(())
    }

    #[test]
    fn diagnostics() -> Result<(), ()> {
        let mut path = path();
        assert_eq!((path.state(), path.waiting()), ("idle", 0));
        let ticket = resolving(&mut path, 1, 5)?;
        assert_eq!(path.send(2, 100, 0, 7), Verdict::Queued);
        assert_eq!((path.state(), path.waiting()), ("resolving", 2));
        assert_eq!((path.unused_for(10), path.eviction_score(10)), (3, None));
        path.resolve_failed(ticket, false, 10);
        assert_eq!(path.state(), "failed");
        let mut path = ready(0)?;
        assert_eq!(path.state(), "ready");
        path.invalidate();
        assert_eq!(path.state(), "stale");
        Ok(())
    }

    /// Paths that nobody answers for make room before one that frames may leave by.
    #[test]
    fn the_unresolved_make_room_first() -> Result<(), ()> {
        let (mut waits, mut usable) = (path(), ready(0)?);
        assert_eq!(waits.send(1, 100, 0, 59_000), Verdict::Queued);
        assert_eq!(waits.eviction_score(59_000), Some(IDLE_MS));
        assert_eq!(usable.eviction_score(59_000), Some(59_000));
        // One that failed, too.
        let ticket = resolving(&mut waits, 2, 59_000)?;
        waits.resolve_failed(ticket, false, 59_000);
        assert_eq!(waits.eviction_score(59_001), Some(IDLE_MS + 1));
        // A path with frames that are about to leave stays.
        let mut ready = path();
        let ticket = resolving(&mut ready, 1, 0)?;
        assert_eq!(ready.resolved(ticket, "ah"), None);
        assert_eq!(ready.eviction_score(0), None);
        usable.refresh();
        assert_eq!(usable.eviction_score(59_000), Some(59_000));
        Ok(())
    }

    /// Time alone ends a failure, and a frame that comes then is not refused.
    #[test]
    fn a_failure_ends() -> Result<(), ()> {
        let mut path = path();
        let ticket = resolving(&mut path, 1, 0)?;
        path.resolve_failed(ticket, false, 0);
        assert_eq!(path.poll(0), Some(Action::Drop(1, DropReason::NoPath)));
        assert_eq!(path.deadline(), 60_000);
        assert_eq!(path.poll(1_000), None);
        assert_eq!(path.state(), "idle");
        assert_eq!(path.poll(60_000), Some(Action::Remove));
        Ok(())
    }

    /// The way stays in use until the answer has come, and is asked for only if it is used.
    #[test]
    fn an_old_path_is_used_until_the_answer() -> Result<(), ()> {
        let mut path = ready(0)?;
        path.refresh();
        assert_eq!((path.poll(1), path.state()), (None, "old"));
        assert!(path.transmit(2).is_none());
        assert_eq!(path.send(7, 100, 0, 2), Verdict::Transmit(7));
        assert!(path.is_wanted());
        let Some(Action::Resolve(ticket)) = path.poll(2) else {
            return Err(());
        };
        // One question at a time.
        assert_eq!(path.send(8, 100, 0, 3), Verdict::Transmit(8));
        assert_eq!((path.poll(3), path.deadline()), (None, 4_002));
        assert_eq!(path.eviction_score(3), None);
        assert_eq!(path.handle(), Some(&"ah"));
        assert_eq!(path.resolved(ticket, "new"), Some("ah"));
        assert_eq!(path.transmit(4).map(|(handle, _)| *handle), Some("new"));
        Ok(())
    }

    /// Silence says nothing of the way.
    #[test]
    fn an_old_path_outlives_silence() -> Result<(), ()> {
        let mut path = ready(0)?;
        path.refresh();
        assert_eq!(path.send(7, 100, 0, 2), Verdict::Transmit(7));
        let Some(Action::Resolve(ticket)) = path.poll(2) else {
            return Err(());
        };
        path.resolve_failed(ticket, false, 10);
        assert_eq!(path.send(8, 100, 0, 1_009), Verdict::Transmit(8));
        assert_eq!(path.poll(1_009), None);
        assert_eq!(path.send(8, 100, 0, 1_010), Verdict::Transmit(8));
        let Some(Action::Resolve(again)) = path.poll(1_010) else {
            return Err(());
        };
        // Nor does one that never comes.
        assert_eq!((path.poll(5_010), path.state()), (None, "old"));
        assert_eq!(path.resolved(again, "late"), Some("late"));
        Ok(())
    }

    /// Refuses the question for an old path that a frame leads to.
    fn refuse(path: &mut TestPath, now: u64) -> Result<(), ()> {
        assert_eq!(path.send(7, 100, 0, now), Verdict::Transmit(7));
        let Some(Action::Resolve(ticket)) = path.poll(now) else {
            return Err(());
        };
        path.resolve_failed(ticket, true, now);
        Ok(())
    }

    /// One who is busy refuses as well as one who knows of no path: only the third refusal in a row is believed.
    #[test]
    fn an_old_path_goes_with_the_third_refusal() -> Result<(), ()> {
        let mut path = ready(0)?;
        path.refresh();
        for now in [10, 2_000] {
            refuse(&mut path, now)?;
            assert_eq!((path.poll(now), path.state()), (None, "old"));
        }
        // Another change begins the count anew.
        path.refresh();
        for now in [5_000, 7_000] {
            refuse(&mut path, now)?;
            assert_eq!((path.poll(now), path.handle()), (None, Some(&"ah")));
        }
        refuse(&mut path, 12_000)?;
        assert_eq!(path.poll(12_000), Some(Action::Release("ah")));
        assert_eq!((path.poll(12_000), path.state()), (None, "idle"));
        Ok(())
    }

    /// While no question may be asked, frames leave by an answer, and their time runs out.
    #[test]
    fn frames_leave_without_a_question() -> Result<(), ()> {
        let mut path = path();
        assert_eq!(path.send(1, 100, 0, 0), Verdict::Queued);
        assert_eq!(
            (path.poll_unasked(true, 0), path.has_question()),
            (None, true)
        );
        let Some(Action::Resolve(ticket)) = path.poll(1_000) else {
            return Err(());
        };
        assert!(!path.has_question());
        assert_eq!(path.resolved(ticket, "ah"), None);
        assert_eq!(path.poll_unasked(true, 1_000), Some(Action::Transmit(1)));
        path.invalidate();
        assert_eq!(path.poll_unasked(true, 1_000), Some(Action::Release("ah")));
        resolving(&mut path, 2, 1_000)?;
        let late = path.deadline();
        let dropped = Some(Action::Drop(2, DropReason::NoPath));
        assert_eq!(path.poll_unasked(true, late), dropped);
        Ok(())
    }

    /// The answer to a question from before the link went still counts, and is waited for no longer than any other.
    #[test]
    fn an_answer_may_come_without_the_link() -> Result<(), ()> {
        let mut path = path();
        let ticket = resolving(&mut path, 1, 0)?;
        assert_eq!(path.poll_unasked(false, 3_999), None);
        assert_eq!(path.resolved(ticket, "ah"), None);
        assert_eq!(path.poll_unasked(false, 3_999), Some(Action::Transmit(1)));
        path.invalidate();
        assert_eq!(path.poll(3_999), Some(Action::Release("ah")));
        resolving(&mut path, 2, 4_000)?;
        let dropped = Some(Action::Drop(2, DropReason::NoPath));
        assert_eq!(path.poll_unasked(false, 8_000), dropped);
        assert_eq!(path.state(), "failed");
        Ok(())
    }

    /// Frames wait for the link for no longer than for an answer. When it is there, they are asked for at once.
    #[test]
    fn frames_wait_for_the_link_no_longer_than_for_an_answer() -> Result<(), ()> {
        let mut path = path();
        assert_eq!(path.send(1, 100, 0, 5), Verdict::Queued);
        assert_eq!(path.send(2, 100, 0, 3_000), Verdict::Queued);
        assert_eq!(path.poll_unasked(false, 4 + RESOLVE_MS), None);
        for frame in [1, 2] {
            let dropped = Some(Action::Drop(frame, DropReason::LinkDown));
            assert_eq!(path.poll_unasked(false, path.deadline()), dropped);
        }
        assert_eq!(path.poll_unasked(false, 5 + RESOLVE_MS), None);
        resolving(&mut path, 3, 5 + RESOLVE_MS).map(|_| ())
    }

    /// Nor does one wait longer that came before the handle was released.
    #[test]
    fn a_frame_behind_a_stale_handle_waits_no_longer() -> Result<(), ()> {
        let mut path = ready(0)?;
        path.port_down();
        assert_eq!(path.send(2, 100, 0, 5), Verdict::Queued);
        assert_eq!(path.poll_unasked(false, 6), Some(Action::Release("ah")));
        assert_eq!(
            (path.poll_unasked(false, 6), path.deadline()),
            (None, 6 + RESOLVE_MS)
        );
        let dropped = Some(Action::Drop(2, DropReason::LinkDown));
        assert_eq!(path.poll_unasked(false, 6 + RESOLVE_MS), dropped);
        Ok(())
    }

    /// One that is wanted and not asked for goes with time as others do.
    #[test]
    fn a_path_that_was_wanted_goes() {
        let mut path = path();
        path.want(0);
        assert_eq!(
            (path.poll_unasked(false, 59_999), path.deadline()),
            (None, 60_000)
        );
        assert!(path.has_question());
        assert_eq!(path.poll_unasked(false, 60_000), Some(Action::Remove));
    }

    /// A question from before the change is asked again, whether or not there was an answer before that.
    #[test]
    fn an_answer_from_before_does_not_count() -> Result<(), ()> {
        let mut path = path();
        let first = resolving(&mut path, 1, 0)?;
        path.refresh();
        let Some(Action::Resolve(second)) = path.poll(0) else {
            return Err(());
        };
        assert_eq!(path.resolved(first, "first"), Some("first"));
        assert_eq!(path.resolved(second, "second"), None);
        assert_eq!(path.poll(0), Some(Action::Transmit(1)));
        path.refresh();
        assert_eq!(path.send(2, 100, 0, 1), Verdict::Transmit(2));
        let Some(Action::Resolve(third)) = path.poll(1) else {
            return Err(());
        };
        path.refresh();
        let Some(Action::Resolve(fourth)) = path.poll(1) else {
            return Err(());
        };
        assert_eq!(path.resolved(third, "third"), Some("third"));
        assert_eq!(path.resolved(fourth, "fourth"), Some("second"));
        Ok(())
    }

    /// A path that is to be resolved anew ends like others, if nobody uses it or the port goes down.
    #[test]
    fn an_old_path_ends() -> Result<(), ()> {
        let mut path = ready(0)?;
        path.refresh();
        let end = path.deadline();
        assert_eq!(path.poll(end), Some(Action::Release("ah")));
        assert_eq!(path.poll(end), Some(Action::Remove));
        let mut path = ready(0)?;
        path.refresh();
        assert!(!path.is_wanted());
        path.want(1);
        assert!(path.is_wanted());
        // Without the group of the link, or with too many questions, it is not time that brings an answer.
        assert_eq!(
            (path.poll_unasked(true, 1), path.deadline()),
            (None, 60_001)
        );
        path.port_down();
        assert_eq!(path.poll(1), Some(Action::Release("ah")));
        assert_eq!(path.poll(1), None);
        Ok(())
    }
}
