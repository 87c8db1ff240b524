// SPDX-License-Identifier: GPL-2.0

//! The lab: builds kernels and modules, boots hosts, and runs scenarios on them.
//!
//! A [`machine::Machine`] is one booted kernel. A [`bed::Bed`] is a set of [`bed::Host`]s on a
//! wire, whatever machines they are: virtual machines of their own in the qemu lane, network
//! namespaces of one kernel in the uml lane. Scenarios are functions on a bed.

mod accel;
pub mod accounts;
mod agent;
pub mod bed;
pub mod bench;
pub mod classify;
pub mod cmd;
pub mod console;
mod cover;
pub mod deb;
pub mod debian;
pub mod fabric;
pub mod forge;
pub mod frames;
mod history;
mod hollow;
pub mod initramfs;
mod iproute;
mod kept;
pub mod kernel;
pub mod kunit;
pub mod layers;
pub mod layout;
mod limit;
pub mod machine;
pub mod misuse;
pub mod module;
pub mod modules;
mod mutants;
pub mod packets;
mod processor;
mod progress;
mod qemu;
pub mod requests;
pub mod scenario;
pub mod sizes;
mod slots;
pub mod source;
pub mod stage;
pub mod step;
pub mod stock;
pub mod tally;
pub mod task;
mod uml;
mod until;
mod woven;

#[doc(hidden)]
pub use inventory;
