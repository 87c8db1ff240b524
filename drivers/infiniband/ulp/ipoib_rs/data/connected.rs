// SPDX-License-Identifier: GPL-2.0

//! Sending in connected mode: which frames go by a connection, what goes by UD until there is one, and what waits for
//! it.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, Taken};
use ipoib_netdev::skb::{Keep, TxSkb};
use ipoib_proto::connection::End;
use ipoib_proto::drop::DropReason;
use ipoib_proto::fragment;
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::mtu;
use ipoib_proto::resolution::is_resolution;
use ipoib_proto::ticket::Ticket;
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::interface::{Interface, RETRY_MS};
use crate::base::work::Work;
use crate::base::{ADDR_LEN, HEADER_LEN};
use crate::data::tx::{address, ether_type, front, Tx};
use crate::rc::conn::{Cause, Conn, ConnId};
use crate::rc::context::Negotiated;
use crate::rc::form::tcp_v4_header;
use crate::rc::ring::RcRing;
use crate::rc::table::{Found, Job, Wanted};
use crate::rc::tx::{keep_waiting, Fate, RcTx, Route};
use crate::ud::paths::Channels;
use crate::ud::ring::{Kind, UdRing};

impl Tx {
    /// Sends a frame as the stack gave it, in connected mode.
    // Its one caller has saved all registers already.
    #[inline(always)]
    pub(super) fn transmit_connected(&mut self, dev: &Device<Interface>, mut skb: TxSkb) -> Taken {
        let now = now_ms();
        let front = match front(&skb) {
            Ok(front) => front,
            Err(reason) => return self.refuse(dev, skb, reason),
        };
        let address = address(front);
        let ether_type = ether_type(front);
        if ether_type != EtherType::IPV4
            && is_resolution(ether_type, skb.linear().get(HEADER_LEN..).unwrap_or(&[]))
        {
            self.in_burst(dev, move |this| this.send_datagram(dev, address, skb, now));
            return Taken::TAKEN;
        }
        let Some(mut route) = self.route(&address, &mut skb, now) else {
            self.in_burst(dev, move |this| this.send_connected(dev, address, skb, now));
            return Taken::TAKEN;
        };
        let Some(header) = tcp_v4_header(&route.channel.terms, &skb) else {
            // A separate copy, so that `route` stays in registers on the hot path.
            let fate = route.apart().send_now(dev, skb);
            return self.transmitted(dev, address, fate, now);
        };
        if route.send_extended(dev, skb, header) {
            // One burst may go by both rings.
            flush(dev, route.ring, route.ud);
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

    /// The way of a frame by a connection that it can go by at once: nearly always there is one.
    #[inline(always)]
    fn route(&mut self, address: &HwAddr, skb: &mut TxSkb, now: u64) -> Option<Route<'_>> {
        if address.is_multicast() || !address.flags().contains(Flags::RC) {
            return None;
        }
        let (destinations, ud, RcTx { connections, ring }) = self.parts()?;
        let number = connections.pick_channel(skb);
        let peer = destinations.peer(address, now)?;
        let at = *peer.channels.0.get(usize::from(number))?;
        let channel = connections.channel_for(at, address, number)?;
        let mut route = Route { channel, ring, ud };
        (route.channel.machine.transmit(now).is_some() && route.is_free()).then_some(route)
    }

    /// Does something that may put frames on either ring, and hands them to the device if the stack has no
    /// other frame at once.
    // Apart, for frames that are not like nearly all.
    #[inline(never)]
    fn in_burst(&mut self, dev: &Device<Interface>, f: impl FnOnce(&mut Self)) {
        self.ud.ring.hold = true;
        f(self);
        self.ud.ring.hold = false;
        if !dev.more_follows() {
            self.flush(dev);
        }
    }

    /// Sends a frame as the stack gave it by a connection, or by UD until there is one.
    fn send_connected(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        mut skb: TxSkb,
        now: u64,
    ) {
        let Some(rc) = &mut self.rc else {
            return self.send_datagram(dev, address, skb, now);
        };
        let number = rc.connections.pick_channel(&mut skb);
        let is_channel = usize::from(number) < Channels::COUNT;
        if address.is_multicast() || !address.flags().contains(Flags::RC) || !is_channel {
            return self.send_datagram(dev, address, skb, now);
        }
        let at = self.place(dev, &address, number, now);
        let Some((_, ud, RcTx { connections, ring })) = self.parts() else {
            return self.ud.ring.drop(dev, skb, DropReason::Flushed);
        };
        if let Some(channel) = connections.channel_at(at) {
            if channel.machine.transmit(now).is_some() {
                let mut route = Route { channel, ring, ud };
                let fate = route.send(dev, skb, now);
                return self.settle(dev, address, fate, now);
            }
        }
        if connections.want(at, now) {
            Interface::queue(dev, Work::Connections, 0);
        }
        self.send_meanwhile(dev, address, at, skb, now);
    }

    /// The place of a connection to a peer, which its path remembers. A connection does not need a path, but to
    /// make one does.
    fn place(&mut self, dev: &Device<Interface>, address: &HwAddr, number: u8, now: u64) -> u16 {
        if self.ud.destinations.peer(address, now).is_none() {
            self.want_path(dev, address, now);
        }
        let Some((destinations, _, RcTx { connections, .. })) = self.parts() else {
            return Channels::NOWHERE;
        };
        let peer = destinations.peer(address, now);
        let remembered = peer.and_then(|peer| peer.channels.0.get(usize::from(number)).copied());
        let known = remembered.filter(|at| connections.channel_for(*at, address, number).is_some());
        if let Some(at) = known {
            return at;
        }
        let at = connections.place(address, number, now);
        let at = at.unwrap_or(Channels::NOWHERE);
        let peer = destinations.peer(address, now);
        if let Some(remembered) = peer.and_then(|peer| peer.channels.0.get_mut(usize::from(number)))
        {
            *remembered = at;
        }
        at
    }

    /// Uses the path to a peer, though no frame is sent by it now.
    fn want_path(&mut self, dev: &Device<Interface>, address: &HwAddr, now: u64) {
        let Ok(path) = self.ud.destinations.path(*address, now) else {
            return;
        };
        let wanted = path.is_wanted();
        path.want(now);
        // An old one, or one that has failed, is not asked for before its time.
        if path.is_wanted() && !wanted {
            Interface::queue(dev, Work::Paths, 0);
        }
    }

    /// Does what a connection leaves to be done.
    #[inline(never)]
    pub(super) fn settle(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        fate: Fate,
        now: u64,
    ) {
        match fate {
            Fate::Queued(true) => Interface::queue(dev, Work::Connections, 0),
            Fate::Queued(false) | Fate::Sent(_) => {}
            Fate::Segment(skb) => self.segment(dev, address, skb, now),
            Fate::TooBig(skb, mtu) => self.too_big(dev, skb, mtu),
        }
    }

    /// Sends by UD what a connection is not there for yet, unless it has to wait for that.
    pub(super) fn send_meanwhile(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        at: u16,
        skb: TxSkb,
        now: u64,
    ) {
        let fits = self.ud.fits(&address, skb.len().saturating_sub(ADDR_LEN));
        self.ud.ring.counters().rc_tx.fallback.add(1);
        if fits || skb.is_gso() {
            return self.send_datagram(dev, address, skb, now);
        }
        let connections = self.rc.as_mut().map(|rc| &mut rc.connections);
        let channel = connections.and_then(|connections| connections.channel_at(at));
        if let Some(channel) = channel.filter(|channel| channel.machine.may_queue()) {
            let fate = Fate::Queued(keep_waiting(dev, channel, &mut self.ud.ring, skb));
            return self.settle(dev, address, fate, now);
        }
        self.send_datagram(dev, address, skb, now);
    }

    /// Sends by UD a frame, as the stack gave it, of which more is left to be done than the device does, or that is too long.
    #[cold]
    pub(super) fn transmit_finished(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        skb: TxSkb,
    ) -> Taken {
        let now = now_ms();
        self.in_burst(dev, |this| this.send_datagram(dev, address, skb, now));
        Taken::TAKEN
    }

    /// Sends a frame as the stack gave it by UD, with all done that the device would be asked to do.
    pub(super) fn send_datagram(
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
            return self.ud.ring.drop(dev, skb, DropReason::NoMemory);
        }
        if skb.pull(ADDR_LEN).is_err() {
            return self.ud.ring.drop(dev, skb, DropReason::Runt);
        }
        if self.ud.fits(&address, skb.len()) {
            let kind = Kind::of(&skb);
            self.datagram(dev, address, skb, kind);
        } else if address.is_multicast() {
            self.send_fragments(dev, address, skb);
        } else {
            // It may take more by now.
            self.want_path(dev, &address, now);
            let max = self.ud.max_to(&address);
            self.too_big(dev, skb, mtu::ip_mtu(max as u32));
        }
    }

    /// Segments a frame as the stack gave it, and sends the segments.
    // Every frame of a bulk stream comes here if its peer takes no large ones.
    #[inline(never)]
    fn segment(&mut self, dev: &Device<Interface>, address: HwAddr, skb: TxSkb, now: u64) {
        let keep = Keep {
            fragments: true,
            checksum: true,
        };
        match skb.segment(HEADER_LEN, keep) {
            Ok(segments) => {
                let mut pieces = 0;
                for segment in segments {
                    self.send_segment(dev, address, segment, now);
                    pieces += 1;
                }
                self.count_cut(1, pieces);
            }
            Err((skb, _)) => self.ud.ring.drop(dev, skb, DropReason::NoMemory),
        }
    }

    /// Sends a segment, which nearly always can go at once.
    #[inline(always)]
    fn send_segment(&mut self, dev: &Device<Interface>, address: HwAddr, mut skb: TxSkb, now: u64) {
        if let Some(mut route) = self.route(&address, &mut skb, now) {
            if let Some(header) = tcp_v4_header(&route.channel.terms, &skb) {
                // The caller flushes.
                route.send_extended(dev, skb, header);
                return;
            }
        }
        self.send_connected(dev, address, skb, now);
    }

    /// Sends a multicast packet that is too long for a datagram in fragments. That this can be done was
    /// seen when it got its link-layer header.
    #[cold]
    fn send_fragments(&mut self, dev: &Device<Interface>, address: HwAddr, skb: TxSkb) {
        let mtu = self.ud.ring.max_datagram() - Header::LEN;
        let packet = skb.linear().get(Header::LEN..).unwrap_or(&[]);
        let whole = skb.len() - Header::LEN;
        let fragments = match fragment::split(packet, whole, mtu, skb.ignores_df()) {
            Ok(fragments) => fragments,
            Err(_) => {
                self.ud.ring.counters().slow.multicast_too_big.add_shared(1);
                return self.ud.ring.drop(dev, skb, DropReason::TooBig);
            }
        };
        let mut pieces = 0;
        for part in fragments {
            let header = part.header.as_bytes();
            match skb.copy_part(Header::LEN, header, part.offset, part.len) {
                Ok(part) => {
                    let kind = Kind::of(&part);
                    self.datagram(dev, address, part, kind);
                }
                Err(_) => {
                    self.count_cut(0, pieces);
                    return self.ud.ring.drop(dev, skb, DropReason::NoMemory);
                }
            }
            pieces += 1;
        }
        skb.consume();
        self.count_cut(1, pieces);
    }

    /// Counts frames that were cut up, and the pieces that took their places.
    fn count_cut(&self, frames: u64, pieces: u64) {
        let tx = &self.ud.ring.counters().tx;
        tx.cut.add(frames);
        tx.pieces.add(pieces);
    }

    /// Hands what is on the rings to the device.
    pub(crate) fn flush(&mut self, dev: &Device<Interface>) {
        match &mut self.rc {
            Some(rc) => flush(dev, &mut rc.ring, &mut self.ud.ring),
            None => self.ud.ring.flush(dev),
        }
    }

    /// Answers a packet that is too big for the peer, or for the path to it.
    #[cold]
    fn too_big(&mut self, dev: &Device<Interface>, skb: TxSkb, mtu: u32) {
        if self.ud.ring.too_big(dev, skb, mtu) {
            Interface::queue(dev, Work::Connections, 0);
        }
    }

    /// The next job for the work item.
    pub(crate) fn next_job(&mut self, now: u64) -> Option<Job> {
        let RcTx { connections, ring } = self.rc.as_mut()?;
        let destinations = &self.ud.destinations;
        let job = connections.next_job(now, |address| destinations.is_settled(address));
        if let Job::End(ended) = &job {
            ring.sender.close(&ended.rc.lane);
        }
        Some(job)
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
                connections.end(rc, Cause::Closed);
                false
            }
            None => {
                rc.trace("asked", "requested");
                true
            }
        }
    }

    /// A connection that was to be asked for could not be made. Returns true if the attempt has failed: false, if the device
    /// will have room for another one soon.
    pub(crate) fn not_asked(
        &mut self,
        dev: &Device<Interface>,
        wanted: &Wanted,
        error: Error,
        now: u64,
    ) -> bool {
        let Some(connections) = self.connections() else {
            return true;
        };
        let end = if connections.make_room_on_device(error, now) {
            connections.counters.connected.no_room.add_shared(1);
            End::Soon
        } else {
            End::Failed
        };
        if let Some(at) = connections.find_channel(&wanted.address, wanted.number) {
            if let Some(channel) = connections.channel_at(at) {
                let _ = channel.machine.ended(wanted.ticket, end, now);
            }
            self.give_up(dev, at, now);
        }
        end == End::Failed
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
        self.service(dev);
        Ok(())
    }

    /// The peer has confirmed a connection that it has asked for.
    pub(crate) fn confirmed(&mut self, found: &Found) {
        if let Some(connections) = self.connections() {
            connections.senders.confirm(&found.rc, now_ms());
        }
    }

    /// Advertises the credit limit of a connection that a peer sends by, if that is due. The caller flushes.
    pub(crate) fn grant(&mut self, dev: &Device<Interface>, rc: &Conn) {
        if let Some(RcTx { connections, ring }) = &mut self.rc {
            // Unless it has ended since the message came.
            if connections.senders.holds(rc) && ring.grant(rc).is_err() {
                Interface::queue(dev, Work::Connections, RETRY_MS);
            }
        }
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
        rc.ring.shared.end_stall();
        // Pairs with the barrier where the NAPIs look at it.
        smp_mb(Full);
        let count = rc.connections.channels.len();
        self.ud.ring.hold = true;
        for at in 0..count as u16 {
            self.resume(dev, at, now);
        }
        if let Some(RcTx { connections, ring }) = &mut self.rc {
            let grants = connections.senders.iter().map(|rc| ring.grant(rc));
            if grants.filter(Result::is_err).count() > 0 {
                Interface::queue(dev, Work::Connections, RETRY_MS);
            }
        }
        self.ud.ring.hold = false;
        self.flush(dev);
        if let Some(RcTx { connections, ring }) = &mut self.rc {
            let blocked = ring.shared.is_blocked();
            if blocked && !connections.update_stops(now) {
                ring.shared.end_block();
                // Pairs with the barrier in `TxPoll::poll`: either that sees that nothing keeps the queue
                // stopped, or we see the room.
                smp_mb(Full);
                self.ud.ring.wake(dev);
            }
        }
    }

    /// Sends what waits for a channel, as far as that goes.
    fn resume(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        loop {
            let Some((_, ud, RcTx { connections, ring })) = self.parts() else {
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
            let address = channel.address;
            let Some(mut skb) = channel.backlog.pop() else {
                return;
            };
            channel.note_sent();
            if skb.push(address.as_bytes()).is_err() {
                ud.drop(dev, skb, DropReason::NoMemory);
                continue;
            }
            let mut route = Route { channel, ring, ud };
            let fate = route.send_now(dev, skb);
            self.settle(dev, address, fate, now);
        }
    }
}

/// Hands what is on both rings to the device.
// For nearly every frame.
#[inline(always)]
fn flush(dev: &Device<Interface>, ring: &mut RcRing, ud: &mut UdRing) {
    if ring.flush(dev) {
        // Not here, since our caller may be busy with the connection.
        Interface::queue(dev, Work::Connections, 0);
    }
    ud.flush(dev);
}
