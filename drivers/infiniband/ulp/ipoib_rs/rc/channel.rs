// SPDX-License-Identifier: GPL-2.0

//! A channel: a connection that frames are sent by, and the frames that wait for it.

use ipoib_netdev::skb::SkbQueue;
use ipoib_proto::backlog::{Backlog, QueueStop};
use ipoib_proto::connection::Connection;
use ipoib_proto::credit;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::places::Usage;
use ipoib_proto::stall::StallDetector;
use kernel::sync::Arc;

use crate::rc::conn::Conn;
use crate::rc::context::Negotiated;

/// For how long a frame that is there is reason to ask for a connection.
const WANT_MS: u64 = 5_000;
/// Time between two looks at a connection that is up, at which progress is noted; and time without a connection after which
/// a channel may be replaced.
const LOOK_MS: u64 = 500;
/// A connection that makes no progress for so long, though frames wait or were sent, is given up.
pub(crate) const STUCK_MS: u64 = 5_000;

/// A channel to a peer: the connection, and the frames that wait for it.
pub(crate) struct Channel {
    /// The peer's address, as the peer announces it.
    pub(crate) address: HwAddr,
    /// Which of several connections to it.
    pub(crate) number: u8,
    pub(crate) machine: Connection<Arc<Conn>>,
    pub(crate) terms: Negotiated,
    /// Sends of the present connection that had completed when that was looked at.
    completed: u32,
    /// The port was up when that was checked last.
    port_up: bool,
    /// Sends that have completed and frames that have left the backlog, modulo 2^32.
    done: u32,
    stall: StallDetector,
    /// Messages sent that count, modulo 2^16.
    pub(crate) sent: u16,
    /// Frames that wait, for room or for the connection; they begin with the wire's header.
    pub(crate) backlog: SkbQueue,
    /// State of the stack's queue as far as it is stopped for them.
    stop: QueueStop,
    /// A frame was there for it, which counts until then.
    wanted_until: u64,
}

impl Channel {
    /// Creates channel `number` of the peer with `address`.
    pub(super) fn new(address: HwAddr, number: u8, idle_ms: u64, now: u64) -> Self {
        Self {
            address,
            number,
            machine: Connection::new(idle_ms, now),
            terms: Negotiated::NONE,
            completed: 0,
            port_up: true,
            done: 0,
            stall: StallDetector::NEW,
            sent: 0,
            backlog: SkbQueue::new(Backlog::LIMIT.frames, Backlog::LIMIT.bytes),
            stop: QueueStop::Open,
            wanted_until: 0,
        }
    }

    /// A connection begins.
    pub(crate) fn begin(&mut self, terms: Negotiated) {
        self.terms = terms;
        self.wanted_until = 0;
        self.stop = QueueStop::Open;
        self.completed = 0;
        self.sent = 0;
        if let Some(rc) = self.machine.present() {
            rc.establish();
        }
    }

    /// Returns true if a frame was there for it within [`WANT_MS`].
    pub(super) fn wants(&self, now: u64) -> bool {
        now < self.wanted_until
    }

    /// The use of the channel, for whoever needs a place.
    pub(super) fn usage(&self, now: u64) -> Usage {
        let machine = &self.machine;
        let age = now.saturating_sub(machine.last_used());
        let is_vacant = machine.ticket().is_none();
        if machine.is_up() {
            Usage::Connected
        } else if is_vacant && age >= LOOK_MS && self.backlog.is_empty() {
            Usage::Silent {
                is_new: !machine.has_failed(),
                wanted_until: self.wanted_until,
            }
        } else {
            Usage::Asking
        }
    }

    /// A frame is there for it. True: there was none before.
    pub(super) fn want(&mut self, now: u64) -> bool {
        let first = !self.wants(now);
        self.wanted_until = now.saturating_add(WANT_MS);
        first
    }

    /// A connection is being asked for.
    pub(super) fn clear_want(&mut self) {
        self.wanted_until = 0;
    }

    /// Returns true if a message may be sent, as far as the peer is concerned.
    #[inline(always)]
    pub(crate) fn may_send(&self, rc: &Conn) -> bool {
        !self.terms.extended || credit::may_send(self.sent, rc.flow.credit_limit())
    }

    fn waiting(&self) -> Backlog {
        Backlog {
            frames: self.backlog.len(),
            bytes: self.backlog.bytes(),
        }
    }

    /// Notes that a frame waits. Returns true if the stack's queue is to be stopped for that.
    pub(crate) fn begin_stop(&mut self, now: u64) -> bool {
        self.stop.begin(self.waiting(), now)
    }

    /// Notes whether the queue is to stay stopped, and says so.
    pub(crate) fn update_stop(&mut self, now: u64) -> bool {
        let is_up = self.machine.is_up();
        self.stop.update(self.waiting(), is_up, now)
    }

    /// A frame has left the backlog.
    pub(crate) fn note_sent(&mut self) {
        self.done = self.done.wrapping_add(1);
    }

    /// Looks whether the peer has let frames wait for too long, or acknowledges nothing. It is not to blame if the port
    /// is down.
    pub(crate) fn check_stuck(&mut self, now: u64, port_up: bool) -> bool {
        self.port_up = port_up;
        self.observe(now) >= STUCK_MS
    }

    /// Observes what has become of frames, and says for how long none of those that wait or are in flight
    /// has gone on.
    fn observe(&mut self, now: u64) -> u64 {
        let rc = self.machine.present().filter(|_| self.machine.is_up());
        let in_flight = rc.is_some_and(|rc| rc.lane.in_flight() > 0);
        if let Some(rc) = rc {
            let completed = rc.lane.completed();
            let more = completed.wrapping_sub(self.completed);
            self.done = self.done.wrapping_add(more);
            self.completed = completed;
            // A peer that knows credit says what it has taken.
            let takes = !self.terms.extended || rc.flow.credit_limit() != self.terms.credits;
            if takes && rc.lane.has_worked() {
                self.machine.works();
            }
        }
        let is_busy = self.port_up && (in_flight || !self.backlog.is_empty());
        self.stall.observe(now, self.done, is_busy)
    }

    /// Takes note of what has happened to its connection since the last time.
    pub(crate) fn look(&mut self, now: u64) {
        self.observe(now);
    }

    /// When time alone brings something to do.
    pub(super) fn deadline(&self, now: u64) -> Option<u64> {
        let stuck = self.stall.deadline(STUCK_MS);
        let look = self.machine.is_up().then(|| now.saturating_add(LOOK_MS));
        // If the time is there, it is a path that is waited for.
        let again = self.machine.may_ask_at();
        let again = again.filter(|from| *from > now);
        let forgotten = self.wants(now).then_some(self.wanted_until);
        let ends = [self.stop.deadline(), self.machine.deadline()];
        let all = [stuck, look, again, forgotten].into_iter().chain(ends);
        all.flatten().min()
    }
}
