// SPDX-License-Identifier: GPL-2.0

//! One connection that frames go by, and what waits for it.

use ipoib_netdev::skb::SkbQueue;
use ipoib_proto::connection::{self, Connection};
use ipoib_proto::credit;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::patience::{Patience, Waiting};
use ipoib_proto::progress::Progress;
use kernel::sync::Arc;

use crate::rc::conn::{Rc, Terms};

/// For how long a frame that is there is reason to ask for a connection.
const WANT_MS: u64 = 5_000;
/// How often it is looked at what becomes of a connection that is up: sending alone has nobody look.
const LOOK_MS: u64 = 500;
/// A peer that acknowledges nothing for so long is slow.
const SLOW_MS: u64 = LOOK_MS;
/// What was sent by a connection may be under way for so long before one of it is acknowledged.
const STUCK_MS: u64 = 5_000;

/// A peer, or one of several connections to it.
pub(crate) struct Entry {
    /// Its address as it announces itself.
    pub(crate) address: HwAddr,
    pub(super) number: u8,
    pub(crate) machine: Connection<Arc<Rc>>,
    pub(crate) terms: Terms,
    /// Those of the connection that the peer has yet to confirm.
    pub(super) offered: Terms,
    /// Messages that had come when that was looked at.
    seen: u64,
    /// What becomes of ours.
    progress: Progress,
    /// Messages sent that count, modulo 2^16.
    pub(crate) sent: u16,
    /// Frames that wait, for room or for the connection; they begin with the wire's header.
    pub(crate) backlog: SkbQueue,
    /// How long they may.
    patience: Patience,
    /// A frame was there for it, which counts until then.
    wanted_until: u64,
}

impl Entry {
    /// Of the peer with `address`, whose connection of that number it is; we have the address `own`.
    pub(super) fn new(
        own: &HwAddr,
        address: HwAddr,
        number: u8,
        config: &connection::Config,
        now: u64,
    ) -> Self {
        Self {
            address,
            number,
            machine: Connection::new(own, &address, config, now),
            terms: Terms::NONE,
            offered: Terms::NONE,
            seen: 0,
            progress: Progress::new(now),
            sent: 0,
            backlog: SkbQueue::new(Waiting::MOST.frames, Waiting::MOST.bytes),
            patience: Patience::new(now),
            wanted_until: 0,
        }
    }

    /// The address of the peer.
    pub(crate) fn address(&self) -> &HwAddr {
        &self.address
    }

    /// Which of several connections to it.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// A connection begins.
    pub(crate) fn begin(&mut self, terms: Terms, now: u64) {
        self.terms = terms;
        self.wanted_until = 0;
        self.patience.begin();
        self.seen = 0;
        self.progress = Progress::new(now);
        self.sent = 0;
    }

    /// Nothing is to wait for it for a while.
    pub(crate) fn lose_hope(&mut self, now: u64) {
        self.patience.lose_hope(now);
    }

    pub(crate) fn hopes(&self, now: u64) -> bool {
        self.patience.hopes(now)
    }

    /// Whether there is a connection, or we want one, whatever the peer asks for.
    pub(super) fn is_wanted(&self, now: u64) -> bool {
        self.wants(now) || self.machine.ticket().is_some()
    }

    /// Whether a frame was there for it of late.
    pub(super) fn wants(&self, now: u64) -> bool {
        now < self.wanted_until
    }

    /// A frame is there for it. True: there was none before.
    pub(super) fn want(&mut self, now: u64) -> bool {
        let first = !self.wants(now);
        self.wanted_until = now.saturating_add(WANT_MS);
        first
    }

    /// What was wanted is being asked for.
    pub(super) fn is_asked_for(&mut self) {
        self.wanted_until = 0;
    }

    /// Whether a connection is being made, or will be.
    pub(crate) fn is_coming(&self, now: u64) -> bool {
        self.hopes(now) && (self.machine.is_coming() || self.machine.is_hopeful())
    }

    /// Whether a message may be sent, as far as the peer is concerned.
    #[inline(always)]
    pub(crate) fn may_send(&self, rc: &Rc) -> bool {
        !self.terms.extended || credit::may_send(self.sent, rc.flow.grant())
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            frames: self.backlog.len(),
            bytes: self.backlog.bytes(),
        }
    }

    /// Whether the stack may wait for the peer: it takes something now and then.
    fn is_trusted(&self, now: u64) -> bool {
        self.hopes(now) && self.machine.present().is_some_and(|rc| !rc.lane.is_slow())
    }

    /// Whether so much waits that the queue is to be stopped for it.
    pub(crate) fn stops(&mut self, now: u64) -> bool {
        let stops = self.waiting().is_crowd() && self.is_trusted(now);
        if stops {
            self.patience.stops(now);
        }
        stops
    }

    /// Whether the queue is to stay so.
    pub(crate) fn holds_up(&mut self, now: u64) -> bool {
        self.patience.look(self.waiting(), self.machine.is_up()) && self.is_trusted(now)
    }

    /// A frame begins to wait. True: it is the first.
    pub(crate) fn stall(&mut self, now: u64) -> bool {
        let first = self.backlog.is_empty();
        if first {
            self.patience.moves(now);
        }
        first
    }

    /// Frames have waited, and some could go.
    pub(crate) fn moved(&mut self, now: u64) {
        self.patience.moves(now);
    }

    /// Whether frames have waited for too long, or those that were sent do not arrive.
    pub(crate) fn is_stuck(&mut self, now: u64) -> bool {
        let waiting = self.waiting();
        self.patience.look(waiting, self.machine.is_up());
        self.patience.is_at_its_end(waiting, now) || self.look_at_sent(now) >= STUCK_MS
    }

    /// Whether its connection becomes slow: nothing that was sent by it is acknowledged. Once.
    pub(crate) fn becomes_slow(&self, now: u64) -> bool {
        let rc = self.machine.present().filter(|_| self.machine.is_up());
        let Some(rc) = rc.filter(|rc| !rc.lane.is_slow()) else {
            return false;
        };
        let slow = self.progress.unchanged_for(now) >= SLOW_MS;
        if slow {
            rc.lane.becomes_slow();
        }
        slow
    }

    /// Takes note of what has become of what was sent, and says for how long nothing has.
    fn look_at_sent(&mut self, now: u64) -> u64 {
        let Some(rc) = self.machine.present() else {
            return self.progress.look(now, 0, false);
        };
        let (done, under_way) = (rc.lane.completed(), rc.lane.in_flight() > 0);
        let unchanged = self.progress.look(now, done, under_way);
        if rc.lane.has_worked() {
            self.machine.works();
        }
        unchanged
    }

    /// Takes note of what has happened to its connection since the last time.
    pub(crate) fn look(&mut self, now: u64) {
        self.look_at_sent(now);
        let Some(rc) = self.machine.present() else {
            return;
        };
        let came = rc.flow.received.frames.get();
        if came != self.seen {
            self.seen = came;
            self.machine.used(now);
            self.machine.works();
        }
    }

    /// When time alone brings something to do.
    pub(super) fn deadline(&self, now: u64) -> Option<u64> {
        let stuck = self.patience.deadline(self.waiting(), now);
        let look = self.machine.is_up().then(|| now.saturating_add(LOOK_MS));
        // If the time is there, it is a path that is waited for.
        let again = self.machine.may_ask_at();
        let again = again.filter(|from| *from > now);
        let forgotten = self.wants(now).then_some(self.wanted_until);
        let all = [stuck, look, again, forgotten, self.machine.deadline()];
        all.into_iter().flatten().min()
    }
}
