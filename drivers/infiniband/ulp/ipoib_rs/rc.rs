// SPDX-License-Identifier: GPL-2.0

//! Connected mode (RFC 4755): reliable connections and the frames on them.

pub(crate) mod conn;
pub(crate) mod ring;
pub(crate) mod rx;
pub(crate) mod table;
