// SPDX-License-Identifier: GPL-2.0

//! The life of connections, as far as frames are concerned: what waits for them, and what goes by UD when they
//! come to an end.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::connection::End;
use ipoib_proto::drop::DropReason;
use ipoib_proto::share::{Need, Reason};
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::Lane;
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::work::Work;
use crate::data::tx::Tx;
use crate::rc::conn::{Among, Cause, Conn, ConnId, Role};
use crate::rc::context::Negotiated;
use crate::rc::table::{establish, Connections, Found, Job, Place, Wanted};
use crate::rc::tx::{RcTx, Route};

impl Tx {
    /// The table of connections, in connected mode.
    pub(crate) fn connections(&mut self) -> Option<&mut Connections> {
        self.rc.as_mut().map(|rc| &mut rc.connections)
    }

    /// Sends what waits and can go, and advertises credit limits that are due.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    pub(crate) fn service(&mut self, dev: &Device<Interface>) {
        let now = now_ms();
        let Some(rc) = &mut self.rc else {
            return;
        };
        rc.ring.shared().end_stall();
        // Pairs with the barrier where the NAPIs look at it.
        smp_mb(Full);
        let count = rc.connections.channels.len();
        self.ud.ring.hold = true;
        for at in 0..count as u16 {
            self.prove(dev, at, now);
            if let Some(RcTx { connections, ring }) = &mut self.rc {
                if let Some(channel) = connections.channel_at(at) {
                    ring.answer(channel);
                }
            }
            self.resume(dev, at, now);
            if let Some(RcTx { connections, ring }) = &mut self.rc {
                if let Some(channel) = connections.channel_at(at) {
                    ring.advertise(channel);
                }
            }
        }
        self.ud.ring.hold = false;
        self.flush(dev);
        if let Some(RcTx { connections, ring }) = &mut self.rc {
            let blocked = ring.shared().is_blocked();
            if blocked && !connections.update_stops(now) {
                ring.shared().end_block();
                // Pairs with the barrier in `TxPoll::poll`: either that sees that nothing keeps the queue
                // stopped, or we see the room.
                smp_mb(Full);
                self.ud.ring.wake(dev);
            }
        }
    }

    /// Lets frames be sent by what the peer of a channel has proven to have asked for, or challenges it.
    fn prove(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        let Some(connections) = self.connections() else {
            return;
        };
        if connections.prove(at, now).is_some() {
            return Interface::queue(dev, Work::Connections, 0);
        }
        let Some(rc) = connections.challenge(at, now) else {
            return;
        };
        // It looks when the next one is due. If the CM's message was lost, nothing else may wake it until then.
        Interface::queue(dev, Work::Connections, 0);
        let Role::Asker(challenge) = rc.id.role else {
            return;
        };
        if let Ok(skb) = TxSkb::new(&challenge.encode()) {
            self.ud.ring.counters().rc_tx.challenges.add(1);
            // Without its flags, the peer gets no number in it.
            self.datagram(dev, rc.id.peer, skb);
        }
    }

    /// Sends what waits for a channel, as far as that goes.
    fn resume(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        loop {
            let Some((destinations, ud, RcTx { connections, ring })) = self.parts() else {
                return;
            };
            let Some(channel) = connections.channel_at(at) else {
                return;
            };
            if channel.backlog.is_empty() || !channel.machine.is_up() {
                return;
            }
            if !ring.room_or_wait(channel) {
                return;
            }
            let address = *channel.address();
            let Some(mut skb) = channel.backlog.pop() else {
                return;
            };
            channel.note_sent();
            if skb.push(address.as_bytes()).is_err() {
                ud.drop(dev, skb, DropReason::NoMemory);
                continue;
            }
            let peer = destinations.peer(&address, now);
            let mut route = Route {
                channel,
                ring,
                ud,
                sequence: peer.map(|peer| peer.sequence),
            };
            let fate = route.send_now(dev, skb);
            self.settle(dev, address, fate, now);
        }
    }

    /// Sends by UD what waits for a connection that does not come, or not yet. What only a connection
    /// can carry stays as long as one may come.
    fn give_up(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        let channel = self.connections().and_then(|c| c.channel_at(at));
        let waiting = channel.map_or(0, |channel| channel.backlog.len());
        for _ in 0..waiting {
            let Some(channel) = self.connections().and_then(|c| c.channel_at(at)) else {
                break;
            };
            let address = *channel.address();
            let Some(mut skb) = channel.backlog.pop() else {
                break;
            };
            match skb.push(address.as_bytes()) {
                Ok(()) => self.send_meanwhile(dev, address, at, skb, now),
                Err(_) => self.ud.ring.drop(dev, skb, DropReason::NoMemory),
            }
        }
        if let Some(connections) = self.connections() {
            connections.want_for_backlog(at, now);
        }
        self.service(dev);
    }

    /// Gives connections up whose peers let nothing through for too long, or whose queue pairs take
    /// nothing.
    pub(crate) fn give_up_stuck(&mut self, dev: &Device<Interface>, now: u64) {
        while let Some(lane) = self
            .rc
            .as_mut()
            .and_then(|rc| rc.ring.sender.take_refusing())
        {
            self.lane_failed(dev, &lane);
        }
        let port_up = self.ud.destinations.is_up();
        let count = self.connections().map_or(0, |c| c.channels.len());
        let mut slow = false;
        for at in 0..count as u16 {
            let Some(connections) = self.connections() else {
                return;
            };
            let Some(channel) = connections.channel_at(at) else {
                continue;
            };
            if !channel.check_stuck(now, port_up) {
                slow |= channel.make_slow(now);
                continue;
            }
            channel.machine.hold_off(now);
            let ended = channel
                .machine
                .ticket()
                .and_then(|ticket| channel.machine.failed(ticket, now));
            if let Some(rc) = ended {
                connections.end(rc, Cause::Stuck);
            }
            self.give_up(dev, at, now);
        }
        // Others are not to wait for those that are slow.
        if let Some(rc) = self.rc.as_ref().filter(|_| slow) {
            rc.ring.shared().ask_sweep();
            self.ud.ring.wake_completions();
            self.service(dev);
        }
    }

    /// Ends all connections, since what they may do was changed; frames make new ones.
    pub(crate) fn end_connections(&mut self, dev: &Device<Interface>) {
        let now = now_ms();
        let count = self.connections().map_or(0, |c| c.channels.len());
        if let Some(connections) = self.connections() {
            connections.settings_changed();
        }
        for at in 0..count as u16 {
            let Some(connections) = self.connections() else {
                return;
            };
            while let Some(rc) = connections
                .channel_at(at)
                .and_then(|channel| channel.machine.evict())
            {
                connections.end(rc, Cause::Closed);
            }
            self.give_up(dev, at, now);
        }
        Interface::queue(dev, Work::Connections, 0);
    }

    /// Looks for a connection that may go for another interface on the device, or for this one; returns why it may.
    pub(crate) fn reason_to_give(&mut self, need: &Need, now: u64) -> Option<Reason> {
        let (holder, _) = self.connections()?.holder(now, Among::All)?;
        holder.gives(need, now)
    }

    /// Ends that connection, if it still is as it was found; what waits for it may go otherwise.
    pub(crate) fn give(&mut self, dev: &Device<Interface>, need: &Need, now: u64) {
        let Some(connections) = self.connections() else {
            return;
        };
        let found = connections.holder(now, Among::All);
        let Some((_, least)) = found.filter(|(holder, _)| holder.gives(need, now).is_some()) else {
            return;
        };
        if let Some(at) = connections.evict(least) {
            self.give_up(dev, at, now);
        }
        Interface::queue(dev, Work::Connections, 0);
    }

    /// A connection has come to an end, by an error or since the peer says so. The caller wakes the work item.
    pub(crate) fn connection_ended(
        &mut self,
        dev: &Device<Interface>,
        found: &Found,
        end: End,
        cause: Cause,
    ) {
        let now = now_ms();
        let Some(connections) = self.connections() else {
            return;
        };
        let Place::Channel(ticket) = found.place else {
            return connections.remove_sender(&found.rc, cause);
        };
        // Not of another one that has come in its place.
        let Some(channel) = connections.of(&found.rc.id) else {
            return;
        };
        channel.look(now);
        let ended = channel.machine.ended(ticket, end, now);
        // An offer that ends leaves the present connection as it is.
        let is_up = channel.machine.is_up();
        if let Some(rc) = ended {
            let at = connections.place_of(&rc.id);
            connections.end(rc, cause);
            match at {
                Some(at) if end == End::Yielded => connections.want_for_backlog(at, now),
                Some(at) if !is_up => self.give_up(dev, at, now),
                _ => {}
            }
        }
    }

    /// A lane lost a frame: its connection is of no use any more.
    #[cold]
    pub(crate) fn lane_failed(&mut self, dev: &Device<Interface>, lane: &Lane) {
        let found = self.connections().and_then(|connections| {
            let rc = connections.of_lane(lane)?;
            connections.find(&rc.id)
        });
        if let Some(found) = found {
            self.ud.ring.counters().connected.failed.add_shared(1);
            self.connection_ended(dev, &found, found.end(), Cause::Broken);
            Interface::queue(dev, Work::Connections, 0);
        }
    }

    /// A connection is up that we have asked for, on these terms.
    ///
    /// # Errors
    ///
    /// Nobody wants it any more.
    pub(crate) fn connection_up(
        &mut self,
        dev: &Device<Interface>,
        id: &ConnId,
        ticket: Ticket,
        terms: Negotiated,
    ) -> Result {
        let connections = self.connections().ok_or(ENETDOWN)?;
        let channel = connections.of(id).ok_or(ECANCELED)?;
        if !channel.machine.accepted(ticket, now_ms()) {
            return Err(ECANCELED);
        }
        channel.begin(terms);
        if let Some(rc) = channel.machine.present().cloned() {
            establish(&connections.counters.connected, &rc);
        }
        self.service(dev);
        Ok(())
    }

    /// The peer has confirmed a connection that it has asked for.
    pub(crate) fn confirmed(&mut self, dev: &Device<Interface>, found: &Found) {
        let Some(connections) = self.connections() else {
            return;
        };
        match found.place {
            Place::Sender => connections.sender_confirmed(&found.rc, now_ms()),
            Place::Channel(ticket) => {
                if let Some(channel) = connections.of(&found.rc.id) {
                    channel.machine.confirmed(ticket, now_ms());
                    self.service(dev);
                }
            }
        }
    }

    /// A connection that was asked for has its queue pair. True: ask for it.
    pub(crate) fn asked(&mut self, rc: &Arc<Conn>, ticket: Ticket, now: u64) -> bool {
        let Some(connections) = self.connections() else {
            return false;
        };
        let channel = connections.channel_of(&rc.id);
        let refused = match channel {
            Some(channel) => channel.machine.requested(ticket, rc.clone(), now),
            None => Some(rc.clone()),
        };
        match refused {
            Some(rc) => {
                let at = connections.place_of(&rc.id);
                connections.end(rc, Cause::Replaced);
                // If what came in its place does not come up, it is still to be asked.
                if let Some(at) = at {
                    connections.want_for_backlog(at, now);
                }
                false
            }
            None => {
                rc.trace("asked", "requested");
                true
            }
        }
    }

    /// A connection that was to be asked for could not be made.
    pub(crate) fn not_asked(
        &mut self,
        dev: &Device<Interface>,
        wanted: &Wanted,
        width: u16,
        now: u64,
    ) {
        let Some(connections) = self.connections() else {
            return;
        };
        connections.give_back(width);
        if let Some(at) = connections.position(&wanted.address, wanted.number) {
            if let Some(channel) = connections.channel_at(at) {
                let _ = channel.machine.failed(wanted.ticket, now);
            }
            self.give_up(dev, at, now);
        }
    }

    /// One that has ended is over. If frames of it are in flight, its queue pair was reset.
    pub(crate) fn connection_over(&mut self, rc: &Conn) {
        let Some(RcTx { connections, ring }) = &mut self.rc else {
            return;
        };
        ring.sender.forget(&rc.lane);
        connections.over(rc);
        rc.trace("over", "gone");
        if rc.lane.in_flight() > 0 {
            ring.shared().ask_sweep();
            self.ud.ring.wake_completions();
        }
    }

    /// The next job for the work item.
    pub(crate) fn next_job(&mut self, now: u64) -> Option<Job> {
        let RcTx { connections, ring } = self.rc.as_mut()?;
        let destinations = &self.ud.destinations;
        let job = connections.next_job(now, |address| destinations.handle(address).is_some());
        if let Job::End(ended) = &job {
            ring.sender.forget(&ended.rc.lane);
        }
        Some(job)
    }
}
