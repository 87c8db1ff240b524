// SPDX-License-Identifier: GPL-2.0

//! The first program of a kernel that has what it needs for its root in modules.
//!
//! It is `/init` of an initramfs that the lab makes: it loads the modules that lie there, mounts the
//! root that the command line names, as a kernel with all of it built in does, and hands over to the
//! root's own init. `lab.overlay` on the command line puts a writable layer in memory above the root.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::{chdir, chroot, execv};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

/// Modules in the order in which they are loaded.
const MODULES: &str = "/modules";
/// A device of the root's may take this long to appear.
const ROOT_LIMIT: Duration = Duration::from_secs(20);
const NONE: Option<&str> = None;

fn main() {
    if std::process::id() != 1 {
        eprintln!("this program is an initramfs' init");
        std::process::exit(2);
    }
    if let Err(e) = run() {
        log(&format!("{e:#}"));
    }
    let _ = reboot(RebootMode::RB_POWER_OFF);
}

/// Puts a line into the kernel's log.
fn log(text: &str) {
    if let Ok(mut f) = fs::OpenOptions::new().write(true).open("/dev/kmsg") {
        // Nobody could be told of a failure here.
        let _ = writeln!(f, "<3>initramfs: {text}");
    }
}

fn run() -> Result<()> {
    // Before it, nothing can be logged.
    mount_on("devtmpfs", "/dev", NONE)?;
    mount_on("proc", "/proc", NONE)?;
    load_modules()?;
    let line = fs::read_to_string("/proc/cmdline").context("/proc/cmdline")?;
    let word = |key: &str| {
        line.split_ascii_whitespace()
            .filter_map(|w| w.split_once('='))
            .find(|(k, _)| *k == key)
            .map(|(_, v)| v)
    };
    let need = |key: &str| word(key).with_context(|| format!("no {key}= on the command line"));
    mount_root(need("root")?, need("rootfstype")?, need("rootflags")?)?;
    if line.split_ascii_whitespace().any(|w| w == "lab.overlay") {
        overlay()?;
    }
    umount2("/proc", MntFlags::empty()).context("umount /proc")?;
    let init = need("init")?.to_owned();
    // Whoever is init next mounts its own.
    umount2("/dev", MntFlags::MNT_DETACH).context("umount /dev")?;
    chdir("/root")?;
    mount(Some("."), "/", NONE, MsFlags::MS_MOVE, NONE).context("move the root")?;
    chroot(".")?;
    chdir("/")?;
    let init = CString::new(init)?;
    execv(&init, &[&init]).with_context(|| format!("start {}", init.to_string_lossy()))?;
    Ok(())
}

fn mount_on(fs: &str, target: &str, data: Option<&str>) -> Result<()> {
    let _ = fs::create_dir_all(target);
    mount(Some(fs), target, Some(fs), MsFlags::empty(), data)
        .with_context(|| format!("mount {fs} {target}"))
}

fn load_modules() -> Result<()> {
    for name in fs::read_to_string(MODULES).context(MODULES)?.lines() {
        let file = File::open(name).with_context(|| name.to_owned())?;
        match finit_module(&file, c"", ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e).with_context(|| format!("load {name}")),
        }
    }
    Ok(())
}

/// Mounts the root on `/root`, read-only, as soon as its device is there.
fn mount_root(source: &str, kind: &str, flags: &str) -> Result<()> {
    let _ = fs::create_dir_all("/root");
    let deadline = Instant::now() + ROOT_LIMIT;
    loop {
        match mount(
            Some(source),
            "/root",
            Some(kind),
            MsFlags::MS_RDONLY,
            Some(flags),
        ) {
            Ok(()) => return Ok(()),
            Err(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => bail!("mount the root {source} ({kind}, {flags}): {e}"),
        }
    }
}

/// Covers `/root` with a layer in memory that takes all writes.
fn overlay() -> Result<()> {
    mount_on("tmpfs", "/layer", Some("mode=755"))?;
    for dir in ["/layer/lower", "/layer/upper", "/layer/work"] {
        fs::create_dir(dir).with_context(|| dir.to_owned())?;
    }
    mount(Some("/root"), "/layer/lower", NONE, MsFlags::MS_MOVE, NONE)
        .context("move the root below")?;
    mount(
        Some("overlay"),
        "/root",
        Some("overlay"),
        MsFlags::empty(),
        Some("lowerdir=/layer/lower,upperdir=/layer/upper,workdir=/layer/work"),
    )
    .context("mount the overlay")
}
