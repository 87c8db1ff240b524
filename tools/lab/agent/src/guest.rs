// SPDX-License-Identifier: GPL-2.0

//! The guest's file systems, its settings from the kernel command line, and its end.

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::{chdir, chroot, pivot_root};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

const NONE: Option<&str> = None;

/// Puts a line into the kernel's log, where the lab looks when nothing else works.
pub(crate) fn log(text: &str) {
    if let Ok(mut f) = fs::OpenOptions::new().write(true).open("/dev/kmsg") {
        // Nobody could be told of a failure here.
        let _ = writeln!(f, "<3>{text}");
    } else {
        eprintln!("{text}");
    }
}

/// The `lab.*` settings on the kernel's command line, without the prefix.
pub(crate) fn settings() -> Result<HashMap<String, String>> {
    let line = fs::read_to_string("/proc/cmdline").context("/proc/cmdline")?;
    Ok(line
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix("lab.")?.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect())
}

/// Mounts `fs` on `target`, which is made where the root lets us.
fn mount_on(fs: &str, target: &str, flags: MsFlags, data: Option<&str>) -> Result<()> {
    // The root may be read-only and the directory there already: mount() is the judge.
    let _ = fs::create_dir_all(target);
    mount(Some(fs), target, Some(fs), flags, data).with_context(|| format!("mount {fs} {target}"))
}

/// Turns the read-only root that the kernel mounted into one to write to, in memory.
fn writable_root() -> Result<()> {
    mount_on("tmpfs", "/mnt", MsFlags::empty(), Some("mode=755"))?;
    for dir in ["/mnt/upper", "/mnt/work", "/mnt/root"] {
        fs::create_dir(dir).with_context(|| dir.to_owned())?;
    }
    mount(
        Some("overlay"),
        "/mnt/root",
        Some("overlay"),
        MsFlags::empty(),
        Some("lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work"),
    )
    .context("mount overlay")?;
    chdir("/mnt/root")?;
    pivot_root(".", "mnt").context("pivot_root")?;
    chroot(".")?;
    chdir("/")?;
    umount2("/mnt", MntFlags::MNT_DETACH).context("umount the old root")
}

/// Makes the machine usable: called once, by pid 1.
pub(crate) fn set_up() -> Result<()> {
    writable_root()?;
    let hidden = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_on("proc", "/proc", hidden, NONE)?;
    mount_on("sysfs", "/sys", hidden, NONE)?;
    mount_on("devtmpfs", "/dev", MsFlags::MS_NOSUID, Some("mode=755"))?;
    mount_on(
        "devpts",
        "/dev/pts",
        MsFlags::MS_NOSUID,
        Some("ptmxmode=666"),
    )?;
    let settings = settings()?;
    if let Some(program) = settings.get("ib-hwsim") {
        // Its checkout may be below /tmp, which is another one from here on.
        fs::copy(program, "/usr/local/sbin/ib-hwsim").context("ib-hwsim")?;
    }
    mount_on("tmpfs", "/dev/shm", hidden, NONE)?;
    mount_on("tmpfs", "/tmp", MsFlags::empty(), Some("mode=1777"))?;
    mount_on("tmpfs", "/run", MsFlags::empty(), Some("mode=755"))?;
    mount_on("debugfs", "/sys/kernel/debug", hidden, NONE)?;
    // Once more where no network namespace hides it: `ip netns exec` mounts a /sys of its own.
    mount_on("debugfs", "/run/debug", hidden, NONE)?;
    // A kernel without tracing has no tracefs.
    let _ = mount_on("tracefs", "/sys/kernel/tracing", hidden, NONE);
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let link = Path::new("/dev").join(name);
        if !link.exists() {
            symlink(target, link)?;
        }
    }

    if let Some(modules) = settings.get("modules") {
        let release = release()?;
        fs::create_dir_all("/lib/modules")?;
        let link = format!("/lib/modules/{release}");
        if !Path::new(&link).exists() {
            symlink(format!("{modules}/lib/modules/{release}"), &link).context(link)?;
        }
    }
    fs::write(
        "/proc/sys/kernel/hostname",
        settings.get("hostname").map_or("lab", |s| s),
    )
    .context("hostname")?;
    // All of sysrq: the lab asks for task states before it gives a guest up.
    fs::write("/proc/sys/kernel/sysrq", "1").ok();
    std::process::Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .context("ip link set lo up")?;
    Ok(())
}

/// The running kernel's release.
pub(crate) fn release() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/osrelease")?
        .trim()
        .to_owned())
}

/// Ends the machine.
pub(crate) fn power_off() -> ! {
    loop {
        let _ = reboot(RebootMode::RB_POWER_OFF);
        let _ = reboot(RebootMode::RB_HALT_SYSTEM);
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Restarts the machine at once: nothing is flushed, nobody is told.
pub(crate) fn reset() -> Result<()> {
    reboot(RebootMode::RB_AUTOBOOT).context("reboot")?;
    Ok(())
}
