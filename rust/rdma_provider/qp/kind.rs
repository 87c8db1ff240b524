// SPDX-License-Identifier: GPL-2.0

//! Services and events of queue pairs, by RDMA core's names.

use ipoib_sys::bindings;
use kernel::prelude::*;

/// Service of a queue pair, with its number in `enum ib_qp_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Subnet management interface, queue pair 0.
    Smi = bindings::ib_qp_type_IB_QPT_SMI,
    /// General services interface, queue pair 1.
    Gsi = bindings::ib_qp_type_IB_QPT_GSI,
    /// Unreliable datagrams.
    Ud = bindings::ib_qp_type_IB_QPT_UD,
    /// A reliable connection.
    Rc = bindings::ib_qp_type_IB_QPT_RC,
}

impl Kind {
    pub(crate) fn from_raw(raw: bindings::ib_qp_type) -> Result<Kind> {
        match raw {
            bindings::ib_qp_type_IB_QPT_SMI => Ok(Kind::Smi),
            bindings::ib_qp_type_IB_QPT_GSI => Ok(Kind::Gsi),
            bindings::ib_qp_type_IB_QPT_UD => Ok(Kind::Ud),
            bindings::ib_qp_type_IB_QPT_RC => Ok(Kind::Rc),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// Returns true if each port has one of its own.
    pub(crate) fn is_special(self) -> bool {
        matches!(self, Kind::Smi | Kind::Gsi)
    }
}

/// Event of a queue pair that its ULP is told of (IB specification, section 11.6.3), with its number in
/// `enum ib_event_type`, which is below 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpEvent {
    /// The first packet has come, before the ULP knew that the connection is there.
    Established = bindings::ib_event_type_IB_EVENT_COMM_EST,
    /// The send queue has drained.
    Drained = bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
    /// The other side asked for what cannot be done.
    Request = bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
    /// The other side asked for memory that is not its to use.
    Access = bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// The queue pair has failed.
    Fatal = bindings::ib_event_type_IB_EVENT_QP_FATAL,
    /// The queue pair uses the alternate path now.
    Migrated = bindings::ib_event_type_IB_EVENT_PATH_MIG,
    /// The queue pair cannot use the alternate path.
    MigrationError = bindings::ib_event_type_IB_EVENT_PATH_MIG_ERR,
    /// The queue pair takes no more requests from its shared receive queue.
    LastReceive = bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
}

impl QpEvent {
    /// All of them, in the order in which a ULP is told of several.
    pub(super) const ALL: [QpEvent; 8] = [
        QpEvent::Established,
        QpEvent::Drained,
        QpEvent::Request,
        QpEvent::Access,
        QpEvent::Fatal,
        QpEvent::Migrated,
        QpEvent::MigrationError,
        QpEvent::LastReceive,
    ];

    /// The event's bit in a set of events.
    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }
}
