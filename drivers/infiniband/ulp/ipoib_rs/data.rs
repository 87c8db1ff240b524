// SPDX-License-Identifier: GPL-2.0

//! The data path where datagrams and connections meet: what the stack hands over, and what the NAPIs poll.

pub(crate) mod completions;
pub(crate) mod connected;
pub(crate) mod endings;
pub(crate) mod events;
pub(crate) mod rx;
pub(crate) mod tx;
