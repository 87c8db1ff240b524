// SPDX-License-Identifier: GPL-2.0

//! Time limits of programs: one that hangs is killed, with all that it has started.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// A limit that a program has until this is dropped.
pub(crate) struct Limit {
    struck: Arc<AtomicBool>,
    _ended: Sender<()>,
}

impl Limit {
    /// Kills the process `id`, and those that stem from it, in `limit`.
    pub(crate) fn begin(id: u32, limit: Duration) -> Limit {
        let (sender, ended) = channel::<()>();
        let struck = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&struck);
        thread::spawn(move || {
            use std::sync::mpsc::RecvTimeoutError::Timeout;
            if ended.recv_timeout(limit) == Err(Timeout) {
                flag.store(true, Ordering::Relaxed);
                end(id);
            }
        });
        Limit {
            struck,
            _ended: sender,
        }
    }

    /// Returns true if its time was up.
    pub(crate) fn struck(&self) -> bool {
        self.struck.load(Ordering::Relaxed)
    }
}

/// Kills a process and its children, from the top: none that is left starts another.
fn end(id: u32) {
    if let Ok(pid) = i32::try_from(id) {
        // One that has ended is fine. It is not reaped yet, or its children would have another parent.
        let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
        children(id).into_iter().for_each(end);
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The processes whose parent is `id`.
fn children(id: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|child| parent(*child) == Some(id))
        .collect()
}

/// The fourth field of `/proc/<id>/stat`; the second one may have blanks and parentheses.
fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    /// A program that waits for its child, and a child that holds the output.
    #[test]
    fn what_hangs_is_ended_with_its_children() {
        let begun = Instant::now();
        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'sleep 60; :'; :"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let limit = Limit::begin(child.id(), Duration::from_millis(300));
        let mut text = String::new();
        let mut output = child.stdout.take().expect("a pipe");
        output.read_to_string(&mut text).expect("reads");
        assert!(!child.wait().expect("ends").success() && limit.struck());
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_ends_in_time_is_left_alone() {
        let mut child = Command::new("true").spawn().expect("a program");
        let limit = Limit::begin(child.id(), Duration::from_secs(60));
        assert!(child.wait().expect("ends").success() && !limit.struck());
    }
}
