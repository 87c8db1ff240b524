// SPDX-License-Identifier: GPL-2.0

//! Scenarios: ordinary Rust tests that exist once per lane.

use crate::bed::Builder;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::slots;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

/// Runs a scenario on a lane, with the kernel that `LAB_KERNEL` names (`base` if unset).
pub fn run(lane: Lane, path: &str, body: fn(Builder) -> Result<()>) -> Result<()> {
    let kernel: Kernel = match std::env::var("LAB_KERNEL") {
        Ok(name) => name.parse()?,
        Err(_) => Kernel::Base,
    };
    // The test crate's own name says nothing.
    let name = path
        .split_once("::")
        .map_or(path, |(_, rest)| rest)
        .replace("::", "-");
    let start = Instant::now();
    let result = body(Builder::new(&name, lane, kernel))
        .with_context(|| format!("{name} on the {lane} lane, {kernel} kernel"));
    // A list for people: that it cannot be written fails nothing.
    let _ = note_time(&name, lane, kernel, start.elapsed());
    result
}

/// Adds a line to the list of how long scenarios took, and how much of that they waited for slots.
fn note_time(name: &str, lane: Lane, kernel: Kernel, took: Duration) -> Result<()> {
    let dir = Layout::from_env()?.build().join("logs");
    let mut list = File::options()
        .append(true)
        .create(true)
        .open(dir.join(format!("times-{lane}-{kernel}")))?;
    let waited = slots::waited();
    // In one write: others write there, too.
    let line = format!(
        "{:8.2} {:8.2} {name}\n",
        took.saturating_sub(waited).as_secs_f32(),
        waited.as_secs_f32()
    );
    list.write_all(line.as_bytes())?;
    Ok(())
}

/// Makes a scenario a test in each lane: `fn name(bed: Builder) { … }` becomes the tests
/// `name::uml` and `name::qemu`. With `uml:` or `qemu:` in front it exists in that lane only.
#[macro_export]
macro_rules! scenario {
    ($(#[$meta:meta])* fn $name:ident($bed:ident) $body:block) => {
        $crate::scenario!(@module [uml Uml, qemu Qemu] $(#[$meta])* $name $bed $body);
    };
    ($(#[$meta:meta])* uml: fn $name:ident($bed:ident) $body:block) => {
        $crate::scenario!(@module [uml Uml] $(#[$meta])* $name $bed $body);
    };
    ($(#[$meta:meta])* qemu: fn $name:ident($bed:ident) $body:block) => {
        $crate::scenario!(@module [qemu Qemu] $(#[$meta])* $name $bed $body);
    };
    (@module [$($test:ident $lane:ident),+] $(#[$meta:meta])* $name:ident $bed:ident $body:block) => {
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn body($bed: $crate::bed::Builder) -> ::anyhow::Result<()> $body

            $(
                #[test]
                fn $test() -> ::anyhow::Result<()> {
                    $crate::scenario::run($crate::machine::Lane::$lane, module_path!(), body)
                }
            )+
        }
    };
}
