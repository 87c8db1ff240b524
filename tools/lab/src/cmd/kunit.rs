// SPDX-License-Identifier: GPL-2.0

//! `make kunit`: the KUnit suites of both modules, on one kernel. `make test` runs them, too, on User Mode Linux.

use crate::kernel;
use crate::kunit;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::module;
use anyhow::{Result, ensure};

/// Runs the suites on the base kernel of the qemu lane, or on another one; true if all passed. The last line printed is
/// the count.
pub fn run(layout: &Layout, lane: Option<Lane>, kernel: Option<Kernel>) -> Result<bool> {
    let (lane, kernel) = (lane.unwrap_or(Lane::Qemu), kernel.unwrap_or(Kernel::Base));
    ensure!(
        kernel != Kernel::Stock,
        "Debian builds its kernel without KUnit"
    );
    let built = kernel::ensure(layout, lane, kernel)?;
    module::ensure(layout, &built)?;
    std::fs::create_dir_all(layout.build().join("logs"))?;
    let tally = kunit::run(layout, &built)?;
    for name in &tally.failed {
        println!("   {name}");
    }
    println!("{}", tally.summary());
    Ok(tally.failed.is_empty())
}
