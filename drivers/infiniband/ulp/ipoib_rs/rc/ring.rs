// SPDX-License-Identifier: GPL-2.0

//! Putting frames on a connection: in which form, and what waits when there is no room.

use ipoib_netdev::device::Device;
use ipoib_netdev::skb::{self, GsoKind, TxSkb};
use ipoib_proto::drop::DropReason;
use ipoib_proto::extended::{self, Extended, ExtendedHeader, Gso, PartialChecksum};
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::rc::{self, EXTENDED_HEADERS};
use ipoib_proto::seq::Sequence;
use ipoib_rdma::RcSender;
use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::counters::{Connected, Counters};
use crate::base::ADDR_LEN;
use crate::ctl::netdev::{Interface, CONNECT};
use crate::data::tx::{refusal, Line};
use crate::rc::conn::{Rc, Terms};
use crate::rc::table::{Connections, Entry, Shared};

/// How long until what a peer may send is said once more, if there was no memory for it, in milliseconds.
const RETRY_MS: u32 = 10;

/// What became of a frame that was to go by a connection.
pub(crate) enum Fate {
    /// It is in the backlog, or was dropped and counted.
    Queued,
    /// It is on the ring, or was dropped and counted. True: the ring is to be flushed, since the stack hands
    /// over no other at once.
    Sent(bool),
    /// The peer wants it segmented. It begins as the stack gave it.
    Segment(TxSkb),
    /// The peer takes no packet of more than so many octets.
    TooBig(TxSkb, u32),
}

/// The producing half of the ring that connections send by, with its accounting.
pub(crate) struct RcLine {
    pub(crate) sender: RcSender,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
}

impl RcLine {
    /// Puts it together.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(sender: RcSender, counters: Arc<Counters>) -> Result<Self> {
        Ok(Self {
            sender,
            shared: Arc::new(Shared::new(), GFP_KERNEL)?,
            counters,
        })
    }

    /// What the NAPIs look at.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn counters(&self) -> &Connected {
        &self.counters.connected
    }

    /// Whether one more message can go by the connection of an entry.
    #[inline(always)]
    pub(crate) fn has_room(&self, entry: &Entry) -> bool {
        match entry.machine.present() {
            Some(rc) => entry.may_send(rc) && self.sender.has_share(&rc.lane),
            None => false,
        }
    }

    /// Whether a frame can go by the connection of an entry at once.
    #[inline(always)]
    pub(crate) fn is_free(&self, entry: &Entry) -> bool {
        entry.backlog.is_empty() && self.has_room(entry)
    }

    /// Sends a frame by the connection of an entry, or lets it wait. What is on the ring is to be flushed
    /// afterwards.
    pub(crate) fn send(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        entry: &mut Entry,
        sequence: Option<&mut Sequence>,
        skb: TxSkb,
        now: u64,
    ) -> Fate {
        if !self.is_free(entry) {
            // What cannot go whole does not wait whole: its segments would come out behind it.
            if skb.is_gso() && extended_header(&entry.terms, &skb).is_err() {
                return Fate::Segment(skb);
            }
            return self.wait(dev, line, entry, skb, now);
        }
        self.send_now(dev, line, entry, sequence, skb)
    }

    /// Lets a frame wait until there is room.
    #[cold]
    fn wait(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        entry: &mut Entry,
        mut skb: TxSkb,
        now: u64,
    ) -> Fate {
        self.counters().credit_stalls.add(1);
        if skb.pull(ADDR_LEN).is_err() {
            line.drop(dev, skb, DropReason::Runt);
            return Fate::Queued;
        }
        if entry.backlog.is_empty() {
            // It looks when that has lasted too long.
            dev.queue_task(CONNECT, 0);
        }
        if let Err(skb) = entry.backlog.push(skb) {
            line.drop(dev, skb, DropReason::QueueFull);
        }
        if entry.begin_stop(now) && !self.shared.blocked.load(Relaxed) {
            self.shared.blocked.store(true, Relaxed);
            dev.stop_queue();
            line.counters().tx.stops.add(1);
        }
        self.shared.stalled.store(true, Relaxed);
        // Pairs with the barriers in the NAPIs: either they see that somebody waits, or we see what they
        // have brought.
        smp_mb(Full);
        if self.has_room(entry) {
            // The work item will look after it; this is as rare as it gets.
            dev.queue_task(CONNECT, 0);
        }
        Fate::Queued
    }

    /// Sends a frame, as the stack gave it, by the connection of an entry, which has room. What is on the
    /// ring is to be flushed afterwards.
    #[inline(never)]
    pub(crate) fn send_now(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        entry: &mut Entry,
        sequence: Option<&mut Sequence>,
        mut skb: TxSkb,
    ) -> Fate {
        match extended_header(&entry.terms, &skb) {
            Ok(header) => Fate::Sent(self.send_extended(dev, line, entry, sequence, skb, header)),
            Err(Unfit::Segment) => Fate::Segment(skb),
            Err(Unfit::TooBig) => {
                let _ = skb.pull(ADDR_LEN);
                Fate::TooBig(skb, entry.terms.mtu)
            }
            Err(Unfit::Plain) => Fate::Sent(self.send_plain(dev, line, entry, sequence, skb)),
        }
    }

    /// Sends a frame, as the stack gave it, with an extended header by the connection of an entry, which has
    /// room. True: the stack hands over no other at once, so that the ring is to be flushed.
    // For every frame; left to itself, the compiler calls it.
    #[inline(always)]
    pub(crate) fn send_extended(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        entry: &mut Entry,
        sequence: Option<&mut Sequence>,
        mut skb: TxSkb,
        header: ExtendedHeader,
    ) -> bool {
        let Entry {
            address,
            machine,
            sent,
            ..
        } = entry;
        let Some(rc) = machine.present() else {
            return self.unsent(dev, line, skb, DropReason::Flushed);
        };
        let connected = &self.counters.connected;
        connected.tx.partial.add(1);
        if skb.is_gso() {
            connected.tx.large.add(1);
        }
        let header = header.with_credit_limit(rc.flow.advertise(rc.width));
        let headers = rc::extended_headers(number(line, address, sequence), header);
        let front = ADDR_LEN + Header::LEN - EXTENDED_HEADERS;
        if skb.overwrite(front, &headers).is_err() {
            rc.flow.readvertise();
            return self.unsent(dev, line, skb, DropReason::NoMemory);
        }
        self.post(dev, line, rc, sent, skb)
    }

    /// The same without one, as RFC 4391 has it.
    fn send_plain(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        entry: &mut Entry,
        sequence: Option<&mut Sequence>,
        mut skb: TxSkb,
    ) -> bool {
        let Some(rc) = entry.machine.present() else {
            return self.unsent(dev, line, skb, DropReason::Flushed);
        };
        // Only what can be sent gets a number.
        let framed = skb
            .checksum_help()
            .and_then(|()| skb.pull(ADDR_LEN))
            .and_then(|()| line.set_number(&mut skb, number(line, &entry.address, sequence)));
        if framed.is_err() {
            return self.unsent(dev, line, skb, DropReason::NoMemory);
        }
        self.post(dev, line, rc, &mut entry.sent, skb)
    }

    /// Puts a frame with its headers on the ring, or drops it, with the credit limit in it due again. True
    /// as in [`Self::send_extended`].
    #[inline(always)]
    fn post(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        rc: &Rc,
        sent: &mut u16,
        skb: TxSkb,
    ) -> bool {
        let len = skb.len() as u32;
        let charged = match self.sender.post(skb, &rc.lane) {
            Ok(charged) => charged,
            Err((skb, error)) => {
                rc.flow.readvertise();
                return self.unsent(dev, line, skb, refusal(error));
            }
        };
        let connected = &self.counters.connected;
        let octets = u64::from(len.wrapping_sub(Header::LEN as u32));
        rc.flow.sent.frames.add(1);
        rc.flow.sent.bytes.add(octets);
        connected.tx.frames.add(1);
        connected.tx.bytes.add(octets);
        *sent = sent.wrapping_add(1);
        let is_last = if charged {
            dev.sent(len)
        } else {
            !dev.more_follows()
        };
        if self.sender.chain_full() {
            self.flush(dev, line);
        }
        is_last
    }

    /// Drops a frame that did not get on the ring, and says that nothing is to be flushed: what is on the
    /// rings goes out now, since the stack may have said that more follows.
    #[cold]
    fn unsent(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        skb: TxSkb,
        reason: DropReason,
    ) -> bool {
        self.flush(dev, line);
        line.drop(dev, skb, reason);
        false
    }

    /// Tells the peer of an entry what it may send, if nothing else did so for long.
    pub(crate) fn advertise(&mut self, dev: &Device<Interface>, entry: &Entry) {
        let Some(rc) = entry.machine.present() else {
            return;
        };
        if !entry.machine.is_up() || !entry.terms.extended || !rc.flow.is_due(rc.width) {
            return;
        }
        let sender = &mut self.sender;
        let skb = if sender.takes(&rc.lane) {
            // Told before it is certain: if it is not sent, the next news are not far.
            TxSkb::new(&rc::credit_only(rc.flow.advertise(rc.width)))
        } else {
            Err(EBUSY)
        };
        let sent = skb.and_then(|skb| {
            let len = skb.len() as u32;
            match sender.post(skb, &rc.lane) {
                Ok(charged) => {
                    if charged {
                        dev.sent(len);
                    }
                    Ok(())
                }
                Err((_, error)) => Err(error),
            }
        });
        if sent.is_err() {
            // The peer may be waiting for it.
            rc.flow.readvertise();
            self.shared.stalled.store(true, Relaxed);
            // As in `wait`: if there is no room, there will be a completion.
            smp_mb(Full);
            if self.sender.takes(&rc.lane) {
                dev.queue_task(CONNECT, RETRY_MS);
            }
        } else {
            self.counters().grants.add(1);
        }
    }

    /// Hands what is on the ring to the device.
    #[inline]
    pub(crate) fn flush(&mut self, dev: &Device<Interface>, line: &mut Line) {
        if self.sender.flush() {
            line.counters().tx.doorbells.add(1);
        }
        let refused = self.sender.take_refused();
        if refused > 0 {
            Self::refused(dev, line, refused);
        }
    }

    #[cold]
    fn refused(dev: &Device<Interface>, line: &mut Line, frames: u32) {
        line.counters()
            .dropped(DropReason::PostFailed, u64::from(frames));
        line.wake_completions();
        // The connection ends by the work item, since our caller is still busy with it.
        dev.queue_task(CONNECT, 0);
    }
}

impl Connections {
    /// Notes for which connections the stack's queue is to stay stopped. Says whether there is one.
    pub(crate) fn update_stops(&mut self, now: u64) -> bool {
        // Each of them is to look.
        let entries = self.entries.iter_mut().flatten();
        entries
            .filter_map(|entry| entry.update_stop(now).then_some(()))
            .count()
            > 0
    }
}

/// Why a frame goes without an extended header.
enum Unfit {
    /// It goes as RFC 4391 has it, with its checksum.
    Plain,
    /// The peer wants it segmented.
    Segment,
    /// The peer takes no packet of its length.
    TooBig,
}

/// The number that a frame for a peer gets; 0 if it gets none.
#[inline(always)]
fn number(line: &Line, peer: &HwAddr, sequence: Option<&mut Sequence>) -> u16 {
    match sequence {
        Some(sequence) if line.numbers(peer) => sequence.take().get(),
        _ => 0,
    }
}

/// The extended header of a frame like nearly all: TCP over IPv4 without options, which is not to be
/// segmented, and has its checksum computed by nobody. None: see [`extended_header`], which finds the same
/// for one that is.
#[inline(always)]
pub(crate) fn tcp_v4_header(terms: &Terms, skb: &TxSkb) -> Option<ExtendedHeader> {
    const FRONT: usize = ADDR_LEN + Header::LEN;
    let packet = skb.len().checked_sub(FRONT)?;
    let start = FRONT + extended::TCP_V4_CHECKSUM.start as usize;
    if skb.is_gso()
        || packet > terms.mtu as usize
        || !terms.icrc
        || !skb.has_partial_checksum(start, extended::TCP_V4_CHECKSUM.offset)
    {
        return None;
    }
    let (front, head) = skb.linear().split_first_chunk::<FRONT>()?;
    let [.., t0, t1, _, _] = *front;
    if EtherType(u16::from_be_bytes([t0, t1])) != EtherType::IPV4 {
        return None;
    }
    ExtendedHeader::for_tcp_v4(head, packet)
}

/// The extended header with which a frame goes to a peer.
///
/// # Errors
///
/// Why it goes without one.
fn extended_header(terms: &Terms, skb: &TxSkb) -> Result<ExtendedHeader, Unfit> {
    let packet = skb.len().saturating_sub(ADDR_LEN + Header::LEN);
    if let Some(gso) = skb.gso() {
        return large_header(terms, skb, packet, gso);
    }
    if packet > terms.mtu as usize {
        return Err(Unfit::TooBig);
    }
    if !terms.icrc {
        return Err(Unfit::Plain);
    }
    let (ether_type, checksum, head) = describe(skb).ok_or(Unfit::Plain)?;
    let extended = Extended {
        ether_type,
        checksum: Some(checksum),
        gso: None,
    };
    extended.encode(head, packet).map_err(|_| Unfit::Plain)
}

/// The same for a frame of several segments.
fn large_header(
    terms: &Terms,
    skb: &TxSkb,
    packet: usize,
    gso: skb::GsoInfo,
) -> Result<ExtendedHeader, Unfit> {
    // Pieces that are too many for one request would be joined, in one block of 64 KiB.
    if !terms.icrc || packet > terms.max_large as usize || gso.pieces > terms.max_pieces {
        return Err(Unfit::Segment);
    }
    let kind = match gso.kind {
        GsoKind::TcpV4 => extended::GsoKind::TcpV4,
        GsoKind::TcpV6 => extended::GsoKind::TcpV6,
        GsoKind::UdpL4 => extended::GsoKind::Udp,
        GsoKind::Other => return Err(Unfit::Segment),
    };
    let gso = Gso {
        kind,
        ecn: gso.ecn,
        size: gso.size,
        segments: gso.segments,
    };
    let (ether_type, checksum, head) = describe(skb).ok_or(Unfit::Segment)?;
    let extended = Extended {
        ether_type,
        checksum: Some(checksum),
        gso: Some(gso),
    };
    extended.encode(head, packet).map_err(|_| Unfit::Segment)
}

/// What an extended header is made of: the packet's type, its checksum, which is to be computed, and its
/// part in the head.
fn describe(skb: &TxSkb) -> Option<(EtherType, PartialChecksum, &[u8])> {
    let partial = skb.partial_checksum(ADDR_LEN + Header::LEN)?;
    let head = skb.linear().get(ADDR_LEN..)?;
    let (wire, head) = head.split_first_chunk::<{ Header::LEN }>()?;
    let ether_type = EtherType(u16::from_be_bytes([wire[0], wire[1]]));
    let checksum = PartialChecksum {
        start: partial.start,
        offset: partial.offset,
    };
    Some((ether_type, checksum, head))
}
