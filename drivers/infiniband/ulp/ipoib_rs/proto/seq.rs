// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers of frames, and the reordering of those that overtook each other.

pub mod deadline;
mod number;
pub mod reorder;
pub mod source;

pub use number::{MsgId, Sequence};
