// SPDX-License-Identifier: GPL-2.0

//! Where things are: the checkout, the cache, and what lies in them.
//!
//! `tools/bootstrap` binds both into the root at the paths they have on the host, so that every
//! path the lab prints is one that its user can open.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lab's directories.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The source tree.
    pub checkout: PathBuf,
    /// Shared by all checkouts: kernel sources, kernels.
    pub cache: PathBuf,
    /// Builds of this checkout.
    pub own: PathBuf,
}

impl Layout {
    /// The layout that `tools/bootstrap` has set up.
    pub fn from_env() -> Result<Layout> {
        let var = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).with_context(|| {
                format!(
                    "{name} is not set: the lab is started by make, which calls tools/bootstrap"
                )
            })
        };
        Ok(Layout::with(&var("LAB_CHECKOUT")?, &var("LAB_CACHE")?))
    }

    /// The layout of a checkout that uses a cache.
    pub(crate) fn with(checkout: &Path, cache: &Path) -> Layout {
        let own = digest(&[checkout.as_os_str().as_encoded_bytes()]);
        Layout {
            checkout: checkout.to_owned(),
            cache: cache.to_owned(),
            own: cache.join("checkouts").join(own),
        }
    }

    /// Logs of the shared steps.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.cache.join("logs")
    }

    /// Directory for a run's results: those of the bench, logs of machines. Ignored by git; in the cache if the
    /// checkout cannot be written.
    #[must_use]
    pub fn build(&self) -> PathBuf {
        let build = self.checkout.join("build");
        let parent = if build.exists() {
            &build
        } else {
            &self.checkout
        };
        if writable(parent) {
            build
        } else {
            self.own.join("build")
        }
    }

    /// Returns true if what a run leaves goes into the checkout.
    #[must_use]
    pub fn checkout_is_writable(&self) -> bool {
        self.build().starts_with(&self.checkout)
    }

    /// The program that a guest runs as init.
    #[must_use]
    pub fn agent(&self) -> PathBuf {
        self.own.join("target/debug/lab-agent")
    }

    /// The tool for users of the driver, as it was built for the scenarios.
    #[must_use]
    pub fn ipoibctl(&self) -> PathBuf {
        self.own.join("target/debug/ipoibctl")
    }

    /// The directory of this checkout's iproute2 plugin, where a guest's `ip` looks for it.
    #[must_use]
    pub fn iproute(&self) -> PathBuf {
        self.own.join("iproute2")
    }

    /// The script that makes simulated fabrics, which guests have as a program.
    #[must_use]
    pub fn ib_hwsim(&self) -> PathBuf {
        self.checkout.join("tools/ib-hwsim")
    }

    /// The lab's own files in the checkout.
    #[must_use]
    pub fn tools(&self) -> PathBuf {
        self.checkout.join("tools/lab")
    }
}

fn writable(dir: &Path) -> bool {
    nix::unistd::access(dir, nix::unistd::AccessFlags::W_OK).is_ok()
}

/// Files of a checkout that git tracks or would track, by their paths below it.
pub(crate) fn tracked(checkout: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        // The checkout may belong to the user who called sudo.
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(checkout)
        .output()
        .context("git")?;
    if !output.status.success() {
        anyhow::bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut files: Vec<PathBuf> = text
        .split('\0')
        .filter(|s| !s.is_empty())
        .map(PathBuf::from)
        // A deleted file is tracked until the deletion is committed.
        .filter(|f| checkout.join(f).is_file())
        .collect();
    files.dedup();
    Ok(files)
}

/// A short name for content: the first 12 hex digits of its SHA-256.
#[must_use]
pub fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // Alone, the first part is hashed as it is: tools/bootstrap names directories the same way.
        if parts.len() > 1 {
            hash.update(part.len().to_le_bytes());
        }
        hash.update(part);
    }
    let mut name = format!("{:x}", hash.finalize());
    name.truncate(12);
    name
}

/// A file's content for a digest, with its path in the error.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::{Layout, digest};

    #[test]
    fn digest_of_one_part_is_plain_sha256() {
        // printf %s /work | sha256sum | cut -c1-12, as tools/bootstrap does.
        assert_eq!(digest(&[b"abc"]), "ba7816bf8f01");
    }

    #[test]
    fn logs_go_where_they_can_be_written() {
        let cache = tempfile::tempdir().expect("a directory");
        let layout = |checkout: &std::path::Path| Layout {
            checkout: checkout.into(),
            cache: cache.path().into(),
            own: cache.path().join("own"),
        };
        assert!(layout(cache.path()).checkout_is_writable());
        assert_eq!(layout(cache.path()).build(), cache.path().join("build"));
        let other = layout(&cache.path().join("no-such-checkout"));
        assert!(!other.checkout_is_writable());
        assert_eq!(other.build(), cache.path().join("own/build"));
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
