// SPDX-License-Identifier: GPL-2.0

//! Sending in connected mode: which frames go by a connection, and what goes by UD meanwhile; and what
//! becomes of connections, as far as frames are concerned.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, Taken};
use ipoib_netdev::skb::{Keep, TxSkb};
use ipoib_proto::cm::{PrivateData, Refusal, MAX_CHANNELS};
use ipoib_proto::connection::End;
use ipoib_proto::drop::DropReason;
use ipoib_proto::fragment;
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::resolution::is_resolution;
use ipoib_proto::seq::Sequence;
use ipoib_proto::share::{Need, Reason};
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::Lane;
use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed, Release};
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::{ADDR_LEN, HEADER_LEN};
use crate::ctl::cm::Caller;
use crate::ctl::netdev::{Interface, CONNECT};
use crate::data::tx::{addressed, Line, Tx};
use crate::rc::conn::{Rc, Role, Room, Terms};
use crate::rc::ring::{tcp_v4_header, Fate, RcLine};
use crate::rc::table::{Ended, Entry, Found, Job, Place};

/// The places of a peer's connections in the table; those that there are not have the number `NONE`.
#[derive(Clone, Copy)]
pub(crate) struct Lanes([u16; MAX_CHANNELS]);

const NONE: u16 = u16::MAX;

/// What a frame goes by whose connection is up.
struct Up<'a> {
    entry: &'a mut Entry,
    rc_line: &'a mut RcLine,
    line: &'a mut Line,
    sequence: &'a mut Sequence,
}

impl Lanes {
    pub(crate) const NONE: Lanes = Lanes([NONE; MAX_CHANNELS]);
}

impl Tx {
    /// Sends a frame as the stack gave it, in connected mode.
    #[inline(never)]
    pub(crate) fn transmit_connected(&mut self, dev: &Device<Interface>, mut skb: TxSkb) -> Taken {
        let now = now_ms();
        let (address, ether_type) = match addressed(&skb) {
            Ok(addressed) => addressed,
            Err(reason) => return self.refuse(dev, skb, reason),
        };
        if ether_type != EtherType::IPV4
            && is_resolution(ether_type, skb.linear().get(HEADER_LEN..).unwrap_or(&[]))
        {
            return self.transmit_otherwise(dev, address, true, skb, now);
        }
        let Some(Up {
            entry,
            rc_line,
            line,
            sequence,
        }) = self.up(&address, &mut skb, now)
        else {
            return self.transmit_otherwise(dev, address, false, skb, now);
        };
        let Some(header) = tcp_v4_header(&entry.terms, &skb) else {
            let fate = rc_line.send_now(dev, line, entry, Some(sequence), skb);
            return self.transmitted(dev, address, fate, now);
        };
        if rc_line.send_extended(dev, line, entry, Some(sequence), skb, header) {
            // One burst may go by both rings.
            rc_line.flush(dev, line);
            line.flush(dev);
        }
        Taken::TAKEN
    }

    /// Ends the sending of a frame that is not like nearly all.
    #[inline(never)]
    fn transmitted(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        fate: Fate,
        now: u64,
    ) -> Taken {
        match fate {
            Fate::Sent(false) => {}
            Fate::Sent(true) => self.flush(dev),
            fate => self.in_burst(dev, |this| this.settle(dev, address, fate, now)),
        }
        Taken::TAKEN
    }

    /// A connection by which a frame can go at once: nearly always there is one.
    #[inline(always)]
    fn up(&mut self, address: &HwAddr, skb: &mut TxSkb, now: u64) -> Option<Up<'_>> {
        if address.is_multicast() || !address.flags().contains(Flags::RC) {
            return None;
        }
        let Self {
            destinations,
            connections: Some(connections),
            line,
            ..
        } = self
        else {
            return None;
        };
        let number = connections.lane_of(skb);
        let peer = destinations.peer(address, now)?;
        let at = *peer.lanes.0.get(usize::from(number))?;
        let (entry, rc_line) = connections.route(at, address, number)?;
        if entry.machine.transmit(now).is_none() || !rc_line.is_free(entry) {
            return None;
        }
        Some(Up {
            entry,
            rc_line,
            line,
            sequence: peer.sequence,
        })
    }

    /// Sends a frame that does not go by a connection at once, or is to go by UD.
    #[inline(never)]
    fn transmit_otherwise(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        by_datagram: bool,
        skb: TxSkb,
        now: u64,
    ) -> Taken {
        self.in_burst(dev, |this| {
            if by_datagram {
                this.send_datagram(dev, address, skb, now);
            } else {
                this.send_connected(dev, address, skb, now);
            }
        });
        Taken::TAKEN
    }

    /// Does something that may put frames on either ring, and hands them to the device if the stack has no
    /// other frame at once.
    #[inline]
    fn in_burst(&mut self, dev: &Device<Interface>, f: impl FnOnce(&mut Self)) {
        self.line.hold = true;
        f(self);
        self.line.hold = false;
        if !dev.more_follows() {
            self.flush(dev);
        }
    }

    fn send_connected(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        mut skb: TxSkb,
        now: u64,
    ) {
        if address.is_multicast() || !address.flags().contains(Flags::RC) {
            return self.send_datagram(dev, address, skb, now);
        }
        let Self {
            destinations,
            connections: Some(connections),
            line,
            ..
        } = self
        else {
            return self.send_datagram(dev, address, skb, now);
        };
        let number = connections.lane_of(&mut skb);
        let Some(peer) = destinations.peer(&address, now) else {
            return self.send_without_path(dev, address, number, skb, now);
        };
        let Some(lane) = peer.lanes.0.get_mut(usize::from(number)) else {
            return self.send_datagram(dev, address, skb, now);
        };
        let at = *lane;
        let Some((entry, rc_line)) = connections.route(at, &address, number) else {
            return self.send_to_place(dev, address, number, skb, now);
        };
        if entry.machine.transmit(now).is_none() {
            connections.want(dev, at, now);
            return self.send_meanwhile(dev, address, at, skb, now);
        }
        let fate = rc_line.send(dev, line, entry, Some(peer.sequence), skb, now);
        self.settle(dev, address, fate, now);
    }

    /// Sends to a peer whose address handle is not there, or not usable yet. A connection does not need
    /// it, but to make one does.
    #[cold]
    fn send_without_path(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        number: u8,
        skb: TxSkb,
        now: u64,
    ) {
        self.destinations.want_path(dev, &address, now);
        self.send_to_place(dev, address, number, skb, now);
    }

    /// Sends to a peer whose path does not know the place of its entry, or there is no path.
    #[cold]
    fn send_to_place(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        number: u8,
        skb: TxSkb,
        now: u64,
    ) {
        let Some(connections) = &mut self.connections else {
            return self.send_datagram(dev, address, skb, now);
        };
        let at = connections.place(&address, number, now).unwrap_or(NONE);
        let sequence = self.destinations.peer(&address, now).map(|peer| {
            if let Some(lane) = peer.lanes.0.get_mut(usize::from(number)) {
                *lane = at;
            }
            peer.sequence
        });
        if let Some((entry, rc_line)) = connections.route_at(at) {
            if entry.machine.transmit(now).is_some() {
                let fate = rc_line.send(dev, &mut self.line, entry, sequence, skb, now);
                return self.settle(dev, address, fate, now);
            }
        }
        connections.want(dev, at, now);
        self.send_meanwhile(dev, address, at, skb, now);
    }

    /// Does what a connection leaves to be done.
    #[inline(never)]
    fn settle(&mut self, dev: &Device<Interface>, address: HwAddr, fate: Fate, now: u64) {
        match fate {
            Fate::Queued | Fate::Sent(_) => {}
            Fate::Segment(skb) => self.segment(dev, address, skb, now),
            Fate::TooBig(skb, mtu) => self.too_big(dev, skb, mtu),
        }
    }

    /// Sends by UD what a connection is not there for yet, unless it has to wait for that.
    fn send_meanwhile(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        at: u16,
        mut skb: TxSkb,
        now: u64,
    ) {
        let fits = skb.len() <= ADDR_LEN + self.line.max_datagram();
        self.line.counters().connected.fallback.add(1);
        if fits || skb.is_gso() {
            return self.send_datagram(dev, address, skb, now);
        }
        if let Some(connections) = &mut self.connections {
            if let Some(entry) = connections.entry_at(at) {
                if entry.machine.may_queue(now) {
                    if skb.pull(ADDR_LEN).is_err() {
                        return self.line.drop(dev, skb, DropReason::Runt);
                    }
                    if entry.backlog.is_empty() {
                        // It looks when that has lasted too long.
                        dev.queue_task(CONNECT, 0);
                    }
                    if let Err(skb) = entry.backlog.push(skb) {
                        self.line.drop(dev, skb, DropReason::QueueFull);
                    }
                    return;
                }
            }
        }
        self.send_datagram(dev, address, skb, now);
    }

    /// Sends a frame as the stack gave it by UD, with all done that the device would be asked to do.
    fn send_datagram(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        mut skb: TxSkb,
        now: u64,
    ) {
        if skb.is_gso() {
            return self.segment(dev, address, skb, now);
        }
        if skb.needs_checksum() && skb.checksum_help().is_err() {
            return self.line.drop(dev, skb, DropReason::NoMemory);
        }
        if skb.pull(ADDR_LEN).is_err() {
            return self.line.drop(dev, skb, DropReason::Runt);
        }
        let max = self.line.max_datagram();
        if skb.len() > max {
            if address.is_multicast() {
                return self.send_fragments(dev, address, skb, now);
            }
            return self.too_big(dev, skb, (max - Header::LEN) as u32);
        }
        self.datagram(dev, address, skb, now);
    }

    /// Segments a frame as the stack gave it, and sends the segments.
    #[cold]
    fn segment(&mut self, dev: &Device<Interface>, address: HwAddr, skb: TxSkb, now: u64) {
        let keep = Keep {
            fragments: true,
            checksum: true,
        };
        match skb.segment(keep) {
            Ok(segments) => {
                for segment in segments {
                    self.send_connected(dev, address, segment, now);
                }
            }
            Err((skb, _)) => self.line.drop(dev, skb, DropReason::NoMemory),
        }
    }

    /// Sends a multicast packet that is too long for a datagram in fragments. That this can be done was
    /// seen when it got its link-layer header.
    #[cold]
    fn send_fragments(&mut self, dev: &Device<Interface>, address: HwAddr, skb: TxSkb, now: u64) {
        let mtu = self.line.max_datagram() - Header::LEN;
        let packet = skb.linear().get(Header::LEN..).unwrap_or(&[]);
        let whole = skb.len() - Header::LEN;
        let fragments = match fragment::split(packet, whole, mtu, skb.ignores_df()) {
            Ok(fragments) => fragments,
            Err(_) => {
                self.line.counters().slow.multicast_too_big.add_shared(1);
                return self.line.drop(dev, skb, DropReason::TooBig);
            }
        };
        for part in fragments {
            let header = part.header.as_bytes();
            match skb.copy_part(Header::LEN, header, part.offset, part.len) {
                Ok(part) => self.datagram(dev, address, part, now),
                Err(_) => return self.line.drop(dev, skb, DropReason::NoMemory),
            }
        }
        skb.consume();
    }

    /// Hands what is on the rings to the device.
    pub(crate) fn flush(&mut self, dev: &Device<Interface>) {
        if let Some(connections) = &mut self.connections {
            connections.line.flush(dev, &mut self.line);
        }
        self.line.flush(dev);
    }

    /// Answers a packet that is too big for the peer, as a router would, so that the sender learns it.
    #[cold]
    fn too_big(&mut self, dev: &Device<Interface>, mut skb: TxSkb, mtu: u32) {
        self.line.counters().connected.too_big.add(1);
        skb.update_path_mtu(mtu);
        // To answer takes locks that a caller may hold; the work item does it.
        match self.too_big.push((skb, mtu), 1) {
            Ok(()) => dev.queue_task(CONNECT, 0),
            Err((skb, _)) => self.line.drop(dev, skb, DropReason::TooBig),
        }
        self.line.flush(dev);
    }

    /// Sends what waits and can go, and tells the peers what they may send.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    pub(crate) fn service(&mut self, dev: &Device<Interface>) {
        let now = now_ms();
        let Some(connections) = &mut self.connections else {
            return;
        };
        connections.line.shared().stalled.store(false, Relaxed);
        // Pairs with the barrier where the NAPIs look at it.
        smp_mb(Full);
        let count = connections.entries.len();
        self.line.hold = true;
        for at in 0..count as u16 {
            if let Some(connections) = &mut self.connections {
                connections.confirm_by_frame(dev, at, now);
            }
            self.resume(dev, at, now);
            let connections = self.connections.as_mut();
            if let Some((entry, rc_line)) = connections.and_then(|c| c.route_at(at)) {
                rc_line.advertise(dev, entry);
            }
        }
        self.line.hold = false;
        self.flush(dev);
        if let Some(connections) = &mut self.connections {
            let blocked = connections.line.shared().is_blocked();
            if blocked && !connections.update_stops(now) {
                connections.line.shared().blocked.store(false, Relaxed);
                // Pairs with the barrier in `TxPoll::poll`: either that sees that nothing keeps the queue
                // stopped, or we see the room.
                smp_mb(Full);
                self.line.wake(dev);
            }
        }
    }

    /// Sends what waits for the connection of an entry, as far as that goes.
    fn resume(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        loop {
            let Self {
                destinations,
                connections: Some(connections),
                line,
                ..
            } = self
            else {
                return;
            };
            let Some((entry, rc_line)) = connections.route_at(at) else {
                return;
            };
            if entry.backlog.is_empty() || !entry.machine.is_up() {
                return;
            }
            if !rc_line.has_room(entry) {
                rc_line.shared().stalled.store(true, Relaxed);
                // Pairs with the barriers in the NAPIs: either they see that somebody waits, or we see
                // what they have brought.
                smp_mb(Full);
                if !rc_line.has_room(entry) {
                    return;
                }
            }
            let address = *entry.address();
            let Some(mut skb) = entry.backlog.pop() else {
                return;
            };
            entry.note_sent();
            if skb.push(address.as_bytes()).is_err() {
                line.drop(dev, skb, DropReason::NoMemory);
                continue;
            }
            let fate = match destinations.peer(&address, now) {
                Some(peer) => rc_line.send_now(dev, line, entry, Some(peer.sequence), skb),
                None => rc_line.send_now(dev, line, entry, None, skb),
            };
            self.settle(dev, address, fate, now);
        }
    }

    /// Sends by UD what waits for a connection that does not come, or not yet. What only a connection
    /// can carry stays as long as one may come.
    fn give_up(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        let connections = self.connections.as_mut();
        let waiting = connections
            .and_then(|c| c.entry_at(at))
            .map_or(0, |entry| entry.backlog.len());
        for _ in 0..waiting {
            let connections = self.connections.as_mut();
            let Some(entry) = connections.and_then(|c| c.entry_at(at)) else {
                break;
            };
            let address = *entry.address();
            let Some(mut skb) = entry.backlog.pop() else {
                break;
            };
            match skb.push(address.as_bytes()) {
                Ok(()) => self.send_meanwhile(dev, address, at, skb, now),
                Err(_) => self.line.drop(dev, skb, DropReason::NoMemory),
            }
        }
        if let Some(connections) = &mut self.connections {
            connections.want_for_backlog(dev, at, now);
        }
        self.service(dev);
    }

    /// Gives connections up whose peers let nothing through for too long, or whose queue pairs take
    /// nothing.
    pub(crate) fn give_up_stuck(&mut self, dev: &Device<Interface>, now: u64) {
        while let Some(lane) = self
            .connections
            .as_mut()
            .and_then(|c| c.line.sender.take_refusing())
        {
            self.lane_failed(dev, &lane, now);
        }
        let count = self.connections.as_ref().map_or(0, |c| c.entries.len());
        let mut slow = false;
        for at in 0..count as u16 {
            let Some(connections) = &mut self.connections else {
                return;
            };
            let Some(entry) = connections.entry_at(at) else {
                continue;
            };
            if !entry.check_stuck(now) {
                slow |= entry.make_slow(now);
                continue;
            }
            entry.machine.hold_off(now);
            let ended = entry
                .machine
                .ticket()
                .and_then(|ticket| entry.machine.failed(ticket, now));
            if let Some(rc) = ended {
                self.line.counters().connected.stuck.add_shared(1);
                connections.end(dev, rc);
            }
            self.give_up(dev, at, now);
        }
        // Others are not to wait for those that are slow.
        if let Some(connections) = self.connections.as_ref().filter(|_| slow) {
            connections.line.shared().sweep.store(true, Release);
            self.line.wake_completions();
            self.service(dev);
        }
    }

    /// Ends all connections, since what they may do was changed; frames make new ones.
    pub(crate) fn end_connections(&mut self, dev: &Device<Interface>) {
        let now = now_ms();
        let count = self.connections.as_ref().map_or(0, |c| c.entries.len());
        if let Some(connections) = &mut self.connections {
            connections.settings_changed();
        }
        for at in 0..count as u16 {
            let Some(connections) = &mut self.connections else {
                return;
            };
            while let Some(rc) = connections
                .entry_at(at)
                .and_then(|entry| entry.machine.evict())
            {
                connections.end(dev, rc);
            }
            self.give_up(dev, at, now);
        }
        dev.queue_task(CONNECT, 0);
    }

    /// Whether there is a connection that may go for another interface on the device, or for this one.
    pub(crate) fn can_give(&mut self, need: &Need, now: u64) -> Option<Reason> {
        let (holder, _) = self.connections.as_mut()?.holder(now)?;
        holder.gives(need, now)
    }

    /// Ends that connection, if it still is as it was found; what waits for it may go otherwise.
    pub(crate) fn give(&mut self, dev: &Device<Interface>, need: &Need, now: u64) {
        let Some(connections) = &mut self.connections else {
            return;
        };
        let found = connections.holder(now);
        let Some((_, least)) = found.filter(|(holder, _)| holder.gives(need, now).is_some()) else {
            return;
        };
        if let Some(at) = connections.evict(dev, least) {
            self.give_up(dev, at, now);
        }
    }

    /// A connection has come to an end, by an error or since the peer says so.
    pub(crate) fn connection_ended(
        &mut self,
        dev: &Device<Interface>,
        found: &Found,
        end: End,
        now: u64,
    ) {
        let Some(connections) = &mut self.connections else {
            return;
        };
        let Place::Entry(ticket) = found.place else {
            return connections.remove_sender(dev, &found.rc);
        };
        // Not of another one that has come in its place.
        let Some(entry) = connections.of(&found.rc.caller) else {
            return;
        };
        entry.look(now);
        let ended = entry.machine.ended(ticket, end, now);
        // What was only offered leaves the one that there is.
        let is_up = entry.machine.is_up();
        if let Some(rc) = ended {
            let at = connections.place_of(&rc.caller);
            connections.end(dev, rc);
            match at {
                Some(at) if end == End::Yielded => connections.want_for_backlog(dev, at, now),
                Some(at) if !is_up => self.give_up(dev, at, now),
                _ => {}
            }
        }
    }

    /// A lane lost a frame: its connection is of no use any more.
    #[cold]
    pub(crate) fn lane_failed(&mut self, dev: &Device<Interface>, lane: &Lane, now: u64) {
        let found = self.connections.as_ref().and_then(|connections| {
            let rc = connections.of_lane(lane)?;
            connections.find(&rc.caller)
        });
        if let Some(found) = found {
            self.line.counters().connected.failed.add_shared(1);
            self.connection_ended(dev, &found, found.end(), now);
        }
    }

    /// A connection is up: as we asked for, on these terms; or as the peer did.
    ///
    /// # Errors
    ///
    /// Nobody wants it any more.
    pub(crate) fn connection_up(
        &mut self,
        dev: &Device<Interface>,
        caller: &Caller,
        ticket: Ticket,
        terms: Option<Terms>,
        now: u64,
    ) -> Result {
        let connections = self.connections.as_mut().ok_or(ENETDOWN)?;
        let entry = connections.of(caller).ok_or(ECANCELED)?;
        match terms {
            Some(terms) if entry.machine.accepted(ticket, now) => {
                entry.begin(terms);
                connections.counters.connected.connected.add_shared(1);
            }
            Some(_) => return Err(ECANCELED),
            None => {
                let at = connections.place_of(caller).ok_or(ECANCELED)?;
                connections.confirm(dev, at, ticket, now);
            }
        }
        self.service(dev);
        // It looks when the connection will have been idle for too long.
        dev.queue_task(CONNECT, 0);
        Ok(())
    }

    /// The peer's request was accepted.
    ///
    /// # Errors
    ///
    /// Why it is to be refused after all.
    pub(crate) fn connection_accepted(
        &mut self,
        dev: &Device<Interface>,
        rc: Arc<Rc>,
        terms: Terms,
        now: u64,
    ) -> Result<(), Refusal> {
        let connections = self.connections.as_mut().ok_or(Refusal::Closed)?;
        dev.queue_task(CONNECT, 0);
        connections.accepted(dev, rc, terms, now)
    }

    /// A connection that somebody else sends by is confirmed.
    pub(crate) fn sender_confirmed(&mut self, dev: &Device<Interface>, rc: &Arc<Rc>) {
        if let Some(connections) = &mut self.connections {
            connections.sender_confirmed(dev, rc);
            // It counts them.
            dev.queue_task(CONNECT, 0);
        }
    }

    /// A connection that did not get into the table.
    pub(crate) fn connection_unused(&mut self, dev: &Device<Interface>, rc: Arc<Rc>) {
        if let Some(connections) = &mut self.connections {
            connections.end(dev, rc);
        }
    }

    /// Whether there is room for a connection that a peer asks for.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(crate) fn admit(
        &mut self,
        dev: &Device<Interface>,
        peer: &HwAddr,
        data: &PrivateData,
        now: u64,
    ) -> Result<(Role, Room), Refusal> {
        let connections = self.connections.as_mut().ok_or(Refusal::Closed)?;
        connections.admit(dev, peer, data, now)
    }

    /// A connection that was asked for has its queue pair. True: ask for it.
    pub(crate) fn asked(
        &mut self,
        dev: &Device<Interface>,
        rc: &Arc<Rc>,
        ticket: Ticket,
        now: u64,
    ) -> bool {
        let Some(connections) = &mut self.connections else {
            return false;
        };
        let entry = connections.entry_of(&rc.caller);
        let refused = match entry {
            Some(entry) => entry.machine.requested(ticket, rc.clone(), now),
            None => Some(rc.clone()),
        };
        match refused {
            Some(rc) => {
                let at = connections.place_of(&rc.caller);
                connections.end(dev, rc);
                // If what came in its place does not come up, it is still to be asked.
                if let Some(at) = at {
                    connections.want_for_backlog(dev, at, now);
                }
                false
            }
            None => true,
        }
    }

    /// One that was to be asked for could not be made.
    pub(crate) fn not_asked(
        &mut self,
        dev: &Device<Interface>,
        address: &HwAddr,
        number: u8,
        ticket: Ticket,
        width: u16,
        now: u64,
    ) {
        let Some(connections) = &mut self.connections else {
            return;
        };
        connections.give_back(width);
        if let Some(at) = connections.position(address, number) {
            if let Some(entry) = connections.entry_at(at) {
                let _ = entry.machine.failed(ticket, now);
            }
            self.give_up(dev, at, now);
        }
    }

    /// One that has ended is not over before `due`.
    pub(crate) fn connection_ends(&mut self, ended: Ended, due: u64) {
        if let Some(connections) = &mut self.connections {
            connections.keep_ending(ended, due);
        }
    }

    /// One that has ended is over. If frames of it are in flight, its queue pair was reset.
    pub(crate) fn connection_over(&mut self, dev: &Device<Interface>, rc: &Rc) {
        if let Some(connections) = &mut self.connections {
            connections.over(rc);
            if rc.lane.in_flight() > 0 {
                connections.line.shared().sweep.store(true, Release);
                self.line.wake_completions();
            }
            dev.queue_task(CONNECT, 0);
        }
    }

    /// The next thing to do for the work item.
    pub(crate) fn next_job(&mut self, dev: &Device<Interface>, now: u64) -> Option<Job> {
        let Self {
            connections,
            destinations,
            ..
        } = self;
        let connections = connections.as_mut()?;
        Some(connections.next_job(dev, now, |address| destinations.handle(address).is_some()))
    }

    /// Nothing came of what was admitted.
    pub(crate) fn not_accepted(&mut self, width: u16) {
        if let Some(connections) = &mut self.connections {
            connections.give_back(width);
        }
    }
}
