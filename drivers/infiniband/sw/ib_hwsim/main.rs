// SPDX-License-Identifier: GPL-2.0

//! Simulated InfiniBand: fabrics of channel adapters, switches and cables.
//!
//! RDMA core, subnet managers and ULPs are real, and see InfiniBand devices, or RoCE ones, whose ports have network
//! devices. An [`adapter::Hca`] is one of them; a [`host::Host`] is what the fabric sees of it, and a
//! [`switch::Switch`] is in the fabric only. Their ports are as a subnet manager finds and sets them (crate
//! `ib_fabric`), and cables connect them ([`cable::Cable`]). In a softirq, a packet is carried ([`carry::carry`]) from
//! cable to cable, and its payload copied straight from the sender's buffers into those of whoever it is for. On the
//! way, it is lost where the InfiniBand specification says so, and where a cable has faults ([`impaired`]): there it is
//! copied, and goes on later.
//!
//! Users make fabrics in configfs ([`tree`]): directories stand for nodes and cables, which are there for RDMA
//! core as long as the fabric is live ([`topology`], [`change`]). When it is loaded, the module has none. It cannot be
//! unloaded as long as there is one, since each directory has references to it. Users see what goes on in it in
//! debugfs, and by tracepoints ([`debugfs`], [`stats`]).
//!
//! A cable may lead through a network device, to a port in another kernel or another fabric ([`trunk::Trunk`]).
//!
//! Nothing here is `unsafe`: `rust/rdma_provider`, `rust/configfs_tree`, `rust/raw_ether`, `rust/debugfs_files` and
//! `rust/packet_trace` make the interfaces of RDMA core, configfs, the network core, debugfs and tracing safe, and
//! `fabric/` has the rules of the specification.

#![crate_name = "ib_hwsim"]
#![forbid(unsafe_code)]

mod adapter;
mod cable;
mod capture;
mod carry;
mod change;
mod debugfs;
mod deliver;
mod directories;
mod faults;
mod files;
mod groups;
mod host;
mod impaired;
mod in_flight;
mod node;
mod places;
mod power;
mod qps;
mod rc;
mod send;
mod stats;
mod switch;
mod timers;
mod topology;
mod tree;
mod trunk;

use configfs_tree::Subsystem;
use kernel::prelude::*;

module! {
    type: Module,
    name: "ib_hwsim",
    authors: ["The ipoib_rs developers"],
    description: "Simulated InfiniBand fabrics",
    license: "GPL",
}

/// The loaded module.
struct Module {
    _fabrics: Subsystem<tree::Fabrics>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _fabrics: Subsystem::new(c"ib_hwsim", tree::Fabrics::new()?)?,
        })
    }
}
