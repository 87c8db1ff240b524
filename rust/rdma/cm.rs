// SPDX-License-Identifier: GPL-2.0

//! The InfiniBand connection manager (CM), by which two hosts connect two queue pairs.
//!
//! One side sends a request to a service of the other side, which replies, and the first side confirms:
//!
//! ```text
//! CmId::request   ---- REQ ----->   Listen::request, Incoming::take, CmId::ready, CmId::accept
//! Accepted        <--- REP ------
//! CmId::ready
//! CmId::confirm   ---- RTU ----->   Confirmed
//! ```
//!
//! Either side ends it with [`CmId::disconnect`], or by dropping the [`CmId`].
//!
//! C headers: [`include/rdma/ib_cm.h`](srctree/include/rdma/ib_cm.h).

use core::ptr::{self, NonNull};
use core::slice;

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::prelude::*;

use crate::ah::Ah;

mod id;
mod listen;
mod owned;
mod report;

pub use id::CmId;
pub use listen::{Incoming, Listen, Listener};

/// Bytes of private data that a request carries.
pub const REQUEST_DATA: usize = bindings::ib_cm_data_size_IB_CM_REQ_PRIVATE_DATA_SIZE as usize;
/// Bytes of private data that a reply carries.
pub const REPLY_DATA: usize = bindings::ib_cm_data_size_IB_CM_REP_PRIVATE_DATA_SIZE as usize;
/// Bytes of private data that a rejection carries.
pub const REJECT_DATA: usize = bindings::ib_cm_data_size_IB_CM_REJ_PRIVATE_DATA_SIZE as usize;

/// Handler of a connection's events.
///
/// The CM calls it for one event after the other, except for [`CmEvent::NoAnswer`] and [`CmEvent::Over`],
/// which may come while the handler is running.
pub trait CmHandler: Send + Sync + 'static {
    /// Handles an event.
    ///
    /// # Context
    ///
    /// Process context; may sleep. The handler may drop the [`CmId`], but must not wait until it is destroyed.
    fn event(&self, event: CmEvent<'_>);
}

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
pub enum CmEvent<'a> {
    /// The peer has accepted: call [`CmId::ready`] and [`CmId::confirm`].
    Accepted {
        /// The peer's private data, [`REPLY_DATA`] bytes.
        private_data: &'a [u8],
    },
    /// The peer has confirmed that we accepted.
    Confirmed,
    /// The peer has rejected the connection.
    Rejected {
        /// The reason, such as one of [`RejectReason`].
        reason: u16,
        /// The peer's private data, [`REJECT_DATA`] bytes.
        private_data: &'a [u8],
    },
    /// The peer did not answer a request, or a reply.
    NoAnswer,
    /// The peer has disconnected, which the CM has answered.
    Disconnected,
    /// The connection is over. It may come twice: when the peer has confirmed the disconnection, and when the
    /// time of the last packet on the network is over.
    Over,
}

/// Reasons to reject a connection, by their codes in the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RejectReason {
    /// There is no queue pair.
    NoQp = bindings::ib_cm_rej_reason_IB_CM_REJ_NO_QP,
    /// Something that is needed is used up.
    NoResources = bindings::ib_cm_rej_reason_IB_CM_REJ_NO_RESOURCES,
    /// The request is not understood.
    Unsupported = bindings::ib_cm_rej_reason_IB_CM_REJ_UNSUPPORTED,
    /// There is no such service.
    InvalidServiceId = bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_SERVICE_ID,
    /// Not that kind of queue pair.
    InvalidTransport = bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_TRANSPORT_TYPE,
    /// There is a connection with the same queue pair of the peer's.
    StaleConnection = bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN,
    /// The request is for another port, or from an unknown peer.
    InvalidGid = bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_GID,
    /// The packets are too large.
    InvalidMtu = bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_MTU,
    /// A reason that the private data tell.
    ConsumerDefined = bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED,
}

/// Timeouts of a request. Times are 4.096 us times two to the power of the number, at most 31.
#[derive(Clone, Copy, Debug)]
pub struct CmTimeouts {
    /// The longest time of a packet on the network, on RoCE; on InfiniBand the path has one. An unacknowledged packet is sent again after about twice
    /// that.
    pub packet_life_time: u8,
    /// The longest time for either side to answer a message.
    pub response: u8,
    /// Retries of a message, 1 to 15.
    pub retries: u8,
}

impl Default for CmTimeouts {
    /// Gives up on a silent host after 12 s: 8 messages, each of which has 1 s to be answered and
    /// 0.5 s to cross the network and back. The life time is what the RDMA CM assumes on RoCE.
    fn default() -> Self {
        Self {
            packet_life_time: 16,
            response: 18,
            retries: 7,
        }
    }
}

/// A request for a connection.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The address handle for the peer.
    pub path: &'a Ah,
    /// The service of the peer.
    pub service_id: u64,
    /// The partition.
    pub pkey: u16,
    /// The largest payload of a packet, in bytes, on RoCE; on InfiniBand the path has one.
    pub mtu: u32,
    /// Timeouts of the request.
    pub timeouts: CmTimeouts,
    /// Private data for the service, at most [`REQUEST_DATA`] bytes.
    pub private_data: &'a [u8],
}

/// Sends a rejection.
///
/// # Safety
///
/// `raw` must be valid.
///
/// # Errors
///
/// `EINVAL` for too many private data, or in the wrong state; whatever the CM says.
unsafe fn send_reject(
    raw: NonNull<bindings::ib_cm_id>,
    reason: RejectReason,
    private_data: &[u8],
) -> Result {
    if private_data.len() > REJECT_DATA {
        return Err(EINVAL);
    }
    // SAFETY: By this function's requirements; the private data are as long as it says.
    to_result(unsafe {
        bindings::ib_send_cm_rej(
            raw.as_ptr(),
            reason as bindings::ib_cm_rej_reason,
            ptr::null_mut(),
            0,
            private_data.as_ptr().cast(),
            private_data.len() as u8,
        )
    })
}

/// The private data of an event.
///
/// # Safety
///
/// The event's private data must be null or that long.
unsafe fn private_data(event: &bindings::ib_cm_event, len: usize) -> &[u8] {
    if event.private_data.is_null() {
        return &[];
    }
    // SAFETY: By this function's requirements. They are part of the message, which lives as long as
    // the event.
    unsafe { slice::from_raw_parts(event.private_data.cast_const().cast(), len) }
}
