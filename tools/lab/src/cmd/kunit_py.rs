// SPDX-License-Identifier: GPL-2.0

//! The kernel's own tool for KUnit, `tools/testing/kunit/kunit.py`, in a kernel tree that has this checkout in it.

use crate::cmd::{configs, overlay};
use crate::layout::Layout;
use crate::source;
use crate::step::{Job, say};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where it is in a kernel tree.
const PLACE: &str = "tools/testing/kunit";

/// A suite of each module, which have to run.
const SUITES: [&str; 2] = ["ipoib_rs_counters", "rdma_provider"];

/// A kernel tree of this checkout's, with a copy of the tool: that looks for the tree where its own file really is.
fn tree(layout: &Layout) -> Result<PathBuf> {
    let tree = configs::tree(layout)?;
    let status = Command::new("cp")
        .args(["--recursive", "--dereference", "--remove-destination"])
        .arg(source::ensure(layout)?.dir.join(PLACE).join("."))
        .arg(tree.join(PLACE))
        .status()
        .context("cp")?;
    ensure!(status.success(), "{} is not copied", PLACE);
    Ok(tree)
}

/// The tool's command `verb` on the suites of this checkout, as testing.rst has it.
fn command(tree: &Path, verb: &str, arch: &str) -> Command {
    let mut command = Command::new(tree.join(PLACE).join("kunit.py"));
    command
        .args([verb, &format!("--kunitconfig={}", overlay::PLACE)])
        .arg(format!("--arch={arch}"))
        .arg(format!(
            "--build_dir={}",
            tree.with_file_name(format!("kunit-{arch}")).display()
        ))
        .current_dir(tree);
    command
}

/// Configures a kernel for each architecture that testing.rst names: Kconfig takes each line of `.kunitconfig`.
pub(crate) fn configure(layout: &Layout) -> Result<()> {
    let tree = tree(layout)?;
    for arch in ["um", "x86_64"] {
        let output = command(&tree, "config", arch)
            .output()
            .context("kunit.py")?;
        ensure!(
            output.status.success(),
            "kunit.py config --arch={arch}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Builds a kernel for User Mode Linux and runs the suites there.
pub(crate) fn run(layout: &Layout) -> Result<()> {
    let tree = tree(layout)?;
    let name = "configs-kunit";
    let what = "build a kernel with kunit.py, and run the suites on it";
    let hint = "What the tool says is above.";
    let log = layout.logs().join(format!("{name}.log"));
    let begin = fs::metadata(&log).map_or(0, |log| log.len() as usize);
    Job::new(layout, name, what, hint)?.run(&mut command(&tree, "run", "um"))?;
    let text = fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    let text = text.get(begin..).unwrap_or(&text);
    for suite in SUITES {
        ensure!(
            text.contains(&format!("= {suite} (")),
            "{suite} has not run: {}",
            log.display()
        );
    }
    if let Some(summary) = text.lines().rfind(|line| line.contains("Testing complete")) {
        say(summary);
    }
    Ok(())
}
