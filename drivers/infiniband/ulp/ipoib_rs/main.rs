// SPDX-License-Identifier: GPL-2.0

//! IP over InfiniBand, also over RoCE.
//!
//! A driver for the rtnl link kind `ipoib_rs`: an [`Interface`](base::interface::Interface) is a `net_device` that
//! puts a 4-byte header in front of IP frames and sends them as UD messages from a queue pair of
//! its own (RFC 4391). It stands on a [`Port`](base::port::Port) of an RDMA device.
//!
//! Layers, each of which knows those below it and none above:
//!
//! * [`ctl`]: configuration; owns the PD, CQs and QP of an interface from registration to unregistration;
//! * [`data`]: what the transmit lock protects while the interface is up, and the two NAPIs;
//! * [`rc`], [`ud`]: connections, paths and groups, and the rings that they send by;
//! * [`base`]: port, settings, counters.
//!
//! Nothing here is `unsafe`: `rust/netdev` and `rust/rdma` make the kernel's interfaces safe, and
//! `proto/` holds the protocol's rules.

#![forbid(unsafe_code)]

mod base;
mod ctl;
mod data;
mod rc;
mod ud;

use kernel::prelude::*;

use crate::base::interface::Interface;
use crate::base::params;
use crate::ctl::{adapters, children, netlink};

module! {
    type: Module,
    name: "ipoib_rs",
    authors: ["The ipoib_rs developers"],
    description: "IP over InfiniBand (RFC 4391, RFC 4755), also on RoCE ports",
    license: "GPL",
    alias: ["rtnl-link-ipoib_rs"],
    params: {
        send_queue_size: u32 {
            default: 512,
            description: "Frames in the send ring of a new interface; a power of two, 64 to 8192",
        },
        recv_queue_size: u32 {
            default: 512,
            description: "Frames in the receive ring of a new interface; a power of two, 64 to 8192",
        },
        rc_recv_queue_size: u32 {
            default: 512,
            description: "Messages of 64 KiB that the connections of an interface can receive at a time; 64 to 8192",
        },
        qkey: u32 {
            default: 0x8001_0b1b,
            description: "Q_Key of interfaces on RoCE ports; with the high bit set, a queue pair of unprivileged user space cannot have it",
        },
        replace: u8 {
            default: 0,
            description: "1: register link type ipoib, too, in place of ib_ipoib; 0 or 1",
        },
    },
}

/// The loaded module.
///
/// The order of the fields is the order of unloading: first no more links can be made and all there
/// are go; then the ports go, and at last the queues of all work.
#[pin_data]
struct Module {
    _links: Links,
    _watch: ipoib_netdev::notifier::Registration<adapters::Watch>,
    #[pin]
    _ports: ipoib_rdma::Registration<adapters::Adapters>,
    _queues: ipoib_netdev::task::Queues,
}

/// The link types. Unregistering them deletes all interfaces, and then no more are made.
struct Links {
    _types: ipoib_netdev::named::Registration<Interface>,
    _making: children::Making,
}

impl Links {
    /// Registers the types, and makes the interfaces that come by themselves.
    fn new() -> Result<Self> {
        let making = children::Making::new()?;
        let types = ipoib_netdev::named::Registration::new(netlink::register()?)?;
        making.begin(types.kind().ok_or(EINVAL)?);
        Ok(Self {
            _types: types,
            _making: making,
        })
    }
}

impl kernel::InPlaceModule for Module {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _: { params::check()? },
            _queues: ipoib_netdev::task::Queues::new()?,
            _ports <- ipoib_rdma::Registration::new(),
            _watch: ipoib_netdev::notifier::Registration::new(adapters::Watch)?,
            _links: Links::new()?,
        })
    }
}
