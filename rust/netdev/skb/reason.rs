// SPDX-License-Identifier: GPL-2.0

//! Reasons to drop frames.

use ipoib_sys::bindings;

/// Reason to drop a frame, as tracing tools show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// The device cannot carry frames now.
    DevReady,
    /// The frame's link-layer header is wrong or cannot be made.
    DevHeader,
    /// The frame is shorter than its headers say.
    HeaderTruncated,
    /// The frame is shorter than the smallest.
    TooSmall,
    /// The frame is longer than the MTU.
    TooBig,
    /// No memory.
    NoMemory,
    /// The transmit ring is full.
    RingFull,
    /// No path to the destination could be made.
    NeighbourCreate,
    /// The destination did not answer.
    NeighbourFailed,
    /// Too many frames wait for the destination.
    NeighbourQueueFull,
    /// The destination was removed while the frame waited.
    NeighbourDead,
    /// The frame's EtherType is none that the interface carries.
    UnhandledProtocol,
    /// The frame is for somebody else, or our own that came back.
    OtherHost,
    /// The queue that held the frame was thrown away.
    QueuePurge,
    /// The frame had to be segmented or laid out anew, and could not be.
    Segment,
    /// The frame came twice.
    Duplicate,
    /// None of the above.
    Other,
}

impl DropReason {
    #[inline]
    pub(super) fn as_raw(self) -> bindings::skb_drop_reason {
        match self {
            Self::DevReady => bindings::skb_drop_reason_SKB_DROP_REASON_DEV_READY,
            Self::DevHeader => bindings::skb_drop_reason_SKB_DROP_REASON_DEV_HDR,
            Self::HeaderTruncated => bindings::skb_drop_reason_SKB_DROP_REASON_HDR_TRUNC,
            Self::TooSmall => bindings::skb_drop_reason_SKB_DROP_REASON_PKT_TOO_SMALL,
            Self::TooBig => bindings::skb_drop_reason_SKB_DROP_REASON_PKT_TOO_BIG,
            Self::NoMemory => bindings::skb_drop_reason_SKB_DROP_REASON_NOMEM,
            Self::RingFull => bindings::skb_drop_reason_SKB_DROP_REASON_FULL_RING,
            Self::NeighbourCreate => bindings::skb_drop_reason_SKB_DROP_REASON_NEIGH_CREATEFAIL,
            Self::NeighbourFailed => bindings::skb_drop_reason_SKB_DROP_REASON_NEIGH_FAILED,
            Self::NeighbourQueueFull => bindings::skb_drop_reason_SKB_DROP_REASON_NEIGH_QUEUEFULL,
            Self::NeighbourDead => bindings::skb_drop_reason_SKB_DROP_REASON_NEIGH_DEAD,
            Self::UnhandledProtocol => bindings::skb_drop_reason_SKB_DROP_REASON_UNHANDLED_PROTO,
            Self::OtherHost => bindings::skb_drop_reason_SKB_DROP_REASON_OTHERHOST,
            Self::QueuePurge => bindings::skb_drop_reason_SKB_DROP_REASON_QUEUE_PURGE,
            Self::Segment => bindings::skb_drop_reason_SKB_DROP_REASON_SKB_GSO_SEG,
            Self::Duplicate => bindings::skb_drop_reason_SKB_DROP_REASON_DUP_FRAG,
            Self::Other => bindings::skb_drop_reason_SKB_DROP_REASON_NOT_SPECIFIED,
        }
    }
}
