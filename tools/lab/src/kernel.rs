// SPDX-License-Identifier: GPL-2.0

//! Kernels: one per lane and kind, each configured from fragments and built in its own directory.

use crate::layout::{Layout, digest, read};
use crate::machine::{Kernel, Lane};
use crate::source::{self, Source};
use crate::step::{Interrupted, Job, directory_with};
use crate::stock;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HINT: &str =
    "A change in tools/lab/kernel/ or patches/ that does not build? Else: make clean, then again.";

/// A built kernel.
#[derive(Debug, Clone)]
pub struct Built {
    /// Where it runs.
    pub lane: Lane,
    /// Which one it is.
    pub kernel: Kernel,
    /// Its build directory, `O=`.
    pub dir: PathBuf,
    /// Its inputs.
    pub source: Source,
    /// Names its content.
    pub id: String,
}

/// Kbuild's name of a lane's architecture.
#[must_use]
pub fn arch(lane: Lane) -> &'static str {
    match lane {
        Lane::Uml => "um",
        Lane::Qemu => "x86",
    }
}

/// The configuration fragments of a kernel, in the order in which they are merged.
fn fragments(lane: Lane, kernel: Kernel) -> Vec<&'static str> {
    let mut names = vec!["common", arch(lane)];
    match kernel {
        Kernel::Debug => {
            names.push("debug");
            names.push(match lane {
                Lane::Uml => "debug-um",
                Lane::Qemu => "debug-x86",
            });
        }
        Kernel::Lockdep => names.push("lockdep"),
        Kernel::Kcsan => names.push("kcsan"),
        Kernel::Base if lane == Lane::Uml => names.push("base-um"),
        Kernel::SimDebug => names.extend(["base-um", "debug", "debug-um"]),
        Kernel::Base | Kernel::Stock => {}
    }
    names
}

/// Flags with which rustc instruments what it compiles for KCSAN, as Kbuild has clang instrument C: without
/// blanks and quotes, which not all scripts of Kbuild's take.
const INSTRUMENTED: &str = concat!(
    "KRUSTFLAGS=-Cpasses=tsan",
    " -Cllvm-args=-force-attribute=sanitize_thread",
    " -Cllvm-args=-tsan-distinguish-volatile=1",
    " -Cllvm-args=-tsan-compound-read-before-write=1",
    " -Cllvm-args=-tsan-instrument-func-entry-exit=0",
);

/// How the lab's own kernels are compiled: their warnings are their maintainers' to read, and take a twentieth of the
/// compiler's time.
const UNWARNED: &str = "KCFLAGS=-w";

/// How a kernel is compiled whose C code is instrumented for KASAN on UML: small, which takes a tenth of the compiler's
/// time away. `CONFIG_CC_OPTIMIZE_FOR_SIZE` would have Rust code small as well, where `build_assert!` wants more inlined.
const SMALL: &str = "KCFLAGS=-w -Os";

/// Parts that are not instrumented there: directories that seldom work on what the modules own. With them, scenarios take
/// a third more of the processor. The debug kernel of the qemu lane has all of it instrumented.
const UNINSTRUMENTED: &str = concat!(
    "KASAN_SANITIZE=$(if $(filter arch/% block% crypto% drivers/base% drivers/char% drivers/dma-buf% drivers/pci%",
    " drivers/tty% drivers/virtio% fs% init ipc% kernel/entry% mm% security%,$(obj)),n)",
);

/// Target of a compilation: architecture, and whether Rust code is instrumented.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    arch: &'static str,
    instrumented: bool,
}

impl Target {
    /// Kbuild's `ARCH`.
    pub(crate) const fn of(arch: &'static str) -> Target {
        Target {
            arch,
            instrumented: false,
        }
    }

    /// With Rust code instrumented for KCSAN.
    pub(crate) const fn instrumented(self) -> Target {
        Target {
            instrumented: true,
            ..self
        }
    }

    /// make for a kernel's build directory or a module against it.
    pub(crate) fn make(self) -> Command {
        let jobs = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let mut command = Command::new("make");
        // A compiler that asks for memory in large steps takes a twentieth less time.
        command.env(
            "GLIBC_TUNABLES",
            "glibc.malloc.top_pad=67108864:glibc.malloc.trim_threshold=1073741824",
        );
        command.args([
            format!("-j{jobs}"),
            "LLVM=1".into(),
            format!("ARCH={}", self.arch),
        ]);
        if self.instrumented {
            command.arg(INSTRUMENTED);
        }
        command
    }
}

/// Target of the lab's kernel of a kind.
fn target(lane: Lane, kernel: Kernel) -> Target {
    let target = Target::of(arch(lane));
    match kernel {
        Kernel::Kcsan => target.instrumented(),
        _ => target,
    }
}

/// make for one of the lab's kernels or a module against it.
pub(crate) fn make(lane: Lane, kernel: Kernel) -> Command {
    target(lane, kernel).make()
}

/// The file of a configuration's fragment.
pub(crate) fn fragment(layout: &Layout, name: &str) -> PathBuf {
    layout.tools().join("kernel").join(format!("{name}.config"))
}

/// Builds one of the lab's own kernels unless it is there.
pub fn ensure(layout: &Layout, lane: Lane, kernel: Kernel) -> Result<Built> {
    ensure!(kernel != Kernel::Stock, "Debian's kernel is not built here");
    let source = source::ensure(layout)?;
    let files: Vec<PathBuf> = fragments(lane, kernel)
        .into_iter()
        .map(|name| fragment(layout, name))
        .collect();
    let mut parts = vec![source.id.clone().into_bytes(), root_name().into_bytes()];
    for file in &files {
        parts.push(read(file)?);
    }
    if kernel == Kernel::Kcsan {
        parts.push(INSTRUMENTED.into());
    }
    let flags: &[&str] = match (lane, kernel) {
        (Lane::Uml, Kernel::Debug | Kernel::SimDebug) => &[SMALL, UNINSTRUMENTED],
        _ => &[UNWARNED],
    };
    if flags != [UNWARNED] {
        parts.extend(flags.iter().map(|flag| (*flag).into()));
    }
    let id = digest(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let name = format!("{}-{kernel}", arch(lane));
    let target = target(lane, kernel);
    let dir = layout.cache.join("kernels").join(format!("{name}-{id}"));
    // Kbuild writes what a target depends on after the target: an interrupted build goes on safely.
    directory_with(&dir, Interrupted::Resume, &[image(lane)], |dir| {
        configure(layout, &name, target, &source.dir, dir, &files)?;
        let what = format!("compile the {name} kernel, Linux {}", source.version);
        let targets: &[&str] = match lane {
            Lane::Uml => &["linux", "modules"],
            Lane::Qemu => &["bzImage", "modules"],
        };
        Job::new(layout, &format!("kernel-{name}"), &what, HINT)?.run(
            target
                .make()
                .arg("-C")
                .arg(&source.dir)
                .arg(format!("O={}", dir.display()))
                .args(["KBUILD_BUILD_USER=lab", "KBUILD_BUILD_HOST=ipoib_rs"])
                .args(flags)
                .args(targets),
        )
    })?;
    Ok(Built {
        lane,
        kernel,
        dir,
        source,
        id,
    })
}

/// The root that all compilers come from; its name holds the hash of its package list.
fn root_name() -> String {
    std::env::var_os("LAB_ROOT")
        .as_deref()
        .and_then(|p| {
            Path::new(p)
                .file_name()
                .map(|n| n.to_string_lossy().into_owned())
        })
        .unwrap_or_default()
}

/// Configures a kernel from fragments, all of whose lines have to be taken.
pub(crate) fn configure(
    layout: &Layout,
    name: &str,
    target: Target,
    source: &Path,
    dir: &Path,
    fragments: &[PathBuf],
) -> Result<()> {
    let config = dir.join(".config");
    let job = Job::new(
        layout,
        &format!("config-{name}"),
        &format!("configure the {name} kernel"),
        HINT,
    )?;
    let o = format!("O={}", dir.display());
    job.run(
        target
            .make()
            .arg("-C")
            .arg(source)
            .arg(&o)
            .arg("allnoconfig"),
    )?;
    job.run(
        Command::new(source.join("scripts/kconfig/merge_config.sh"))
            .args(["-m", "-O"])
            .arg(dir)
            .arg(&config)
            .args(fragments)
            .env("KCONFIG_CONFIG", &config)
            .current_dir(source),
    )?;
    job.run(
        target
            .make()
            .arg("-C")
            .arg(source)
            .arg(&o)
            .arg("olddefconfig"),
    )?;
    let got = fs::read_to_string(&config).context(".config")?;
    let mut wanted = String::new();
    for fragment in fragments {
        wanted += &fs::read_to_string(fragment)?;
    }
    let missing = not_taken(&wanted, &got);
    if !missing.is_empty() {
        bail!(
            "Linux's configuration does not take these lines of tools/lab/kernel/*.config for {name}:\n  {}\n\
             An option was renamed, or another one that it needs is missing.",
            missing.join("\n  ")
        );
    }
    Ok(())
}

/// Lines that are wanted and not in a .config; the last word on an option counts.
fn not_taken(wanted: &str, got: &str) -> Vec<String> {
    let parse = |text: &str| -> HashMap<String, String> {
        text.lines()
            .filter_map(|line| {
                if let Some(name) = line
                    .strip_prefix("# ")
                    .and_then(|l| l.strip_suffix(" is not set"))
                {
                    return Some((name.to_owned(), "n".to_owned()));
                }
                let (name, value) = line.split_once('=')?;
                name.starts_with("CONFIG_")
                    .then(|| (name.to_owned(), value.to_owned()))
            })
            .collect()
    };
    let got = parse(got);
    let mut missing: Vec<String> = parse(wanted)
        .into_iter()
        .filter(|(name, value)| got.get(name).map_or("n", String::as_str) != value)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    missing.sort();
    missing
}

impl Built {
    /// The image that is booted.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.dir.join(image(self.lane))
    }
}

/// The image in a build directory.
fn image(lane: Lane) -> &'static str {
    match lane {
        Lane::Uml => "linux",
        Lane::Qemu => "arch/x86/boot/bzImage",
    }
}

/// Returns true if a kernel of this name was built, by this checkout or another: how long a build takes is
/// guessed from that before anything is fetched.
pub(crate) fn seen(layout: &Layout, lane: Lane, kernel: Kernel) -> bool {
    if kernel == Kernel::Stock {
        return stock::seen(layout);
    }
    let prefix = format!("{}-{kernel}-", arch(lane));
    fs::read_dir(layout.cache.join("kernels"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|e| {
            e.file_name().to_string_lossy().starts_with(&prefix)
                && e.path().join(image(lane)).exists()
        })
}

#[cfg(test)]
mod tests {
    use super::not_taken;

    #[test]
    fn options_that_did_not_take_are_named() {
        let wanted =
            "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=m\nCONFIG_D=n\nCONFIG_E=\"x\"\n# words\n";
        let got = "CONFIG_A=y\nCONFIG_B=y\nCONFIG_E=\"x\"\n";
        assert_eq!(not_taken(wanted, got), ["CONFIG_B=n", "CONFIG_C=m"]);
    }

    #[test]
    fn a_later_fragment_overrides() {
        assert!(not_taken("CONFIG_A=y\nCONFIG_A=n\n", "# CONFIG_A is not set\n").is_empty());
    }
}
