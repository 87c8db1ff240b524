// SPDX-License-Identifier: GPL-2.0

//! A network device that receives all it sends: `ip link add loop0 type rust_loopback`.

#![forbid(unsafe_code)]

use ipoib_netdev::device::{Device, Driver, Layout, Taken, Tasks};
use ipoib_netdev::ethtool::Ethtool;
use ipoib_netdev::files::Files;
use ipoib_netdev::link::{Link, Request};
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::skb::{DropReason, TxSkb};
use ipoib_netdev::stats::{Counter, LinkStats};
use ipoib_netdev::vf::Functions;
use kernel::prelude::*;

ipoib_netdev::module_link_driver! {
    type: Loopback,
    name: "rust_loopback",
    description: "Sample network device in Rust",
    license: "GPL",
}

/// The driver's data of a device: counters, which the transmit lock protects.
struct Loopback {
    frames: Counter,
    bytes: Counter,
}

#[vtable]
impl Driver for Loopback {
    const NAME: &'static CStr = c"rust_loopback";
    const LAYOUT: Layout = Layout {
        arp_type: 0xfffe, // ARPHRD_NONE: frames are bare IP packets.
        tx_queue_len: 0,
        watchdog_ms: 5_000,
    };
    type Tx = ();
    type Control = ();
    type Front = ();
    type Address = [u8; 0];
    type Header = [u8; 0];

    fn init(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result {
        dev.set_limits(1500, 68, 65535, false, rtnl);
        Ok(())
    }

    fn open(dev: &Device<Self>, _rtnl: &mut Rtnl) -> Result {
        *dev.lock_tx() = Some(());
        dev.start_queue();
        Ok(())
    }

    fn stop(dev: &Device<Self>, _rtnl: &mut Rtnl) {
        dev.disable_queue();
        *dev.lock_tx() = None;
    }

    fn transmit(dev: &Device<Self>, tx: Option<&mut ()>, skb: TxSkb) -> Taken {
        if tx.is_none() {
            skb.drop_reason(DropReason::DevReady);
            return Taken::TAKEN;
        }
        dev.data().frames.add(1);
        dev.data().bytes.add(skb.len() as u64);
        skb.timestamp();
        skb.loop_back(dev);
        Taken::TAKEN
    }

    fn stats(dev: &Device<Self>) -> LinkStats {
        let (frames, bytes) = (dev.data().frames.get(), dev.data().bytes.get());
        LinkStats {
            rx_packets: frames,
            rx_bytes: bytes,
            tx_packets: frames,
            tx_bytes: bytes,
            ..LinkStats::default()
        }
    }
}

#[vtable]
impl Link for Loopback {
    fn create(_request: &Request<'_>, _rtnl: &mut Rtnl) -> Result<impl PinInit<Self, Error>> {
        let (frames, bytes) = (Counter::new(), Counter::new());
        Ok(Ok(Self { frames, bytes }))
    }
}

#[vtable]
impl Ethtool for Loopback {}
#[vtable]
impl Files for Loopback {}
#[vtable]
impl Functions for Loopback {}
#[vtable]
impl Tasks for Loopback {}
