// SPDX-License-Identifier: GPL-2.0

//! The reliable connections of an interface, under the transmit lock.
//!
//! When to ask for one and when to give up is for `proto/fsm/connection.rs` to say. `proto/flow/places.rs` says which peers
//! get places. This file keeps the table of peers that we ask, finds room for one connection more, and says what is to be
//! done by the work item `ctl/connect.rs`, which may sleep. Those that others send by are in `senders.rs`.

use ipoib_netdev::device::Device;
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::admission::MAX_SENDERS;
use ipoib_proto::connection::End;
use ipoib_proto::drop::DropReason;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::places::{choose, Choice};
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::IntakeRing;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::counters::Counters;
use crate::base::interface::Interface;
use crate::base::settings::MAX_CONNECTIONS;
use crate::rc::channel::Channel;
use crate::rc::conn::{Among, Cause, Conn, ConnId};
use crate::rc::context::RcContext;
use crate::rc::ended::{Ended, Endings};
use crate::rc::senders::Senders;
use crate::rc::window::{Buffers, Window};
use crate::ud::ring::drop_frame;

/// The most connections, those that have ended and are not over included: as many may end as there are in channels.
pub(crate) const MOST: usize = 2 * MAX_CONNECTIONS + MAX_SENDERS;

/// Time without use after which a connection may be evicted, in milliseconds.
pub(super) const IDLE_MS: u64 = 100;

/// The table.
pub(crate) struct Connections {
    pub(crate) channels: KVec<Option<KBox<Channel>>>,
    /// Connections that others send by.
    pub(crate) senders: Senders,
    /// Connections that have come to an end and are not over yet.
    pub(crate) ended: Endings,
    /// Room for all, when the interface goes down.
    all: KVec<Arc<Conn>>,
    pub(super) buffers: Arc<Buffers>,
    /// Objects that all connections share.
    pub(crate) rc_context: Arc<RcContext>,
    pub(crate) counters: Arc<Counters>,
    /// The most connections there may be in channels.
    pub(super) cap: usize,
    per_peer: u8,
    idle_ms: u64,
    /// Until when no connection is evicted for room on the device.
    pub(super) room_until: u64,
    /// No search for a place before this time: the last one found none, or replaced a channel, whose back-off is lost.
    full_until: u64,
    /// The channel whose turn it is to ask for a connection.
    turn: usize,
}

/// The place of a connection in the table.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In a channel's state machine, by that ticket.
    Channel(Ticket),
    /// Among those that others send by.
    Sender,
}

/// A connection that was found.
pub(crate) struct Found {
    pub(crate) rc: Arc<Conn>,
    pub(crate) place: Place,
}

impl Found {
    /// How it has ended, if the peer has closed it.
    pub(crate) fn closed(&self) -> End {
        if self.rc.lane.has_worked() {
            End::Soon
        } else {
            self.end()
        }
    }

    /// How it has ended.
    pub(crate) fn end(&self) -> End {
        if self.rc.lane.is_unused() {
            End::Unused
        } else {
            End::Failed
        }
    }
}

/// A connection to be asked for.
pub(crate) struct Wanted {
    pub(crate) address: HwAddr,
    /// The number among the connections to that peer.
    pub(crate) number: u8,
    pub(crate) ticket: Ticket,
}

/// A job for the work item.
pub(crate) enum Job {
    /// Ask for a connection.
    Ask(Wanted, Window),
    /// Go on to end one.
    End(Ended),
    /// Nothing, for so many milliseconds.
    Wait(Option<u64>),
}

/// Result of advancing a channel: a job, or the time at which there may be one.
enum Advance {
    Job(Job),
    Deadline(Option<u64>),
}

impl Connections {
    /// None yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        rc_context: Arc<RcContext>,
        counters: Arc<Counters>,
        buffers: u32,
    ) -> Result<Self> {
        let mut channels = KVec::with_capacity(MAX_CONNECTIONS, GFP_KERNEL)?;
        for _ in 0..MAX_CONNECTIONS {
            channels.push(None, GFP_KERNEL)?;
        }
        let waiting = IntakeRing::most_waiting(&rc_context.intake, buffers);
        let mut connections = Self {
            channels,
            senders: Senders::new()?,
            ended: Endings::new(MOST)?,
            all: KVec::with_capacity(MOST, GFP_KERNEL)?,
            buffers: Buffers::new(buffers - waiting)?,
            rc_context,
            counters,
            cap: 0,
            per_peer: 0,
            idle_ms: 0,
            room_until: 0,
            full_until: 0,
            turn: 0,
        };
        connections.settings_changed();
        Ok(connections)
    }

    /// Reads what can be tuned.
    pub(crate) fn settings_changed(&mut self) {
        let settings = &self.rc_context.settings;
        self.cap = settings.rc_max_connections() as usize;
        self.per_peer = settings.rc_max_qps();
        self.idle_ms = u64::from(settings.rc_idle_s()) * 1_000;
        for channel in self.channels.iter_mut().flatten() {
            channel.machine.set_idle(self.idle_ms);
        }
    }

    /// The channel at a place that a path remembers, if it is still that peer's of that number.
    #[inline]
    pub(crate) fn channel_for(
        &mut self,
        at: u16,
        peer: &HwAddr,
        number: u8,
    ) -> Option<&mut Channel> {
        let channel = self.channels.get_mut(usize::from(at))?.as_mut()?;
        (channel.address.is(peer) && channel.number == number).then_some(&mut **channel)
    }

    /// Which of several connections to a peer a frame goes by.
    #[inline]
    pub(crate) fn pick_channel(&self, skb: &mut TxSkb) -> u8 {
        match self.per_peer {
            0 | 1 => 0,
            per_peer => (skb.hash() % u32::from(per_peer)) as u8,
        }
    }

    /// Walks over the channels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Channel> + '_ {
        self.channels.iter().flatten().map(|channel| &**channel)
    }

    /// Takes note of which channels were used since the last time.
    pub(super) fn look_at_channels(&mut self, now: u64) {
        for channel in self.channels.iter_mut().flatten() {
            channel.look(now);
        }
    }

    /// The number of connections in channels, those that are being made included.
    pub(super) fn count_own(&self) -> usize {
        let own = self
            .iter()
            .filter(|channel| channel.machine.present().is_some());
        own.count()
    }

    /// How many connections are up by which we send.
    fn count_up(&self) -> usize {
        let up = self.iter().filter(|channel| channel.machine.is_up());
        up.count()
    }

    /// How many connections there are, or are being made.
    pub(super) fn count(&self) -> usize {
        self.count_own() + self.senders.len()
    }

    /// The place of a peer's channel, a new one if need be. None: there is no room for another peer now, but maybe soon.
    #[cold]
    pub(crate) fn place(&mut self, address: &HwAddr, number: u8, now: u64) -> Option<u16> {
        let at = match self.find_channel(address, number) {
            Some(at) => at,
            None if now < self.full_until => return None,
            None => {
                let at = self.find_place(now)?;
                let channel = Channel::new(*address, number, self.idle_ms, now);
                let channel = KBox::new(channel, GFP_ATOMIC).ok()?;
                *self.channels.get_mut(at)? = Some(channel);
                u16::try_from(at).ok()?
            }
        };
        // The flags of its address may have changed; it is the same peer.
        self.channel_at(at)?.address = *address;
        Some(at)
    }

    /// Finds the place of a new channel. None: another one is to make room for it.
    fn find_place(&mut self, now: u64) -> Option<usize> {
        let channels = self.channels.iter();
        let choice = choose(channels.map(|channel| Some(channel.as_ref()?.usage(now))));
        if let Choice::Place(at) = choice {
            return Some(at);
        }
        self.full_until = now.saturating_add(IDLE_MS);
        if let Choice::Replace(at) = choice {
            return Some(at);
        }
        self.counters.connected.no_room.add_shared(1);
        if choice == Choice::Full {
            self.make_room(Among::Channels, now);
        }
        None
    }

    /// A frame is there for the peer of a channel, and no connection is up. True: there is something to do for the work
    /// item.
    #[cold]
    #[must_use]
    pub(crate) fn want(&mut self, at: u16, now: u64) -> bool {
        match self.channel_at(at) {
            Some(channel) => channel.machine.ticket().is_none() && channel.want(now),
            // Another one may have to make room for it.
            None => self.ended.has_new(),
        }
    }

    /// Has the work item ask for a connection if frames wait for one.
    pub(crate) fn want_for_backlog(&mut self, at: u16, now: u64) {
        let channel = self.channel_at(at);
        let channel = channel.filter(|channel| !channel.backlog.is_empty());
        if let Some(channel) = channel.filter(|channel| channel.machine.ticket().is_none()) {
            channel.want(now);
        }
    }

    /// A connection is not used any more: the work item, which the caller wakes, ends it.
    pub(crate) fn end(&mut self, rc: Arc<Conn>, cause: Cause) {
        rc.conclude(cause);
        self.ended.add(rc);
    }

    /// There is more to do for one that has ended, from `due` on.
    pub(crate) fn keep_ending(&mut self, ended: Ended, due: u64) {
        self.ended.keep(ended, due);
    }

    /// The connection that the work item was given to end is over. Returns what may be the last reference to it, to be
    /// dropped without a lock.
    pub(crate) fn put_down(&mut self) -> Option<Arc<Conn>> {
        self.ended.put_down()
    }

    /// The channel at a place.
    pub(crate) fn channel_at(&mut self, at: u16) -> Option<&mut Channel> {
        Some(&mut **self.channels.get_mut(usize::from(at))?.as_mut()?)
    }

    /// The place of the channel of a peer that has this number.
    pub(crate) fn find_channel(&self, peer: &HwAddr, number: u8) -> Option<u16> {
        let at = self.channels.iter().position(|channel| {
            channel
                .as_ref()
                .is_some_and(|channel| channel.number == number && channel.address.same_peer(peer))
        })?;
        u16::try_from(at).ok()
    }

    /// The place of a connection's channel, whether the connection is there or not.
    pub(crate) fn place_of(&self, id: &ConnId) -> Option<u16> {
        self.find_channel(&id.peer, id.number)
    }

    /// The channel of a connection.
    pub(crate) fn channel_of(&mut self, id: &ConnId) -> Option<&mut Channel> {
        self.channel_at(self.place_of(id)?)
    }

    /// The channel of a connection that is there.
    pub(crate) fn of(&mut self, id: &ConnId) -> Option<&mut Channel> {
        let channel = self.channel_of(id)?;
        let is = channel.machine.present().is_some_and(|rc| is(rc, id));
        is.then_some(channel)
    }

    /// The connection of an identity.
    pub(crate) fn find(&self, id: &ConnId) -> Option<Found> {
        if let Some(rc) = self.senders.iter().find(|rc| is(rc, id)) {
            return Some(Found {
                rc: rc.clone(),
                place: Place::Sender,
            });
        }
        let at = usize::from(self.place_of(id)?);
        let machine = &self.channels.get(at)?.as_ref()?.machine;
        let rc = machine.present().filter(|rc| is(rc, id))?;
        let ticket = machine.ticket()?;
        Some(Found {
            rc: rc.clone(),
            place: Place::Channel(ticket),
        })
    }

    /// A connection whose queue pair has refused something.
    pub(crate) fn find_refusing(&self) -> Option<Arc<Conn>> {
        let own = self.iter().filter_map(|channel| channel.machine.present());
        let mut all = Iterator::chain(own, self.senders.iter());
        all.find(|rc| rc.lane.has_refused()).cloned()
    }

    /// Connections by which frames may be in flight.
    pub(crate) fn sending(&self) -> impl Iterator<Item = &Arc<Conn>> + '_ {
        let own = self.iter().filter_map(|channel| channel.machine.present());
        Iterator::chain(own, self.ended.iter())
    }

    /// The next job for the work item. `is_ready` says whether there is a path to a peer.
    pub(crate) fn next_job(&mut self, now: u64, is_ready: impl Fn(&HwAddr) -> bool) -> Job {
        self.look_at_channels(now);
        self.senders.look(now);
        let connected = self.count_up() + self.senders.count_confirmed();
        self.counters.connected.set_current(connected);
        while let Some((rc, cause)) = self.senders.take_over(now) {
            self.end(rc, cause);
        }
        if let Some(ended) = self.ended.take_due(now) {
            return Job::End(ended);
        }
        let mut next = self.senders.deadline();
        // Each in turn, since not all that want a connection may ask at a time.
        let (begin, end) = (self.turn, self.channels.len());
        for at in Iterator::chain(begin..end, 0..begin) {
            match self.advance(at, now, &is_ready) {
                Advance::Job(job) => {
                    if matches!(job, Job::Ask(..)) {
                        let next = at.wrapping_add(1);
                        self.turn = if next < end { next } else { 0 };
                    }
                    return job;
                }
                Advance::Deadline(deadline) => next = [next, deadline].into_iter().flatten().min(),
            }
        }
        // `make_room` may have ended one.
        if let Some(ended) = self.ended.take_due(now) {
            return Job::End(ended);
        }
        let next = [self.ended.deadline(), next].into_iter().flatten().min();
        Job::Wait(next.map(|next| next.saturating_sub(now)))
    }

    /// Does what is due for the peer of a channel.
    fn advance(&mut self, at: usize, now: u64, is_ready: &impl Fn(&HwAddr) -> bool) -> Advance {
        let Some(channel) = self.channels.get_mut(at).and_then(Option::as_mut) else {
            return Advance::Deadline(None);
        };
        if let Some(rc) = channel.machine.poll(now) {
            if !channel.backlog.is_empty() && !channel.machine.is_up() {
                channel.want(now);
            }
            self.end(rc, Cause::Idle);
            let ended = self.ended.take_due(now);
            return Advance::Job(ended.map_or(Job::Wait(Some(1)), Job::End));
        }
        // If there is no path yet, there will be.
        if channel.wants(now) && channel.machine.may_ask(now) && is_ready(&channel.address) {
            return self.ask(at, now);
        }
        if channel.machine.may_ask(now) && channel.backlog.is_empty() && !channel.wants(now) {
            if let Some(channel) = self.channels.get_mut(at) {
                *channel = None;
                self.full_until = 0;
            }
            return Advance::Deadline(None);
        }
        Advance::Deadline(channel.deadline(now))
    }

    /// Asks the peer of a channel for a connection, if there is room for one more. At most half of them, rounded
    /// up, are requests without an answer.
    fn ask(&mut self, at: usize, now: u64) -> Advance {
        let asked = self.iter().filter(|channel| channel.machine.is_asked());
        if asked.count() >= self.cap.div_ceil(2) {
            return Advance::Deadline(Some(now.saturating_add(IDLE_MS)));
        }
        let Some(window) = self.take_room(now) else {
            self.counters.connected.no_room.add_shared(1);
            // Once the least recently used one may go, if it is not used again.
            return Advance::Deadline(Some(now.saturating_add(IDLE_MS)));
        };
        let Some(channel) = self.channels.get_mut(at).and_then(Option::as_mut) else {
            return Advance::Deadline(None);
        };
        channel.clear_want();
        match channel.machine.want(now) {
            Some(ticket) => {
                let wanted = Wanted {
                    address: channel.address,
                    number: channel.number,
                    ticket,
                };
                Advance::Job(Job::Ask(wanted, window))
            }
            None => Advance::Deadline(channel.deadline(now)),
        }
    }

    /// Takes room in the table, and the buffers for its credit limits, for one more connection to be asked for. Without room,
    /// evicts another one, so that a later attempt succeeds.
    fn take_room(&mut self, now: u64) -> Option<Window> {
        let among = if self.count_own() >= self.cap {
            Among::Channels
        } else if !self.has_place() {
            Among::All
        } else if let Some(window) = self.buffers.reserve() {
            return Some(window);
        } else {
            Among::Holders
        };
        self.make_room(among, now);
        None
    }

    /// Returns true if the table has a place for one more connection.
    pub(super) fn has_place(&self) -> bool {
        self.count() + (self.ended.count() as usize) < MOST
    }

    /// Notes for which connections the stack's queue is to stay stopped. Says whether there is one.
    pub(crate) fn update_stops(&mut self, now: u64) -> bool {
        // Each of them is to look.
        let channels = self.channels.iter_mut().flatten();
        channels
            .filter_map(|channel| channel.update_stop(now).then_some(()))
            .count()
            > 0
    }

    /// How many frames wait.
    pub(crate) fn waiting(&self) -> usize {
        self.iter().map(|channel| channel.backlog.len()).sum()
    }

    /// All of them, to be ended: the interface goes down. What waits for them is dropped.
    pub(super) fn into_all(self, dev: &Device<Interface>) -> KVec<Arc<Conn>> {
        let mut all = self.all;
        for rc in self.ended.into_all() {
            let _ = all.push_within_capacity(rc);
        }
        for mut channel in self.channels.into_iter().flatten() {
            while let Some(skb) = channel.backlog.pop() {
                drop_frame(&self.counters, dev, skb, DropReason::Flushed);
            }
            if let Some(rc) = channel.machine.evict() {
                let _ = all.push_within_capacity(rc);
            }
        }
        for rc in self.senders.into_all() {
            let _ = all.push_within_capacity(rc);
        }
        for rc in &all {
            rc.conclude(Cause::Closed);
        }
        all
    }
}

fn is(rc: &Arc<Conn>, id: &ConnId) -> bool {
    core::ptr::eq(&*rc.id, id)
}
