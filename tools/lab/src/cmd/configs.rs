// SPDX-License-Identifier: GPL-2.0

//! `make configs`: whether both modules compile with configurations that no lane boots, out of tree and in the
//! kernel tree. Of a kernel only that is built which a driver is compiled against. [`KUNIT`] is a whole kernel, which
//! kunit.py builds and boots.

use crate::cmd::{kunit_py, overlay};
use crate::kernel::{self, Target};
use crate::layout::{Layout, digest, read};
use crate::source;
use crate::step::{Interrupted, Job, directory, say};
use anyhow::{Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HINT: &str = "The compiler's messages are above.";

/// A configuration.
struct Config {
    name: &'static str,
    target: Target,
    /// Fragments in tools/lab/kernel, in the order in which they are merged.
    fragments: &'static [&'static str],
}

const CONFIGS: &[Config] = &[
    Config {
        name: "hz300",
        target: Target::of("x86"),
        fragments: &["common", "x86", "hz300", "overlay"],
    },
    Config {
        name: "arm64",
        target: Target::of("arm64"),
        fragments: &["common", "arm64", "overlay"],
    },
    Config {
        name: "kcsan",
        target: Target::of("x86").instrumented(),
        fragments: &["common", "x86", "kcsan", "overlay"],
    },
];

/// The configuration of `.kunitconfig`, for User Mode Linux.
const KUNIT: &str = "kunit";

/// Compiles the modules with each configuration whose name contains `filter`.
pub fn run(layout: &Layout, filter: Option<&str>) -> Result<()> {
    let is_chosen = |name: &str| filter.is_none_or(|f| name.contains(f));
    let tree = tree(layout)?;
    let mut results = Vec::new();
    for config in CONFIGS.iter().filter(|config| is_chosen(config.name)) {
        results.push((config.name, config.compile(layout, &tree)));
    }
    if is_chosen(KUNIT) {
        results.push((KUNIT, kunit_py::run(layout)));
    }
    ensure!(!results.is_empty(), "no configuration has that name");
    let mut failed = Vec::new();
    for (name, result) in results {
        if let Err(error) = result {
            say(&format!("{name}: {error:#}"));
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// A kernel tree of this checkout's: links to the files of the shared one, and the overlay.
pub(super) fn tree(layout: &Layout) -> Result<PathBuf> {
    let source = source::ensure(layout)?;
    let dir = layout
        .own
        .join("configs")
        .join(format!("linux-{}", source.id));
    let tree = directory(&dir, Interrupted::Discard, |dir| {
        Job::new(layout, "configs-tree", "link a kernel tree", "")?.run(
            Command::new("cp")
                .args(["--archive", "--symbolic-link", "--no-target-directory"])
                .args([&source.dir, dir]),
        )?;
        // What the overlay changes is a copy.
        for file in overlay::changed() {
            fs::remove_file(dir.join(file))?;
            fs::copy(source.dir.join(file), dir.join(file))?;
        }
        Ok(())
    })?;
    overlay::link(layout, &tree)?;
    Ok(tree)
}

impl Config {
    fn compile(&self, layout: &Layout, tree: &Path) -> Result<()> {
        let kernel = self.prepare(layout, tree)?;
        let name = format!("configs-{}", self.name);
        let objects = layout.own.join("objects").join(&name);
        fs::create_dir_all(&objects)?;
        let what = format!("compile the modules: {}", self.name);
        Job::new(layout, &name, &what, HINT)?.run(
            self.target
                .make()
                .arg("-C")
                .arg(&kernel)
                .arg(format!("M={}", layout.checkout.display()))
                .arg(format!("MO={}", objects.display()))
                // There is no kernel whose symbols it could look up.
                .args(["KBUILD_MODPOST_WARN=1", "modules"]),
        )?;
        let what = format!("compile them in the kernel tree: {}", self.name);
        Job::new(layout, &format!("{name}-overlay"), &what, HINT)?.run(
            self.target
                .make()
                .arg("-C")
                .arg(&kernel)
                .arg(format!("{}/", overlay::PLACE)),
        )
    }

    /// Configures a kernel and builds what drivers are compiled against; its build directory.
    fn prepare(&self, layout: &Layout, tree: &Path) -> Result<PathBuf> {
        let files: Vec<PathBuf> = self
            .fragments
            .iter()
            .map(|n| kernel::fragment(layout, n))
            .collect();
        let contents: Vec<Vec<u8>> = files.iter().map(|f| read(f)).collect::<Result<_>>()?;
        let id = digest(&contents.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let dir = tree.with_file_name(format!("{}-{id}", self.name));
        directory(&dir, Interrupted::Resume, |dir| {
            kernel::configure(layout, self.name, self.target, tree, dir, &files)?;
            let what = format!("prepare a kernel: {}", self.name);
            Job::new(layout, &format!("configs-prepare-{}", self.name), &what, "")?.run(
                self.target
                    .make()
                    .arg("-C")
                    .arg(tree)
                    .arg(format!("O={}", dir.display()))
                    .arg("modules_prepare"),
            )
        })
    }
}
