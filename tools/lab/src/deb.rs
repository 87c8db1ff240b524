// SPDX-License-Identifier: GPL-2.0

//! The Debian packages of this checkout.

use crate::layout::Layout;
use crate::step::{Job, lock};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The names of the packages that `debian/control` has.
const NAMES: [&str; 4] = [
    "ipoib-rs-dkms",
    "ipoib-rs-iproute2",
    "ib-hwsim-dkms",
    "ipoib-rs-tools",
];
/// Parts of the checkout that the packages are made from.
const SOURCES: [&str; 12] = [
    "Cargo.lock",
    "Cargo.toml",
    "Documentation",
    "Kbuild",
    "Makefile",
    "README.md",
    "debian",
    "drivers",
    "rust",
    "samples",
    "tests",
    "tools",
];

/// The package files.
#[derive(Debug, Clone)]
pub struct Packages {
    /// The driver's source, for DKMS.
    pub dkms: PathBuf,
    /// The plugin for iproute2.
    pub iproute2: PathBuf,
    /// The source of the simulated fabric, for DKMS, and its script.
    pub fabric: PathBuf,
    /// ipoibctl.
    pub tools: PathBuf,
}

/// Makes the packages in the directory `to`, and has lintian check them. They have the checkout's version, or
/// the `version` that is asked for.
///
/// # Errors
///
/// Whatever keeps them from being made, and each error or warning of lintian's.
pub fn make(layout: &Layout, to: &Path, version: Option<&str>) -> Result<Packages> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    let _lock = lock(&to.with_extension("lock"))?;
    let work = tempfile::tempdir_in(&layout.own).context("a directory for the packages")?;
    let source = work.path().join("ipoib-rs");
    fs::create_dir(&source)?;
    let job = Job::new(
        layout,
        "packages",
        "make the Debian packages",
        "The packager's messages are above.",
    )?;
    job.run(
        Command::new("bash")
            .args([
                "-c",
                r#"set -euo pipefail
                cd "$1"
                git -c safe.directory='*' ls-files -z --cached --others --exclude-standard -- "${@:3}" |
                    while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
                    tar -c --null -T - | tar -x -C "$2""#,
                "bash",
            ])
            .args([&layout.checkout, &source])
            .args(SOURCES),
    )?;
    if let Some(version) = version {
        release(&source.join("debian/changelog"), version)?;
    }
    job.run(
        Command::new("dpkg-buildpackage")
            .args(["-b", "-us", "-uc"])
            .current_dir(&source),
    )?;

    let mut made = Vec::new();
    for entry in fs::read_dir(work.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            made.push(path);
        }
    }
    check(&made)?;
    // Those of an older version would be installed beside the new ones.
    for entry in fs::read_dir(to)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    let find = |name: &str| -> Result<PathBuf> {
        let from = made
            .iter()
            .find(|p| file_name(p).starts_with(&format!("{name}_")))
            .with_context(|| format!("no package {name} was made"))?;
        let path = to.join(file_name(from));
        fs::copy(from, &path).with_context(|| path.display().to_string())?;
        Ok(path)
    };
    ensure!(
        made.len() == NAMES.len(),
        "other packages than {NAMES:?}: {made:?}"
    );
    Ok(Packages {
        dkms: find(NAMES[0])?,
        iproute2: find(NAMES[1])?,
        fabric: find(NAMES[2])?,
        tools: find(NAMES[3])?,
    })
}

/// Adds the release of `version` to a changelog, by whoever made the last one.
fn release(changelog: &Path, version: &str) -> Result<()> {
    let before = fs::read_to_string(changelog).with_context(|| changelog.display().to_string())?;
    let signature = before.lines().find(|line| line.starts_with(" -- "));
    // Two spaces are in front of the date.
    let (author, _) = signature
        .and_then(|line| line.rsplit_once("  "))
        .context("the changelog is not signed")?;
    let now = Command::new("date").arg("-R").output().context("date")?;
    let now = String::from_utf8_lossy(&now.stdout);
    let text = format!(
        "ipoib-rs ({version}) unstable; urgency=medium\n\n  * New upstream release.\n\n{author}  {}\n\n{before}",
        now.trim()
    );
    fs::write(changelog, text).with_context(|| changelog.display().to_string())
}

fn file_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default()
}

/// Has lintian look at packages.
fn check(packages: &[PathBuf]) -> Result<()> {
    let output = Command::new("lintian")
        .args(["--fail-on", "error,warning", "--allow-root"])
        .args(packages)
        .output()
        .context("lintian")?;
    if !output.status.success() {
        bail!(
            "lintian finds fault with the packages:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
