// SPDX-License-Identifier: GPL-2.0

//! Debian's own kernel, as its packages bring it. Nothing of it is compiled here but the module.
//!
//! The packages have the version of the lab's kernel source, and come from the same suite. They are
//! unpacked as they would be installed, below a directory of the cache; modules are decompressed
//! there, once, since an emulated machine takes long for it.

use crate::initramfs;
use crate::iproute;
use crate::layout::{Layout, digest, read};
use crate::machine::{Kernel, Lane};
use crate::module::{self, MODULES};
use crate::source::{self, Choice};
use crate::stage::Stage;
use crate::step::{Interrupted, Job, directory, say};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

/// The package that depends on the newest kernel's headers, and so knows its release.
const META: &str = "linux-headers-amd64";
const HEADERS: &str = "linux-headers-";
const HINT: &str =
    "A package may be damaged: remove the directory apt in the cache and run make again.";

/// Debian's kernel, unpacked: its headers, and where the rest will be.
#[derive(Debug, Clone)]
pub struct Stock {
    /// The version of its packages.
    pub version: String,
    /// The suite that they come from.
    pub suite: String,
    /// `uname -r` on it.
    pub release: String,
    /// Its headers' directory, for `make -C`.
    pub kdir: PathBuf,
    /// Its source, a tar archive.
    pub source: PathBuf,
    /// The package files.
    packages: Vec<PathBuf>,
    /// Below it everything is unpacked.
    dir: PathBuf,
    /// Names the content.
    id: String,
}

/// The packages of a kernel whose release is in one of `dependencies`, the headers' first.
fn packages(dependencies: &[String]) -> Option<Vec<String>> {
    let release = dependencies.iter().find_map(|d| d.strip_prefix(HEADERS))?;
    // 7.3.4+deb13-amd64 has 7.3.4+deb13-common and 7.3.4+deb13.
    let (abi, _) = release.rsplit_once('-')?;
    Some(vec![
        format!("{HEADERS}{release}"),
        format!("{HEADERS}{abi}-common"),
        format!("linux-kbuild-{abi}"),
        format!("linux-binary-{release}"),
        format!("linux-modules-{release}"),
        format!("linux-base-{release}"),
    ])
}

/// How many of [`packages`] are headers.
const HEADER_PACKAGES: usize = 3;

fn names(archive: &source::Archive<'_>) -> Result<Vec<String>> {
    packages(&archive.dependencies(META)?)
        .with_context(|| format!("{META} depends on no {HEADERS}<release>"))
}

/// Fetches the packages and unpacks the headers and the source.
pub fn fetch(layout: &Layout) -> Result<Stock> {
    let choice: Choice = source::choose(layout, &names)?;
    let record = layout
        .cache
        .join("apt")
        .join(format!("stock-{}", source::plain(&choice.version)));
    let files = match fs::read_to_string(&record) {
        Ok(text) if !text.is_empty() && text.lines().all(|l| Path::new(l).exists()) => {
            text.lines().map(PathBuf::from).collect()
        }
        _ => {
            let files = source::siblings(layout, &choice, names)?;
            let text: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
            let temporary = record.with_extension("tmp");
            fs::write(&temporary, text.join("\n"))
                .and_then(|()| fs::rename(&temporary, &record))
                .with_context(|| record.display().to_string())?;
            files
        }
    };
    unpack_headers(layout, choice, files)
}

fn unpack_headers(layout: &Layout, choice: Choice, packages: Vec<PathBuf>) -> Result<Stock> {
    let name = packages
        .first()
        .and_then(|p| p.file_name())
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    let release = name
        .strip_prefix(HEADERS)
        .and_then(|n| n.split_once('_'))
        .map(|(release, _)| release.to_owned())
        .with_context(|| format!("{name:?} is not the package of a kernel's headers"))?;
    let id = digest(&[choice.version.as_bytes(), release.as_bytes(), b"v1"]);
    let dir = layout.cache.join("stock").join(format!("{release}-{id}"));
    let stock = Stock {
        kdir: dir
            .join("headers/usr/src")
            .join(format!("{HEADERS}{release}")),
        source: dir.join("headers/source.tar.xz"),
        version: choice.version,
        suite: choice.suite,
        release,
        packages,
        dir,
        id,
    };
    directory(&stock.dir.join("headers"), Interrupted::Discard, |dir| {
        let what = format!("unpack the headers of Debian's kernel {}", stock.release);
        let job = Job::new(layout, "stock-headers", &what, HINT)?;
        for file in &stock.packages[..HEADER_PACKAGES] {
            job.run(
                Command::new("dpkg-deb")
                    .arg("-x")
                    .args([file.as_path(), dir]),
            )?;
        }
        job.run(
            Command::new("bash")
                .args(["-c", "set -euo pipefail; dpkg-deb --fsys-tarfile \"$1\" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' >\"$2\"", "bash"])
                .args([&choice.file, &stock.source]),
        )?;
        // They name each other by where they are meant to be.
        let makefile = stock.kdir.join("Makefile");
        let text = fs::read_to_string(&makefile).with_context(|| makefile.display().to_string())?;
        let here = format!("{}/usr/src/", dir.display());
        fs::write(&makefile, text.replace("/usr/src/", &here))?;
        Ok(())
    })?;
    Ok(stock)
}

/// Returns true if one is in the cache already.
pub(crate) fn seen(layout: &Layout) -> bool {
    fs::read_dir(layout.cache.join("stock"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|e| e.path().join("kernel/.done").exists())
}

impl Stock {
    /// Unpacks the kernel and its modules; the directory that holds `lib/modules/<release>`.
    fn kernel(&self, layout: &Layout) -> Result<PathBuf> {
        directory(&self.dir.join("kernel"), Interrupted::Discard, |dir| {
            let what = format!("unpack Debian's kernel {} and its modules", self.release);
            let job = Job::new(layout, "stock-kernel", &what, HINT)?;
            // The modules' package is older than the merge of /lib and /usr/lib, or not.
            fs::create_dir_all(dir.join("usr/lib"))?;
            symlink("usr/lib", dir.join("lib"))?;
            for file in &self.packages[HEADER_PACKAGES..] {
                job.run(
                    Command::new("bash")
                        .args(["-c", "set -euo pipefail; dpkg-deb --fsys-tarfile \"$1\" | tar -x --keep-directory-symlink -C \"$2\" --wildcards --exclude='./usr/share' '*'", "bash"])
                        .args([file.as_path(), dir]),
                )?;
            }
            // Not by one process: there are thousands.
            job.run(
                Command::new("bash")
                    .args(["-c", "set -euo pipefail; find \"$1\" -name '*.ko.xz' -print0 | xargs -0 -r -n 64 -P \"$(nproc)\" xz -d", "bash"])
                    .arg(dir.join("lib/modules")),
            )?;
            job.run(Command::new("depmod").arg("-b").arg(dir).arg(&self.release))
        })
    }

    /// Builds modules of this checkout; their directory of objects.
    fn modules(&self, layout: &Layout, modules: Modules) -> Result<PathBuf> {
        let objects = layout.own.join("objects").join(format!(
            "{}-{}-{}",
            Lane::Qemu,
            Kernel::Stock,
            self.id
        ));
        fs::create_dir_all(&objects)?;
        // Finding out that there is nothing to do takes the script a while.
        let inputs = digest(&[self.id.as_bytes(), sources(layout)?.as_bytes()]);
        let stamp = |name: &str| objects.join(format!(".inputs-{name}"));
        let is_built = |name: &str| {
            objects.join(format!("{name}.ko")).exists()
                && fs::read(stamp(name)).is_ok_and(|s| s == inputs.as_bytes())
        };
        if modules.names().iter().all(|name| is_built(name)) {
            return Ok(objects);
        }
        let what = format!("build ipoib_rs for Debian's kernel {}", self.release);
        Job::new(layout, "module-ipoib_rs-qemu-stock", &what, "")?.run(
            Command::new(layout.checkout.join("tools/module/build"))
                .arg("--kdir")
                .arg(&self.kdir)
                .args(["--release", &self.release])
                .arg("--source")
                .arg(&self.source)
                .arg("--cache")
                .arg(&layout.cache)
                .arg("--output")
                .arg(&objects)
                .args(match modules {
                    Modules::Driver => &["--driver-only"][..],
                    Modules::All => &[],
                }),
        )?;
        for name in modules.names() {
            let stamp = stamp(name);
            fs::write(&stamp, &inputs).with_context(|| stamp.display().to_string())?;
        }
        Ok(objects)
    }

    /// Makes the staging area: image, modules, and an initramfs that finds the lab's root.
    fn stage(&self, layout: &Layout) -> Result<Stage> {
        let kernel = self.kernel(layout)?;
        let stage = Stage::of(layout, Lane::Qemu, Kernel::Stock);
        let own = stage.dir().join(format!("kernel-{}", self.id));
        if !own.exists() && stage.dir().exists() {
            fs::remove_dir_all(stage.dir())?;
        }
        let modules = Path::new("lib/modules").join(&self.release);
        directory(&own, Interrupted::Discard, |_| {
            // An interrupted run may have made it.
            let _ = fs::remove_file(stage.image());
            symlink(kernel.join(&modules).join("vmlinuz"), stage.image()).context("image")?;
            if stage.modules().exists() {
                fs::remove_dir_all(stage.modules())?;
            }
            fs::create_dir_all(stage.modules().join("lib/modules"))?;
            // Links: this checkout adds its modules, and makes its own lists.
            let status = Command::new("cp")
                .args(["-al", "--"])
                .arg(kernel.join(&modules))
                .arg(stage.modules().join("lib/modules"))
                .status()
                .context("cp")?;
            anyhow::ensure!(status.success(), "cp: {status}");
            Ok(())
        })?;
        initramfs::write(layout, &kernel, &self.release, &stage.initramfs())?;
        Ok(stage)
    }
}

/// Modules of this checkout.
#[derive(Debug, Clone, Copy)]
pub enum Modules {
    /// The driver.
    Driver,
    /// The simulated fabric as well.
    All,
}

impl Modules {
    fn names(self) -> &'static [&'static str] {
        match self {
            Modules::Driver => &MODULES[..1],
            Modules::All => &MODULES,
        }
    }
}

/// A name for all in this checkout that the modules are made from, and how.
fn sources(layout: &Layout) -> Result<String> {
    fn walk(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
        if !path.is_dir() {
            files.push(path.to_owned());
            return Ok(());
        }
        for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
            walk(&entry?.path(), files)?;
        }
        Ok(())
    }
    let mut files = Vec::new();
    for name in ["Kbuild", "drivers", "rust", "tools/module"] {
        walk(&layout.checkout.join(name), &mut files)?;
    }
    files.sort();
    let mut parts = Vec::new();
    for file in &files {
        parts.push(file.as_os_str().as_encoded_bytes().to_vec());
        parts.push(read(file)?);
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Ok(digest(&parts))
}

/// Makes everything that guests of Debian's kernel need. What does not need each other runs at the
/// same time: making the metadata of the kernel's Rust code keeps one processor busy, most of the time.
pub fn ensure(layout: &Layout, modules: Modules) -> Result<Stage> {
    let start = Instant::now();
    let stock = fetch(layout)?;
    let (stage, objects) = thread::scope(|scope| {
        let stage = scope.spawn(|| stock.stage(layout));
        let objects = stock.modules(layout, modules);
        let stage = stage
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (stage, objects)
    });
    let (stage, objects) = (stage?, objects?);
    for name in modules.names() {
        module::install(&stage, &objects, name)?;
    }
    iproute::ensure(layout)?;
    say(&format!(
        "Debian's kernel {} with ipoib_rs is ready after {:.0} s",
        stock.release,
        start.elapsed().as_secs_f32()
    ));
    Ok(stage)
}

#[cfg(test)]
mod tests {
    use super::packages;

    #[test]
    fn a_kernel_is_several_packages() {
        let depends = ["linux-base-amd64", "linux-headers-7.3.4+deb13-amd64"].map(str::to_owned);
        let names = packages(&depends).expect("a kernel");
        for name in [
            "linux-headers-7.3.4+deb13-amd64",
            "linux-headers-7.3.4+deb13-common",
            "linux-kbuild-7.3.4+deb13",
            "linux-binary-7.3.4+deb13-amd64",
            "linux-modules-7.3.4+deb13-amd64",
        ] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
        assert!(packages(&["linux-base".to_owned()]).is_none());
    }
}
