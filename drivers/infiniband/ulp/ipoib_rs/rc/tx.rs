// SPDX-License-Identifier: GPL-2.0

//! Sending by a connection: the table of peers, the ring, and the way from one to the other.

use ipoib_netdev::device::Device;
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::drop::DropReason;
use ipoib_proto::extended::ExtendedHeader;
use ipoib_proto::header::Header;
use ipoib_proto::rc::{self, EXTENDED_HEADERS};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::ADDR_LEN;
use crate::rc::channel::Channel;
use crate::rc::conn::Conn;
use crate::rc::form::{extended_header, Unfit};
use crate::rc::ring::RcRing;
use crate::rc::table::Connections;
use crate::ud::ring::UdRing;

/// Fate of a frame that was to go by a connection.
pub(crate) enum Fate {
    /// The frame is in the backlog, or was dropped and counted. True: the work item is to look after it.
    Queued(bool),
    /// The frame is on the ring, or was dropped and counted. True: the ring is to be flushed, as
    /// [`Route::send_extended`] says.
    Sent(bool),
    /// The peer wants it segmented. It begins as the stack gave it.
    Segment(TxSkb),
    /// The peer takes no packet of more than so many bytes.
    TooBig(TxSkb, u32),
}

/// The connected half of a transmit queue, which the transmit lock protects.
pub(crate) struct RcTx {
    pub(crate) connections: Connections,
    pub(crate) ring: RcRing,
}

impl RcTx {
    /// Drops what waits and what the device does not have yet. Returns the connections.
    pub(crate) fn close(mut self, dev: &Device<Interface>) -> KVec<Arc<Conn>> {
        self.ring.close(dev);
        self.connections.into_all(dev)
    }
}

/// The way of a frame by a channel. The ring of datagrams is there for what is dropped, since
/// one burst may go by both.
pub(crate) struct Route<'a> {
    pub(crate) channel: &'a mut Channel,
    pub(crate) ring: &'a mut RcRing,
    pub(crate) ud: &'a mut UdRing,
}

impl Route<'_> {
    /// Moves it to a `Route` of its own, so that calls that take its address do not force the original into memory.
    #[inline(always)]
    pub(crate) fn apart(self) -> Self {
        let Self { channel, ring, ud } = self;
        Route { channel, ring, ud }
    }

    /// Returns true if a frame can go at once.
    #[inline(always)]
    pub(crate) fn is_free(&mut self) -> bool {
        self.ring.is_free(self.channel)
    }

    /// Sends a frame, or lets it wait. What is on the ring is to be flushed afterwards.
    pub(crate) fn send(&mut self, dev: &Device<Interface>, skb: TxSkb, now: u64) -> Fate {
        if !self.is_free() {
            // What cannot go whole does not wait whole: its segments would come out behind it.
            if skb.is_gso() && extended_header(&self.channel.terms, &skb).is_err() {
                return Fate::Segment(skb);
            }
            return self.wait(dev, skb, now);
        }
        self.send_now(dev, skb)
    }

    /// Lets a frame wait until there is room.
    #[cold]
    fn wait(&mut self, dev: &Device<Interface>, skb: TxSkb, now: u64) -> Fate {
        let Self {
            channel, ring, ud, ..
        } = self;
        ring.counters().credit_stalls.add(1);
        let first = keep_waiting(dev, channel, ud, skb);
        if channel.begin_stop(now) {
            if ring.shared.begin_block() {
                ud.counters().tx.stops.add(1);
                // Pairs with the barrier in `TxPoll::poll`, which may be about to start the queue.
                smp_mb(Full);
            }
            // Room on the ring of datagrams may have started it since.
            dev.stop_queue();
        }
        if ring.shared.begin_stall() {
            // The poll may rest, and there is no room for this frame meanwhile.
            ud.wake_completions();
        }
        // Pairs with the barriers in the NAPIs: either they see that somebody waits, or we see what they
        // have brought.
        smp_mb(Full);
        // That there is room is as rare as it gets.
        Fate::Queued(first || ring.has_room(channel))
    }

    /// Sends a frame, as the stack gave it, while there is room. What is on the ring is to be flushed
    /// afterwards.
    #[inline(never)]
    pub(crate) fn send_now(&mut self, dev: &Device<Interface>, mut skb: TxSkb) -> Fate {
        match extended_header(&self.channel.terms, &skb) {
            Ok(header) => {
                if skb.is_gso() {
                    self.ring.counters().large.add(1);
                }
                Fate::Sent(self.send_extended(dev, skb, header))
            }
            Err(Unfit::Segment) => Fate::Segment(skb),
            Err(Unfit::TooBig) => {
                let _ = skb.pull(ADDR_LEN);
                Fate::TooBig(skb, self.channel.terms.mtu)
            }
            Err(Unfit::Plain) => Fate::Sent(self.send_plain(dev, skb)),
        }
    }

    /// Sends a frame, as the stack gave it, with an extended header, or in the compact form of that, while there is room.
    /// True: the ring is to be flushed, since the stack hands over no other at once, or the frame was dropped.
    // For every frame; left to itself, the compiler calls it.
    #[inline(always)]
    pub(crate) fn send_extended(
        &mut self,
        dev: &Device<Interface>,
        mut skb: TxSkb,
        header: ExtendedHeader,
    ) -> bool {
        let Some(rc) = self.channel.machine.present() else {
            return unsent(self.ud, dev, skb, DropReason::Flushed);
        };
        let counters = self.ring.counters();
        counters.partial.add(1);
        let written = if let Some(ether_type) = header.compact() {
            skb.overwrite(ADDR_LEN, &Header::new(ether_type).to_bytes())
        } else {
            let front = ADDR_LEN + Header::LEN - EXTENDED_HEADERS;
            skb.overwrite(front, &rc::extended_headers(header))
        };
        if written.is_err() {
            return unsent(self.ud, dev, skb, DropReason::NoMemory);
        }
        let posted = self.ring.post(dev, rc, skb);
        self.posted(dev, posted)
    }

    /// Sends a frame without an extended header, as RFC 4391 has it.
    fn send_plain(&mut self, dev: &Device<Interface>, mut skb: TxSkb) -> bool {
        let Some(rc) = self.channel.machine.present() else {
            return unsent(self.ud, dev, skb, DropReason::Flushed);
        };
        let framed = skb.checksum_help().and_then(|()| skb.pull(ADDR_LEN));
        if framed.is_err() {
            return unsent(self.ud, dev, skb, DropReason::NoMemory);
        }
        let posted = self.ring.post(dev, rc, skb);
        self.posted(dev, posted)
    }

    /// Counts a frame that is on the ring, or drops it. True as in [`Self::send_extended`].
    #[inline(always)]
    fn posted(
        &mut self,
        dev: &Device<Interface>,
        posted: Result<bool, (TxSkb, DropReason)>,
    ) -> bool {
        let is_last = match posted {
            Ok(is_last) => is_last,
            Err((skb, reason)) => return unsent(self.ud, dev, skb, reason),
        };
        self.channel.sent = self.channel.sent.wrapping_add(1);
        if self.ring.sender.chain_full() {
            self.ring.make_room();
        }
        is_last
    }
}

/// Drops a frame that did not get on the ring, and says that the ring is to be flushed: of what is on it the stack may
/// have said that more follows.
#[cold]
#[inline(never)]
fn unsent(ud: &mut UdRing, dev: &Device<Interface>, skb: TxSkb, reason: DropReason) -> bool {
    ud.drop(dev, skb, reason);
    true
}

/// Has a frame, as the stack gave it, wait in a channel's backlog. True: it is the first one, and the work item is to look
/// when that has lasted too long.
#[must_use]
pub(crate) fn keep_waiting(
    dev: &Device<Interface>,
    channel: &mut Channel,
    ud: &mut UdRing,
    mut skb: TxSkb,
) -> bool {
    if skb.pull(ADDR_LEN).is_err() {
        ud.drop(dev, skb, DropReason::Runt);
        return false;
    }
    let first = channel.backlog.is_empty();
    if let Err(skb) = channel.backlog.push(skb) {
        ud.drop(dev, skb, DropReason::QueueFull);
    }
    first
}
