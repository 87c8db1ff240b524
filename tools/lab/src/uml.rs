// SPDX-License-Identifier: GPL-2.0

//! A User Mode Linux machine.
//!
//! The kernel's console is the process's output; the agent's channel is the process's standard
//! input, one end of a socket pair, as the guest's tty1. The root is the lab's own root directory
//! through hostfs, so that every path is the same inside and outside.

use crate::machine::{Connect, Spec, channel_pair};
use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

/// The command that boots `spec`, and the lab's end of its channel.
pub(crate) fn command(spec: &Spec) -> Result<(Command, Connect)> {
    let (ours, theirs) = channel_pair()?;
    let mut command = Command::new(&spec.image);
    command
        .arg(format!("mem={}M", spec.memory))
        .arg(format!("ncpus={}", spec.cpus))
        // Half of the time of what registers and unregisters goes into waiting for grace periods otherwise.
        .arg("rcupdate.rcu_expedited=1")
        // Measured otherwise, which is a third of the boot. No delay has to be exact here.
        .arg("lpj=20000000")
        // SMP wants the seccomp way of running user space.
        .arg("seccomp=auto")
        .arg(format!("umid={}-{}", spec.name, std::process::id()))
        .arg(format!("uml_dir={}", spec.dir.display()))
        .args([
            "con=null",
            "con0=null,fd:1",
            "con1=fd:0,fd:0",
            "console=tty0",
        ])
        .args(["root=/dev/root", "rootfstype=hostfs"])
        .arg(format!("rootflags={}", spec.root.display()))
        .args(spec.command_line("/dev/tty1"))
        .stdin(Stdio::from(theirs))
        // Its memory is a file; in /dev/shm, so that it never meets a disk.
        .env("TMPDIR", "/dev/shm");
    if let Some(terminal) = &spec.terminal {
        // The one descriptor that is handed down by its number.
        fcntl(terminal, FcntlArg::F_SETFD(FdFlag::empty())).context("terminal")?;
        let fd = terminal.as_raw_fd();
        command.arg(format!("con2=fd:{fd},fd:{fd}"));
    }
    Ok((command, Connect::Ready(ours)))
}
