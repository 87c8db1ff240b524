// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the kernel's RDMA verbs: unreliable datagrams, and reliable connections.
//!
//! A driver follows devices as they come and go ([`client`], [`event`]), reads their ports and GIDs
//! ([`port`], [`gid`]), asks the subnet administrator of InfiniBand ([`sa`]), makes resources ([`pd`], [`cq`], [`qp`], [`ah`], [`mcast`]), and sends and receives
//! through a ring in each direction ([`send`], [`recv`]). Connections have queue pairs of another type
//! ([`rc`]), each with a send ring ([`rc_send`]), and buffers that they share ([`intake`]); two hosts agree on one by the connection
//! manager ([`cm`]). Resources that are dropped in softirq are destroyed later ([`deferred`]).
//!
//! Resources hold what they are made of: a queue pair holds its completion queues and its protection domain,
//! and that holds the device. The removal of a device waits, behind [`Client::remove`], until all of them are
//! gone.
//!
//! A ring owns the memory that the device may access through it. It frees a buffer when the device has
//! completed the request, or when the queue pair was reset; if that fails, when it was destroyed. If the
//! device does not even destroy a queue pair, its memory is leaked, but nothing waits for it.
//!
//! The word of a device driver is believed. `mlx5_ib_destroy_qp` says that a queue pair was destroyed also if the command
//! has failed, and after a fatal error of the device: the memory is freed then, and its mapping is what keeps the device
//! from writing to it.
//!
//! `samples/ud_loopback.rs` is a small user of this crate; `Documentation/rdma.rst` walks through it.

#![crate_name = "ipoib_rdma"]

pub mod ah;
pub mod client;
pub mod cm;
pub mod cq;
pub mod deferred;
pub mod device;
#[cfg(CONFIG_KUNIT = "y")]
mod dummy;
pub mod event;
mod failure;
#[cfg(CONFIG_KUNIT = "y")]
mod fake;
pub mod flush_time;
pub mod gid;
pub mod intake;
pub mod intake_ring;
mod left;
#[cfg(CONFIG_KUNIT = "y")]
pub mod live;
pub mod mcast;
mod members;
pub mod neighbour;
pub mod pd;
pub mod port;
pub mod qp;
pub mod rc;
pub mod rc_send;
pub mod recv;
mod recv_chain;
pub mod sa;
pub mod send;
mod send_chain;
mod vf;

/// The prefix of log lines, for the kernel crate's printing macros.
const __LOG_PREFIX: &[u8] = b"ipoib_rdma\0";

pub use ah::{Ah, AhOptions, Route};
pub use client::{Client, Found, Registration, Sought};
pub use cm::{
    CmEvent, CmHandler, CmId, CmTimeouts, Incoming, Listen, Listener, RejectReason, Request,
};
pub use cq::{CompletionHandler, Cq, NoEvent};
pub use deferred::Reaper;
pub use device::Device;
pub use event::{Event, EventHandler, EventSink};
pub use failure::{Alarm, FailureHandler};
pub use flush_time::FlushTime;
pub use gid::{GidAddress, GidOwner, GidRef};
pub use intake::Intake;
pub use intake_ring::{IntakeRing, MessagePool, RcReceived};
pub use mcast::Membership;
pub use neighbour::NeighbourQuery;
pub use pd::Pd;
pub use port::PortAttr;
pub use qp::{random_psn, QpCaps, QpState, UdInit, UdOffloads, UdQp};
pub use rc::{QpKey, RcInit, RcQp};
pub use rc_send::{rc_sends, Lane, RcCompletions, RcReaped, RcSender};
pub use recv::{Completion, NetworkHeader, Receive, ReceiveReport, Received, RecvRing};
pub use sa::{
    GroupRecord, Join, JoinRequest, JoinState, Notify, PathQuery, PathRecord, PathRequest, SaClient,
};
pub use send::{send_ring, Drained, Lso, Reaped, Refusal, SendCompletions, SendReport, Sender};
