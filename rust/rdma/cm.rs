// SPDX-License-Identifier: GPL-2.0

//! The InfiniBand connection manager: how two hosts agree to connect two queue pairs.
//!
//! One side sends a request to a service of the other's, which replies, and the first confirms:
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

pub use id::CmId;
pub use listen::{Incoming, Listen, Listener};

/// Octets of private data that a request carries.
pub const REQUEST_DATA: usize = bindings::ib_cm_data_size_IB_CM_REQ_PRIVATE_DATA_SIZE as usize;
/// Octets of private data that a reply carries.
pub const REPLY_DATA: usize = bindings::ib_cm_data_size_IB_CM_REP_PRIVATE_DATA_SIZE as usize;
/// Octets of private data that a rejection carries.
pub const REJECT_DATA: usize = bindings::ib_cm_data_size_IB_CM_REJ_PRIVATE_DATA_SIZE as usize;

/// Who is told what becomes of a connection.
///
/// The CM has its events follow each other, but for [`CmEvent::NoAnswer`] and [`CmEvent::Over`],
/// which may come while the handler still deals with an earlier one.
pub trait CmHandler: Send + Sync + 'static {
    /// Something happened.
    ///
    /// # Context
    ///
    /// Process context; may sleep. The [`CmId`] may be dropped in here; nobody may wait in here for
    /// it to be destroyed.
    fn event(&self, event: CmEvent<'_>);
}

/// What became of a connection.
#[derive(Clone, Copy, Debug)]
pub enum CmEvent<'a> {
    /// The other side has accepted: call [`CmId::ready`] and [`CmId::confirm`].
    Accepted {
        /// What came along, [`REPLY_DATA`] octets.
        private_data: &'a [u8],
    },
    /// The other side has heard that we accepted.
    Confirmed,
    /// The other side does not want the connection.
    Rejected {
        /// Why; see [`RejectReason`].
        reason: u16,
        /// What came along, [`REJECT_DATA`] octets.
        private_data: &'a [u8],
    },
    /// The other side did not answer a request, or a reply.
    NoAnswer,
    /// The other side has disconnected, which was answered.
    Disconnected,
    /// The connection is over. It may come twice: when the other side has confirmed that, and when
    /// the last packet is off the network.
    Over,
}

/// Why a connection is not wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RejectReason {
    /// There is no queue pair.
    NoQp,
    /// Something that is needed is used up.
    NoResources,
    /// The request is not understood.
    Unsupported,
    /// There is no such service.
    InvalidServiceId,
    /// Not that kind of queue pair.
    InvalidTransport,
    /// There is a connection that has the same queue pair on the other side.
    StaleConnection,
    /// The request is for another port, or from nobody we know.
    InvalidGid,
    /// The packets are too large.
    InvalidMtu,
    /// What the private data say.
    ConsumerDefined,
}

impl RejectReason {
    /// What stands for it in a message.
    pub const fn code(self) -> u16 {
        let code = match self {
            Self::NoQp => bindings::ib_cm_rej_reason_IB_CM_REJ_NO_QP,
            Self::NoResources => bindings::ib_cm_rej_reason_IB_CM_REJ_NO_RESOURCES,
            Self::Unsupported => bindings::ib_cm_rej_reason_IB_CM_REJ_UNSUPPORTED,
            Self::InvalidServiceId => bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_SERVICE_ID,
            Self::InvalidTransport => bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_TRANSPORT_TYPE,
            Self::StaleConnection => bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN,
            Self::InvalidGid => bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_GID,
            Self::InvalidMtu => bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_MTU,
            Self::ConsumerDefined => bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED,
        };
        code as u16
    }
}

/// How patient a request is. Times are 4.096 us times two to the power of the number, at most 31.
#[derive(Clone, Copy, Debug)]
pub struct CmTimeouts {
    /// How long a packet is on its way at most. An unacknowledged packet is sent again after about
    /// twice that.
    pub packet_life_time: u8,
    /// How long either side takes to answer a message at most.
    pub response: u8,
    /// How often a message is sent again, 1 to 15.
    pub retries: u8,
}

impl Default for CmTimeouts {
    /// Gives up a silent host after 12 s: 8 messages, each of which has 1 s to be answered and
    /// 0.5 s to cross the network and back. The life time is what the RDMA CM assumes on RoCE.
    fn default() -> Self {
        Self {
            packet_life_time: 16,
            response: 18,
            retries: 7,
        }
    }
}

/// What is asked of the other side.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// To where, and from which GID.
    pub path: &'a Ah,
    /// Which of its services.
    pub service_id: u64,
    /// The partition.
    pub pkey: u16,
    /// Octets that a packet carries at most.
    pub mtu: u32,
    /// How patiently.
    pub timeouts: CmTimeouts,
    /// What to tell the service, at most [`REQUEST_DATA`] octets.
    pub private_data: &'a [u8],
}

/// What a request is answered.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// What to tell the other side, at most [`REPLY_DATA`] octets.
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
            bindings::ib_cm_rej_reason::from(reason.code()),
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
/// The event's must be null or that long.
unsafe fn private_data(event: &bindings::ib_cm_event, len: usize) -> &[u8] {
    if event.private_data.is_null() {
        return &[];
    }
    // SAFETY: By this function's requirements. They are part of the message, which lives as long as
    // the event.
    unsafe { slice::from_raw_parts(event.private_data.cast_const().cast(), len) }
}
