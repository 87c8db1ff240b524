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
use ipoib_proto::rc::{self, ExtendedMessage};
use ipoib_rdma::{QpKey, SrqRing};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::connections::Shared;
use crate::counters::{Connected, Counters};
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
    /// Messages that it may have on their way to us, if extended frames were agreed on.
    width: Option<u16>,
}

/// The receiving side of an interface's connections.
pub(crate) struct RcRx {
    ring: SrqRing,
    peers: Peers,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    /// How often there was nothing more to receive while somebody waited for that.
    times_empty: u64,
    /// Somebody waits for that.
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

    /// A connection's queue pair is in error.
    #[cold]
    fn failed(&self, key: QpKey, dev: &Device<Interface>) {
        if let (Some(peer), Some(tx)) = (self.find(key), dev.lock_tx().as_mut()) {
            tx.lane_failed(dev, &peer.rc.lane, now_ms());
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
    /// How often it has found nothing more, since it was asked that first.
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
                    width: extended.then_some(rc.width),
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
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        budget: usize,
        order: &mut Order,
        dev: &Device<Interface>,
    ) -> usize {
        let mut done = 0usize;
        while done < budget {
            let most = budget.wrapping_sub(done).min(SrqRing::BATCH);
            let n = self.ring.fetch(most);
            for i in 0..n {
                if let Err(reason) = self.receive(i, context, order, dev) {
                    self.counters.dropped(reason, 1);
                }
            }
            self.ring.post();
            done = done.wrapping_add(n);
            if n < most {
                break;
            }
        }
        if self.asked && done < budget {
            self.times_empty = self.times_empty.wrapping_add(1);
            self.asked = false;
        }
        if let Some(report) = self.ring.take_report() {
            self.counters.not_received(&report);
        }
        done
    }

    /// Checks what completion `i` has brought, and passes its packet up, if it has one.
    ///
    /// # Errors
    ///
    /// Why it is dropped.
    #[inline(always)]
    fn receive(
        &mut self,
        i: usize,
        context: &Context<'_>,
        order: &mut Order,
        dev: &Device<Interface>,
    ) -> Result<(), DropReason> {
        let peers = &self.peers;
        let Some(received) = self.ring.message(i, |qp| peers.failed(qp, dev)) else {
            return Ok(());
        };
        let peer = peers.find(received.qp).ok_or(DropReason::NoConnection)?;
        let connected = &self.counters.connected;
        let flow = &peer.rc.flow;
        let (head, len) = (received.head(), received.len());
        let is_extended = rc::is_extended(head, peer.width.is_some());
        if is_extended {
            if let Some(grant) = ExtendedMessage::new(head, len).ok().and_then(|m| m.alone()) {
                self.granted |= flow.granted(grant);
                return Ok(());
            }
        }
        // Whatever else it carries, and whatever is wrong with it, it has used room.
        self.news |= flow.note_received(peer.width);
        let (packet, description) = if is_extended {
            let message = ExtendedMessage::new(head, len)?;
            let found = if message.is_large() {
                large(head, len, connected)?
            } else {
                whole(&message, connected)?
            };
            self.granted |= flow.granted(message.grant());
            found
        } else {
            let packet = rc::parse(head, len)?;
            (
                packet,
                parts::Packet::new(packet.offset, packet.ether_type.0),
            )
        };
        let skb = match received.into_frame(context, &description) {
            Ok(skb) => skb,
            Err(EINVAL) => return Err(DropReason::BadExtended),
            Err(_) => return Err(DropReason::NoBuffer),
        };
        let octets = packet.len as u64;
        flow.rx_frames.add(1);
        flow.rx_bytes.add(octets);
        connected.rx_frames.add(1);
        connected.rx_bytes.add(octets);
        order.receive(context, Some(&peer.address), packet.reserved, skb);
        Ok(())
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

/// The packet behind an extended header, which is not to be segmented, and what the stack has to know
/// about it.
#[inline(always)]
fn whole(
    message: &ExtendedMessage<'_>,
    connected: &Connected,
) -> Result<(rc::Packet, parts::Packet), DropReason> {
    let packet = message.whole()?;
    let mut description = parts::Packet::new(packet.offset, packet.ether_type.0);
    if let Some(checksum) = message.checksum() {
        connected.rx_partial.add(1);
        description.set_partial(checksum.start, checksum.offset);
    }
    Ok((packet, description))
}

/// The same for one that is to be segmented.
#[inline(never)]
fn large(
    head: &[u8],
    len: usize,
    connected: &Connected,
) -> Result<(rc::Packet, parts::Packet), DropReason> {
    let (packet, extended) = ExtendedMessage::new(head, len)?.large()?;
    let mut description = parts::Packet::new(packet.offset, packet.ether_type.0);
    if let Some(checksum) = extended.checksum {
        connected.rx_partial.add(1);
        description.set_partial(checksum.start, checksum.offset);
    }
    if let Some(gso) = &extended.gso {
        connected.rx_large.add(1);
        description.set_gso(&parts::Gso {
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
    Ok((packet, description))
}
