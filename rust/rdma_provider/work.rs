// SPDX-License-Identifier: GPL-2.0

//! Work requests, as the driver and the ULP see them.

use ib_fabric::fault::Failure;
use ib_fabric::rc;
use ipoib_sys::bindings;

use crate::ah::AddressVector;

/// Outcome of a work request (IB specification, section 11.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The request is done.
    Success,
    /// The message is longer than may be sent, or than the receive request has room for.
    LocalLength,
    /// Something in the request or the queue pair forbids it.
    LocalOperation,
    /// The buffers are not the ULP's to use.
    LocalProtection,
    /// The queue was in error, or the queue pair.
    Flushed,
    /// An answer does not fit its request.
    BadResponse,
    /// The responder cannot do such a request.
    RemoteInvalidRequest,
    /// The remote memory is not the requester's to use.
    RemoteAccess,
    /// The responder could not do it.
    RemoteOperation,
    /// No answer came.
    RetryExceeded,
    /// The other side had no receive request for too long.
    RnrRetryExceeded,
    /// Local memory is not to be used so.
    LocalAccess,
    /// The device has failed.
    Fatal,
    /// The request failed for another reason.
    General,
}

impl Status {
    pub(crate) fn as_raw(self) -> bindings::ib_wc_status {
        match self {
            Status::Success => bindings::ib_wc_status_IB_WC_SUCCESS,
            Status::LocalLength => bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
            Status::LocalOperation => bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR,
            Status::LocalProtection => bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
            Status::Flushed => bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
            Status::BadResponse => bindings::ib_wc_status_IB_WC_BAD_RESP_ERR,
            Status::RemoteInvalidRequest => bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR,
            Status::RemoteAccess => bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR,
            Status::RemoteOperation => bindings::ib_wc_status_IB_WC_REM_OP_ERR,
            Status::RetryExceeded => bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR,
            Status::RnrRetryExceeded => bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR,
            Status::LocalAccess => bindings::ib_wc_status_IB_WC_LOC_ACCESS_ERR,
            Status::Fatal => bindings::ib_wc_status_IB_WC_FATAL_ERR,
            Status::General => bindings::ib_wc_status_IB_WC_GENERAL_ERR,
        }
    }

    /// Status of a request that a rule makes fail.
    pub(crate) fn of_rule(failure: Failure) -> Status {
        match failure {
            Failure::LocalLength => Status::LocalLength,
            Failure::LocalOperation => Status::LocalOperation,
            Failure::LocalProtection => Status::LocalProtection,
            Failure::Flushed => Status::Flushed,
            Failure::BadResponse => Status::BadResponse,
            Failure::LocalAccess => Status::LocalAccess,
            Failure::RemoteInvalidRequest => Status::RemoteInvalidRequest,
            Failure::RemoteAccess => Status::RemoteAccess,
            Failure::RemoteOperation => Status::RemoteOperation,
            Failure::RetryExceeded => Status::RetryExceeded,
            Failure::RnrRetryExceeded => Status::RnrRetryExceeded,
            Failure::Fatal => Status::Fatal,
            Failure::General => Status::General,
        }
    }

    /// Status of a request that the other side of a connection has made fail.
    pub(crate) fn of_failure(failure: rc::Failure) -> Status {
        match failure {
            rc::Failure::RetryExceeded => Status::RetryExceeded,
            rc::Failure::RnrRetryExceeded => Status::RnrRetryExceeded,
            rc::Failure::RemoteInvalidRequest => Status::RemoteInvalidRequest,
            rc::Failure::RemoteAccess => Status::RemoteAccess,
            rc::Failure::RemoteOperation => Status::RemoteOperation,
            rc::Failure::BadResponse => Status::BadResponse,
        }
    }

    /// Status of a receive request whose message cannot be received.
    pub(crate) fn of_fault(fault: rc::Fault) -> Status {
        match fault {
            rc::Fault::Length => Status::LocalLength,
            rc::Fault::Protection => Status::LocalProtection,
            rc::Fault::Invalid => Status::RemoteInvalidRequest,
            rc::Fault::Access => Status::RemoteAccess,
        }
    }
}

/// A request to send a datagram, as the driver sees it.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// Destination.
    pub to: AddressVector,
    /// Queue pair there.
    pub remote_qp: u32,
    /// Q_Key to send with.
    pub qkey: u32,
    /// Index of the P_Key to send with.
    pub pkey_index: u16,
    /// Immediate data, in network order.
    pub immediate: Option<[u8; 4]>,
    /// True if the receiver is to be told.
    pub solicited: bool,
    /// Bytes of payload.
    pub len: usize,
}

/// The other end of a connection, as the driver sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// Destination.
    pub to: AddressVector,
    /// Queue pair there.
    pub remote_qp: u32,
    /// Index of the P_Key to send with.
    pub pkey_index: u16,
    /// Path MTU in bytes.
    pub mtu: u32,
}
