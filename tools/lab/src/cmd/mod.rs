// SPDX-License-Identifier: GPL-2.0

//! Commands of a user: one module for each target of make.

pub mod build;
pub mod clean;
pub mod configs;
pub mod demo;
pub mod fuzz;
pub mod help;
pub mod kunit;
mod kunit_py;
pub mod lint;
pub mod mutants;
pub mod overlay;
pub(crate) mod scenarios;
pub mod shell;
pub mod sim;
pub mod test;
