// SPDX-License-Identifier: GPL-2.0

//! Commands in the background of a guest.
//!
//! A scenario that relies on such a command shows nothing if the command did not run. So a command that ends before it is
//! stopped, or before the scenario ends, fails the scenario, unless the scenario waits for its end.

use crate::agent::REPLY_GRACE;
use crate::machine::{Machine, Output};
use anyhow::{Context, Result, bail, ensure};
use lab_wire::Ask;
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A command that runs in the background of a guest.
pub struct Task {
    machine: Arc<Machine>,
    id: u64,
    what: String,
    /// It tells at its end how much it has done.
    counts: bool,
}

impl Task {
    pub(crate) fn new(machine: Arc<Machine>, id: u64, what: String, counts: bool) -> Task {
        Task {
            machine,
            id,
            what,
            counts,
        }
    }

    /// Waits for its end.
    pub fn wait(&self, limit: Duration) -> Result<Output> {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let ask = Ask::Wait {
            task: self.id,
            limit_ms,
        };
        let answer = self
            .machine
            .ask(ask, limit + REPLY_GRACE)
            .with_context(|| self.what.clone())?;
        let output = Output::new(self.what.clone(), answer)?;
        if !output.timed_out {
            self.machine.tasks().remove(&self.id);
        }
        Ok(output)
    }

    /// Its output up to now.
    pub fn peek(&self) -> Result<Output> {
        let answer = self.machine.ask(Ask::Peek { task: self.id }, REPLY_GRACE)?;
        Output::new(self.what.clone(), answer)
    }

    /// Waits until its output so far contains `text`.
    pub fn wait_for(&self, text: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let output = self.peek()?;
            if output.stdout.contains(text) || output.stderr.contains(text) {
                return Ok(());
            }
            if !output.is_running() || Instant::now() > deadline {
                bail!("no {text:?} seen from {}", output.describe());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it as Ctrl-C would, and collects what it wrote. One that counts what it does has done something.
    ///
    /// # Errors
    ///
    /// It had ended by itself, or has sent or done nothing.
    pub fn stop(&self) -> Result<Output> {
        let before = self.peek()?;
        ensure!(
            before.is_running(),
            "ended by itself: {}",
            before.describe()
        );
        let output = self.end()?;
        ensure!(
            did_something(&output.stdout).unwrap_or(!self.counts),
            "did nothing: {}",
            output.describe()
        );
        Ok(output)
    }

    /// Ends one that may have ended by itself, and collects what it wrote.
    pub fn end(&self) -> Result<Output> {
        self.signal(Signal::SIGINT)?;
        let output = self.wait(Duration::from_secs(5))?;
        if !output.timed_out {
            return Ok(output);
        }
        self.signal(Signal::SIGKILL)?;
        self.wait(Duration::from_secs(5))
    }

    /// Sends a signal to its session.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let ask = Ask::Kill {
            task: self.id,
            signal: signal as i32,
        };
        self.machine.ask(ask, REPLY_GRACE)?;
        Ok(())
    }
}

/// A shell script that runs `body` again and again, and tells at its end how often it did, wherever its output goes then:
/// a trap runs amid the redirections of what it interrupts.
pub(crate) fn repeated(body: &str) -> String {
    format!(
        "exec 3>&1\nrounds=0\ntrap 'echo $rounds rounds done >&3; exit' INT\nwhile :; do\n{body}\nrounds=$((rounds + 1))\ndone"
    )
}

/// Returns true if a program of ours tells how much it has done, when it is ended. One that is ended before it has begun
/// does not.
pub(crate) fn counts(program: &str) -> bool {
    ["rounds done", "datagrams sent"]
        .iter()
        .any(|words| program.contains(words))
}

/// Returns true if a command that counts has done something: packets that ping has sent, rounds of a [`repeated`] one,
/// datagrams of a program that floods, bytes of iperf3's streams.
fn did_something(stdout: &str) -> Option<bool> {
    stdout
        .lines()
        .filter_map(count)
        .map(|n| n > 0.0)
        .reduce(|a, b| a || b)
}

/// The count in a line that has one.
fn count(line: &str) -> Option<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = match words[..] {
        [number, "packets", "transmitted,", ..]
        | [number, "rounds", "done"]
        | [number, "datagrams", "sent"] => number,
        // iperf3's sums; its intervals end otherwise.
        [.., "sender" | "receiver"] => {
            let at = words.iter().position(|word| *word == "sec")?;
            words.get(at + 1)?
        }
        _ => return None,
    };
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_read() {
        let ping = "PING a\n\n--- a ping statistics ---\n7 packets transmitted, 6 received, 14% packet loss\n";
        assert_eq!(did_something(ping), Some(true));
        assert_eq!(did_something("x y\n0 rounds done\n"), Some(false));
        assert_eq!(did_something("12 datagrams sent\n"), Some(true));
        assert_eq!(did_something("0 rounds\n"), None);
        assert_eq!(did_something(""), None);
    }

    #[test]
    fn programs_that_count_are_known() {
        assert!(counts(&repeated("true")));
        assert!(counts("print(sent, \"datagrams sent\")"));
        assert!(!counts("ping -q 10.1.0.1"));
    }

    #[test]
    fn what_a_stream_carried_is_read() {
        let interval = "[  5]   0.00-1.00   sec  9.00 MBytes  75.5 Mbits/sec    0   1.0 MBytes\n";
        let (sent, none) = (
            "[  5]   0.00-2.00   sec   155 MBytes   650 Mbits/sec    3            sender\n",
            "[  5]   0.00-2.00   sec  0.00 Bytes  0.00 bits/sec                  receiver\n",
        );
        let udp =
            "[  5]   0.00-2.00   sec  1.00 MBytes  4.19 Mbits/sec  0.000 ms  0/749 (0%)  sender\n";
        assert_eq!(did_something(interval), None);
        assert_eq!(did_something(&format!("{sent}{none}")), Some(true));
        assert_eq!(did_something(none), Some(false));
        assert_eq!(did_something(udp), Some(true));
    }

    #[test]
    fn a_repeated_script_counts_its_rounds() {
        let script = repeated("{ [ $rounds -lt 3 ] || kill -INT $$; } >/dev/null");
        // A shell cannot trap a signal that it ignores from the start, as a background job of a script does.
        let output = std::process::Command::new("env")
            .args(["--default-signal=INT", "sh", "-c", &script])
            .output()
            .expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "3 rounds done\n");
    }
}
