// SPDX-License-Identifier: GPL-2.0

//! KVM, and a check that it works here.
//!
//! That /dev/kvm opens says little: in some nested machines a guest then never runs its first
//! instruction. So a kernel is booted on it, once per boot of this computer.

use crate::layout::Layout;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A kernel that has not said its first word by then will not.
const LIMIT: Duration = Duration::from_secs(5);

/// QEMU's name of the accelerator to use; `LAB_ACCEL` overrides the probe.
pub(crate) fn choose(kernel: &Path) -> String {
    if let Ok(forced) = std::env::var("LAB_ACCEL") {
        return forced;
    }
    if !Path::new("/dev/kvm").exists() {
        return "tcg".into();
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let Some(record) = Layout::from_env().ok().map(|l| l.cache.join("accel")) else {
        return "tcg".into();
    };
    let known = fs::read_to_string(&record).unwrap_or_default();
    if let Some((id, accel)) = known.split_once(' ') {
        if id == boot.trim() {
            return accel.to_owned();
        }
    }
    let accel = if boots(kernel) { "kvm" } else { "tcg" };
    // Without the record the next machine asks again.
    let _ = fs::write(&record, format!("{} {accel}", boot.trim()));
    accel.into()
}

/// Boots the kernel on KVM until it says its name.
fn boots(kernel: &Path) -> bool {
    let child = Command::new("qemu-system-x86_64")
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args([
            "-machine",
            "q35,accel=kvm",
            "-cpu",
            "max",
            "-m",
            "256",
            "-serial",
            "stdio",
        ])
        .arg("-kernel")
        .arg(kernel)
        .args(["-append", "console=ttyS0 panic=-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    let (tx, rx) = channel();
    if let Some(mut output) = child.stdout.take() {
        thread::spawn(move || {
            let mut seen = Vec::new();
            let mut buf = [0; 512];
            while let Ok(n @ 1..) = output.read(&mut buf) {
                seen.extend_from_slice(&buf[..n]);
                if String::from_utf8_lossy(&seen).contains("Linux version") {
                    let _ = tx.send(());
                    break;
                }
            }
        });
    }
    let spoke = rx.recv_timeout(LIMIT).is_ok();
    let _ = child.kill();
    let _ = child.wait();
    spoke
}
