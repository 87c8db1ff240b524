// SPDX-License-Identifier: GPL-2.0

//! One multicast group: joining it, sending to it, leaving it. All times are in milliseconds.
//!
//! There are two ways to be in a group. A *full* member receives what is sent to it; that is what
//! the stack asks for. A *send-only* member is there because somebody here transmits to the group,
//! and a sender has to be joined too (RFC 4391, section 10), but wants none of its traffic. On
//! InfiniBand both are joins with the subnet administrator; on RoCE the second one needs no more
//! than an address handle.
//!
//! Like a path, the machine is pulled: events change what is wanted, [`Group::poll`] says what to
//! do next. There is never more than one request outstanding, so that joining and leaving cannot
//! overtake each other.

use crate::drop::DropReason;
use crate::flow::backoff::Backoff;
use crate::fsm::queue::{is_crowded, Verdict, Waiting};
use crate::fsm::ticket::{Ticket, Tickets};
use crate::wire::mgid::Mgid;

/// How to be in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// To receive from it and to send to it.
    Full,
    /// Only to send to it.
    SendOnly,
}

/// Time without a transmission after which a send-only membership ends.
const IDLE_MS: u64 = 60_000;

/// Action that the driver has to carry out for a group.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an action holds a frame or an address handle, or is a request to be answered"]
pub enum Action<A, T> {
    /// Join (full: attach the queue pair and join the group on the netdev as well) and make an
    /// address handle; answer with [`Group::attached`] or [`Group::attach_failed`].
    Attach(Membership, Ticket),
    /// Undo the join of this kind, then destroy the address handle. Needs no answer, but has
    /// to be carried out before any later action of the group.
    Detach(Membership, A),
    /// Transmit this frame, which waited, with [`Group::handle`].
    Transmit(T),
    /// Free this frame and count the reason.
    Drop(T, DropReason),
}

#[derive(Debug)]
enum State<A> {
    Absent,
    Attaching {
        membership: Membership,
        ticket: Ticket,
        /// The result is out of date already.
        stale: bool,
    },
    Attached {
        membership: Membership,
        handle: A,
        stale: bool,
    },
}

/// One multicast group.
#[derive(Debug)]
pub struct Group<A, W> {
    mgid: Mgid,
    state: State<A>,
    waiting: W,
    /// The stack wants to receive from it.
    wanted: bool,
    /// Mark of the table's [`sync`](crate::fsm::multicast::GroupTable::sync): it is on the list.
    pub(crate) listed: bool,
    /// Frames were sent to it, the last one at `last_sent`.
    sending: bool,
    last_sent: u64,
    /// The group that had its place, which has yet to be left.
    before: Option<(Mgid, Membership, A)>,
    /// No join before this time.
    retry_at: u64,
    /// The last attempt to join failed.
    failed: bool,
    backoff: Backoff,
    tickets: Tickets,
}

impl<A, W: Waiting + Default> Group<A, W> {
    /// Makes a group that nobody wants yet.
    pub fn new(mgid: Mgid) -> Self {
        Group {
            mgid,
            state: State::Absent,
            waiting: W::default(),
            wanted: false,
            listed: false,
            sending: false,
            last_sent: 0,
            before: None,
            retry_at: 0,
            failed: false,
            backoff: Backoff::DEFAULT,
            tickets: Tickets::new(),
        }
    }

    /// Returns the group's MGID.
    #[inline]
    pub const fn mgid(&self) -> &Mgid {
        &self.mgid
    }

    /// Returns true if the stack wants to receive from the group.
    #[inline]
    pub const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Returns the membership that there is right now.
    #[inline]
    pub const fn membership(&self) -> Option<Membership> {
        match &self.state {
            State::Attached { membership, .. } => Some(*membership),
            _ => None,
        }
    }

    /// Returns the name of the membership's state, for diagnostics.
    pub const fn state(&self) -> &'static str {
        match &self.state {
            State::Absent if self.failed => "failed",
            State::Absent => "absent",
            State::Attaching { .. } => "joining",
            State::Attached { stale: true, .. } => "stale",
            State::Attached {
                membership: Membership::Full,
                ..
            } => "joined",
            State::Attached {
                membership: Membership::SendOnly,
                ..
            } => "send-only",
        }
    }

    /// Returns how many frames wait for the join.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the address handle if frames can be transmitted right now: the hot path.
    ///
    /// It is `None` as long as other frames wait, since those come first.
    #[inline]
    pub fn transmit(&mut self, now: u64) -> Option<&A> {
        match &self.state {
            State::Attached {
                handle,
                stale: false,
                ..
            } if self.waiting.is_empty() => {
                self.sending = true;
                self.last_sent = now;
                Some(handle)
            }
            _ => None,
        }
    }

    /// Returns the address handle for a frame from [`Action::Transmit`].
    #[inline]
    pub const fn handle(&self) -> Option<&A> {
        match &self.state {
            State::Attached {
                handle,
                stale: false,
                ..
            } => Some(handle),
            _ => None,
        }
    }

    /// Event: the stack wants to receive from the group (`true`), or no longer (`false`). What was sent before keeps it no
    /// longer then.
    pub fn want(&mut self, wanted: bool) {
        if wanted && !self.wanted {
            // A back-off that a sender earned is not held against the stack.
            self.retry_at = 0;
            self.backoff.reset();
        }
        if self.wanted && !wanted {
            self.sending = !self.waiting.is_empty();
        }
        self.wanted = wanted;
    }

    /// Event: a frame of `bytes` bytes is to be sent to the group, while `all` frames wait for paths and groups.
    pub fn send(&mut self, frame: W::Frame, bytes: u32, all: usize, now: u64) -> Verdict<W::Frame> {
        if self.handle().is_some() && self.waiting.is_empty() {
            self.sending = true;
            self.last_sent = now;
            return Verdict::Transmit(frame);
        }
        if self.failed && matches!(self.state, State::Absent) && now < self.retry_at {
            return Verdict::Drop(frame, DropReason::NoGroup);
        }
        if is_crowded(self.waiting.len(), all) {
            return Verdict::Drop(frame, DropReason::QueueFull);
        }
        self.sending = true;
        self.last_sent = now;
        match self.waiting.push(frame, bytes) {
            Ok(()) => Verdict::Queued,
            Err(frame) => Verdict::Drop(frame, DropReason::QueueFull),
        }
    }

    /// Event: the join succeeded.
    ///
    /// # Errors
    ///
    /// Gives the address handle back if nothing of the kind was asked for; the join has to be
    /// undone then.
    pub fn attached(&mut self, ticket: Ticket, handle: A) -> Result<(), A> {
        match self.state {
            State::Attaching {
                membership,
                ticket: current,
                stale,
            } if current == ticket => {
                self.state = State::Attached {
                    membership,
                    handle,
                    stale,
                };
                self.failed = false;
                self.retry_at = 0;
                self.backoff.reset();
                Ok(())
            }
            _ => Err(handle),
        }
    }

    /// Event: the join failed. As long as the stack wants the group, it is tried again for ever, at
    /// growing distances; for a sender only when there is another frame.
    pub fn attach_failed(&mut self, ticket: Ticket, now: u64) {
        match self.state {
            State::Attaching {
                ticket: current,
                stale,
                ..
            } if current == ticket => {
                self.state = State::Absent;
                // What failed because the port was down says nothing about the next attempt.
                if !stale {
                    self.failed = true;
                    self.retry_at = self.backoff.fail(now);
                }
                self.sending = false;
            }
            _ => {}
        }
    }

    /// Event: whatever was joined is gone or out of date (port down, our GID has changed, the
    /// subnet manager asks for it). Wanted groups are joined again as soon as they may be.
    pub fn invalidate(&mut self) {
        match &mut self.state {
            State::Absent => {}
            State::Attaching { stale, .. } | State::Attached { stale, .. } => *stale = true,
        }
        self.retry();
    }

    /// Event: who did not answer, or refused, may do otherwise now (another subnet manager): what failed is tried
    /// again at once.
    pub fn retry(&mut self) {
        self.failed = false;
        self.retry_at = 0;
        self.backoff.reset();
    }

    /// Takes the place of another group, for which [`Group::idle_for`] gave a time, with what is left to do for that.
    pub(crate) fn replace(&mut self, old: &mut Self) {
        if let State::Attached {
            membership, handle, ..
        } = core::mem::replace(&mut old.state, State::Absent)
        {
            self.before = Some((old.mgid, membership, handle));
        }
    }

    /// Returns what is left to do for the group that had its place, before anything that [`Group::poll`] says.
    pub(crate) fn poll_before(&mut self) -> Option<(Mgid, Action<A, W::Frame>)> {
        let (mgid, membership, handle) = self.before.take()?;
        Some((mgid, Action::Detach(membership, handle)))
    }

    /// Says what there is to do at `now`, until it returns `None`; to be called after every event
    /// other than [`Group::transmit`] and when [`Group::deadline`] has come.
    ///
    /// `open` says whether groups may be joined now; while it is not set, the group is left and
    /// what waits is dropped.
    pub fn poll(&mut self, open: bool, now: u64) -> Option<Action<A, W::Frame>> {
        self.poll_frames(open, now)
            .or_else(|| self.poll_membership(open, now))
    }

    /// As [`Group::poll`], but without [`Action::Attach`] and [`Action::Detach`].
    pub fn poll_frames(&mut self, open: bool, now: u64) -> Option<Action<A, W::Frame>> {
        if self.sending && self.waiting.is_empty() && now.saturating_sub(self.last_sent) >= IDLE_MS
        {
            self.sending = false;
        }
        if !open {
            self.sending = false;
            if let State::Attaching { stale, .. } | State::Attached { stale, .. } = &mut self.state
            {
                // It has the properties of a link that may be gone.
                *stale = true;
            }
            if let Some(frame) = self.waiting.pop() {
                return Some(Action::Drop(frame, DropReason::LinkDown));
            }
        }
        let target = self.target(open);
        match &self.state {
            State::Attaching { .. } => None,
            State::Attached {
                membership, stale, ..
            } => {
                if *stale || Some(*membership) != target {
                    return None;
                }
                self.waiting.pop().map(Action::Transmit)
            }
            State::Absent if target.is_some() && now >= self.retry_at => None,
            // Here only after a failure: what waited for that join is not kept for another.
            State::Absent => {
                let frame = self.waiting.pop()?;
                Some(Action::Drop(frame, DropReason::NoGroup))
            }
        }
    }

    /// Says how the membership is to change, if it is.
    fn poll_membership(&mut self, open: bool, now: u64) -> Option<Action<A, W::Frame>> {
        let target = self.target(open);
        match &self.state {
            State::Attaching { .. } => None,
            State::Attached {
                membership, stale, ..
            } if *stale || Some(*membership) != target => self.detach(),
            State::Attached { .. } => None,
            State::Absent => {
                let membership = target.filter(|_| now >= self.retry_at)?;
                let ticket = self.tickets.issue();
                self.state = State::Attaching {
                    membership,
                    ticket,
                    stale: false,
                };
                Some(Action::Attach(membership, ticket))
            }
        }
    }

    const fn target(&self, open: bool) -> Option<Membership> {
        if !open {
            None
        } else if self.wanted {
            Some(Membership::Full)
        } else if self.sending {
            Some(Membership::SendOnly)
        } else {
            None
        }
    }

    fn detach(&mut self) -> Option<Action<A, W::Frame>> {
        match core::mem::replace(&mut self.state, State::Absent) {
            State::Attached {
                membership, handle, ..
            } => Some(Action::Detach(membership, handle)),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Returns true if the group can be forgotten: nobody wants it, it holds nothing, and no failure has
    /// to be remembered.
    pub fn is_over(&self, now: u64) -> bool {
        matches!(self.state, State::Absent)
            && !self.wanted
            && !self.sending
            && self.waiting.is_empty()
            && self.before.is_none()
            && now >= self.retry_at
    }

    /// For how long nothing was sent, if it is only sending that keeps the group: a score for the
    /// choice of what to replace when there are too many. A full member is left before the group is joined anew.
    pub fn idle_for(&self, now: u64) -> Option<u64> {
        let full = self.membership() == Some(Membership::Full);
        let busy = full || matches!(self.state, State::Attaching { .. }) || self.before.is_some();
        if self.wanted || busy || !self.waiting.is_empty() {
            None
        } else {
            Some(now.saturating_sub(self.last_sent))
        }
    }

    /// Returns when time alone gives [`Group::poll`] something to do, if no event comes before.
    pub fn deadline(&self) -> Option<u64> {
        match &self.state {
            State::Attaching { .. } => None,
            // When to try again, or when the failure may be forgotten.
            State::Absent => Some(self.retry_at),
            State::Attached { stale: true, .. } => Some(0),
            State::Attached {
                membership: Membership::SendOnly,
                ..
            } if !self.wanted => Some(self.last_sent.saturating_add(IDLE_MS)),
            State::Attached { .. } => None,
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_group))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::fsm::queue::{Queue, MANY};
    use crate::wire::mgid::{self, Scope};
    use crate::wire::pkey::PKey;

    type TestGroup = Group<&'static str, Queue<u8, 4>>;

    fn group() -> TestGroup {
        let mgid = mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL);
        Group::new(mgid)
    }

    /// Polls for a join of the expected kind.
    fn attaching(group: &mut TestGroup, expected: Membership, now: u64) -> Result<Ticket, ()> {
        match group.poll(true, now) {
            Some(Action::Attach(membership, ticket)) if membership == expected => Ok(ticket),
            _ => Err(()),
        }
    }

    fn member(now: u64) -> Result<TestGroup, ()> {
        let mut group = group();
        group.want(true);
        let ticket = attaching(&mut group, Membership::Full, now)?;
        group.attached(ticket, "ah").map_err(|_| ())?;
        Ok(group)
    }

    fn sender(now: u64) -> Result<TestGroup, ()> {
        let mut group = group();
        if group.send(1, 100, 0, now) != Verdict::Queued {
            return Err(());
        }
        let ticket = attaching(&mut group, Membership::SendOnly, now)?;
        group.attached(ticket, "ah").map_err(|_| ())?;
        match group.poll(true, now) {
            Some(Action::Transmit(1)) => Ok(group),
            _ => Err(()),
        }
    }

    /// RFC 4391, section 10: a group that the stack listens to is joined as a full member.
    #[test]
    fn rfc4391_10_full_membership() -> Result<(), ()> {
        let mut group = member(0)?;
        assert_eq!(group.poll(true, 0), None);
        assert_eq!(group.membership(), Some(Membership::Full));
        assert_eq!(group.deadline(), None);
        group.want(false);
        assert_eq!(
            group.poll(true, 0),
            Some(Action::Detach(Membership::Full, "ah"))
        );
        assert_eq!(group.poll(true, 0), None);
        assert!(group.is_over(0));
        Ok(())
    }

    /// RFC 4391, section 10: a sender joins before it sends.
    #[test]
    fn rfc4391_10_send_only_before_sending() -> Result<(), ()> {
        let mut group = sender(0)?;
        assert_eq!(group.membership(), Some(Membership::SendOnly));
        assert_eq!(group.transmit(5), Some(&"ah"));
        assert_eq!(group.send(2, 100, 0, 7), Verdict::Transmit(2));
        assert_eq!(group.deadline(), Some(60_007));
        Ok(())
    }

    /// The stack does not wait for what a sender has failed to join, but for what it has failed to join itself.
    #[test]
    fn a_new_wish_ends_a_back_off() -> Result<(), ()> {
        let mut group = group();
        assert_eq!(group.send(1, 100, 0, 0), Verdict::Queued);
        let ticket = attaching(&mut group, Membership::SendOnly, 0)?;
        group.attach_failed(ticket, 0);
        while let Some(Action::Drop(..)) = group.poll(true, 0) {}
        group.want(true);
        let ticket = attaching(&mut group, Membership::Full, 0)?;
        group.attach_failed(ticket, 0);
        group.want(true);
        assert_eq!(group.poll(true, 0), None);
        Ok(())
    }

    #[test]
    fn an_idle_sender_leaves() -> Result<(), ()> {
        let mut group = sender(0)?;
        assert_eq!(group.poll(true, 59_999), None);
        assert_eq!(
            group.poll(true, 60_000),
            Some(Action::Detach(Membership::SendOnly, "ah"))
        );
        assert!(group.is_over(60_000));
        Ok(())
    }

    #[test]
    fn a_sender_that_listens_leaves_and_joins() -> Result<(), ()> {
        let mut group = sender(0)?;
        group.want(true);
        assert_eq!(
            group.poll(true, 0),
            Some(Action::Detach(Membership::SendOnly, "ah"))
        );
        let ticket = attaching(&mut group, Membership::Full, 0)?;
        // Frames wait for the moment that this takes.
        assert_eq!(group.send(2, 100, 0, 0), Verdict::Queued);
        assert_eq!(group.attached(ticket, "full"), Ok(()));
        assert_eq!(group.poll(true, 0), Some(Action::Transmit(2)));
        Ok(())
    }

    /// Frames sent before the stack leaves a group do not keep it: the next one joins it anew.
    #[test]
    fn a_listener_that_only_sends_leaves_and_joins() -> Result<(), ()> {
        let mut group = member(0)?;
        assert_eq!(group.transmit(0), Some(&"ah"));
        group.want(false);
        assert_eq!(
            group.poll(true, 0),
            Some(Action::Detach(Membership::Full, "ah"))
        );
        assert_eq!(group.poll(true, 0), None);
        assert!(group.is_over(0));
        assert_eq!(group.send(1, 100, 0, 0), Verdict::Queued);
        assert!(attaching(&mut group, Membership::SendOnly, 0).is_ok());
        Ok(())
    }

    /// A frame that waits for the join is sent, even if the stack leaves the group before.
    #[test]
    fn a_waiting_frame_outlasts_the_listener() -> Result<(), ()> {
        let mut group = group();
        group.want(true);
        let ticket = attaching(&mut group, Membership::Full, 0)?;
        assert_eq!(group.send(1, 100, 0, 0), Verdict::Queued);
        group.want(false);
        assert_eq!(group.attached(ticket, "ah"), Ok(()));
        let left = Action::Detach(Membership::Full, "ah");
        assert_eq!(group.poll(true, 0), Some(left));
        let ticket = attaching(&mut group, Membership::SendOnly, 0)?;
        assert_eq!(group.attached(ticket, "ah"), Ok(()));
        assert_eq!(group.poll(true, 0), Some(Action::Transmit(1)));
        Ok(())
    }

    #[test]
    fn a_wanted_group_is_tried_for_ever() -> Result<(), ()> {
        let mut group = group();
        group.want(true);
        let mut now = 0;
        for delay in [1_000, 2_000, 4_000, 8_000, 16_000, 16_000, 16_000] {
            let ticket = attaching(&mut group, Membership::Full, now)?;
            group.attach_failed(ticket, now);
            assert_eq!(group.poll(true, now + delay - 1), None);
            assert_eq!(group.deadline(), Some(now + delay));
            now += delay;
        }
        let ticket = attaching(&mut group, Membership::Full, now)?;
        assert_eq!(group.attached(ticket, "ah"), Ok(()));
        Ok(())
    }

    /// A new subnet manager does not have to wait for the back-off of the last one, and nobody leaves for it.
    #[test]
    fn another_manager_ends_a_back_off() -> Result<(), ()> {
        let mut group = group();
        group.want(true);
        for now in [0, 1_000, 3_000] {
            let ticket = attaching(&mut group, Membership::Full, now)?;
            group.attach_failed(ticket, now);
        }
        assert_eq!(group.poll(true, 3_001), None);
        group.retry();
        let ticket = attaching(&mut group, Membership::Full, 3_001)?;
        group.retry();
        assert_eq!(group.attached(ticket, "ah"), Ok(()));
        group.retry();
        assert_eq!((group.poll(true, 3_001), group.state()), (None, "joined"));
        Ok(())
    }

    #[test]
    fn a_failed_sender_drops_until_the_back_off_is_over() -> Result<(), ()> {
        let mut group = group();
        assert_eq!(group.send(1, 100, 0, 0), Verdict::Queued);
        let ticket = attaching(&mut group, Membership::SendOnly, 0)?;
        group.attach_failed(ticket, 0);
        let refused = Action::Drop(1, DropReason::NoGroup);
        assert_eq!(group.poll(true, 0), Some(refused));
        assert_eq!(group.poll(true, 0), None);
        let refused = Verdict::Drop(2, DropReason::NoGroup);
        assert_eq!(group.send(2, 100, 0, 999), refused);
        assert!(!group.is_over(999));
        assert!(group.is_over(1_000));
        assert_eq!(group.send(3, 100, 0, 1_000), Verdict::Queued);
        assert!(attaching(&mut group, Membership::SendOnly, 1_000).is_ok());
        Ok(())
    }

    #[test]
    fn port_down_leaves_and_port_up_joins_again() -> Result<(), ()> {
        let mut group = member(0)?;
        group.invalidate();
        assert_eq!(group.transmit(0), None);
        assert_eq!(group.send(1, 100, 0, 0), Verdict::Queued);
        assert_eq!(
            group.poll(false, 0),
            Some(Action::Drop(1, DropReason::LinkDown))
        );
        assert_eq!(
            group.poll(false, 0),
            Some(Action::Detach(Membership::Full, "ah"))
        );
        assert_eq!(group.poll(false, 0), None);
        assert!(attaching(&mut group, Membership::Full, 0).is_ok());
        Ok(())
    }

    /// A group that is out of date is joined anew for a frame that comes before it has been left.
    #[test]
    fn a_stale_group_takes_frames() -> Result<(), ()> {
        let mut group = sender(0)?;
        // The link was away for a moment, and there was no room to leave the group.
        assert_eq!(group.poll_frames(false, 1), None);
        assert_eq!(group.state(), "stale");
        assert_eq!(group.send(2, 100, 0, 2), Verdict::Queued);
        let left = Action::Detach(Membership::SendOnly, "ah");
        assert_eq!(group.poll(true, 2), Some(left));
        assert!(!group.is_over(2));
        Ok(())
    }

    /// A full member that nobody wants any more makes no room: it would be joined anew before it was left, if the stack
    /// wanted it again.
    #[test]
    fn a_full_member_keeps_its_place_until_it_is_left() -> Result<(), ()> {
        let mut group = member(0)?;
        group.want(false);
        assert_eq!(group.idle_for(9), None);
        let left = Action::Detach(Membership::Full, "ah");
        assert_eq!(
            (group.poll(true, 9), group.idle_for(9)),
            (Some(left), Some(9))
        );
        Ok(())
    }

    /// The group that had the place is left first, and until then nobody else gets the place.
    #[test]
    fn a_group_takes_the_place_of_another() -> Result<(), ()> {
        let (mut old, mut new) = (sender(0)?, group());
        assert_eq!(old.idle_for(9), Some(9));
        new.replace(&mut old);
        assert_eq!((new.idle_for(9), new.is_over(9)), (None, false));
        let left = Action::Detach(Membership::SendOnly, "ah");
        assert_eq!(new.poll_before(), Some((*old.mgid(), left)));
        assert_eq!((new.poll_before(), new.is_over(9)), (None, true));
        // One that was not joined leaves nothing to do.
        new.replace(&mut old);
        assert_eq!(new.poll_before(), None);
        Ok(())
    }

    #[test]
    fn a_join_that_was_overtaken_is_undone_first() -> Result<(), ()> {
        let mut group = group();
        group.want(true);
        let ticket = attaching(&mut group, Membership::Full, 0)?;
        group.invalidate();
        // Nothing else happens before the answer.
        assert_eq!(group.poll(true, 0), None);
        assert_eq!(group.attached(ticket, "old"), Ok(()));
        assert_eq!(group.handle(), None);
        assert_eq!(
            group.poll(true, 0),
            Some(Action::Detach(Membership::Full, "old"))
        );
        assert!(attaching(&mut group, Membership::Full, 0).is_ok());
        Ok(())
    }

    #[test]
    fn an_answer_to_no_question_is_given_back() -> Result<(), ()> {
        let mut group = group();
        group.want(true);
        let ticket = attaching(&mut group, Membership::Full, 0)?;
        assert_eq!(group.attached(ticket, "ah"), Ok(()));
        assert_eq!(group.attached(ticket, "twice"), Err("twice"));
        group.attach_failed(ticket, 0);
        assert_eq!(group.membership(), Some(Membership::Full));
        Ok(())
    }

    #[test]
    fn unwanted_while_attaching() -> Result<(), ()> {
        let mut group = group();
        group.want(true);
        let ticket = attaching(&mut group, Membership::Full, 0)?;
        group.want(false);
        assert!(!group.is_over(0));
        assert_eq!(group.attached(ticket, "ah"), Ok(()));
        assert_eq!(
            group.poll(true, 0),
            Some(Action::Detach(Membership::Full, "ah"))
        );
        assert!(group.is_over(0));
        Ok(())
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut group = group();
        for frame in 0..4 {
            assert_eq!(group.send(frame, 100, 0, 0), Verdict::Queued);
        }
        let refused = Verdict::Drop(4, DropReason::QueueFull);
        assert_eq!(group.send(4, 100, 0, 0), refused);
    }

    /// While many frames wait elsewhere, a few may wait for the group.
    #[test]
    fn a_crowd_leaves_room_for_few() {
        let mut group = group();
        for frame in 0..3 {
            assert_eq!(group.send(frame, 100, MANY, 0), Verdict::Queued);
        }
        let refused = Verdict::Drop(3, DropReason::QueueFull);
        assert_eq!(group.send(3, 100, MANY, 0), refused);
        assert_eq!(group.send(3, 100, MANY - 1, 0), Verdict::Queued);
    }

    #[test]
    fn diagnostics() -> Result<(), ()> {
        let mut group = group();
        assert_eq!((group.state(), group.waiting()), ("absent", 0));
        assert_eq!(group.send(1, 100, 0, 0), Verdict::Queued);
        assert_eq!(group.send(2, 100, 0, 0), Verdict::Queued);
        let ticket = attaching(&mut group, Membership::SendOnly, 0)?;
        assert_eq!((group.state(), group.waiting()), ("joining", 2));
        group.attach_failed(ticket, 0);
        assert_eq!(group.state(), "failed");
        assert_eq!(sender(0)?.state(), "send-only");
        let mut group = member(0)?;
        assert_eq!(group.state(), "joined");
        group.invalidate();
        assert_eq!(group.state(), "stale");
        Ok(())
    }

    /// Frames that wait go first, even if the group is joined meanwhile.
    #[test]
    fn frames_leave_in_order() -> Result<(), ()> {
        let mut group = group();
        assert_eq!(group.send(1, 100, 0, 0), Verdict::Queued);
        let ticket = attaching(&mut group, Membership::SendOnly, 0)?;
        assert_eq!(group.attached(ticket, "ah"), Ok(()));
        assert_eq!(group.transmit(0), None);
        assert_eq!(group.send(2, 100, 0, 0), Verdict::Queued);
        assert_eq!(group.poll(true, 0), Some(Action::Transmit(1)));
        assert_eq!(group.poll(true, 0), Some(Action::Transmit(2)));
        assert_eq!(group.transmit(0), Some(&"ah"));
        Ok(())
    }

    /// The answer to an earlier request is none to this one.
    #[test]
    fn an_old_answer_is_given_back() -> Result<(), ()> {
        let mut group = group();
        group.want(true);
        let old = attaching(&mut group, Membership::Full, 0)?;
        group.attach_failed(old, 0);
        let new = attaching(&mut group, Membership::Full, 1_000)?;
        assert_eq!(group.attached(old, "old"), Err("old"));
        group.attach_failed(old, 1_000);
        assert_eq!(group.state(), "joining");
        assert_eq!(group.attached(new, "new"), Ok(()));
        Ok(())
    }

    /// A frame that waits keeps a group, however long ago it was sent.
    #[test]
    fn a_waiting_frame_keeps_the_group() -> Result<(), ()> {
        let mut group = group();
        assert_eq!(group.send(1, 100, 0, 0), Verdict::Queued);
        assert_eq!(group.idle_for(5), None);
        let ticket = attaching(&mut group, Membership::SendOnly, 100_000)?;
        assert_eq!(group.idle_for(5), None);
        assert_eq!(group.attached(ticket, "ah"), Ok(()));
        assert_eq!(group.poll(true, 100_000), Some(Action::Transmit(1)));
        assert_eq!(group.idle_for(100_000), Some(100_000));
        assert_eq!(member(0)?.idle_for(7), None);
        Ok(())
    }

    /// Nothing is tried again while the port is down, and no time leads to anything.
    #[test]
    fn deadlines() -> Result<(), ()> {
        let mut group = sender(0)?;
        assert_eq!(group.deadline(), Some(60_000));
        group.want(true);
        assert_eq!(group.deadline(), None);
        group.invalidate();
        assert_eq!(group.deadline(), Some(0));
        Ok(())
    }

    /// A back-off is for those that failed: frames for one that did not are queued.
    #[test]
    fn a_group_that_is_left_takes_frames() -> Result<(), ()> {
        let mut group = group();
        group.want(true);
        let ticket = attaching(&mut group, Membership::Full, 0)?;
        group.attach_failed(ticket, 0);
        let again = attaching(&mut group, Membership::Full, 1_000)?;
        // The attempt under way may succeed.
        assert_eq!(group.send(1, 100, 0, 1_000), Verdict::Queued);
        assert_eq!(group.attached(again, "ah"), Ok(()));
        Ok(())
    }
}
