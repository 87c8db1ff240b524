// SPDX-License-Identifier: GPL-2.0

//! Tests of the driver's rings on soft-RoCE: two interfaces on its port, one of which sends to the other. The lab takes one
//! that is skipped for a failure.

use ipoib_netdev::device::{Driver, OwnedDevice};
use ipoib_netdev::ethtool::Ethtool;
use ipoib_netdev::link::Home;
use ipoib_netdev::live::{same, skip, until, Ends};
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::header::{EtherType, Header};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::counters::NAMES;
use crate::base::interface::{Interface, Options, Origin};
use crate::base::port::Port;
use crate::base::{ADDR_LEN, HEADER_LEN};
use crate::ctl::{children, ports};

/// Bytes of the packets of datagrams: they fit any port.
const SMALL: usize = 200;
/// Bytes of a packet that only a connection takes.
const LARGE: usize = 40_000;

/// Interfaces that are up, which go with this value: the first sends to the second.
struct Bed([Option<OwnedDevice<Interface>>; 2]);

impl Bed {
    fn new(port: &Arc<Port>, connected: bool) -> Result<Self> {
        let mut bed = Self([None, None]);
        for place in &mut bed.0 {
            *place = Some(make(port, connected)?);
        }
        for which in [0, 1] {
            let dev = bed.dev(which)?;
            dev.set_up(true, &mut Rtnl::lock())?;
            until(|| dev.has_carrier())?;
        }
        Ok(bed)
    }

    fn dev(&self, which: usize) -> Result<&OwnedDevice<Interface>> {
        self.0.get(which).and_then(Option::as_ref).ok_or(ENODEV)
    }

    /// Unregisters one of them, which waits until nobody refers to it.
    fn end(&mut self, which: usize) {
        if let Some(dev) = self.0.get_mut(which).and_then(Option::take) {
            dev.unregister(&mut Rtnl::lock());
        }
    }

    /// The front of a packet for the second.
    fn front(&self) -> Result<[u8; HEADER_LEN]> {
        let mut front = [0; HEADER_LEN];
        let (to, header) = front.split_at_mut(ADDR_LEN);
        to.copy_from_slice(&self.dev(1)?.address());
        header.copy_from_slice(&Header::new(EtherType(0x0800)).to_bytes());
        Ok(front)
    }

    /// Sends one packet of `len` bytes, and waits until it is sent: the way is known from then on.
    fn greet(&self, front: &[u8], len: usize) -> Result {
        let ends = Ends::begin();
        self.send(front, 1, len)?;
        until(|| ends.count() == 1)
    }

    /// Has the first send `count` packets of `len` bytes, as the stack does.
    fn send(&self, front: &[u8], count: usize, len: usize) -> Result {
        let dev = self.dev(0)?;
        let mut bytes = KVVec::with_capacity(front.len() + len, GFP_KERNEL)?;
        bytes.extend_from_slice(front, GFP_KERNEL)?;
        bytes.resize(front.len() + len, 0, GFP_KERNEL)?;
        for _ in 0..count {
            let skb = Ends::watch(TxSkb::new(&bytes)?);
            let mut tx = dev.lock_tx();
            let _ = Interface::transmit(dev, tx.as_mut(), skb);
        }
        Ok(())
    }

    /// A counter of one of them, or the sum of those whose names begin so.
    fn count(&self, which: usize, name: &str) -> u64 {
        let mut values = [0; NAMES.len()];
        if let Ok(dev) = self.dev(which) {
            <Interface as Ethtool>::counters(dev, &mut values);
        }
        let named = NAMES.iter().zip(values);
        named
            .filter(|(other, _)| match name.strip_suffix('*') {
                Some(start) => other.starts_with(start),
                None => **other == name,
            })
            .map(|(_, value)| value)
            .sum()
    }

    /// Waits until the first has nothing under way, and checks that all that it was given is accounted for.
    fn rest(&self) -> Result {
        until(|| self.count(0, "tx_waiting") + self.count(0, "tx_posted") == 0)?;
        let sum = |names: &[&str]| names.iter().map(|name| self.count(0, name)).sum::<u64>();
        let given = || sum(&["tx_handed", "tx_pieces"]);
        let gone = || {
            let names = ["tx_frames", "rc_tx_frames", "tx_cut", "tx_drop_*"];
            sum(&names) + sum(&["tx_waiting", "tx_posted"])
        };
        // The stack sends some by itself, and the counters are read one after the other.
        until(|| given() == gone())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.end(0);
        self.end(1);
    }
}

fn make(port: &Arc<Port>, connected: bool) -> Result<OwnedDevice<Interface>> {
    let options = Options {
        parent: None,
        pkey: None,
        mtu: None,
        umcast: false,
        connected,
        origin: Origin::Link,
    };
    let home = Home::Net(port.device().net());
    children::add(c"kunit%d", home, port, &options, &mut Rtnl::lock())
}

/// Runs a test on a port of soft-RoCE, or skips it where there is none.
fn on_soft_roce(test: impl FnOnce(&Arc<Port>) -> Result) -> Result {
    let Some(port) = ports::soft_roce(&mut Rtnl::lock()) else {
        skip(c"there is no soft-RoCE");
        return Ok(());
    };
    until(|| port.attributes(&mut Rtnl::lock()).active)?;
    test(&port)
}

#[kunit_tests(ipoib_rs_live)]
mod cases {
    use super::*;

    /// Datagrams arrive, are counted at both ends, and their frames end once: more than the ring takes, one after the other.
    #[test]
    fn datagrams_arrive() -> Result {
        on_soft_roce(|port| {
            let bed = Bed::new(port, false)?;
            let front = bed.front()?;
            bed.greet(&front, SMALL)?;
            let (ends, drops) = (Ends::begin(), bed.count(0, "tx_drop_*"));
            let before = (bed.count(0, "tx_frames"), bed.count(1, "rx_frames"));
            for round in 1..=8 {
                bed.send(&front, 100, SMALL)?;
                until(|| ends.count() == 100 * round)?;
                bed.rest()?;
            }
            same(bed.count(0, "tx_frames") - before.0 >= 800, true)?;
            until(|| bed.count(1, "rx_frames") - before.1 >= 800)?;
            same(bed.count(0, "tx_drop_*"), drops)?;
            same(bed.count(0, "tx_doorbells") > 0, true)?;
            same(ends.count(), 800)
        })
    }

    /// A ring that is restarted under traffic loses no frame without counting it, and sends again.
    #[test]
    fn a_restart_loses_no_frame_uncounted() -> Result {
        on_soft_roce(|port| {
            for connected in [false, true] {
                let bed = Bed::new(port, connected)?;
                let (front, ends) = (bed.front()?, Ends::begin());
                let received = || bed.count(1, "rx_frames") + bed.count(1, "rc_rx_frames");
                for round in 1..=3 {
                    bed.greet(&front, SMALL)?;
                    bed.send(&front, 200, SMALL)?;
                    bed.dev(0)?.restart(&mut Rtnl::lock())?;
                    until(|| ends.count() == 201 * round)?;
                    bed.rest()?;
                }
                let before = received();
                bed.greet(&front, SMALL)?;
                until(|| received() > before)?;
                bed.rest()?;
                same(ends.count(), 604)?;
            }
            Ok(())
        })
    }

    /// Packets that are too large for a datagram go by a connection, whole, and their frames end once.
    #[test]
    fn large_packets_go_by_a_connection() -> Result {
        on_soft_roce(|port| {
            let bed = Bed::new(port, true)?;
            let front = bed.front()?;
            bed.greet(&front, LARGE)?;
            let (ends, drops) = (Ends::begin(), bed.count(0, "tx_drop_*"));
            for round in 1..=40 {
                bed.send(&front, 5, LARGE)?;
                until(|| ends.count() == 5 * round)?;
            }
            bed.rest()?;
            same(bed.count(0, "tx_drop_*"), drops)?;
            same(bed.count(0, "rc_current"), 1)?;
            same(bed.count(0, "rc_tx_frames") > 200, true)?;
            until(|| bed.count(1, "rc_rx_frames") > 200)?;
            let own = bed.count(1, "rx_drop_own_multicast");
            same(bed.count(1, "rx_drop_*"), own)?;
            same(ends.count(), 200)
        })
    }

    /// Frames end exactly once when their peer or their sender is removed under traffic.
    #[test]
    fn a_peer_goes_under_traffic() -> Result {
        on_soft_roce(|port| {
            for connected in [false, true] {
                let (mut bed, ends) = (Bed::new(port, connected)?, Ends::begin());
                let front = bed.front()?;
                bed.greet(&front, SMALL)?;
                bed.send(&front, 100, SMALL)?;
                bed.end(1);
                bed.send(&front, 100, SMALL)?;
                drop(bed);
                until(|| ends.count() >= 201)?;
                same(ends.count(), 201)?;
            }
            Ok(())
        })
    }
}
