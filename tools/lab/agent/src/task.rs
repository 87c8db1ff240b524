// SPDX-License-Identifier: GPL-2.0

//! One command and its output.
//!
//! Output goes to unlinked files instead of pipes: a daemon that outlives its parent cannot keep
//! a reader waiting, and nothing blocks on a full pipe.

use anyhow::{Context, Result, bail};
use lab_wire::{Answer, Command};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::resume_unwind;
use std::process::{self, Child, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// More output than this of one stream is cut off.
const OUTPUT_MAX: u64 = 8 << 20;

/// A command that was started.
pub(crate) struct Task {
    /// Process and session id.
    pid: Pid,
    stdout: File,
    stderr: File,
    status: Mutex<Option<ExitStatus>>,
    ended: Condvar,
}

impl Task {
    /// Starts `command` in a session of its own. The caller must run [`Task::reap`].
    pub(crate) fn start(command: &Command) -> Result<(Task, Child)> {
        let Some((program, args)) = command.argv.split_first() else {
            bail!("an empty command");
        };

        let mut stdin = tempfile::tempfile().context("a file for stdin")?;
        stdin.write_all(&command.stdin)?;
        stdin.seek(SeekFrom::Start(0))?;
        let stdout = tempfile::tempfile().context("a file for stdout")?;
        let stderr = tempfile::tempfile().context("a file for stderr")?;

        let mut cmd = process::Command::new(program);
        cmd.args(args)
            .envs(command.env.iter().map(|(k, v)| (k, v)))
            .current_dir("/tmp")
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout.try_clone()?))
            .stderr(Stdio::from(stderr.try_clone()?))
            .process_group(0);
        let child = match &command.netns {
            Some(netns) => spawn_in(netns, &mut cmd)?,
            None => cmd.spawn(),
        };
        let child = child.with_context(|| format!("start {program}"))?;
        let task = Task {
            pid: Pid::from_raw(i32::try_from(child.id()).context("pid")?),
            stdout,
            stderr,
            status: Mutex::new(None),
            ended: Condvar::new(),
        };
        Ok((task, child))
    }

    fn status(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if its process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.status().is_some()
    }

    /// Waits for the process to end; for a thread of its own.
    pub(crate) fn reap(&self, mut child: Child) {
        let status = child
            .wait()
            .unwrap_or_else(|_| ExitStatus::from_raw(0x7f00));
        *self.status() = Some(status);
        self.ended.notify_all();
    }

    /// Signals the whole session.
    pub(crate) fn kill(&self, signal: i32) -> Result<()> {
        let signal = Signal::try_from(signal).context("no such signal")?;
        match killpg(self.pid, signal) {
            // It ended before: that is what was wanted.
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(e) => Err(e).context("kill"),
        }
    }

    /// Waits for the end, `limit` at most. True when it came.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut status = self.status();
        while status.is_none() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            status = self
                .ended
                .wait_timeout(status, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    /// State and output up to now.
    pub(crate) fn report(&self, timed_out: bool) -> Result<Answer> {
        let status = *self.status();
        Ok(Answer::Exited {
            code: status.and_then(|s| s.code()),
            signal: status.and_then(|s| s.signal()),
            timed_out,
            stdout: content(&self.stdout)?,
            stderr: content(&self.stderr)?,
        })
    }
}

/// Spawns a command as `ip netns exec` does, without that program, which most scenarios would run more often than any
/// other: from a thread that enters the namespace and ends.
fn spawn_in(netns: &str, command: &mut process::Command) -> Result<std::io::Result<Child>> {
    thread::scope(|scope| {
        let spawned = scope.spawn(|| {
            enter(netns).with_context(|| format!("network namespace {netns}"))?;
            Ok(command.spawn())
        });
        spawned.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Takes the calling thread into a network namespace, with a `/sys` that shows it.
fn enter(netns: &str) -> Result<()> {
    const NONE: Option<&str> = None;
    setns(
        File::open(format!("/run/netns/{netns}"))?,
        CloneFlags::CLONE_NEWNET,
    )?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    mount(NONE, "/", NONE, slave, NONE).context("mount / as a slave")?;
    umount2("/sys", MntFlags::MNT_DETACH).context("umount /sys")?;
    mount(Some(netns), "/sys", Some("sysfs"), MsFlags::empty(), NONE).context("mount /sys")
}

/// A file's content, without moving the offset that the command writes at.
fn content(file: &File) -> Result<Vec<u8>> {
    struct At<'a>(&'a File, u64);
    impl Read for At<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.read_at(buf, self.1)?;
            self.1 += n as u64;
            Ok(n)
        }
    }
    let mut data = Vec::new();
    At(file, 0).take(OUTPUT_MAX).read_to_end(&mut data)?;
    Ok(data)
}
