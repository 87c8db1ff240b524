// SPDX-License-Identifier: GPL-2.0

//! Builds this checkout's modules against a kernel, and fills that kernel's staging area.

use crate::iproute;
use crate::kernel::{Built, make};
use crate::layout::Layout;
use crate::stage::Stage;
use crate::step::{Interrupted, Job, directory};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// This checkout's modules: the driver, and the simulated fabric.
pub const MODULES: [&str; 2] = ["ipoib_rs", "ib_hwsim"];

/// The sample drivers, which are built and installed beside them.
pub(crate) const SAMPLES: [&str; 2] = ["rust_loopback", "ud_loopback"];

/// Has a build of the modules include the samples.
pub const WITH_SAMPLES: [&str; 2] = [
    "CONFIG_SAMPLE_RUST_LOOPBACK=m",
    "CONFIG_SAMPLE_RUST_UD_LOOPBACK=m",
];

/// Where a kernel's objects of the module called `name` go.
pub(crate) fn objects(layout: &Layout, built: &Built, name: &str) -> PathBuf {
    layout.own.join("objects").join(format!(
        "{}-{}-{}-{name}",
        built.lane, built.kernel, built.id
    ))
}

/// Builds the module in `dir` against `built`; its directory of objects.
///
/// Kbuild's `MO=` keeps the objects out of the source, so that one source serves many kernels.
pub fn build(
    layout: &Layout,
    built: &Built,
    dir: &Path,
    name: &str,
    arguments: &[&str],
) -> Result<PathBuf> {
    let objects = objects(layout, built, name);
    fs::create_dir_all(&objects)?;
    let what = format!(
        "build {name} for the {} {} kernel",
        built.lane, built.kernel
    );
    Job::new(
        layout,
        &format!("module-{name}-{}-{}", built.lane, built.kernel),
        &what,
        "The compiler's messages are above.",
    )?
    .run(
        make(built.lane, built.kernel)
            .arg("-C")
            .arg(&built.dir)
            .arg(format!("M={}", dir.display()))
            .arg(format!("MO={}", objects.display()))
            .args(arguments)
            .arg("modules"),
    )?;
    Ok(objects)
}

/// Makes a kernel's staging area: its image and its own modules.
pub fn stage(layout: &Layout, built: &Built) -> Result<Stage> {
    let stage = Stage::of(layout, built.lane, built.kernel);
    // Its content is one kernel's; another kernel takes its place.
    let kernel = stage.dir().join(format!("kernel-{}", built.id));
    if !kernel.exists() && stage.dir().exists() {
        fs::remove_dir_all(stage.dir())?;
    }
    directory(&kernel, Interrupted::Discard, |_| {
        symlink(built.image(), stage.image()).context("image")?;
        let what = format!(
            "install the {} {} kernel's modules",
            built.lane, built.kernel
        );
        let log = format!("modules-install-{}-{}", built.lane, built.kernel);
        Job::new(layout, &log, &what, "")?.run(
            make(built.lane, built.kernel)
                .arg("-C")
                .arg(&built.dir)
                .arg(format!("INSTALL_MOD_PATH={}", stage.modules().display()))
                .arg("modules_install"),
        )
    })?;
    Ok(stage)
}

/// Puts a module that was built into the staging area, where guests' modprobe finds it.
pub fn install(stage: &Stage, objects: &Path, name: &str) -> Result<PathBuf> {
    let release = release(stage)?;
    let (to, is_new) = place(stage, &release, objects, name)?;
    if !is_new {
        return Ok(to);
    }
    let status = Command::new("depmod")
        .arg("-b")
        .arg(stage.modules())
        .arg(&release)
        .status()
        .context("depmod")?;
    anyhow::ensure!(status.success(), "depmod: {status}");
    Ok(to)
}

/// Copies a module into the staging area of a release; its file, and whether that has changed.
fn place(stage: &Stage, release: &str, objects: &Path, name: &str) -> Result<(PathBuf, bool)> {
    let file = format!("{name}.ko");
    let from = objects.join(&file);
    let extra = updates_of(stage, release);
    let to = extra.join(&file);
    fs::create_dir_all(&extra)?;
    let content = fs::read(&from).with_context(|| from.display().to_string())?;
    if fs::read(&to).is_ok_and(|old| old == content) {
        return Ok((to, false));
    }
    // Guests of another run may read the old one right now.
    let temporary = extra.join(format!(".{file}.tmp"));
    fs::write(&temporary, content)?;
    fs::rename(&temporary, &to)?;
    Ok((to, true))
}

/// Builds a module that one scenario loads by its file's name, which is returned as guests see it. Their modprobe, which
/// other guests use meanwhile, does not come to know of it.
pub fn ensure_alone(layout: &Layout, built: &Built, dir: &Path, name: &str) -> Result<String> {
    let stage = Stage::of(layout, built.lane, built.kernel);
    let objects = build(layout, built, dir, name, &[])?;
    let release = release(&stage)?;
    place(&stage, &release, &objects, name)?;
    Ok(format!("/lib/modules/{release}/updates/{name}.ko"))
}

/// Directory of [`updates`] for a release.
fn updates_of(stage: &Stage, release: &str) -> PathBuf {
    let modules = stage.modules().join("lib/modules");
    modules.join(release).join("updates")
}

/// Directory of a staging area for modules that do not come with the kernel.
pub(crate) fn updates(stage: &Stage) -> Result<PathBuf> {
    Ok(updates_of(stage, &release(stage)?))
}

/// Names of the modules in [`updates`].
pub(crate) fn installed(stage: &Stage) -> Result<Vec<String>> {
    let dir = updates(stage)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if let (Some(stem), true) = (
            path.file_stem(),
            path.extension().is_some_and(|e| e == "ko"),
        ) {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// The release that a staging area's kernel has.
fn release(stage: &Stage) -> Result<String> {
    let dir = stage.modules().join("lib/modules");
    let entry = fs::read_dir(&dir)
        .with_context(|| dir.display().to_string())?
        .next()
        .context("no kernel modules are staged")??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Everything that guests of a kernel need: kernel, staging area, this checkout's modules, and the
/// plugin with which their `ip` knows the driver's options.
pub fn ensure(layout: &Layout, built: &Built) -> Result<Stage> {
    iproute::ensure(layout)?;
    let stage = stage(layout, built)?;
    let objects = build(layout, built, &layout.checkout, MODULES[0], &WITH_SAMPLES)?;
    for name in MODULES.into_iter().chain(SAMPLES) {
        install(&stage, &objects, name)?;
    }
    Ok(stage)
}
