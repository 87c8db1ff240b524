// SPDX-License-Identifier: GPL-2.0

//! Datagram mode (RFC 4391): paths to peers and multicast groups.

pub(crate) mod endpoint;
pub(crate) mod paths;
pub(crate) mod ring;
pub(crate) mod tx;
pub(crate) mod unanswered;
