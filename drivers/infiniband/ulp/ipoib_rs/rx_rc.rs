// SPDX-License-Identifier: GPL-2.0

//! Receiving by connections: what the receive NAPI knows of each, and what it does with their messages.

use core::cell::Cell;

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::napi::Context;
use ipoib_netdev::parts;
use ipoib_proto::drop::DropReason;
use ipoib_proto::extended;
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::rc;
use ipoib_rdma::{QpKey, RcOutcome, RcReceived, SrqRing};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::connections::Shared;
use crate::counters::Counters;
use crate::interface::Interface;
use crate::order::Order;
use crate::rc::Rc;

/// The most connections that there can be at a time, those that are ending included.
const PEERS: usize = 512;

/// A connection that frames come by.
struct Peer {
    key: QpKey,
    rc: Arc<Rc>,
    address: HwAddr,
    /// Extended frames were agreed on.
    extended: bool,
}

impl Peer {
    /// Takes note of a message of `len` octets, which begins with `head`; its packet.
    ///
    /// # Errors
    ///
    /// None if there is no packet; the reason if it is to be dropped.
    #[inline]
    fn note(
        &self,
        head: &[u8],
        len: usize,
        granted: &mut bool,
        news: &mut bool,
    ) -> Result<rc::Packet, Option<DropReason>> {
        let flow = &self.rc.flow;
        let packet = match rc::parse(head, len, self.extended) {
            Ok(message) => {
                if message.grant.is_some_and(|grant| flow.granted(grant)) {
                    *granted = true;
                }
                Ok(message.packet.ok_or(None)?)
            }
            Err(reason) => Err(Some(reason)),
        };
        // Whatever it carries, it has used room. The first one confirms the connection, and every so often
        // the peer has to be told that there is room again.
        if flow.note_received() || (self.extended && flow.is_due(self.rc.width)) {
            *news = true;
        }
        packet
    }
}

/// The receiving side of an interface's connections.
pub(crate) struct RcRx {
    ring: SrqRing,
    peers: Peers,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    /// How often there was nothing to receive.
    times_empty: u64,
    /// Somebody waits for that to happen.
    asked: bool,
    /// A peer lets us send more.
    granted: bool,
    /// Something has to be done under the transmit lock when the poll ends.
    news: bool,
}

/// The connections, and which of them had the last frame.
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

    #[inline(never)]
    fn find_other(&self, key: QpKey) -> Option<&Peer> {
        let at = self.list.iter().position(|peer| peer.key == key)?;
        self.last.set(at);
        self.list.get(at)
    }
}

/// What others ask the receive poll about connections.
pub(crate) enum Ask {
    /// To take a connection's frames from now on; and whether that worked.
    Learn(Option<Arc<Rc>>, bool, Result),
    /// To take them no more.
    Forget(QpKey),
    /// How often it has found nothing.
    TimesEmpty(Option<u64>),
}

impl RcRx {
    /// Without connections.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(ring: SrqRing, shared: Arc<Shared>, counters: Arc<Counters>) -> Result<Self> {
        Ok(Self {
            ring,
            peers: Peers {
                list: KVec::with_capacity(PEERS, GFP_KERNEL)?,
                last: Cell::new(0),
            },
            shared,
            counters,
            times_empty: 0,
            asked: false,
            granted: false,
            news: false,
        })
    }

    /// Answers.
    pub(crate) fn answer(&mut self, ask: &mut Ask) {
        match ask {
            Ask::Learn(rc, extended, result) => {
                let Some(rc) = rc.take() else { return };
                let peer = Peer {
                    key: rc.qp().key(),
                    address: rc.caller.peer.with_flags(Flags::NONE),
                    extended: *extended,
                    rc,
                };
                *result = self
                    .peers
                    .list
                    .push_within_capacity(peer)
                    .map_err(|_| ENOSPC);
            }
            Ask::Forget(key) => self.peers.list.retain(|peer| peer.key != *key),
            Ask::TimesEmpty(times) => {
                *times = Some(self.times_empty);
                self.asked = true;
            }
        }
    }

    /// Whether there may be something to receive, or somebody wants to know.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.ring.is_due() || self.asked
    }

    /// Receives up to `budget` messages, and says how many there were.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        budget: usize,
        order: &mut Order,
        dev: &Device<Interface>,
    ) -> usize {
        let Self {
            ring,
            peers,
            counters,
            granted,
            news,
            ..
        } = self;
        let (mut frames, mut bytes) = (0u64, 0u64);
        let report = ring.poll(budget, |outcome| match outcome {
            RcOutcome::Received(received) => {
                let Some(peer) = peers.find(received.qp) else {
                    return counters.dropped(DropReason::NoConnection, 1);
                };
                match receive(context, counters, peer, received, order, granted, news) {
                    Ok(len) => {
                        // Neither can overflow within one poll.
                        frames = frames.wrapping_add(1);
                        bytes = bytes.wrapping_add(len as u64);
                    }
                    Err(None) => {}
                    Err(Some(reason)) => counters.dropped(reason, 1),
                }
            }
            RcOutcome::Lost { qp, len, head } => {
                if let Some(peer) = peers.find(qp) {
                    // The ring has counted what is dropped.
                    let _ = peer.note(head, len, granted, news);
                }
            }
            RcOutcome::Failed(qp) => {
                let peer = peers.find(qp);
                if let (Some(peer), Some(tx)) = (peer, dev.lock_tx().as_mut()) {
                    tx.lane_failed(dev, &peer.rc.lane, now_ms());
                }
            }
        });
        if report.done < budget {
            self.times_empty = self.times_empty.wrapping_add(1);
            self.asked = false;
        }
        if report.done > 0 {
            let connected = &self.counters.connected;
            connected.rx_frames.add(frames);
            connected.rx_bytes.add(bytes);
        }
        if !report.is_clean() {
            self.counters.not_received(&report);
        }
        report.done
    }

    /// The poll ends: does what needs the transmit lock, if anything does.
    #[inline]
    pub(crate) fn end(&mut self, dev: &Device<Interface>) {
        if core::mem::take(&mut self.granted) {
            // Pairs with the barrier where a frame begins to wait: either that sees the grant, or we see
            // that it waits.
            smp_mb(Full);
            self.news |= self.shared.is_stalled();
        }
        if self.news {
            self.tell(dev);
        }
    }

    #[cold]
    fn tell(&mut self, dev: &Device<Interface>) {
        self.news = false;
        if let Some(tx) = dev.lock_tx().as_mut() {
            tx.service(dev);
        }
        if self.ring.overtaken() > self.ring.size() as usize / 4 {
            // Queue pairs have taken too many buffers with them.
            Interface::restart_soon(dev);
        }
    }
}

/// Checks a message and passes its packet up; says how long that is.
///
/// # Errors
///
/// None if there is no packet; the reason if it is dropped.
#[inline]
fn receive(
    context: &Context<'_>,
    counters: &Counters,
    peer: &Peer,
    received: RcReceived,
    order: &mut Order,
    granted: &mut bool,
    news: &mut bool,
) -> Result<usize, Option<DropReason>> {
    let rc = &peer.rc;
    let packet = peer.note(received.head(), received.len(), granted, news)?;
    let description = describe(&packet, &counters.connected);
    let skb = received
        .into_frame(context, &description)
        .map_err(|_| Some(DropReason::NoBuffer))?;
    rc.flow.rx_frames.add(1);
    rc.flow.rx_bytes.add(packet.len as u64);
    order.receive(context, Some(&peer.address), packet.reserved, skb);
    Ok(packet.len)
}

/// What the stack has to know about a packet.
#[inline]
fn describe(packet: &rc::Packet, counters: &crate::counters::Connected) -> parts::Packet {
    let mut description = parts::Packet {
        strip: packet.offset,
        protocol: packet.ether_type.0,
        checksum: parts::Checksum::Unverified,
        gso: None,
    };
    let Some(extended) = packet.extended else {
        return description;
    };
    if let Some(checksum) = extended.checksum {
        counters.rx_partial.add(1);
        description.checksum = parts::Checksum::Partial {
            start: checksum.start,
            offset: checksum.offset,
        };
    }
    if let Some(gso) = extended.gso {
        counters.rx_large.add(1);
        description.gso = Some(parts::Gso {
            kind: match gso.kind {
                extended::GsoKind::TcpV4 => parts::GsoKind::TcpV4,
                extended::GsoKind::TcpV6 => parts::GsoKind::TcpV6,
                extended::GsoKind::Udp => parts::GsoKind::Udp,
            },
            ecn: gso.ecn,
            size: gso.size,
            segments: gso.segments,
        });
    }
    description
}
