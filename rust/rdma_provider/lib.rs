// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the side of RDMA core that a device driver sees.
//!
//! A driver implements [`Adapter`] and registers it with [`Registration`]: that is an `ib_device`, whose
//! link layer is InfiniBand, or Ethernet (RoCE v2). RDMA core allocates queue pairs, completion queues and address handles, counts
//! their references and destroys them in order; this crate keeps what belongs to them: completion queues
//! ([`Cq`]), and queue pairs with their send and receive queues ([`Qp`]). The driver moves messages from one
//! to the other with [`Qp::transmit`] and [`Qp::receive`], those of connections with [`Qp::request`],
//! [`Qp::accept`], [`Qp::respond`] and [`Qp::answer`], and never sees an address: the payload goes straight from the
//! sender's memory to the receiver's. The rules of connections are those of [`ib_fabric::rc`].
//!
//! The device does no DMA. RDMA core gives it kernel virtual addresses, since it is registered without
//! a DMA device (`ib_uses_virt_dma()`); user space gets no verbs, only management datagrams.
//!
//! Locks, outermost first: that of a completion queue's users; a send queue's, a receive queue's, a shared receive
//! queue's, a completion queue's; and those of memory regions and of faults, under which there is no other. All disable
//! interrupts, since ULPs post and poll under locks of their own. The driver's own locks may be taken in the callbacks
//! of [`Qp::transmit`], [`Qp::receive`], [`Qp::request`], [`Qp::accept`] and [`Qp::answer`]; under them, none of this
//! crate's may be.
//!
//! A receiver does not answer in the callback of a sender, as it would want the lock of that sender's queue. It says
//! that it owes an answer, and gives it from a job of its own.

#![crate_name = "rdma_provider"]

pub mod adapter;
pub mod ah;
pub mod attributes;
pub mod bh_work;
pub mod clock;
pub mod cq;
mod domain;
pub mod faults;
pub mod handle;
mod memory;
mod netdev;
mod netns;
mod object;
mod owed;
pub mod qp;
mod readers;
mod region;
pub mod registration;
mod srq;
pub mod state;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
mod verbs;
pub mod wakeups;
pub mod work;

pub use adapter::Adapter;
pub use ah::{AddressVector, GlobalRoute};
pub use attributes::{Capabilities, PortAttributes};
pub use bh_work::{Again, BhWork, Job, Trigger};
pub use clock::{now, wall_clock, MILLISECOND};
pub use cq::Cq;
pub use faults::Faults;
pub use handle::Handle;
pub use netns::{NetdevName, Netns};
pub use qp::{Accepted, Answered, Arrival, Delivery, Kind, Meta, Payload, Qp, Refused};
pub use qp::{QpTally, QueueTally};
pub use registration::Registration;
pub use state::State;
pub use wakeups::Wakeups;
pub use work::{Path, Send, Status};

/// Prefix of the kernel crate's log lines.
const __LOG_PREFIX: &[u8] = b"rdma_provider\0";
