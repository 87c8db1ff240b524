// SPDX-License-Identifier: GPL-2.0

//! The C driver as a peer: a copy of the kernel source's `ib_ipoib`, patched to run over RoCE.

use crate::kernel::Built;
use crate::layout::{Layout, digest, read};
use crate::module;
use crate::stage::Stage;
use crate::step::{Interrupted, Job, directory};
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

/// Its module's name.
pub const MODULE: &str = "ib_ipoib_peer";
/// The interface that it makes by itself, one per network namespace of the lab.
pub const INTERFACE: &str = "ibc0";

const HINT: &str = "tools/lab/bench-peer/roce.patch is made for Linux 7.3: does it fit this one?";

/// Builds the module for a kernel whose staging area is there, and puts it into that.
pub fn ensure(layout: &Layout, built: &Built) -> Result<()> {
    let original = built.source.dir.join("drivers/infiniband/ulp/ipoib");
    let patch = layout.tools().join("bench-peer/roce.patch");
    let kbuild = layout.tools().join("bench-peer/Kbuild");
    let id = digest(&[built.source.id.as_bytes(), &read(&patch)?, &read(&kbuild)?]);
    let dir = directory(
        &layout.own.join("peer").join(id),
        Interrupted::Discard,
        |dir| {
            for entry in fs::read_dir(&original).with_context(|| original.display().to_string())? {
                let path = entry?.path();
                let wanted = path.extension().is_some_and(|e| e == "c" || e == "h");
                if let (true, Some(name)) = (wanted, path.file_name()) {
                    fs::copy(&path, dir.join(name)).with_context(|| path.display().to_string())?;
                }
            }
            Job::new(layout, "peer-patch", "patch a copy of the C driver", HINT)?.run(
                Command::new("patch")
                    .arg("-p1")
                    .arg("-d")
                    .arg(dir)
                    .arg("-i")
                    .arg(&patch),
            )?;
            fs::copy(&kbuild, dir.join("Kbuild")).context("Kbuild")?;
            Ok(())
        },
    )?;
    let objects = module::build(layout, built, &dir, MODULE, &[])?;
    module::install(
        &Stage::of(layout, built.lane, built.kernel),
        &objects,
        MODULE,
    )?;
    Ok(())
}
