// SPDX-License-Identifier: GPL-2.0

//! Connected mode (RFC 4755): reliable connections and the frames on them.

pub(crate) mod admission;
pub(crate) mod channel;
pub(crate) mod conn;
pub(crate) mod context;
pub(crate) mod ended;
mod evict;
pub(crate) mod flow;
pub(crate) mod form;
pub(crate) mod ring;
pub(crate) mod rx;
pub(crate) mod senders;
pub(crate) mod shared;
pub(crate) mod table;
pub(crate) mod tx;
pub(crate) mod window;
