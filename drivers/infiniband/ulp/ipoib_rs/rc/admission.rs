// SPDX-License-Identifier: GPL-2.0

//! Admission of requests for connections.

use ipoib_proto::admission::{gives_way, Asker, Load, Origin, MAX_ENDING};
use ipoib_proto::cm::{PrivateData, Refusal};
use ipoib_proto::connection::Proven;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::places::Choice;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::rc::channel::Channel;
use crate::rc::conn::{Among, Cause, Conn, Role, Whose};
use crate::rc::context::Negotiated;
use crate::rc::table::Connections;
use crate::rc::window::Window;

/// A request for a connection.
pub(crate) struct Request {
    /// The address of the peer that asks, without flags, as the request gives it.
    pub(crate) peer: HwAddr,
    /// Where it came from.
    pub(crate) origin: Origin,
    pub(crate) data: PrivateData,
}

/// A request that may be accepted.
pub(crate) struct Admitted {
    pub(crate) window: Window,
    /// A connection may be evicted for it.
    pub(crate) may_evict: bool,
}

impl Connections {
    /// Load that counts against a request of that origin, for a connection that we send by as well if it is `ours`.
    fn load(&self, origin: Origin, ours: bool) -> Load {
        let (unconfirmed, of_origin) = if ours {
            let offers = || self.iter().filter_map(|channel| channel.machine.offer());
            let same = offers().filter(|(_, rc)| rc.id.origin == Some(origin));
            (offers().count(), same.count())
        } else {
            let all = self.senders.unconfirmed();
            let same = all.clone().filter(|(_, other)| other.origin == origin);
            (all.count(), same.count())
        };
        Load {
            ending: self.ended.count(),
            unconfirmed,
            of_origin,
        }
    }

    /// Finds a request that nobody has confirmed and that may end for a new one from `origin`. Returns its place among the
    /// senders.
    fn gives_way(&self, origin: Origin, now: u64) -> Option<usize> {
        // Those that end take room that others, who are wanted, need as well.
        if self.ended.count() >= MAX_ENDING / 2 {
            return None;
        }
        let mut unconfirmed = self.senders.unconfirmed();
        let requests = unconfirmed.clone().map(|(_, request)| request);
        let place = gives_way(requests, origin, now)?;
        unconfirmed.nth(place).map(|(at, _)| at)
    }

    /// Admits a peer's request, for which other connections may be ended.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(crate) fn admit(&mut self, request: &Request, now: u64) -> Result<Admitted, Refusal> {
        let Request { peer, origin, data } = request;
        // A frame confirms a connection, too.
        self.senders.look(now);
        let extension = data
            .extension
            .filter(|_| self.rc_context.settings.extensions());
        let (mut asker, mut is_new) = (Asker::Stranger, false);
        if let Some(extension) = extension {
            let at = self.find_channel(peer, extension.channel);
            is_new = at.is_none();
            if let Some(channel) = at.and_then(|at| self.channel_at(at)) {
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
        let window = self.take_room(whose, may_evict, now);
        // If there is no window now, the end of the other one makes room for the next attempt, unless the asker's own host has
        // its part already.
        let has_part = matches!(self.crowd(whose), Some(Among::SendersOf(_)));
        let helps = window.is_some() || (self.ended.count() == 0 && !has_part);
        if let Some(at) = other.filter(|_| helps) {
            if let Some(rc) = self.senders.take(at) {
                self.end(rc, Cause::Idle);
            }
        }
        let window = window.ok_or(Refusal::Full)?;
        Ok(Admitted { window, may_evict })
    }

    /// Looks for a place for the channel of a peer that asks for a connection; true if there is one. If not, and `may_evict`,
    /// makes room for one.
    fn look_for_place(&mut self, peer: &HwAddr, may_evict: bool, now: u64) -> bool {
        let choice = self.choose_place(peer, true, now);
        if may_evict {
            self.make_place(choice, peer, now);
        }
        matches!(choice, Choice::Place(_) | Choice::Replace(_))
    }

    /// The channel of a peer that has asked for a connection, a new one if need be.
    fn channel_or_new(&mut self, peer: HwAddr, number: u8, now: u64) -> Option<&mut Channel> {
        let at = match self.find_channel(&peer, number) {
            Some(at) => at,
            None => match self.choose_place(&peer, true, now) {
                Choice::Place(at) | Choice::Replace(at) => {
                    self.put_channel(at, peer, number, now)?
                }
                Choice::Crowd | Choice::Full | Choice::Soon => return None,
            },
        };
        self.channel_at(at)
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
            return self.senders.add(rc, now).ok_or(Refusal::Full);
        }
        let channel = self.channel_or_new(peer, number, now);
        let channel = channel.ok_or(Refusal::Full)?;
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
}
