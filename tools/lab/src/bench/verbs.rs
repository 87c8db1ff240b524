// SPDX-License-Identifier: GPL-2.0

//! Datagrams through the kernel's verbs: a module that sends them from one device to another.

use crate::bed::Host;
use crate::kernel::Built;
use crate::layout::Layout;
use crate::module;
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Its module's name.
const MODULE: &str = "lab_verbs_bench";
/// Bytes of a message.
const BYTES: u32 = 64;

/// Builds the module for a kernel whose staging area is there, and puts it into that.
pub(super) fn ensure(layout: &Layout, built: &Built) -> Result<()> {
    let source = layout.tools().join("bench-verbs");
    let objects = module::build(layout, built, &source, MODULE, &[])?;
    module::install(
        &Stage::of(layout, built.lane, built.kernel),
        &objects,
        MODULE,
    )?;
    Ok(())
}

/// Sends so many messages from one device to another; what one costs, in ns of the guest's clock.
pub(super) fn cost(host: &Host, from: &str, to: &str, messages: u32) -> Result<f64> {
    let script = format!(
        "set -e
         modprobe {MODULE} from={from} to={to} messages={messages} bytes={BYTES}
         cat /sys/module/{MODULE}/parameters/elapsed_ns
         rmmod {MODULE}"
    );
    let text = host.run_for(&script, Duration::from_secs(200))?.ok()?;
    let elapsed: f64 = text.trim().parse().with_context(|| text.clone())?;
    ensure!(elapsed > 0.0, "{from} to {to}: no time has passed");
    Ok(elapsed / f64::from(messages))
}
