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
use crate::fsm::queue::{is_crowded, Verdict, Waiting};
use crate::fsm::ticket::{Ticket, Tickets};
use crate::seq::Sequence;
use crate::wire::hwaddr::HwAddr;

pub use crate::table::{InsertError, Seed, Slot, Table as PathTable};

/// Time for which an unused path is kept: as long as a stale neighbour entry.
pub const IDLE_MS: u64 = 60_000;
/// Time to wait for the answer to an [`Action::Resolve`].
const RESOLVE_MS: u64 = 4_000;
/// Age at which a path in use is asked for anew: the subnet manager does not tell its ends of a detour.
const AGE_MS: u64 = 5_000;
/// Part of that age for each path in use: however many peers an interface has, it asks for one or two of them in a second.
const AGE_OF_EACH_MS: u64 = 1_000;

/// Returns when a path that was resolved at `now` is to be asked for anew, where an interface has `in_use` such paths.
/// `random` spreads the times, since many paths are resolved at once.
pub const fn renewal(in_use: usize, random: u32, now: u64) -> u64 {
    let each = (in_use as u64).saturating_mul(AGE_OF_EACH_MS);
    let age = if each > AGE_MS { each } else { AGE_MS };
    let early = (age / 2).saturating_mul(random as u64) >> u32::BITS;
    now.saturating_add(age.saturating_sub(early))
}

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
    /// Not resolved. Frames that wait to be asked for are given up at `until`; `u64::MAX` for never.
    Idle { until: u64 },
    /// Usable.
    Ready(A),
    /// Usable, but maybe out of date: to be asked for anew when it is used next.
    Old(A),
    /// To be released before anything else happens.
    Stale(A),
    /// Not to be tried before.
    Failed { until: u64 },
}

impl<A> State<A> {
    const IDLE: Self = State::Idle { until: u64::MAX };
}

/// The path to one peer.
#[derive(Debug)]
pub struct Path<A, W> {
    addr: HwAddr,
    state: State<A>,
    /// The request, if it is asked for, and when to give that up.
    request: Option<(Ticket, u64)>,
    /// One that is ready becomes old then, unless it is asked for.
    renew_at: u64,
    waiting: W,
    /// If set, the frames that wait are to be dropped for this reason.
    flush: Option<DropReason>,
    /// It is to be asked for though no frame waits here.
    wanted: bool,
    last_used: u64,
    sequence: Sequence,
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
            request: None,
            renew_at: u64::MAX,
            waiting: W::default(),
            flush: None,
            wanted: false,
            last_used: now,
            sequence,
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
            State::Idle { .. } if self.request.is_some() => "resolving",
            State::Idle { .. } => "idle",
            State::Ready(_) if self.is_settled() => "ready",
            State::Ready(_) | State::Old(_) => "old",
            State::Stale(_) => "stale",
            State::Failed { .. } => "failed",
        }
    }

    /// Returns true if it is usable, and another answer is not waited for.
    pub const fn is_settled(&self) -> bool {
        self.handle().is_some() && !self.wanted && self.request.is_none()
    }

    /// Returns how many frames wait for the path.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if a frame was sent in the last `AGE_MS` milliseconds.
    pub const fn is_in_use(&self, now: u64) -> bool {
        self.unused_for(now) < AGE_MS
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
            State::Ready(handle) | State::Old(handle) => Some(handle),
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
        if self.request.is_some() {
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

    /// Returns true if it is to be asked for though no frame waits. Poll.
    #[inline]
    pub const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Event: a frame of `bytes` bytes is to be sent, while `all` frames wait for paths and groups.
    pub fn send(&mut self, frame: W::Frame, bytes: u32, all: usize, now: u64) -> Verdict<W::Frame> {
        self.last_used = now;
        if let Some(reason) = self.flush {
            return Verdict::Drop(frame, reason);
        }
        self.want_anew();
        match self.state {
            State::Ready(_) if self.waiting.is_empty() => return Verdict::Transmit(frame),
            State::Failed { until } if now < until => {
                return Verdict::Drop(frame, DropReason::NoPath)
            }
            _ => {}
        }
        if is_crowded(self.waiting.len(), all) {
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
        self.wanted |= matches!(self.state, State::Idle { .. }) && self.request.is_none();
        self.want_anew();
    }

    /// Has an old one asked for anew.
    fn want_anew(&mut self) {
        self.state = match core::mem::replace(&mut self.state, State::IDLE) {
            State::Old(handle) => {
                self.wanted = true;
                State::Ready(handle)
            }
            other => other,
        };
    }

    /// Event: the request was answered with an address handle, which becomes old at `renew_at`.
    ///
    /// Returns the one that is to be destroyed: the one before, or this one if the request is no longer the
    /// current one.
    #[must_use = "an address handle is to be destroyed"]
    pub fn resolved(&mut self, ticket: Ticket, handle: A, renew_at: u64) -> Option<A> {
        if !self.is_current(ticket) {
            return Some(handle);
        }
        self.request = None;
        self.renew_at = renew_at;
        self.backoff.reset();
        match core::mem::replace(&mut self.state, State::Ready(handle)) {
            State::Ready(handle) => Some(handle),
            _ => None,
        }
    }

    /// Event: the request failed. It is not repeated before the back-off is over, and then only if
    /// there is a frame to send.
    ///
    /// The address handle of the last answer stays in use until the next one, whether the request was refused or not
    /// answered: the subnet manager may be away for long, or busy, and packets find their way without it.
    pub fn resolve_failed(&mut self, ticket: Ticket, now: u64) {
        if self.is_current(ticket) {
            self.fail(now);
        }
    }

    fn is_current(&self, ticket: Ticket) -> bool {
        self.request.is_some_and(|(current, _)| current == ticket)
    }

    fn fail(&mut self, now: u64) {
        self.request = None;
        self.wanted = false;
        let until = self.backoff.fail(now);
        if self.handle().is_some() {
            self.renew_at = until;
        } else {
            self.state = State::Failed { until };
            self.flush_with(DropReason::NoPath);
        }
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
        let wanted = self.wanted;
        self.refresh();
        self.wanted = wanted && self.handle().is_none();
        self.state = match core::mem::replace(&mut self.state, State::IDLE) {
            State::Ready(handle) | State::Old(handle) => State::Stale(handle),
            other => other,
        };
    }

    /// Event: the way to the peer may have changed (another subnet manager, another LID, a connection that failed). The one
    /// that is known stays in use until the question that the next frame leads to is answered.
    pub fn refresh(&mut self) {
        if let Some((_, deadline)) = self.request.take() {
            self.wanted = true;
            if let State::Idle { until } = &mut self.state {
                *until = deadline;
            }
        }
        if let State::Failed { .. } = self.state {
            self.state = State::IDLE;
        }
        self.grow_old();
        self.backoff.reset();
    }

    /// Event: a connection along the path has failed. A path in use is asked for at once: poll.
    pub fn doubt(&mut self, now: u64) {
        self.refresh();
        if self.is_in_use(now) {
            self.want_anew();
        }
    }

    /// Leaves the next question to the next frame.
    fn grow_old(&mut self) {
        self.state = match core::mem::replace(&mut self.state, State::IDLE) {
            State::Ready(handle) if !self.wanted => State::Old(handle),
            other => other,
        };
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
            State::Ready(_) | State::Old(_) => self.waiting.pop().map(Action::Transmit),
            State::Idle { .. } if self.is_over(now) => Some(Action::Remove),
            _ => None,
        }
    }

    /// Returns true if [`Path::poll`] is to ask for the path.
    pub fn has_question(&self) -> bool {
        let asks = match self.state {
            State::Idle { .. } => self.wanted || !self.waiting.is_empty(),
            State::Ready(_) => self.wanted,
            _ => false,
        };
        asks && self.request.is_none()
    }

    /// Begins a request, if there is to be one now.
    fn ask(&mut self, now: u64) -> Option<Ticket> {
        if !self.has_question() {
            return None;
        }
        let ticket = self.tickets.issue();
        self.request = Some((ticket, now.saturating_add(RESOLVE_MS)));
        self.wanted = false;
        Some(ticket)
    }

    /// Ends the states whose time is over, where `open` says whether there is a link.
    fn expire(&mut self, open: bool, now: u64) {
        if let Some((_, deadline)) = self.request {
            if now < deadline {
                return;
            }
            self.fail(now);
        }
        match self.state {
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
            State::Ready(_) | State::Old(_) if self.is_over(now) => self.invalidate(),
            State::Ready(_) if now >= self.renew_at => self.grow_old(),
            _ => {}
        }
    }

    /// Returns true if nothing waits and nobody has used it for long.
    fn is_over(&self, now: u64) -> bool {
        self.request.is_none() && self.waiting.is_empty() && self.unused_for(now) >= IDLE_MS
    }

    /// Returns when time alone gives [`Path::poll`] something to do, if no event comes before.
    pub fn deadline(&self) -> u64 {
        if let Some((_, deadline)) = self.request {
            return deadline;
        }
        let unused = self.last_used.saturating_add(IDLE_MS);
        match self.state {
            State::Failed { until } => until.max(unused),
            State::Idle { until } if !self.waiting.is_empty() => until,
            State::Ready(_) if !self.wanted => unused.min(self.renew_at),
            _ => unused,
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_path))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::fsm::queue::{Queue, MANY};

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
        if path.resolved(ticket, "ah", u64::MAX).is_some() {
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
        assert_eq!(path.resolved(ticket, "ah", u64::MAX), None);
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
        assert_eq!(path.resolved(ticket, "ah", u64::MAX), None);
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
        path.resolve_failed(ticket, 2);
        // Not before its time.
        path.want(3);
        assert_eq!(path.poll(3), None);
        path.want(1_002);
        let Some(Action::Resolve(ticket)) = path.poll(1_002) else {
            return Err(());
        };
        assert_eq!(path.resolved(ticket, "ah", u64::MAX), None);
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
        path.resolve_failed(ticket, 10);
        assert_eq!(path.poll(10), Some(Action::Drop(1, DropReason::NoPath)));
        assert_eq!(path.poll(10), None);
        let refused = Verdict::Drop(2, DropReason::NoPath);
        assert_eq!(path.send(2, 100, 0, 1009), refused);
        let ticket = resolving(&mut path, 3, 1010)?;
        path.resolve_failed(ticket, 1010);
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
        assert_eq!(path.resolved(ticket, "late", u64::MAX), Some("late"));
        path.resolve_failed(ticket, 4_000);
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
        assert_eq!(path.resolved(old, "old", u64::MAX), Some("old"));
        assert_eq!(path.resolved(new, "new", u64::MAX), None);
        assert_eq!(path.poll(0), Some(Action::Transmit(1)));
        assert_eq!(path.resolved(new, "twice", u64::MAX), Some("twice"));
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
        path.resolve_failed(ticket, 10);
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
        waits.resolve_failed(ticket, 59_000);
        assert_eq!(waits.eviction_score(59_001), Some(IDLE_MS + 1));
        // A path with frames that are about to leave stays.
        let mut ready = path();
        let ticket = resolving(&mut ready, 1, 0)?;
        assert_eq!(ready.resolved(ticket, "ah", u64::MAX), None);
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
        path.resolve_failed(ticket, 0);
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
        assert_eq!(path.resolved(ticket, "new", u64::MAX), Some("ah"));
        assert_eq!(path.transmit(4).map(|(handle, _)| *handle), Some("new"));
        Ok(())
    }

    /// An answer that never comes ends no path, and one that comes too late counts for nothing.
    #[test]
    fn an_old_path_outlives_a_lost_answer() -> Result<(), ()> {
        let mut path = ready(0)?;
        path.refresh();
        assert_eq!(path.send(7, 100, 0, 2), Verdict::Transmit(7));
        let Some(Action::Resolve(ticket)) = path.poll(2) else {
            return Err(());
        };
        assert_eq!((path.poll(4_001), path.state()), (None, "old"));
        assert_eq!((path.poll(4_002), path.handle()), (None, Some(&"ah")));
        assert_eq!(path.deadline(), 5_002);
        assert_eq!(path.resolved(ticket, "late", u64::MAX), Some("late"));
        Ok(())
    }

    /// A path that becomes old at 5,000.
    fn aging() -> Result<TestPath, ()> {
        let mut path = path();
        let ticket = resolving(&mut path, 1, 0)?;
        assert_eq!(path.resolved(ticket, "ah", 5_000), None);
        assert_eq!(path.poll(0), Some(Action::Transmit(1)));
        Ok(path)
    }

    /// A path in use is asked for once it has its age. The next frame asks, and no frame waits for the answer.
    #[test]
    fn a_path_in_use_is_asked_for_at_its_age() -> Result<(), ()> {
        let mut path = aging()?;
        assert!(path.transmit(4_000).is_some());
        assert_eq!((path.deadline(), path.poll(4_999)), (5_000, None));
        assert!(path.transmit(4_999).is_some() && path.is_settled());
        assert_eq!((path.poll(5_000), path.state()), (None, "old"));
        assert!(!path.has_question() && path.transmit(5_001).is_none());
        assert_eq!(path.send(2, 100, 0, 5_001), Verdict::Transmit(2));
        assert!(path.is_wanted() && path.transmit(5_001).is_some());
        let Some(Action::Resolve(ticket)) = path.poll(5_002) else {
            return Err(());
        };
        assert!(path.transmit(5_003).is_some() && !path.is_settled());
        assert_eq!(path.resolved(ticket, "new", 10_000), Some("ah"));
        assert!(path.is_settled());
        assert_eq!((path.deadline(), path.poll(9_999)), (10_000, None));
        Ok(())
    }

    /// An unused path is not asked for, and goes as before.
    #[test]
    fn a_path_that_is_not_used_has_no_age() -> Result<(), ()> {
        let mut path = aging()?;
        assert_eq!(path.poll(5_000), None);
        assert_eq!((path.deadline(), path.poll(59_999)), (60_000, None));
        assert_eq!(path.poll(60_000), Some(Action::Release("ah")));
        assert_eq!(path.poll(60_000), Some(Action::Remove));
        Ok(())
    }

    /// Without an answer it stays in use, frames take the fast way, and it is asked for less and less often, if it is used.
    #[test]
    fn silence_costs_less_and_less() -> Result<(), ()> {
        let mut path = aging()?;
        let mut now = 5_000;
        for wait in [1_000, 2_000, 4_000, 8_000, 16_000, 16_000] {
            assert_eq!(path.poll(now), None);
            assert_eq!(path.send(2, 100, 0, now), Verdict::Transmit(2));
            let Some(Action::Resolve(ticket)) = path.poll(now) else {
                return Err(());
            };
            path.resolve_failed(ticket, now);
            assert!(path.transmit(now).is_some());
            assert_eq!(path.poll(now + wait - 1), None);
            assert!(path.transmit(now + wait - 1).is_some());
            now += wait;
        }
        Ok(())
    }

    /// A connection that failed has the path asked for before its age, whatever the question before has come to.
    #[test]
    fn a_doubted_path_is_asked_for_at_once() -> Result<(), ()> {
        let mut path = aging()?;
        path.doubt(10);
        let Some(Action::Resolve(first)) = path.poll(10) else {
            return Err(());
        };
        path.doubt(20);
        assert!(!path.is_settled());
        let Some(Action::Resolve(second)) = path.poll(20) else {
            return Err(());
        };
        assert_eq!(path.resolved(first, "first", 6_000), Some("first"));
        assert!(!path.is_settled());
        assert_eq!(path.resolved(second, "second", 6_000), Some("ah"));
        assert!(path.is_settled());
        // Unused ones wait for a frame.
        path.doubt(4_999);
        assert!(path.has_question());
        let mut path = aging()?;
        path.doubt(5_000);
        assert_eq!((path.has_question(), path.state()), (false, "old"));
        Ok(())
    }

    /// Each of a few paths is asked for every few seconds; the more paths are in use, the less often each is asked for.
    #[test]
    fn paths_share_their_questions() {
        for (in_use, longest) in [(0, 5_000), (5, 5_000), (6, 6_000), (8_192, 8_192_000)] {
            assert_eq!(renewal(in_use, 0, 7), 7 + longest);
            let soonest = renewal(in_use, u32::MAX, 7) - 7;
            assert!((longest / 2..=longest / 2 + 1).contains(&soonest));
        }
        assert_eq!(renewal(usize::MAX, 1, u64::MAX), u64::MAX);
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
        assert_eq!(path.resolved(ticket, "ah", u64::MAX), None);
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
        assert_eq!(path.resolved(ticket, "ah", u64::MAX), None);
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
        assert_eq!(path.resolved(first, "first", u64::MAX), Some("first"));
        assert_eq!(path.resolved(second, "second", u64::MAX), None);
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
        assert_eq!(path.resolved(third, "third", u64::MAX), Some("third"));
        assert_eq!(path.resolved(fourth, "fourth", u64::MAX), Some("second"));
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
