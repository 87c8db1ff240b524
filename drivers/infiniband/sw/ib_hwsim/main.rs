// SPDX-License-Identifier: GPL-2.0

//! Simulated InfiniBand: channel adapters and the cable between them.
//!
//! RDMA core, subnet managers and ULPs are real, and see InfiniBand devices. A [`adapter::Hca`] is one of
//! them. Its ports are as a subnet manager finds and sets them (crate `ib_fabric`); it sends datagrams by its
//! [`node::Node`], which moves them, on behalf of a softirq, straight into the buffers of whoever they are
//! for. On the way, a datagram is lost where the InfiniBand specification says so, and if a
//! completion queue overruns.
//!
//! The module has two adapters of one port, back to back.
//!
//! Nothing here is `unsafe`: `rust/rdma_provider` makes RDMA core's interface safe, and `fabric/` has the rules
//! of the specification.

#![crate_name = "ib_hwsim"]
#![forbid(unsafe_code)]

mod adapter;
mod deliver;
mod groups;
mod node;
mod pair;
mod qps;

use kernel::prelude::*;

module! {
    type: Module,
    name: "ib_hwsim",
    authors: ["The ipoib_rs developers"],
    description: "Simulated InfiniBand adapters",
    license: "GPL",
}

/// The loaded module.
struct Module {
    _pair: pair::Pair,
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _pair: pair::Pair::new(module)?,
        })
    }
}
