// SPDX-License-Identifier: GPL-2.0

//! Receiving by connections: what the receive NAPI knows of each, and what it does with their messages.

use core::cell::Cell;

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, RawDevice};
use ipoib_netdev::napi::{Binding, Context};
use ipoib_netdev::parts;
use ipoib_netdev::skb;
use ipoib_proto::admission::{is_short, may_be_dry, DRY_MS, KEPT_MS};
use ipoib_proto::drop::DropReason;
use ipoib_proto::ending::Passes;
use ipoib_proto::extended::{self, PartialChecksum, TCP_V4_CHECKSUM};
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::rc::{self, ExtendedMessage};
use ipoib_proto::rx::source_in_subnet;
use ipoib_proto::turn;
use ipoib_rdma::{IntakeRing, QpKey, RcReceived};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::counters::{ConnectedRx, Counters};
use crate::base::interface::Interface;
use crate::base::link_header;
use crate::base::order::Order;
use crate::rc::conn::Conn;
use crate::rc::shared::Shared;
use crate::rc::table::MOST;

/// Buffers that are posted again together.
const POSTED_AT_ONCE: usize = 16;

/// The owner of the connections, who is told of those that fail.
pub(crate) trait Owner {
    /// The queue pair of a connection is in error.
    ///
    /// # Context
    ///
    /// Softirq.
    fn connection_failed(&self, rc: &Conn);

    /// The interface.
    fn device(&self) -> &Device<Interface>;
}

/// A connection that frames come by: one that the peer has asked for, or one of ours, since RFC 4755 lets the peer send by
/// that as well.
struct Peer {
    key: QpKey,
    rc: Arc<Conn>,
    /// Source of its datagrams.
    source: HwAddr,
    /// Extended frames were agreed on.
    extended: bool,
    /// The most messages that it may have in flight to us, if it knows credit; 0 if not.
    width: u16,
}

impl Peer {
    /// Counts a message that has used a buffer. If that makes a credit limit due, notes the connection.
    #[inline(always)]
    fn count_message(&self, due: &mut KVec<Arc<Conn>>) {
        if self.rc.flow.note_received(self.width) {
            self.note_due(due);
        }
    }

    /// Notes that a credit limit is due.
    #[cold]
    fn note_due(&self, due: &mut KVec<Arc<Conn>>) {
        // Called for each message until a limit is sent.
        if !due.iter().any(|rc| Arc::ptr_eq(rc, &self.rc)) {
            // There is room for as many as a poll takes messages.
            let _ = due.push_within_capacity(self.rc.clone());
        }
    }
}

/// The receiving side of an interface's connections.
pub(crate) struct RcRx {
    ring: IntakeRing,
    peers: Peers,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    /// When its buffers were made.
    since: u64,
    passes: Passes,
    /// A peer lets us send more, as this poll has found.
    credit: bool,
    /// Connections by which a credit limit is due, as this poll has found.
    due: KVec<Arc<Conn>>,
}

/// The connections in the order of their keys, and which of them had the last frame.
struct Peers {
    list: KVec<Peer>,
    last: Cell<usize>,
}

impl Peers {
    #[inline]
    fn find(&self, key: QpKey) -> Option<&Peer> {
        match self.list.get(self.last.get()) {
            Some(peer) if peer.key == key => Some(peer),
            _ => self.find_other(key),
        }
    }

    /// Reports that a connection's queue pair is in error.
    #[cold]
    fn failed(&self, key: QpKey, owner: &impl Owner) {
        if let Some(peer) = self.find(key) {
            owner.connection_failed(&peer.rc);
        }
    }

    #[inline(never)]
    fn find_other(&self, key: QpKey) -> Option<&Peer> {
        let at = self.list.binary_search_by_key(&key, |peer| peer.key).ok()?;
        self.last.set(at);
        self.list.get(at)
    }
}

/// State of a queue pair's remaining receives.
#[derive(Clone, Copy)]
pub(crate) struct Left {
    /// Passes through the completion queue that have ended ([`Passes`]).
    pub(crate) passes: u64,
    /// Buffers that it has of its own.
    pub(crate) held: u32,
}

impl RcRx {
    /// Without connections. It is too large for the stack of whoever makes a poll of it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline(never)]
    pub(crate) fn new(
        ring: IntakeRing,
        shared: Arc<Shared>,
        counters: Arc<Counters>,
    ) -> Result<KBox<Self>> {
        let peers = Peers {
            list: KVec::with_capacity(MOST, GFP_KERNEL)?,
            last: Cell::new(0),
        };
        Ok(KBox::new(
            Self {
                ring,
                peers,
                shared,
                counters,
                since: now_ms(),
                passes: Passes::NONE,
                credit: false,
                due: KVec::with_capacity(IntakeRing::BATCH, GFP_KERNEL)?,
            },
            GFP_KERNEL,
        )?)
    }

    /// Binds the buffers' pool to the NAPI instance, or unbinds it.
    pub(crate) fn bind_pool(&mut self, binding: &Binding<'_>) {
        self.ring.bind_pool(binding);
    }

    /// Takes no more of a queue pair's frames. Returns what [`Self::replaced_in`] does.
    pub(crate) fn forget(&mut self, key: QpKey) -> Option<u64> {
        let list = &mut self.peers.list;
        let before = list.len();
        list.retain(|peer| peer.key != key);
        if list.len() == before {
            return None;
        }
        self.ring.end(key);
        self.replaced_in()
    }

    /// If queue pairs that are gone may have taken all buffers with them, returns in how many milliseconds to ask again; 0 if
    /// the buffers are to be replaced.
    pub(crate) fn replaced_in(&mut self) -> Option<u64> {
        let kept = KEPT_MS.saturating_sub(now_ms().saturating_sub(self.since));
        let quiet = self.ring.is_quiet();
        let wait = if quiet { kept } else { kept.max(DRY_MS) };
        may_be_dry(self.ring.size(), self.ring.missing(), self.peers.list.len()).then_some(wait)
    }

    /// Returns what is left to receive of a queue pair.
    pub(crate) fn left(&mut self, key: QpKey) -> Left {
        Left {
            passes: self.passes.ask(),
            held: self.ring.held(key),
        }
    }

    /// Takes a connection's frames from now on, extended ones if that was agreed on. Datagrams of the peer come from
    /// `lid` if they have no GRH.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are too many connections, or they have all buffers; those of the device.
    pub(crate) fn learn(&mut self, rc: Arc<Conn>, lid: Option<u16>, extended: bool) -> Result {
        let qp = rc.qp().clone();
        let peer = rc.id.peer.with_flags(Flags::NONE);
        let peer = Peer {
            key: qp.key(),
            source: lid.map_or(peer, |lid| source_in_subnet(lid, peer.qpn())),
            extended,
            width: rc.window.width,
            rc,
        };
        let list = &mut self.peers.list;
        // None of them has the same key: what is listed is not destroyed.
        let at = list.partition_point(|other| other.key < peer.key);
        let listed = list.insert_within_capacity(at, peer);
        listed.map_err(|_| ENOSPC)?;
        self.ring.begin(&qp)
    }

    /// Copies the sources of frames that have a LID in place of their GID, each with that, as many as there is room for.
    pub(crate) fn note_gids(&self, gids: &mut KVVec<(HwAddr, Gid)>) {
        for peer in &self.peers.list {
            let gid = peer.rc.id.peer.gid();
            if peer.source.gid() != gid && gids.push_within_capacity((peer.source, gid)).is_err() {
                break;
            }
        }
    }

    /// Returns true if there may be something to receive, or somebody wants to know.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.ring.is_due() || self.passes.is_asked()
    }

    /// Receives up to `budget` messages, and says how much of that was used.
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        budget: usize,
        order: &mut Order,
        owner: &impl Owner,
    ) -> usize {
        let most = budget.min(IntakeRing::BATCH);
        let n = self.ring.fetch(most);
        self.counters.rx.completions.add(n as u64);
        order.set_alone(n == 1);
        for i in 0..n {
            self.receive(i, context, order, owner);
            // The room may have been advertised to the peers already.
            if i % POSTED_AT_ONCE == POSTED_AT_ONCE - 1 {
                self.ring.post();
            }
        }
        self.ring.post();
        if let Some(report) = self.ring.take_report() {
            self.counters.not_received(context.device(), &report);
            if report.refused > 0 {
                Interface::poll_later(owner.device());
            }
        }
        if let Some(qp) = self.ring.take_refused() {
            self.peers.failed(qp, owner);
        }
        if self.passes.is_asked() {
            let entries = self.ring.cq_entries();
            self.passes.polled(n as u32, n < most, entries);
        }
        turn::charge(budget, IntakeRing::BATCH, n)
    }

    /// Drops what was received and not polled, as the interface goes down: nothing is posted again.
    ///
    /// # Context
    ///
    /// Process context, without NAPI.
    pub(crate) fn drain(&mut self, dev: &RawDevice) {
        // No more than there are buffers, unless a queue pair cannot be stopped.
        for _ in 0..=self.ring.size() as usize / IntakeRing::BATCH {
            let n = self.ring.fetch(IntakeRing::BATCH);
            self.counters.rx.completions.add(n as u64);
            for i in 0..n {
                if let Some(message) = self.ring.message(i, |_| ()) {
                    let reason = DropReason::Stopped;
                    self.counters.dropped(dev, reason, 1, message.len());
                }
            }
            if n < IntakeRing::BATCH {
                break;
            }
        }
        if let Some(report) = self.ring.take_report() {
            self.counters.not_received(dev, &report);
        }
    }

    /// Receives what completion `i` has brought, or drops it.
    // Apart from the poll, which has too much in registers already.
    #[inline(never)]
    fn receive(&mut self, i: usize, context: &Context<'_>, order: &mut Order, owner: &impl Owner) {
        if let Err(reason) = self.take_in(i, context, order, owner) {
            self.counters.dropped(context.device(), reason, 1, 0);
        }
    }

    /// Checks what completion `i` has brought, and passes its packet up, if it has one.
    ///
    /// # Errors
    ///
    /// Why it is dropped.
    #[inline(always)]
    fn take_in(
        &mut self,
        i: usize,
        context: &Context<'_>,
        order: &mut Order,
        owner: &impl Owner,
    ) -> Result<(), DropReason> {
        let Self {
            ring,
            peers,
            counters,
            credit,
            due,
            ..
        } = self;
        let Some(received) = ring.message(i, |qp| peers.failed(qp, owner)) else {
            return Ok(());
        };
        let peer = peers.find(received.qp).ok_or(DropReason::BadCompletion)?;
        let counts = &counters.rc_rx;
        let fast = rc::parse_tcp_v4(received.head(), received.len());
        let (Some(packet), true) = (fast, peer.extended) else {
            return Arrival::new(received, peer, counts).receive_other(credit, due, context, order);
        };
        peer.count_message(due);
        let description = describe(&packet, Some(TCP_V4_CHECKSUM), counts);
        Arrival::new(received, peer, counts).pass_up(&packet, description, context, order)
    }

    /// Ends a poll. Returns true if the transmit side is to be served: frames wait and a peer has raised its limit, or a limit
    /// of ours is due.
    #[inline]
    pub(crate) fn take_news(&mut self) -> bool {
        if core::mem::take(&mut self.credit) {
            // Pairs with the barrier where a frame begins to wait: either that sees the credit, or we see
            // that it waits.
            smp_mb(Full);
            return !self.due.is_empty() || self.shared.is_stalled();
        }
        !self.due.is_empty()
    }

    /// Takes the connections by which a credit limit is due, and calls `grant` for each.
    pub(crate) fn take_due(&mut self, mut grant: impl FnMut(&Conn)) {
        self.due.drain_all().for_each(|rc| grant(&rc));
    }

    /// Returns true if frames wait for room or for credit.
    pub(crate) fn is_stalled(&self) -> bool {
        self.shared.is_stalled()
    }

    /// Returns true if its buffers may be replaced.
    fn is_old(&self) -> bool {
        now_ms().saturating_sub(self.since) >= KEPT_MS
    }

    /// Returns true if queue pairs have taken too many buffers with them, which are to be replaced.
    pub(crate) fn is_short(&self) -> bool {
        let (buffers, overtaken) = (self.ring.size(), self.ring.overtaken());
        let peers = self.peers.list.iter();
        let senders = peers.filter(|peer| peer.rc.id.origin.is_some());
        // Hardly ever any.
        overtaken > 0 && is_short(buffers, overtaken, senders.count()) && self.is_old()
    }
}

/// Describes a packet to the stack, with its partial checksum if it has one.
#[inline(always)]
fn describe(
    packet: &rc::Packet,
    checksum: Option<PartialChecksum>,
    counts: &ConnectedRx,
) -> parts::Packet {
    let description = parts::Packet::new(packet.offset, packet.ether_type.0);
    match checksum {
        Some(checksum) => {
            counts.partial.add(1);
            description.with_partial(checksum.start, checksum.offset)
        }
        None => description,
    }
}

/// A message that was received, and the connection that it came by.
struct Arrival<'a> {
    received: RcReceived<'a>,
    peer: &'a Peer,
    counts: &'a ConnectedRx,
}

impl<'a> Arrival<'a> {
    #[inline(always)]
    fn new(received: RcReceived<'a>, peer: &'a Peer, counts: &'a ConnectedRx) -> Self {
        Self {
            received,
            peer,
            counts,
        }
    }

    /// Makes an skb of a packet that was checked, and passes it up.
    ///
    /// # Errors
    ///
    /// Why it is dropped.
    #[inline(always)]
    fn pass_up(
        self,
        packet: &rc::Packet,
        description: parts::Packet,
        context: &Context<'_>,
        order: &mut Order,
    ) -> Result<(), DropReason> {
        let Self {
            received,
            peer,
            counts,
        } = self;
        let skb = match received.into_frame(context, description, &link_header(packet.ether_type)) {
            Ok(skb) => skb,
            Err(EINVAL) => return Err(DropReason::BadExtended),
            Err(_) => return Err(DropReason::NoBuffer),
        };
        let bytes = packet.len as u64;
        let flow = &peer.rc.flow;
        flow.received.frames.add(1);
        flow.received.bytes.add(bytes);
        counts.frames.add(1);
        counts.bytes.add(bytes);
        // A connection keeps the order by itself.
        order.pass_up(context, skb);
        Ok(())
    }

    /// Receives a message that is not like nearly all.
    ///
    /// # Errors
    ///
    /// Why it is dropped.
    #[inline(never)]
    fn receive_other(
        self,
        credit: &mut bool,
        due: &mut KVec<Arc<Conn>>,
        context: &Context<'_>,
        order: &mut Order,
    ) -> Result<(), DropReason> {
        let Self { peer, counts, .. } = self;
        let (head, len) = (self.received.head(), self.received.len());
        let extended =
            rc::is_extended(head, peer.extended).then(|| ExtendedMessage::new(head, len));
        // A peer that sends by the connection has none to advertise.
        let limit = extended.and_then(|m| m.ok()?.credit_only());
        if let Some(limit) = limit.filter(|_| peer.rc.id.origin.is_none()) {
            *credit |= peer.rc.flow.raise_credit_limit(limit);
            counts.grants.add(1);
            return Ok(());
        }
        // Whatever else it carries, and whatever is wrong with it, it has used room.
        peer.count_message(due);
        let (packet, description) = match extended {
            Some(message) => {
                let message = message?;
                let (packet, extended) = message.packet()?;
                let description = describe(&packet, extended.checksum, counts);
                match extended.gso {
                    Some(gso) => (packet, describe_large(description, &gso, counts)),
                    None => (packet, description),
                }
            }
            None => {
                let packet = rc::parse(head, len)?;
                (packet, describe(&packet, None, counts))
            }
        };
        self.pass_up(&packet, description, context, order)
    }
}

/// Describes a packet that is to be segmented.
fn describe_large(
    description: parts::Packet,
    gso: &extended::Gso,
    counts: &ConnectedRx,
) -> parts::Packet {
    counts.large.add(1);
    description.with_gso(&skb::Gso {
        kind: match gso.kind {
            extended::GsoKind::TcpV4 => skb::GsoKind::TcpV4,
            extended::GsoKind::TcpV6 => skb::GsoKind::TcpV6,
            extended::GsoKind::Udp => skb::GsoKind::Udp,
        },
        ecn: gso.ecn,
        size: gso.size,
        segments: gso.segments,
    })
}
