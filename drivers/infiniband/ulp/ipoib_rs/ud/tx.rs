// SPDX-License-Identifier: GPL-2.0

//! Sending datagrams: the destinations, and the ring that leads to them.

use core::ops::Range;

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::drop::DropReason;
use ipoib_proto::hwaddr::{HwAddr, MULTICAST_QPN};
use ipoib_proto::mgid::Mgid;
use ipoib_proto::mtu;
use ipoib_proto::multicast;
use ipoib_proto::path;
use ipoib_proto::queue::Verdict;
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::Ah;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::ud::paths::{follow_neighbour, trace_path, Destinations, Job, Jobs, Path};
use crate::ud::ring::{is_within, path_mtu, Kind, UdRing};

/// The datagram half of a transmit queue, which the transmit lock protects.
pub(crate) struct UdTx {
    pub(crate) destinations: Destinations,
    pub(crate) ring: UdRing,
}

impl UdTx {
    /// The longest frame that a destination takes, our header included.
    #[cold]
    pub(crate) fn max_to(&self, address: &HwAddr) -> usize {
        match self.destinations.handle(address) {
            Some(ah) => self.ring.max_along(&ah),
            None => self.ring.max_datagram(),
        }
    }

    /// Returns true if a frame of `len` bytes, our header included, is not too long for a destination.
    #[inline]
    pub(crate) fn fits(&self, address: &HwAddr, len: usize) -> bool {
        len <= self.ring.short_datagram() || len <= self.max_to(address)
    }

    /// Ends the resolution of a path. A late answer changes nothing.
    pub(crate) fn resolved(
        &mut self,
        address: &HwAddr,
        ticket: Ticket,
        made: Result<Arc<Ah>>,
        now: u64,
    ) {
        self.destinations.resolved(address, ticket, made, now);
        self.set_narrowest();
    }

    /// Tells the ring what the narrowest path takes.
    pub(crate) fn set_narrowest(&mut self) {
        self.ring.set_narrowest(self.destinations.narrowest());
    }

    /// Sends a frame of a `kind`, which begins with the wire's header and is not too long, as far as is known. True: there is
    /// something to do for the work item that resolves paths.
    #[inline(always)]
    #[must_use]
    pub(crate) fn datagram(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        mut skb: TxSkb,
        kind: Kind,
    ) -> bool {
        let Self { destinations, ring } = self;
        let now = now_ms();
        let to = if !address.is_multicast() {
            let Some(peer) = destinations.peer(&address, now) else {
                return self.send_to_peer(dev, address, skb, now);
            };
            if let Kind::Small { .. } = kind {
                ring.number(&mut skb, &address, peer.sequence);
            }
            (peer.ah, address.qpn().get())
        } else if let Some(mgid) = destinations.group_of(&address) {
            let Some(ah) = destinations.group(&mgid, now) else {
                return self.send_to_group(dev, &mgid, skb, now);
            };
            (ah, MULTICAST_QPN)
        } else {
            ring.drop(dev, skb, DropReason::BadAddress);
            return false;
        };
        ring.send(dev, skb, kind, to);
        false
    }

    /// Sends to a peer that there is no usable path to yet. True as in [`Self::datagram`].
    #[cold]
    fn send_to_peer(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        skb: TxSkb,
        now: u64,
    ) -> bool {
        let Self { destinations, ring } = self;
        let all = destinations.waiting;
        let path = match destinations.path(address, now) {
            Ok(path) => path,
            Err(reason) => {
                ring.drop(dev, skb, reason);
                return false;
            }
        };
        let len = skb.len() as u32;
        let (first, wanted) = (path.waiting() == 0, path.is_wanted());
        match path.send(skb, len, all, now) {
            Verdict::Transmit(skb) => {
                let kept = transmit(dev, ring, path, &address, skb);
                // If it was wanted before, the next answer brings its turn.
                kept || (path.is_wanted() && !wanted)
            }
            Verdict::Queued => self.queued(dev, first),
            Verdict::Drop(skb, reason) => {
                ring.drop(dev, skb, reason);
                false
            }
        }
    }

    /// Sends to a group that is not joined yet. True as in [`Self::datagram`].
    #[cold]
    fn send_to_group(
        &mut self,
        dev: &Device<Interface>,
        mgid: &Mgid,
        skb: TxSkb,
        now: u64,
    ) -> bool {
        let (len, all) = (skb.len() as u32, self.destinations.waiting);
        match self.destinations.groups.send(mgid, skb, len, all, now) {
            Verdict::Transmit(skb) => {
                self.multicast(dev, mgid, skb);
                false
            }
            Verdict::Queued => self.queued(dev, true),
            Verdict::Drop(skb, reason) => {
                self.ring.drop(dev, skb, reason);
                false
            }
        }
    }

    /// Sends to a group that is joined.
    fn multicast(&mut self, dev: &Device<Interface>, mgid: &Mgid, skb: TxSkb) {
        match self.destinations.groups.handle(mgid) {
            Some(ah) => self.ring.send_waiting(dev, skb, (ah, MULTICAST_QPN)),
            None => self.ring.drop(dev, skb, DropReason::NoGroup),
        }
    }

    /// Counts a frame that waits. The work item is to be woken for the `first` one, and what was put on the ring before
    /// goes out, since the stack may have said that more follows.
    fn queued(&mut self, dev: &Device<Interface>, first: bool) -> bool {
        self.destinations.waiting += 1;
        self.ring.counters().tx.queued.add(1);
        self.ring.flush(dev);
        first
    }

    /// Does what needs no sleep and collects what does, until `jobs` is full. Returns when time alone brings
    /// more to do. Packets that waited may be too big for their paths: the caller answers them.
    pub(crate) fn advance(&mut self, dev: &Device<Interface>, now: u64, jobs: &mut Jobs) -> u64 {
        // Groups first: without the broadcast group there is no link.
        let groups = self.advance_groups(dev, now, jobs);
        let paths = self.advance_paths(dev, now, jobs);
        self.set_narrowest();
        self.ring.flush(dev);
        groups.min(paths)
    }

    fn advance_groups(&mut self, dev: &Device<Interface>, now: u64, jobs: &mut Jobs) -> u64 {
        let asks = dev.data().get_ref().port.is_infiniband();
        loop {
            let groups = &mut self.destinations.groups;
            let polled = if jobs.has_room_beside(asks) {
                groups.poll(now)
            } else {
                groups.poll_frames(now)
            };
            let Some((mgid, action)) = polled else {
                break;
            };
            match action {
                multicast::Action::Attach(kind, ticket) => {
                    self.destinations.trace_group(&mgid, "asked");
                    jobs.push(Job::Attach(mgid, kind, ticket), asks);
                }
                multicast::Action::Detach(kind, ah) => {
                    drop(ah);
                    self.destinations.trace_group(&mgid, "left");
                    jobs.push(Job::Detach(mgid, kind), asks);
                }
                multicast::Action::Transmit(skb) => {
                    self.destinations.waiting -= 1;
                    self.multicast(dev, &mgid, skb);
                }
                multicast::Action::Drop(skb, reason) => {
                    self.destinations.waiting -= 1;
                    self.ring.drop(dev, skb, reason);
                }
            }
        }
        self.destinations.groups.deadline().unwrap_or(u64::MAX)
    }

    fn advance_paths(&mut self, dev: &Device<Interface>, now: u64, jobs: &mut Jobs) -> u64 {
        let paths = &mut self.destinations.paths;
        self.destinations.in_use = 0;
        let (begin, end) = (self.destinations.turn.take().unwrap_or(0), paths.capacity());
        let [first, then] =
            [begin..end, 0..begin].map(|places| self.advance_places(dev, places, now, jobs));
        first.min(then)
    }

    /// Does so for the paths at some places of the table.
    fn advance_places(
        &mut self,
        dev: &Device<Interface>,
        mut places: Range<usize>,
        now: u64,
        jobs: &mut Jobs,
    ) -> u64 {
        let Self { destinations, ring } = self;
        let infiniband = dev.data().get_ref().port.is_infiniband();
        let open = destinations.may_resolve();
        let (paths, turn) = (&mut destinations.paths, &mut destinations.turn);
        let mut next = u64::MAX;
        while let Some(at) = paths.first_in(places.clone()) {
            places.start = at + 1;
            let Some((key, peer)) = paths.slot_mut(at) else {
                break;
            };
            let (key, path) = (*key, &mut peer.path);
            destinations.in_use += usize::from(path.is_in_use(now));
            follow_neighbour(dev, path);
            let asks = infiniband || Ah::asks_for(&key.gid().0);
            let mut over = false;
            while !over {
                // Frames of a path that has its answer do not wait for the questions of others.
                let action = if open && jobs.has_room(asks, path.handle().is_some()) {
                    path.poll(now)
                } else {
                    path.poll_unasked(open, now)
                };
                match action {
                    None => break,
                    Some(path::Action::Resolve(ticket)) => {
                        trace_path(dev, path, "asked");
                        jobs.push(Job::Resolve(key, ticket), asks);
                    }
                    Some(path::Action::Transmit(skb)) => {
                        destinations.waiting -= 1;
                        let _ = transmit(dev, ring, path, &key, skb);
                    }
                    Some(path::Action::Drop(skb, reason)) => {
                        destinations.waiting -= 1;
                        ring.drop(dev, skb, reason);
                    }
                    Some(path::Action::Release(ah)) => destinations.mtus.remove(path_mtu(&ah)),
                    Some(path::Action::Remove) => over = true,
                }
            }
            if open && !jobs.has_room(asks, path.handle().is_some()) && path.has_question() {
                turn.get_or_insert(at);
            }
            if over {
                trace_path(dev, path, "expired");
                paths.remove(&key);
                ring.counters().slow.paths_expired.add(1);
            } else {
                next = next.min(path.deadline());
            }
        }
        next
    }
}

/// Sends by a path that is resolved, and numbers what that takes. True: it takes no such frame, and the work item is to
/// answer that.
fn transmit(
    dev: &Device<Interface>,
    ring: &mut UdRing,
    path: &mut Path,
    address: &HwAddr,
    mut skb: TxSkb,
) -> bool {
    let Some(ah) = path.handle().cloned() else {
        ring.drop(dev, skb, DropReason::NoPath);
        return false;
    };
    let max = ring.max_along(&ah);
    if !is_within(&skb, max) {
        return ring.too_big(dev, skb, mtu::ip_mtu(max as u32));
    }
    if !skb.is_gso() {
        ring.number(&mut skb, address, path.sequence());
    }
    ring.send_waiting(dev, skb, (&ah, address.qpn().get()));
    false
}
