// SPDX-License-Identifier: GPL-2.0

//! Work requests, as the driver and the ULP see them.

pub use ib_fabric::completion::Status;
use ib_fabric::rc::Fault;
use ipoib_sys::bindings;

use crate::ah::AddressVector;

/// The value of a status in `enum ib_wc_status`.
pub(crate) fn as_raw(status: Status) -> bindings::ib_wc_status {
    match status {
        Status::Success => bindings::ib_wc_status_IB_WC_SUCCESS,
        Status::LocalLength => bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
        Status::LocalOperation => bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR,
        Status::LocalProtection => bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
        Status::Flushed => bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
        Status::BadResponse => bindings::ib_wc_status_IB_WC_BAD_RESP_ERR,
        Status::LocalAccess => bindings::ib_wc_status_IB_WC_LOC_ACCESS_ERR,
        Status::RemoteInvalidRequest => bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR,
        Status::RemoteAccess => bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR,
        Status::RemoteOperation => bindings::ib_wc_status_IB_WC_REM_OP_ERR,
        Status::RetryExceeded => bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR,
        Status::RnrRetryExceeded => bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR,
        Status::Fatal => bindings::ib_wc_status_IB_WC_FATAL_ERR,
        Status::General => bindings::ib_wc_status_IB_WC_GENERAL_ERR,
    }
}

/// Status of a receive request whose message cannot be received.
pub(crate) fn of_fault(fault: Fault) -> Status {
    match fault {
        Fault::Length => Status::LocalLength,
        Fault::Protection => Status::LocalProtection,
        Fault::Invalid => Status::RemoteInvalidRequest,
        Fault::Access => Status::RemoteAccess,
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
