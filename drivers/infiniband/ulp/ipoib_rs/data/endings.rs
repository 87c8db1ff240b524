// SPDX-License-Identifier: GPL-2.0

//! The ends of connections: which are given up, and what becomes of the frames that wait for them.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::connection::End;
use ipoib_proto::drop::DropReason;
use ipoib_proto::hwaddr::HwAddr;

use crate::base::interface::Interface;
use crate::base::work::Work;
use crate::data::tx::Tx;
use crate::rc::conn::{Cause, Conn};
use crate::rc::table::{Found, Place};

impl Tx {
    /// Sends by UD what waits for a connection that does not come, or not yet. What only a connection
    /// can carry stays as long as one may come.
    pub(super) fn give_up(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        self.empty_backlog(dev, at, now, |this, dev, address, skb| {
            this.send_meanwhile(dev, address, at, skb, now);
        });
    }

    /// Empties a backlog, whose frames, as the stack gave them, are sent by `send`.
    fn empty_backlog(
        &mut self,
        dev: &Device<Interface>,
        at: u16,
        now: u64,
        send: impl Fn(&mut Self, &Device<Interface>, HwAddr, TxSkb),
    ) {
        let channel = self.connections().and_then(|c| c.channel_at(at));
        let waiting = channel.map_or(0, |channel| channel.backlog.len());
        for _ in 0..waiting {
            let Some(channel) = self.connections().and_then(|c| c.channel_at(at)) else {
                break;
            };
            let address = channel.address;
            let Some(mut skb) = channel.backlog.pop() else {
                break;
            };
            let pieces = skb.gso().map_or(1, |gso| u32::from(gso.segments));
            let goes = skb.is_gso() || self.ud.fits(&address, skb.len());
            if goes && !self.ud.ring.has_room(pieces) {
                self.ud.ring.drop(dev, skb, DropReason::Flushed);
                continue;
            }
            match skb.push(address.as_bytes()) {
                Ok(()) => send(self, dev, address, skb),
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
        while let Some(rc) = self.connections().and_then(|c| c.find_refusing()) {
            self.connection_failed(dev, &rc);
        }
        let port_up = self.ud.destinations.is_up();
        let count = self.connections().map_or(0, |c| c.channels.len());
        for at in 0..count as u16 {
            let Some(connections) = self.connections() else {
                return;
            };
            let Some(channel) = connections.channel_at(at) else {
                continue;
            };
            if !channel.check_stuck(now, port_up) {
                continue;
            }
            let address = channel.address;
            let ended = channel
                .machine
                .ticket()
                .and_then(|ticket| channel.machine.failed(ticket, now));
            if let Some(rc) = ended {
                connections.end(rc, Cause::Stuck);
            }
            self.doubt_path(dev, &address, now);
            // Nothing waits again: it has waited for too long.
            self.empty_backlog(dev, at, now, |this, dev, address, skb| {
                this.send_datagram(dev, address, skb, now);
            });
        }
    }

    /// Ends all connections, those that others send by as well, since what they may do was changed; frames make new ones.
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
            let channel = connections.channel_at(at);
            if let Some(rc) = channel.and_then(|channel| channel.machine.evict()) {
                connections.end(rc, Cause::Closed);
            }
            self.give_up(dev, at, now);
        }
        if let Some(connections) = self.connections() {
            while let Some(rc) = connections.senders.take(0) {
                connections.end(rc, Cause::Closed);
            }
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
            if let Some(rc) = connections.senders.remove(&found.rc) {
                connections.end(rc, cause);
            }
            return;
        };
        // Not of another one that has come in its place.
        let Some(channel) = connections.of(&found.rc.id) else {
            return;
        };
        channel.look(now);
        let address = channel.address;
        let ended = channel.machine.ended(ticket, end, now);
        if let Some(rc) = ended {
            let at = connections.place_of(&rc.id);
            connections.end(rc, cause);
            if let Some(at) = at {
                self.doubt_path(dev, &address, now);
                self.give_up(dev, at, now);
            }
        }
    }

    /// Has the path to a peer asked for anew: the next connection along it would fail as the last one did.
    fn doubt_path(&mut self, dev: &Device<Interface>, address: &HwAddr, now: u64) {
        if self.ud.destinations.doubt(address, now) {
            Interface::queue(dev, Work::Paths, 0);
        }
    }

    /// A connection has lost a frame, or its queue pair is in error: it is of no use any more.
    #[cold]
    pub(crate) fn connection_failed(&mut self, dev: &Device<Interface>, rc: &Conn) {
        let found = self.connections().and_then(|c| c.find(&rc.id));
        if let Some(found) = found {
            self.ud.ring.counters().connected.failed.add_shared(1);
            self.connection_ended(dev, &found, found.end(), Cause::Broken);
            Interface::queue(dev, Work::Connections, 0);
        }
    }
}
