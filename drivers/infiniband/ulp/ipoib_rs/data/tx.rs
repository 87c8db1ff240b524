// SPDX-License-Identifier: GPL-2.0

//! Sending: what the stack hands over with `ndo_start_xmit`.
//!
//! The stack holds the transmit lock when it hands over a frame, so that nothing else is taken on the hot
//! path: the destinations, the connections and the producing halves of the send rings belong to that lock, as
//! parts of [`Tx`].

use ipoib_netdev::device::{Device, Taken};
use ipoib_netdev::napi::Handle;
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::drop::DropReason;
use ipoib_proto::header::EtherType;
use ipoib_proto::hwaddr::HwAddr;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::work::Work;
use crate::base::{ADDR_LEN, HEADER_LEN};
use crate::data::completions::TxPoll;
use crate::data::rx::RxPoll;
use crate::rc::conn::Conn;
use crate::rc::table::Connections;
use crate::rc::tx::RcTx;
use crate::ud::endpoint::Endpoint;
use crate::ud::paths::Destinations;
use crate::ud::ring::{drop_frame, Kind, UdRing};
use crate::ud::tx::UdTx;

/// A transmit queue of an interface that is up, which the transmit lock protects.
pub(crate) struct Tx {
    pub(crate) ud: UdTx,
    /// The connected half, in connected mode.
    pub(crate) rc: Option<RcTx>,
    pub(crate) endpoint: Arc<Endpoint>,
    /// The receive poll, which knows who sends.
    pub(crate) rx: Handle<RxPoll>,
    /// The poll of completions, which knows who they are for.
    pub(crate) completions: Handle<TxPoll>,
}

impl Tx {
    /// Sends a frame that begins with the link-layer header that the stack was given.
    #[inline]
    pub(crate) fn transmit(&mut self, dev: &Device<Interface>, mut skb: TxSkb) -> Taken {
        self.ud.ring.counters().tx.handed.add(1);
        if self.rc.is_some() {
            return self.transmit_connected(dev, skb);
        }
        let address = match front(&skb) {
            Ok(front) => address(front),
            Err(reason) => return self.refuse(dev, skb, reason),
        };
        // Nearly always the longest frame of the link: each path takes that as a rule.
        let max = self.ud.ring.short_datagram();
        let Some(kind) = self.ud.ring.kind(&skb, max) else {
            return self.transmit_odd(dev, address, skb);
        };
        if skb.pull(ADDR_LEN).is_err() {
            return self.refuse(dev, skb, DropReason::Runt);
        }
        self.ud.ring.count_partial(kind);
        if self.ud.datagram(dev, address, skb, kind) {
            Interface::queue(dev, Work::Paths, 0);
        }
        Taken::TAKEN
    }

    /// Sends by UD a frame, as the stack gave it, that the device cannot finish, or that is longer than the narrowest path
    /// takes. If the path to its own peer is wide enough, it goes as it is.
    #[cold]
    fn transmit_odd(&mut self, dev: &Device<Interface>, address: HwAddr, mut skb: TxSkb) -> Taken {
        let max = self.ud.max_to(&address);
        let Some(kind) = self.ud.ring.kind(&skb, max) else {
            return self.transmit_finished(dev, address, skb);
        };
        if skb.pull(ADDR_LEN).is_err() {
            return self.refuse(dev, skb, DropReason::Runt);
        }
        self.ud.ring.count_partial(kind);
        self.datagram(dev, address, skb, kind);
        Taken::TAKEN
    }

    /// Sends a frame of a `kind`, which begins with the wire's header and is not too long, by UD: for those that are not as
    /// hot.
    #[inline(never)]
    pub(super) fn datagram(
        &mut self,
        dev: &Device<Interface>,
        address: HwAddr,
        skb: TxSkb,
        kind: Kind,
    ) {
        if self.ud.datagram(dev, address, skb, kind) {
            Interface::queue(dev, Work::Paths, 0);
        }
    }

    /// Drops a frame for an interface without queues: one that could not restart, or whose port is not what it was.
    #[cold]
    pub(crate) fn no_queue(dev: &Device<Interface>, skb: TxSkb) -> Taken {
        let counters = &dev.data().get_ref().counters;
        counters.tx.handed.add(1);
        drop_frame(counters, dev, skb, DropReason::LinkDown);
        Taken::TAKEN
    }

    /// Ends what waits, as the interface goes down or gets other queues. Returns the connections, which are to be stopped.
    // It moves the table of connections about.
    #[inline(never)]
    pub(crate) fn close(&mut self, dev: &Device<Interface>) -> Option<KVec<Arc<Conn>>> {
        while let Some((skb, _)) = self.ud.ring.next_too_big() {
            drop_frame(self.ud.ring.counters(), dev, skb, DropReason::Flushed);
        }
        Some(self.rc.take()?.close(dev))
    }

    /// How many frames wait, and how many are on the rings.
    pub(crate) fn now(&mut self) -> (usize, usize) {
        let mut waiting = self.ud.destinations.waiting() + self.ud.ring.unanswered();
        let mut posted = self.ud.ring.in_flight();
        if let Some(RcTx { connections, ring }) = &mut self.rc {
            waiting += connections.waiting();
            for rc in connections.sending() {
                posted += ring.sender.in_flight(&rc.lane);
            }
        }
        (waiting, posted as usize)
    }

    /// The table of connections, in connected mode.
    pub(crate) fn connections(&mut self) -> Option<&mut Connections> {
        self.rc.as_mut().map(|rc| &mut rc.connections)
    }

    /// The parts that a frame goes through in connected mode.
    #[inline(always)]
    pub(super) fn parts(&mut self) -> Option<(&mut Destinations, &mut UdRing, &mut RcTx)> {
        let UdTx { destinations, ring } = &mut self.ud;
        Some((destinations, ring, self.rc.as_mut()?))
    }

    /// Drops a frame that cannot be sent. The stack may have said of what was put on either ring before it
    /// that more follows.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(
        &mut self,
        dev: &Device<Interface>,
        skb: TxSkb,
        reason: DropReason,
    ) -> Taken {
        self.ud.ring.drop(dev, skb, reason);
        self.flush(dev);
        Taken::TAKEN
    }
}

/// Returns the front of a frame as the stack gave it, whose EtherType is one that the link carries.
///
/// # Errors
///
/// Why it goes nowhere.
#[inline(always)]
pub(crate) fn front(skb: &TxSkb) -> Result<&[u8; HEADER_LEN], DropReason> {
    let front = skb.linear().first_chunk::<HEADER_LEN>();
    let front = front.ok_or(DropReason::Runt)?;
    if !ether_type(front).is_supported() {
        return Err(DropReason::TxEtherType);
    }
    Ok(front)
}

/// The destination in the front of a frame.
#[inline(always)]
pub(crate) fn address(front: &[u8; HEADER_LEN]) -> HwAddr {
    let [address @ .., _, _, _, _] = *front;
    HwAddr(address)
}

/// The EtherType in the front of a frame.
#[inline(always)]
pub(crate) fn ether_type(front: &[u8; HEADER_LEN]) -> EtherType {
    let [.., t0, t1, _, _] = *front;
    EtherType(u16::from_be_bytes([t0, t1]))
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(ipoib_rs_tx)]
mod tests {
    use super::*;

    /// The front of a frame of `len` bytes whose type is one.
    fn front_of(len: usize, kind: [u8; 2]) -> Result<core::result::Result<HwAddr, DropReason>> {
        let mut bytes = [7; HEADER_LEN + 1];
        bytes[ADDR_LEN..ADDR_LEN + 2].copy_from_slice(&kind);
        let skb = TxSkb::new(bytes.get(..len).ok_or(EINVAL)?)?;
        let address = front(&skb).map(address);
        skb.consume();
        Ok(address)
    }

    /// A frame without its headers goes nowhere, and neither does one of a type that the link does not carry.
    #[test]
    fn fronts_are_checked() -> Result {
        for len in [0, ADDR_LEN, HEADER_LEN - 1] {
            assert_eq!(front_of(len, [8, 0])?, Err(DropReason::Runt));
        }
        let address = HwAddr([7; ADDR_LEN]);
        for len in [HEADER_LEN, HEADER_LEN + 1] {
            assert_eq!(front_of(len, [8, 0])?, Ok(address));
            assert_eq!(front_of(len, [1, 1])?, Err(DropReason::TxEtherType));
        }
        Ok(())
    }
}
