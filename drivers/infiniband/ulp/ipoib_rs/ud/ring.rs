// SPDX-License-Identifier: GPL-2.0

//! The send ring of datagrams, and its accounting.

use ipoib_netdev::device::{Device, RawDevice};
use ipoib_netdev::napi::Waker;
use ipoib_netdev::netdev_log;
use ipoib_netdev::skb::{self, TcpSegments, TxSkb};
use ipoib_proto::drop::DropReason;
use ipoib_proto::header::Header;
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::lso;
use ipoib_proto::seq::Sequence;
use ipoib_proto::subnet;
use ipoib_proto::thresholds::Thresholds;
use ipoib_rdma::{Ah, Lso, Refusal, Route, Sender};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::counters::Counters;
use crate::base::interface::Interface;
use crate::base::ADDR_LEN;
use crate::ud::unanswered::Unanswered;

/// The producing half of the send ring, with its accounting.
pub(crate) struct UdRing {
    sender: Sender,
    thresholds: Thresholds,
    /// The longest frame, our header included.
    max_len: usize,
    /// The longest frame that each path takes: no longer than `max_len`, and nearly always as long.
    short_len: usize,
    /// The longest frame that the narrowest path takes.
    narrowest: usize,
    /// More frames follow, whatever the stack says.
    pub(crate) hold: bool,
    /// True if frames may be numbered.
    extensions: bool,
    /// True if the work item looks after what was handed to the device.
    watched: bool,
    completions: Waker,
    counters: Arc<Counters>,
    /// Packets that are too big for their destinations, with the MTU to tell.
    too_big: Unanswered<(TxSkb, u32)>,
}

/// Work on a frame that is left to the device.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// It is a super-frame, to be segmented.
    Large(Lso),
    /// It is no super-frame; with `checksum`, the device completes that.
    Small { checksum: bool },
}

impl Kind {
    /// Looks at what a frame that begins with our header still lacks. The ring refuses a super-frame that no device can
    /// segment: one without headers.
    pub(crate) fn of(skb: &TxSkb) -> Self {
        if skb.is_gso() {
            let segments = skb.tcp_segments();
            let headers = segments.and_then(|_| lso::headers_len(skb.linear()));
            return Self::Large(Lso {
                headers: headers.unwrap_or(0) as u32,
                size: segments.map_or(0, |segments| segments.size as u32),
            });
        }
        Self::Small {
            checksum: skb.needs_checksum(),
        }
    }
}

impl UdRing {
    /// Creates the ring, for frames of up to `mtu` bytes.
    pub(crate) fn new(
        dev: &Device<Interface>,
        sender: Sender,
        thresholds: Thresholds,
        mtu: u32,
        completions: Waker,
    ) -> Self {
        let interface = dev.data().get_ref();
        Self {
            sender,
            thresholds,
            max_len: max_len(mtu),
            short_len: max_len(mtu),
            narrowest: usize::MAX,
            hold: false,
            extensions: interface.settings.extensions(),
            watched: false,
            completions,
            counters: interface.counters.clone(),
            too_big: Unanswered::NONE,
        }
    }

    /// Numbers a frame, which begins with our header, for a peer that wants that. What the device segments is
    /// not to be numbered: all segments would have the same number.
    #[inline]
    pub(crate) fn number(&self, skb: &mut TxSkb, peer: &HwAddr, sequence: &mut Sequence) {
        if self.extensions && peer.flags().contains(Flags::SEQ) {
            // One without memory for a header of its own goes without a number.
            if let Ok(header) = skb.header_mut() {
                Header::set_reserved(header, sequence.take().get());
            }
        }
    }

    /// The longest frame that goes by UD, our header included.
    #[inline]
    pub(crate) fn max_datagram(&self) -> usize {
        self.max_len
    }

    /// The longest frame that goes by UD wherever it is sent.
    #[inline]
    pub(crate) fn short_datagram(&self) -> usize {
        self.short_len
    }

    /// The longest frame that goes along a path.
    pub(super) fn max_along(&self, path: &Ah) -> usize {
        path_mtu(path).map_or(self.max_len, |mtu| self.max_len.min(mtu as usize))
    }

    /// Returns the work on a frame, as the stack gave it, that is left to the device. None unless the device does it, and
    /// neither the frame nor its segments are longer than `max`.
    #[inline(always)]
    pub(crate) fn kind(&self, skb: &TxSkb, max: usize) -> Option<Kind> {
        let offloads = self.sender.offloads();
        if skb.is_gso() {
            let lso = self.segmentable(skb, max)?;
            return (offloads.checksums && offloads.segments).then_some(Kind::Large(lso));
        }
        let checksum = skb.needs_checksum();
        let fits = skb.len() <= ADDR_LEN.wrapping_add(max);
        (fits && (!checksum || offloads.checksums)).then_some(Kind::Small { checksum })
    }

    /// Counts a frame that goes to the device as the stack gave it, if there is work left.
    #[inline]
    pub(crate) fn count_partial(&self, kind: Kind) {
        match kind {
            Kind::Large(_) => self.counters.tx.large.add(1),
            Kind::Small { checksum: true } => {}
            Kind::Small { checksum: false } => return,
        }
        self.counters.tx.partial.add(1);
    }

    /// Returns how the device is to segment a super-frame as the stack gave it, if it can do that, and the segments are no
    /// longer than `max`.
    #[inline(never)]
    fn segmentable(&self, skb: &TxSkb, max: usize) -> Option<Lso> {
        let TcpSegments { size, pieces } = skb.tcp_segments()?;
        let head = skb.linear().get(ADDR_LEN..)?;
        let headers = lso::segmentable(head, size, max)?;
        (pieces <= self.sender.max_sge()).then_some(Lso {
            headers: headers as u32,
            size: size as u32,
        })
    }

    /// Lets the stack transmit again, if there is room on this ring.
    pub(crate) fn wake(&mut self, dev: &Device<Interface>) {
        if self.thresholds.may_wake(self.sender.free()) {
            dev.start_queue();
        }
    }

    /// Has the completion side look at what was dropped.
    pub(crate) fn wake_completions(&self) {
        self.completions.wake();
    }

    /// Puts a frame of a `kind` on the ring, for a queue pair at an address, and rings the doorbell unless more follow.
    // For nearly every frame; left to itself, the compiler calls it.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        dev: &Device<Interface>,
        skb: TxSkb,
        kind: Kind,
        (ah, qpn): (&Arc<Ah>, u32),
    ) {
        let checksum = match kind {
            Kind::Large(lso) => return self.send_large(dev, skb, lso, (ah, qpn)),
            Kind::Small { checksum } => checksum,
        };
        // A frame is never longer than `max_len`.
        let len = skb.len() as u32;
        if let Err((skb, error)) = self.sender.post(skb, checksum, ah, qpn) {
            return self.drop(dev, skb, refusal(error));
        }
        self.sent(dev, len);
    }

    /// [`Self::send`] for a frame that has waited.
    #[inline(never)]
    pub(crate) fn send_waiting(
        &mut self,
        dev: &Device<Interface>,
        skb: TxSkb,
        to: (&Arc<Ah>, u32),
    ) {
        let kind = Kind::of(&skb);
        self.send(dev, skb, kind, to);
    }

    /// Puts a super-frame that the device segments on the ring. It is accounted without its headers.
    #[inline(never)]
    fn send_large(
        &mut self,
        dev: &Device<Interface>,
        skb: TxSkb,
        lso: Lso,
        (ah, qpn): (&Arc<Ah>, u32),
    ) {
        // A frame is never longer than 64 KiB.
        let len = (skb.len() as u32).saturating_sub(lso.headers);
        match self.sender.post_large(skb, lso, ah, qpn) {
            Ok(()) => self.sent(dev, len),
            Err((skb, error)) => self.drop(dev, skb, refusal(error)),
        }
    }

    /// Accounts a frame of `len` bytes that is on the ring, and rings the doorbell unless more follow.
    #[inline(always)]
    fn sent(&mut self, dev: &Device<Interface>, len: u32) {
        // What the completions have freed is looked at only when it matters: it lies in a cache line
        // that they write.
        let full = self.thresholds.must_stop(self.sender.free_at_least())
            && self.thresholds.must_stop(self.sender.free());
        if full {
            return self.sent_last(dev, len);
        }
        if (dev.sent(len) && !self.hold) || self.sender.chain_full() {
            self.ring_doorbell(dev);
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
        } else {
            // The poll may rest, and there is no room for what comes meanwhile.
            self.completions.wake();
        }
    }

    /// Hands what is on the ring to the device.
    #[inline]
    pub(crate) fn flush(&mut self, dev: &Device<Interface>) {
        if self.sender.is_pending() {
            self.hand_over(dev);
        }
    }

    #[inline(never)]
    fn hand_over(&mut self, dev: &Device<Interface>) {
        self.ring_doorbell(dev);
    }

    // For nearly every frame; left to itself, the compiler calls it.
    #[inline(always)]
    fn ring_doorbell(&mut self, dev: &Device<Interface>) {
        if self.sender.flush() {
            self.counters.tx.doorbells.add(1);
            if !self.watched {
                self.watched = true;
                Interface::watch_sends(dev);
            }
        }
        if let Some(refusal) = self.sender.take_refusal() {
            self.refused(dev, &refusal);
        }
    }

    /// Counts what the device has refused.
    #[cold]
    fn refused(&self, dev: &Device<Interface>, refusal: &Refusal) {
        let frames = u64::from(refusal.frames);
        self.counters
            .dropped(dev, DropReason::PostFailed, frames, 0);
        netdev_log!(
            dev,
            Warn,
            limited,
            "device refused {} frames: {:?}\n",
            refusal.frames,
            refusal.error
        );
        if refusal.segments_refused {
            netdev_log!(
                dev,
                Info,
                limited,
                "the RDMA device refuses to segment large frames: that is done in software from now on\n"
            );
        }
        // The byte limit is told of them by the completion side, which alone may do that.
        self.completions.wake();
        if refusal.unsignalled {
            // Of what the device did take, it will not tell.
            Interface::restart_soon(dev);
        }
    }

    /// Returns true if the ring takes so many frames, and one more.
    pub(crate) fn has_room(&mut self, frames: u32) -> bool {
        self.sender.free() > frames
    }

    /// How many frames are on the ring.
    pub(crate) fn in_flight(&mut self) -> u32 {
        self.sender.in_flight()
    }

    /// How many frames the device is done with, and whether it has more, which is looked after then.
    pub(crate) fn look(&mut self) -> (u32, bool) {
        self.watched = self.sender.free() < self.sender.size();
        (self.sender.completed(), self.watched)
    }

    /// Drops a frame. What was put on the ring before it goes out now, since the stack may have
    /// said that more follows.
    #[cold]
    pub(crate) fn drop(&mut self, dev: &Device<Interface>, skb: TxSkb, reason: DropReason) {
        drop_frame(&self.counters, dev, skb, reason);
        self.flush(dev);
    }

    /// Keeps a packet that is too big for its destination, to be answered as a router would, so that its sender learns
    /// it. Answering takes locks that our caller may hold, so a work item does it. Returns true if that is to be woken.
    #[cold]
    #[must_use]
    pub(crate) fn too_big(&mut self, dev: &Device<Interface>, mut skb: TxSkb, mtu: u32) -> bool {
        skb.update_path_mtu(mtu);
        match self.too_big.keep((skb, mtu)) {
            Ok(()) => {
                self.counters.tx.too_big.add(1);
                self.flush(dev);
                true
            }
            Err((skb, _)) => {
                self.drop(dev, skb, DropReason::TooBig);
                false
            }
        }
    }

    /// Takes a packet that is to be answered, and the MTU to tell.
    pub(crate) fn next_too_big(&mut self) -> Option<(TxSkb, u32)> {
        self.too_big.take()
    }

    /// How many packets wait to be answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.too_big.len()
    }

    /// Sets the longest frame from an MTU.
    pub(crate) fn set_mtu(&mut self, mtu: u32) {
        self.max_len = max_len(mtu);
        self.short_len = self.max_len.min(self.narrowest);
    }

    /// Sets the longest frame from an MTU, unless it is shorter already.
    pub(crate) fn reduce_mtu(&mut self, mtu: u32) {
        self.max_len = self.max_len.min(max_len(mtu));
        self.short_len = self.max_len.min(self.narrowest);
    }

    /// Sets the longest frame of the narrowest path.
    pub(super) fn set_narrowest(&mut self, len: usize) {
        self.narrowest = len;
        self.short_len = self.max_len.min(len);
    }

    /// Sets the Q_Key of what is posted from now on.
    pub(crate) fn set_qkey(&mut self, qkey: u32) {
        self.sender.set_qkey(qkey);
    }

    /// Switches the numbering of frames on or off.
    pub(crate) fn set_extensions(&mut self, on: bool) {
        self.extensions = on;
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

/// Returns true if a frame that begins with our header is no longer than `max`, and neither are the segments of a
/// super-frame.
pub(super) fn is_within(skb: &TxSkb, max: usize) -> bool {
    if !skb.is_gso() {
        return skb.len() <= max;
    }
    let segments = skb.tcp_segments();
    segments.is_some_and(|segments| lso::segmentable(skb.linear(), segments.size, max).is_some())
}

/// The IB MTU of the path of an address handle, in bytes; none on RoCE, where it is the port's.
pub(crate) fn path_mtu(path: &Ah) -> Option<u32> {
    match path.route() {
        Route::Path(record) => subnet::mtu_bytes(record.mtu_code()),
        Route::Roce { .. } | Route::Group => None,
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

/// The longest frame, our header included, at an MTU.
fn max_len(mtu: u32) -> usize {
    mtu as usize + Header::LEN
}

/// Drops a frame and counts it.
#[cold]
pub(crate) fn drop_frame(counters: &Counters, dev: &RawDevice, skb: TxSkb, reason: DropReason) {
    counters.dropped(dev, reason, 1, skb.len());
    skb.drop_reason(kernel_reason(reason));
}

/// The kernel's name for one of our reasons.
fn kernel_reason(reason: DropReason) -> skb::DropReason {
    match reason {
        DropReason::TooBig => skb::DropReason::TooBig,
        DropReason::NoPath | DropReason::NoGroup => skb::DropReason::NeighbourFailed,
        DropReason::QueueFull | DropReason::TableFull => skb::DropReason::NeighbourQueueFull,
        DropReason::NoMemory => skb::DropReason::NoMemory,
        DropReason::TxEtherType => skb::DropReason::UnhandledProtocol,
        DropReason::Ring => skb::DropReason::RingFull,
        DropReason::BadAddress => skb::DropReason::DevHeader,
        DropReason::Runt => skb::DropReason::HeaderTruncated,
        DropReason::LinkDown => skb::DropReason::DevReady,
        DropReason::Flushed => skb::DropReason::QueuePurge,
        _ => skb::DropReason::Other,
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(ipoib_rs_ud_ring)]
mod tests {
    use super::*;

    /// A frame that a ring does not take is dropped for the reason that the ring gives.
    #[test]
    fn refusals_have_reasons() {
        for (error, reason) in [
            (EBUSY, DropReason::Ring),
            (ENOMEM, DropReason::NoMemory),
            (EIO, DropReason::MapFailed),
            (EINVAL, DropReason::MapFailed),
        ] {
            assert_eq!(refusal(error), reason);
        }
    }

    /// The kernel's reasons, as `skb:kfree_skb` shows them, of frames that the driver drops in sending.
    const SHOWN: [(DropReason, skb::DropReason); 15] = [
        (DropReason::BadAddress, skb::DropReason::DevHeader),
        (DropReason::TxEtherType, skb::DropReason::UnhandledProtocol),
        (DropReason::Runt, skb::DropReason::HeaderTruncated),
        (DropReason::TooBig, skb::DropReason::TooBig),
        (DropReason::NoPath, skb::DropReason::NeighbourFailed),
        (DropReason::QueueFull, skb::DropReason::NeighbourQueueFull),
        (DropReason::TableFull, skb::DropReason::NeighbourQueueFull),
        (DropReason::NoGroup, skb::DropReason::NeighbourFailed),
        (DropReason::Ring, skb::DropReason::RingFull),
        (DropReason::NoMemory, skb::DropReason::NoMemory),
        (DropReason::MapFailed, skb::DropReason::Other),
        (DropReason::PostFailed, skb::DropReason::Other),
        (DropReason::SendFailed, skb::DropReason::Other),
        (DropReason::LinkDown, skb::DropReason::DevReady),
        (DropReason::Flushed, skb::DropReason::QueuePurge),
    ];

    /// Each reason of a sender's is shown by one of the kernel's.
    #[test]
    fn the_kernel_has_a_name_for_each_reason() {
        let own = DropReason::ALL.iter();
        for reason in own.filter(|reason| reason.name().starts_with("tx_")) {
            let shown = SHOWN.iter().find(|(of, _)| of == reason);
            assert_eq!(shown.map(|(_, shown)| *shown), Some(kernel_reason(*reason)));
        }
    }
}
