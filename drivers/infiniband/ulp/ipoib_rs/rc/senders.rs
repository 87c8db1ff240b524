// SPDX-License-Identifier: GPL-2.0

//! Connections that others have asked for, to send by, as ib_ipoib does. We send nothing by them but credit limits.

use ipoib_proto::admission::{self, Crowd, Load, Origin, Unconfirmed, MAX_SENDERS};
use ipoib_proto::inbound::Inbound;
use ipoib_proto::stall::StallDetector;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::rc::channel::STUCK_MS;
use crate::rc::conn::{Among, Cause, Conn, Least, Used};

/// A connection that a peer sends by.
struct Sender {
    rc: Arc<Conn>,
    state: Inbound,
    /// Watches whether the peer takes what is sent by it.
    stall: StallDetector,
}

impl Sender {
    /// Time at which it ends, if nothing comes by it and nothing that was sent by it is acknowledged.
    fn deadline(&self) -> u64 {
        let end = self.state.deadline();
        let stuck = self.stall.deadline(STUCK_MS);
        stuck.map_or(end, |stuck| stuck.min(end))
    }

    /// Why it ends now, if it does.
    fn cause(&self, now: u64) -> Option<Cause> {
        if self.stall.stalled_for(now) >= STUCK_MS {
            return Some(Cause::Stuck);
        }
        (now >= self.state.deadline()).then_some(match self.state.is_superseded() {
            true => Cause::Replaced,
            false => Cause::Idle,
        })
    }
}

/// The connections that peers send by.
pub(crate) struct Senders {
    list: KVec<Sender>,
}

impl Senders {
    /// None yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        let list = KVec::with_capacity(MAX_SENDERS, GFP_KERNEL)?;
        Ok(Self { list })
    }

    /// Adds one that was accepted. None: there are too many.
    pub(super) fn add(&mut self, rc: Arc<Conn>, now: u64) -> Option<()> {
        let sender = Sender {
            rc,
            state: Inbound::new(now),
            stall: StallDetector::NEW,
        };
        self.list.push_within_capacity(sender).ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Conn>> + '_ {
        self.list.iter().map(|sender| &sender.rc)
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = Arc<Conn>> {
        self.list.into_iter().map(|sender| sender.rc)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// How many were confirmed.
    pub(super) fn count_confirmed(&self) -> usize {
        let confirmed = self.list.iter();
        confirmed
            .filter(|sender| sender.state.is_confirmed())
            .count()
    }

    /// When the next one ends, if nothing comes by it.
    pub(super) fn deadline(&self) -> Option<u64> {
        let senders = self.list.iter();
        senders.map(Sender::deadline).min()
    }

    /// Takes note of which have sent something since the last time, and which take nothing.
    pub(super) fn look(&mut self, now: u64) {
        for Sender { rc, state, stall } in &mut self.list {
            state.look(rc.flow.received.frames.get(), now);
            stall.observe(now, rc.lane.completed(), rc.lane.in_flight() > 0);
            if state.is_confirmed() {
                rc.establish();
            }
        }
    }

    /// Connections that are too many for one more of that origin, where all have so many buffers.
    pub(super) fn crowd(&self, origin: Origin, buffers: u32) -> Option<Among> {
        let of_origin = self.iter().filter(|rc| rc.id.origin == Some(origin));
        let senders = admission::Senders {
            all: self.len(),
            of_origin: of_origin.count(),
        };
        senders.crowd(buffers).map(|crowd| match crowd {
            Crowd::OfOrigin => Among::SendersOf(origin),
            Crowd::All => Among::Senders,
        })
    }

    /// How many buffers are set aside for those of an origin.
    pub(super) fn buffers_of(&self, origin: Origin) -> u32 {
        let of_origin = self.iter().filter(|rc| rc.id.origin == Some(origin));
        of_origin.map(|rc| rc.window.cost).sum()
    }

    /// Returns true if that one is there.
    pub(crate) fn holds(&self, rc: &Conn) -> bool {
        self.iter().any(|other| core::ptr::eq(&**other, rc))
    }

    /// Load that counts against a request of that origin, while so many connections are `ending`.
    pub(super) fn load(&self, origin: Origin, ending: u32) -> Load {
        let all = self.unconfirmed();
        let same = all.clone().filter(|(_, other)| other.origin == origin);
        Load {
            ending,
            unconfirmed: all.count(),
            of_origin: same.count(),
        }
    }

    /// Requests that were accepted and not confirmed, each with its place.
    pub(super) fn unconfirmed(&self) -> impl Iterator<Item = (usize, Unconfirmed)> + Clone + '_ {
        let senders = self.list.iter().enumerate();
        senders
            .filter(|(_, sender)| !sender.state.is_confirmed())
            .filter_map(|(at, sender)| {
                let request = Unconfirmed {
                    origin: sender.rc.id.origin?,
                    since: sender.state.last_heard(),
                };
                Some((at, request))
            })
    }

    /// The one that was used least recently, of those that `may_go`.
    pub(super) fn least(&mut self, now: u64, may_go: impl Fn(&Conn) -> bool) -> Option<Used> {
        self.look(now);
        let senders = self.list.iter().enumerate();
        let used = senders
            .filter(|(_, sender)| may_go(&sender.rc))
            .map(|(at, sender)| Used {
                last: sender.state.last_heard(),
                least: Least::Sender(at),
            });
        used.min_by_key(|used| used.last)
    }

    /// One was confirmed. Those before it in that name end unless they are used, since it may be forged.
    pub(crate) fn confirm(&mut self, rc: &Arc<Conn>, now: u64) {
        let this = |sender: &&mut Sender| Arc::ptr_eq(&sender.rc, rc);
        let Some(sender) = self.list.iter_mut().find(this) else {
            return;
        };
        sender.state.confirm();
        rc.establish();
        let before = |other: &&mut Sender| {
            let (other, this) = (&other.rc.id, &rc.id);
            other.peer == this.peer
                && other.number == this.number
                && !core::ptr::eq(&**other, &**this)
        };
        for other in self.list.iter_mut().filter(before) {
            let received = other.rc.flow.received.frames.get();
            other.state.supersede(received, now);
        }
    }

    /// Takes the one at a place out.
    pub(crate) fn take(&mut self, at: usize) -> Option<Arc<Conn>> {
        Some(self.list.remove(at).ok()?.rc)
    }

    /// Takes that one out, if it is there.
    pub(crate) fn remove(&mut self, rc: &Arc<Conn>) -> Option<Arc<Conn>> {
        let at = self.iter().position(|other| Arc::ptr_eq(other, rc))?;
        self.take(at)
    }

    /// Takes one out that is to end, and says why.
    pub(super) fn take_over(&mut self, now: u64) -> Option<(Arc<Conn>, Cause)> {
        let mut senders = self.list.iter().enumerate();
        let (at, cause) = senders.find_map(|(at, sender)| Some((at, sender.cause(now)?)))?;
        Some((self.take(at)?, cause))
    }
}
