// SPDX-License-Identifier: GPL-2.0

//! State that every layer reads: the port, settings, counters, and the reordering of received frames.

pub(crate) mod counters;
pub(crate) mod groups;
pub(crate) mod interface;
pub(crate) mod order;
pub(crate) mod params;
pub(crate) mod port;
pub(crate) mod quota;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod storage;
