// SPDX-License-Identifier: GPL-2.0

//! Admission of requests for connections, and the room for one more, which the least recently used one makes.

use ipoib_proto::admission::{
    gives_way, Asker, Crowd, Load, Origin, Senders, Unconfirmed, MAX_ENDING,
};
use ipoib_proto::cm::{PrivateData, Refusal};
use ipoib_proto::connection::Proven;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::inbound::Inbound;
use ipoib_proto::share::{Holder, IDLE_MS};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::rc::conn::{Among, Cause, Conn, Role, Room, Whose};
use crate::rc::context::Negotiated;
use crate::rc::table::{establish, Connections, Sender, MOST};

/// The place of the least recently used connection.
#[derive(Clone, Copy)]
pub(crate) enum Least {
    /// Among the channels.
    Channel(usize),
    /// Among those that others send by.
    Sender(usize),
}

/// A connection that may go.
struct Used {
    /// When that was last.
    last: u64,
    /// When it was made.
    since: u64,
    least: Least,
}

/// A request for a connection.
pub(crate) struct Request {
    /// The address of the peer that asks, without flags, as the request gives it.
    pub(crate) peer: HwAddr,
    /// Where it came from.
    pub(crate) origin: Origin,
    pub(crate) data: PrivateData,
}

/// The widest window of a connection.
const WINDOW: u16 = 64;

impl Connections {
    /// The connection that was used least recently, of those that may go, and what there is to be said
    /// about it.
    pub(crate) fn holder(&mut self, now: u64, among: Among) -> Option<(Holder, Least)> {
        let used = match among {
            Among::All => {
                let channel = self.least_channel(now, |_| true);
                let both = [channel, self.least_sender(now, |_| true)];
                both.into_iter().flatten().min_by_key(|used| used.last)
            }
            Among::Channels => self.least_channel(now, |_| true),
            Among::ChannelsOf(gid) => self.least_channel(now, |peer| peer.gid() == gid),
            Among::Senders => self.least_sender(now, |_| true),
            Among::SendersOf(origin) => self.least_sender(now, |rc| rc.id.origin == Some(origin)),
        }?;
        let holder = Holder {
            held: self.count(),
            last_used: used.last,
            since: used.since,
        };
        Some((holder, used.least))
    }

    /// The channel whose connection was used least recently, of those to peers that `may_go`, that are up and not being
    /// replaced.
    fn least_channel(&mut self, now: u64, may_go: impl Fn(&HwAddr) -> bool) -> Option<Used> {
        self.look_at_channels(now);
        let channels = self.channels.iter().enumerate();
        let used = channels.filter_map(|(at, channel)| {
            let channel = channel
                .as_ref()
                .filter(|channel| may_go(&channel.address))?;
            let machine = &channel.machine;
            if !machine.is_up() || machine.offer().is_some() {
                return None;
            }
            // A channel with a backlog is in use.
            let last = if channel.backlog.is_empty() {
                machine.last_used()
            } else {
                now
            };
            Some(Used {
                last,
                since: machine.present()?.since,
                least: Least::Channel(at),
            })
        });
        used.min_by_key(|used| used.last)
    }

    /// The connection that others send by and that was used least recently, of those that `may_go`.
    fn least_sender(&mut self, now: u64, may_go: impl Fn(&Conn) -> bool) -> Option<Used> {
        self.look_at_senders(now);
        let senders = self.senders.iter().enumerate();
        let used = senders
            .filter(|(_, sender)| may_go(&sender.rc))
            .map(|(at, sender)| Used {
                last: sender.state.last_heard(),
                since: sender.rc.since,
                least: Least::Sender(at),
            });
        used.min_by_key(|used| used.last)
    }

    /// Ends that connection, since there are too many. Where its channel is, if it has one.
    pub(crate) fn evict(&mut self, least: Least) -> Option<u16> {
        let (rc, at) = match least {
            Least::Sender(at) => (self.senders.remove(at).ok()?.rc, None),
            Least::Channel(at) => {
                let channel = self.channels.get_mut(at)?.as_mut()?;
                (channel.machine.evict()?, u16::try_from(at).ok())
            }
        };
        self.end(rc, Cause::Evicted);
        at
    }

    /// Ends the connection among these that was used least recently, if that is long ago, since there are too many.
    /// Not if there will be room anyway.
    pub(super) fn make_room(&mut self, among: Among, now: u64) {
        if self.ending > 0 {
            return;
        }
        if let Some((holder, least)) = self.holder(now, among) {
            if now.saturating_sub(holder.last_used) >= IDLE_MS {
                self.evict(least);
            }
        }
    }

    /// Connections that are too many for one more.
    fn crowd(&self, whose: Whose) -> Option<Among> {
        let origin = match whose {
            Whose::Ours => return (self.count_own() >= self.cap).then_some(Among::Channels),
            Whose::Sender(origin) => origin,
        };
        let of_origin = self.senders().filter(|rc| rc.id.origin == Some(origin));
        let senders = Senders {
            all: self.senders.len(),
            of_origin: of_origin.count(),
        };
        let crowd = senders.crowd(self.rc_context.intake.max_wr());
        crowd.map(|crowd| match crowd {
            Crowd::OfOrigin => Among::SendersOf(origin),
            Crowd::All => Among::Senders,
        })
    }

    /// Sets buffers aside for one more connection, and returns for how many messages.
    fn take_buffers(&mut self, whose: Whose) -> Option<u16> {
        let ours = self.cap.saturating_sub(self.count_own()) as u32;
        match whose {
            Whose::Ours => self.pool.take(WINDOW, ours.saturating_sub(1)),
            // Its messages take those that there are, and wait if there are none.
            Whose::Sender(_) if self.rc_context.intake.is_shared() => Some(0),
            Whose::Sender(_) => self.pool.take(WINDOW, ours),
        }
    }

    /// Room for one more connection, if there is any: in the table, in the buffers and on the RDMA device.
    /// If not, and `may_evict`, there may be soon.
    pub(super) fn take_room(&mut self, whose: Whose, may_evict: bool, now: u64) -> Option<Room> {
        let count = self.count();
        let mut crowd = self.crowd(whose);
        if crowd.is_none() && count + (self.ending as usize) < MOST {
            if let Some(width) = self.take_buffers(whose) {
                match self.quota.take(self.number, count, now) {
                    Ok(permit) => return Some(Room { width, permit }),
                    Err(_) => self.give_back(width),
                }
                if may_evict {
                    self.quota.want(self.number, count, now);
                }
                return None;
            }
            // Those that others send by have no buffers set aside.
            let shared = self.rc_context.intake.is_shared();
            crowd = shared.then_some(Among::Channels);
        }
        // An unconfirmed connection goes by itself, and takes no other one's place.
        if may_evict {
            self.make_room(crowd.unwrap_or(Among::All), now);
        }
        None
    }

    /// Requests for connections that others send by, accepted and not confirmed, each with its place among the senders.
    fn unconfirmed(&self) -> impl Iterator<Item = (usize, Unconfirmed)> + Clone + '_ {
        let senders = self.senders.iter().enumerate();
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

    /// Load that counts against a request of that origin, for a connection that we send by as well if it is `ours`.
    fn load(&self, origin: Origin, ours: bool) -> Load {
        let (unconfirmed, of_origin) = if ours {
            let offers = || self.iter().filter_map(|channel| channel.machine.offer());
            let same = offers().filter(|(_, rc)| rc.id.origin == Some(origin));
            (offers().count(), same.count())
        } else {
            let same = self
                .unconfirmed()
                .filter(|(_, other)| other.origin == origin);
            (self.unconfirmed().count(), same.count())
        };
        Load {
            ending: self.ending,
            unconfirmed,
            of_origin,
        }
    }

    /// Finds a request that nobody has confirmed and that may end for a new one from `origin`. Returns its place among the
    /// senders.
    fn gives_way(&self, origin: Origin, now: u64) -> Option<usize> {
        // Those that end take room that others, who are wanted, need as well.
        if self.ending >= MAX_ENDING / 2 {
            return None;
        }
        let requests = self.unconfirmed().map(|(_, request)| request);
        let place = gives_way(requests, origin, now)?;
        self.unconfirmed().nth(place).map(|(at, _)| at)
    }

    /// The room that there is for a request of a peer's, which others may have ended for.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(crate) fn admit(&mut self, request: &Request, now: u64) -> Result<Room, Refusal> {
        let Request { peer, origin, data } = request;
        // A frame confirms a connection, too.
        self.look_at_senders(now);
        let extension = data
            .extension
            .filter(|_| self.rc_context.settings.extensions());
        let (mut asker, mut is_new) = (Asker::Stranger, false);
        if let Some(extension) = extension {
            let at = self.find_channel(peer, extension.channel);
            is_new = at.is_none();
            if let Some(channel) = at.and_then(|at| self.channels.get(at)?.as_ref()) {
                if !channel.machine.may_accept(now) {
                    return Err(Refusal::Crossing);
                }
                if channel.is_wanted(now) {
                    let replaces = channel.machine.offer().is_some();
                    asker = Asker::Wanted { replaces };
                }
            }
        }
        let ours = extension.is_some();
        let load = self.load(*origin, ours);
        let admits = load.admits(asker);
        let other = match admits {
            true => None,
            false if ours => return Err(Refusal::Full),
            false => Some(self.gives_way(*origin, now).ok_or(Refusal::Full)?),
        };
        // Only one pending request of an origin may evict connections of others.
        let is_first = load.of_origin == 0 && self.load(*origin, !ours).of_origin == 0;
        let may_evict = admits && is_first;
        if is_new && !self.look_for_place(peer, may_evict, now) {
            return Err(Refusal::Full);
        }
        let whose = match extension {
            Some(_) => Whose::Ours,
            None => Whose::Sender(*origin),
        };
        let room = self.take_room(whose, may_evict, now);
        // Without room now, the end of the other one makes some for the next attempt, unless the asker's own host has its
        // part already.
        let has_part = matches!(self.crowd(whose), Some(Among::SendersOf(_)));
        let helps = room.is_some() || (self.ending == 0 && !has_part);
        if let Some(at) = other.filter(|_| helps) {
            if let Ok(sender) = self.senders.remove(at) {
                self.end(sender.rc, Cause::Idle);
            }
        }
        room.ok_or(Refusal::Full)
    }

    /// A request was accepted: the work item, which the caller wakes, looks after it.
    ///
    /// # Errors
    ///
    /// Why it is to be refused after all: things have changed since it was admitted.
    pub(crate) fn accepted(
        &mut self,
        rc: Arc<Conn>,
        terms: Negotiated,
        now: u64,
    ) -> Result<(), Refusal> {
        rc.trace("accepted", "offered");
        let (peer, number) = (rc.id.peer, rc.id.number);
        if rc.id.role == Role::Sender {
            let sender = Sender {
                rc,
                state: Inbound::new(now),
            };
            return self
                .senders
                .push_within_capacity(sender)
                .map_err(|_| Refusal::Full);
        }
        let at = self
            .channel_or_new(peer, number, now)
            .ok_or(Refusal::Full)?;
        let channel = self
            .channels
            .get_mut(at)
            .and_then(Option::as_mut)
            .ok_or(Refusal::Full)?;
        let accepted = channel.machine.accept(rc, now);
        let (_, before) = accepted.map_err(|_| Refusal::Crossing)?;
        channel.offered = terms;
        if let Some(before) = before {
            self.end(before, Cause::Replaced);
        }
        Ok(())
    }

    /// Lets frames be sent by what was accepted of a peer, if that has proven that it asked: the work item, which the
    /// caller wakes then, looks what becomes of it. None: it has not.
    #[must_use]
    pub(crate) fn prove(&mut self, at: u16, now: u64) -> Option<()> {
        let channel = self.channel_at(at)?;
        let offer = channel.machine.offer();
        let (ticket, _) = offer.filter(|(_, rc)| rc.flow.is_proven())?;
        let needless = match channel.machine.proven(ticket, now) {
            Proven::Up(before) => {
                channel.begin(channel.offered);
                if let Some(rc) = channel.machine.present().cloned() {
                    establish(&self.counters.connected, &rc);
                }
                before
            }
            Proven::Crossed(rc) => Some(rc),
            Proven::Nothing => None,
        };
        if let Some(rc) = needless {
            self.end(rc, Cause::Replaced);
        }
        Some(())
    }

    /// The connection by which the peer of a channel is to be challenged now, if it is.
    pub(crate) fn challenge(&mut self, at: u16, now: u64) -> Option<Arc<Conn>> {
        let machine = &mut self.channel_at(at)?.machine;
        let (ticket, rc) = machine.offer()?;
        // By a frame, too: the message of the CM was lost, or is still to come.
        if rc.flow.has_received() {
            machine.confirmed(ticket, now);
        }
        machine.challenge(now).cloned()
    }

    /// A connection that another host sends by was confirmed. Those before it in that name end unless they are used, since
    /// it may be forged.
    pub(crate) fn sender_confirmed(&mut self, rc: &Arc<Conn>, now: u64) {
        let this = |sender: &&mut Sender| Arc::ptr_eq(&sender.rc, rc);
        let Some(sender) = self.senders.iter_mut().find(this) else {
            return;
        };
        sender.state.confirm();
        establish(&self.counters.connected, rc);
        let before = |other: &&mut Sender| {
            let (other, this) = (&other.rc.id, &rc.id);
            other.peer == this.peer
                && other.number == this.number
                && !core::ptr::eq(&**other, &**this)
        };
        for other in self.senders.iter_mut().filter(before) {
            let received = other.rc.flow.received.frames.get();
            other.state.supersede(received, now);
        }
    }

    /// Takes one out of those that others send by.
    pub(crate) fn remove_sender(&mut self, rc: &Arc<Conn>, cause: Cause) {
        let is = |sender: &Sender| Arc::ptr_eq(&sender.rc, rc);
        if let Some(at) = self.senders.iter().position(is) {
            if let Ok(sender) = self.senders.remove(at) {
                self.end(sender.rc, cause);
            }
        }
    }
}
