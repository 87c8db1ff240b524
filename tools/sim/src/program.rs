// SPDX-License-Identifier: GPL-2.0

//! Programs of the guest, in the network namespaces of hosts.

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io::Write;
use std::panic::resume_unwind;
use std::process::{Child, Command, Stdio};
use std::thread::{self, Builder};

/// The name of a host's namespace.
pub(crate) fn namespace(host: u8) -> String {
    format!("h{host}")
}

/// Takes the calling thread into a host's network namespace.
pub(crate) fn enter(host: u8) -> Result<()> {
    let file = format!("/run/netns/{}", namespace(host));
    setns(
        File::open(&file).with_context(|| file.clone())?,
        CloneFlags::CLONE_NEWNET,
    )
    .context(file)
}

/// Runs `f` in a thread of its own that is in a host's network namespace; sockets that it makes stay there.
pub(crate) fn inside<T: Send>(host: u8, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, || {
            enter(host)?;
            f()
        })?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Runs a command with a text as input, and returns its output. Fails if the command does.
pub(crate) fn run(words: &[&str], input: &str) -> Result<String> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| words.join(" "))?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may have ended already, which its status says.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    bail!(
        "{}: {}: {}",
        words.join(" "),
        output.status,
        errors.trim().replace('\n', "; ")
    )
}

/// Gives the calling thread, and what it runs, a `/sys` that shows its network namespace.
pub(crate) fn own_sysfs() -> Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)
        .context("mount / as a slave")?;
    umount2("/sys", MntFlags::MNT_DETACH).context("umount /sys")?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE).context("mount /sys")
}

/// Starts a command in a host's network namespace that goes on by itself, with a `/sys` that shows that namespace.
pub(crate) fn start(host: u8, words: &[String], environment: &[(&str, &str)]) -> Result<Child> {
    inside(host, || {
        own_sysfs()?;
        let (program, arguments) = words.split_first().context("an empty command")?;
        Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| words.join(" "))
    })
}
