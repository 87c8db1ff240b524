// SPDX-License-Identifier: GPL-2.0

//! One command and its output.
//!
//! Output goes to unlinked files instead of pipes: a daemon that outlives its parent cannot keep
//! a reader waiting, and nothing blocks on a full pipe.

use anyhow::{Context, Result, bail};
use lab_wire::{Answer, Command};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
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
        let mut argv: Vec<&str> = Vec::new();
        if let Some(netns) = &command.netns {
            // Not setns() alone: `ip netns exec` also mounts the namespace's own sysfs.
            argv.extend(["ip", "netns", "exec", netns]);
        }
        argv.extend(command.argv.iter().map(String::as_str));
        let Some((program, args)) = argv.split_first() else {
            bail!("an empty command");
        };

        let mut stdin = tempfile::tempfile().context("a file for stdin")?;
        stdin.write_all(&command.stdin)?;
        stdin.seek(SeekFrom::Start(0))?;
        let stdout = tempfile::tempfile().context("a file for stdout")?;
        let stderr = tempfile::tempfile().context("a file for stderr")?;

        let mut cmd = std::process::Command::new(program);
        cmd.args(args)
            .envs(command.env.iter().map(|(k, v)| (k, v)))
            .current_dir("/tmp")
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout.try_clone()?))
            .stderr(Stdio::from(stderr.try_clone()?))
            .process_group(0);
        let child = cmd.spawn().with_context(|| format!("start {program}"))?;
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
