// SPDX-License-Identifier: GPL-2.0

//! What a user can ask for: one module per verb of the front door.

pub mod build;
pub mod clean;
pub mod configs;
pub mod demo;
pub mod help;
pub mod lint;
pub mod mutants;
pub mod overlay;
pub mod shell;
pub mod test;
