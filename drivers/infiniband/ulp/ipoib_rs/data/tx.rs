// SPDX-License-Identifier: GPL-2.0

//! Sending: from `ndo_start_xmit` to the doorbell.
//!
//! [`Tx`] is what the transmit lock protects. The stack holds that lock when it hands over a frame,
//! so that nothing else is taken on the hot path: the tables of destinations ([`crate::ud::paths`]) and
//! the send ring's producing half belong to the lock too.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, Taken};
use ipoib_netdev::napi::Handle;
use ipoib_netdev::netdev_log;
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::drop::DropReason;
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::hwaddr::{Flags, HwAddr, MULTICAST_QPN};
use ipoib_proto::queue::Queue;
use ipoib_proto::seq::Sequence;
use ipoib_proto::stall::LOOK_MS;
use ipoib_proto::thresholds::Thresholds;
use ipoib_rdma::{Ah, QpState, Sender};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::counters::Counters;
use crate::base::{ADDR_LEN, HEADER_LEN};
use crate::ctl::lifecycle::Endpoint;
use crate::ctl::netdev::{Interface, PUMP, WATCH};
use crate::data::completions::TxPoll;
use crate::rc::table::Connections;
use crate::ud::paths::{self, Destinations};

/// What the transmit lock protects while the interface is up.
pub(crate) struct Tx {
    /// Where frames go.
    pub(crate) destinations: Destinations,
    /// How they get there.
    pub(crate) line: Line,
    /// What resolving a destination needs.
    pub(crate) endpoint: Arc<Endpoint>,
    /// The reliable connections, in connected mode.
    pub(crate) connections: Option<Connections>,
    /// Packets that are too big for their peers, and what would not be, to be answered.
    pub(crate) too_big: Queue<(TxSkb, u32), TOO_BIG>,
}

/// How many of them wait to be answered at most.
const TOO_BIG: usize = 16;

/// The producing half of the send ring, with its accounting.
pub(crate) struct Line {
    sender: Sender,
    thresholds: Thresholds,
    /// The longest frame, our header included.
    max_len: usize,
    /// More frames follow, whatever the stack says.
    pub(crate) hold: bool,
    /// Whether frames may be numbered.
    extensions: bool,
    /// Whether the work item looks after what was handed to the device.
    watched: bool,
    completions: Handle<TxPoll>,
    counters: Arc<Counters>,
}

impl Tx {
    /// Sends a frame that begins with the header of [`Interface`]'s `header`.
    #[inline]
    pub(crate) fn transmit(&mut self, dev: &Device<Interface>, mut skb: TxSkb) -> Taken {
        if self.connections.is_some() {
            return self.transmit_connected(dev, skb);
        }
        let (address, _) = match addressed(&skb) {
            Ok(addressed) => addressed,
            Err(reason) => return self.refuse(dev, skb, reason),
        };
        if skb.pull(ADDR_LEN).is_err() || skb.len() > self.line.max_len {
            return self.refuse(dev, skb, DropReason::TooBig);
        }
        self.datagram_inline(dev, address, skb, now_ms());
        Taken::TAKEN
    }

    /// Drops a frame that cannot be sent. The stack may have said of what was put on either ring before it
    /// that more follows.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        dev: &Device<Interface>,
        skb: TxSkb,
        reason: DropReason,
    ) -> Taken {
        self.line.drop(dev, skb, reason);
        self.flush(dev);
        Taken::TAKEN
    }

    /// [`Self::datagram_inline`] for those that are not as hot.
    #[inline(never)]
    pub(crate) fn datagram(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        skb: TxSkb,
        now: u64,
    ) {
        self.datagram_inline(dev, address, skb, now);
    }

    /// Sends a frame, which begins with the wire's header and is not too long, by UD.
    #[inline(always)]
    fn datagram_inline(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        mut skb: TxSkb,
        now: u64,
    ) {
        let Self {
            destinations, line, ..
        } = self;
        if !address.is_multicast() {
            match destinations.peer(&address, now) {
                Some(peer) => {
                    line.number(&mut skb, &address, peer.sequence);
                    line.send_inline(dev, skb, peer.ah, address.qpn().get());
                }
                None => destinations.send_to_peer(dev, line, address, skb, now),
            }
        } else if let Some(mgid) = destinations.group_of(&address) {
            match destinations.group(&mgid, now) {
                Some(ah) => line.send(dev, skb, ah, MULTICAST_QPN),
                None => destinations.send_to_group(dev, line, &mgid, skb, now),
            }
        } else {
            line.drop(dev, skb, DropReason::BadAddress);
        }
    }
}

impl Line {
    /// Puts it together, for frames of up to `mtu` octets, which may be numbered if `extensions`.
    pub(crate) fn new(
        sender: Sender,
        thresholds: Thresholds,
        mtu: u32,
        extensions: bool,
        completions: Handle<TxPoll>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            sender,
            thresholds,
            max_len: max_len(mtu),
            hold: false,
            extensions,
            watched: false,
            completions,
            counters,
        }
    }

    /// Numbers a frame, which begins with our header, for a peer that wants that.
    #[inline]
    pub(crate) fn number(&self, skb: &mut TxSkb, peer: &HwAddr, sequence: &mut Sequence) {
        if self.extensions && peer.flags().contains(Flags::SEQ) {
            // One without memory for a header of its own goes without a number.
            if let Some(header) = skb
                .linear_mut()
                .ok()
                .and_then(|head| head.first_chunk_mut())
            {
                Header::set_reserved(header, sequence.take().get());
            }
        }
    }

    /// Whether frames for a peer are numbered.
    #[inline]
    pub(crate) fn numbers(&self, peer: &HwAddr) -> bool {
        self.extensions && peer.flags().contains(Flags::SEQ)
    }

    /// Writes a number into a frame that begins with our header.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if its header is somebody else's too.
    #[inline]
    pub(crate) fn set_number(&self, skb: &mut TxSkb, number: u16) -> Result {
        if number != 0 {
            let head = skb.linear_mut()?.first_chunk_mut().ok_or(EINVAL)?;
            Header::set_reserved(head, number);
        }
        Ok(())
    }

    /// The longest frame that goes by UD, our header included.
    #[inline]
    pub(crate) fn max_datagram(&self) -> usize {
        self.max_len
    }

    /// Lets the stack transmit again, if there is room on this ring.
    pub(crate) fn wake(&mut self, dev: &Device<Interface>) {
        if self.thresholds.may_wake(self.sender.free()) {
            dev.start_queue();
        }
    }

    /// Has the completion side look at what was dropped.
    pub(crate) fn wake_completions(&self) {
        self.completions.schedule();
    }

    /// Puts a frame on the ring and rings the doorbell unless more follow.
    #[inline(never)]
    pub(crate) fn send(&mut self, dev: &Device<Interface>, skb: TxSkb, ah: &Arc<Ah>, qpn: u32) {
        self.send_inline(dev, skb, ah, qpn);
    }

    /// [`Self::send`] for the one caller that is hot.
    #[inline(always)]
    fn send_inline(&mut self, dev: &Device<Interface>, skb: TxSkb, ah: &Arc<Ah>, qpn: u32) {
        // A frame is never longer than `max_len`.
        let len = skb.len() as u32;
        if let Err((skb, error)) = self.sender.post(skb, ah, qpn, false) {
            return self.drop(dev, skb, refusal(error));
        }
        // What the completions have freed is looked at only when it matters: it lies in a cache line
        // that they write.
        let full = self.thresholds.must_stop(self.sender.free_at_least())
            && self.thresholds.must_stop(self.sender.free());
        if full {
            return self.sent_last(dev, len);
        }
        if (dev.sent(len) && !self.hold) || self.sender.chain_full() {
            self.flush(dev);
        }
    }

    /// Ends the sending of a frame that takes the last room in the ring.
    #[cold]
    fn sent_last(&mut self, dev: &Device<Interface>, len: u32) {
        dev.stop_queue();
        self.counters.tx.stops.add(1);
        dev.sent(len);
        self.flush(dev);
        // Pairs with the barrier in `TxPoll::poll`: either it sees the queue stopped, or we see
        // what it has freed.
        smp_mb(Full);
        if self.thresholds.may_wake(self.sender.free()) {
            dev.start_queue();
        }
    }

    /// Hands what is on the ring to the device.
    #[inline]
    pub(crate) fn flush(&mut self, dev: &Device<Interface>) {
        if self.sender.is_pending() {
            self.ring_doorbell(dev);
        }
    }

    fn ring_doorbell(&mut self, dev: &Device<Interface>) {
        let posted = self.sender.flush();
        if posted.frames > 0 {
            self.counters.tx.doorbells.add(1);
            if !self.watched {
                self.watched = true;
                dev.queue_task(WATCH, LOOK_MS);
            }
        }
        if posted.dropped > 0 {
            self.counters
                .dropped(DropReason::PostFailed, u64::from(posted.dropped));
            netdev_log!(
                dev,
                Warn,
                limited,
                "device refused {} frames: {:?}\n",
                posted.dropped,
                posted.error
            );
            // The byte limit is told of them by the completion side, which alone may do that.
            self.completions.schedule();
            if posted.unsignalled {
                // Of what the device did take, it will not tell.
                Interface::restart_soon(dev);
            }
        }
    }

    /// How many frames the device is done with, and whether it has more, which is looked after then.
    fn look(&mut self) -> (u32, bool) {
        self.watched = self.sender.free() < self.sender.size();
        (self.sender.completed(), self.watched)
    }

    /// Drops a frame. What was put on the ring before it goes out now, since the stack may have
    /// said that more follows.
    #[cold]
    pub(crate) fn drop(&mut self, dev: &Device<Interface>, skb: TxSkb, reason: DropReason) {
        self.counters.dropped(reason, 1);
        skb.drop_reason(paths::kernel_reason(reason));
        self.flush(dev);
    }

    /// The counters.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The producing half, to be drained.
    pub(crate) fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }
}

/// Why a frame is dropped that a ring did not take.
#[cold]
pub(crate) fn refusal(error: Error) -> DropReason {
    if error == EBUSY {
        DropReason::Ring
    } else if error == ENOMEM {
        DropReason::NoMemory
    } else {
        DropReason::MapFailed
    }
}

/// Where a frame as the stack gave it goes, and its type, which is one that the link carries.
///
/// # Errors
///
/// Why it goes nowhere.
#[inline(always)]
pub(crate) fn addressed(skb: &TxSkb) -> Result<(HwAddr, EtherType), DropReason> {
    let head = skb.linear().first_chunk::<HEADER_LEN>();
    let head = head.ok_or(DropReason::Runt)?;
    let address = *head.first_chunk::<ADDR_LEN>().ok_or(DropReason::Runt)?;
    let [.., t0, t1, _, _] = *head;
    let ether_type = EtherType(u16::from_be_bytes([t0, t1]));
    if !ether_type.is_supported() {
        return Err(DropReason::TxEtherType);
    }
    Ok((HwAddr(address), ether_type))
}

/// The longest frame, our header included, at an MTU.
fn max_len(mtu: u32) -> usize {
    mtu as usize + Header::LEN
}

/// The port went up or down.
pub(crate) fn set_port_active(dev: &Device<Interface>, active: bool) {
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.destinations.set_up(active);
    }
}

/// Whether frames can be sent.
pub(crate) fn is_ready(dev: &Device<Interface>) -> bool {
    let guard = dev.lock_tx();
    guard.as_ref().is_some_and(|tx| tx.destinations.is_ready())
}

/// The stack wants other multicast groups. True: not all had a place.
pub(crate) fn want_groups(dev: &Device<Interface>) -> bool {
    let this = dev.data();
    let groups = this.groups.lock();
    let mut guard = dev.lock_tx();
    match guard.as_mut() {
        Some(tx) => tx.destinations.want(groups.wanted()),
        None => false,
    }
}

/// All groups are to be joined anew.
pub(crate) fn rejoin(dev: &Device<Interface>) {
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.destinations.rejoin();
    }
    dev.queue_task(PUMP, 0);
}

/// The MTU was changed; `limit` is that of a datagram.
pub(crate) fn set_mtu(dev: &Device<Interface>, mtu: u32, limit: u32) {
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.line.max_len = max_len(mtu.min(limit));
    }
}

/// The extensions were switched on or off.
pub(crate) fn set_extensions(dev: &Device<Interface>, on: bool) {
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.line.extensions = on;
    }
}

/// Brings the QP back to life after a send that failed.
pub(crate) fn recover(dev: &Device<Interface>) {
    let Some(endpoint) = dev.lock_tx().as_ref().map(|tx| tx.endpoint.clone()) else {
        return;
    };
    match endpoint.qp.state() {
        Ok(QpState::SendError) if endpoint.qp.recover_sqe() == Ok(true) => {
            dev.data().counters.slow.recoveries.add_shared(1);
            netdev_log!(dev, Info, limited, "send queue recovered after an error\n");
        }
        // Soft-RoCE leaves the QP in error whenever the network stack refuses a packet.
        Ok(QpState::SendError | QpState::Error) | Err(_) => Interface::restart_soon(dev),
        Ok(_) => {}
    }
}

/// Looks whether the device sends what it was given. As long as there is room, the queue is not stopped and
/// the stack does not look; but a socket waits for its frame to be sent before it sends that again. Soft-RoCE
/// may miss that it can go on, until it is given more.
pub(crate) fn watch(dev: &Device<Interface>) {
    let found = dev.lock_tx().as_mut().map(|tx| tx.line.look());
    let Some((done, under_way)) = found else {
        return;
    };
    let stuck = dev.data().watch.lock().look(done, under_way);
    if stuck {
        Interface::does_not_send(dev);
    }
    if under_way {
        dev.queue_task(WATCH, LOOK_MS);
    }
}
