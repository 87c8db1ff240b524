// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the kernel's RDMA verbs, for unreliable datagrams and reliable
//! connections.
//!
//! What a driver needs to send and receive datagrams on an RDMA port without `unsafe`: devices as
//! they come and go ([`client`], [`event`]), ports and GIDs ([`port`], [`gid`]), the resources
//! ([`pd`], [`cq`], [`qp`], [`ah`], [`mcast`]), and a ring for each direction ([`send`], [`recv`]).
//! For connections: queue pairs ([`rc`]), what they receive into ([`intake`]), and the messages by
//! which two hosts agree on one ([`cm`]). What may be dropped in softirq goes to the [`graveyard`].
//!
//! Resources hold what they are made of: a queue pair its completion queues and its protection
//! domain, that its device. A [`Device`] holds up the device's unregistration, so all of it has to
//! be gone before [`Client::remove`] returns.
//!
//! Memory that the device may reach belongs to a ring. A ring gives it back when the device says
//! that it is done, or when the queue pair has been reset; if that fails, when it has been destroyed.
//! What a device does not even destroy costs memory, and holds up nothing.

#![crate_name = "ipoib_rdma"]

pub mod ah;
pub mod client;
pub mod cm;
pub mod cq;
pub mod device;
pub mod event;
pub mod gid;
pub mod graveyard;
pub mod intake;
pub mod intake_ring;
mod left;
pub mod mcast;
pub mod pd;
pub mod port;
pub mod qp;
pub mod rc;
pub mod rc_send;
pub mod recv;
pub mod send;

/// What the kernel crate's printing macros put in front of a line.
const __LOG_PREFIX: &[u8] = b"ipoib_rs\0";

pub use ah::{Ah, AhOptions};
pub use client::{Client, Registration};
pub use cm::{
    CmEvent, CmHandler, CmId, CmTimeouts, Incoming, Listen, Listener, RejectReason, Reply, Request,
};
pub use cq::{CompletionHandler, Cq};
pub use device::Device;
pub use event::{Event, EventHandler, EventSink};
pub use gid::{GidOwner, GidRef};
pub use graveyard::Reaper;
pub use intake::Intake;
pub use intake_ring::{IntakeRing, MessagePool, RcReceived};
pub use mcast::Membership;
pub use pd::Pd;
pub use port::PortAttr;
pub use qp::{random_psn, FailureHandler, QpCaps, QpState, UdQp};
pub use rc::{QpKey, RcQp};
pub use rc_send::{rc_ring, Lane, RcCompletions, RcReaped, RcSender};
pub use recv::{NetworkHeader, ReceiveReport, Received, RecvRing};
pub use send::{send_ring, Posted, Reaped, SendCompletions, Sender};
