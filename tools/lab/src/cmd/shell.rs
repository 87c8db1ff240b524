// SPDX-License-Identifier: GPL-2.0

//! `make shell`: a terminal on a host.

use crate::bed::Builder;
use crate::cmd::build;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::step::say;
use anyhow::Result;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// The guest's terminal.
const TTY: &str = "/dev/tty2";

/// Puts the user's terminal back as it was.
struct Raw(Termios);

impl Raw {
    fn new() -> Result<Option<Raw>> {
        if !stdin().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin(), SetArg::TCSANOW, &raw)?;
        Ok(Some(Raw(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), SetArg::TCSADRAIN, &self.0);
    }
}

/// Boots two hosts and gives the user a shell on the first.
pub fn run(layout: &Layout) -> Result<()> {
    build::ready(layout, Lane::Uml, Kernel::Base)?;
    let (ours, theirs) = UnixStream::pair()?;
    let bed = Builder::new("shell", Lane::Uml, Kernel::Base)
        .lifetime(Duration::from_secs(30 * 24 * 3600))
        .terminal(theirs)
        .up()?;
    bed.ib()?;
    let (host, neighbour) = bed.pair()?;
    say(&format!(
        "this host: ib0 {} {}; its neighbour: {} {} (ip netns exec h1 ...). Leave with exit.",
        host.ip4(),
        host.ip6(),
        neighbour.ip4(),
        neighbour.ip6()
    ));

    let (columns, rows) = terminal_size();
    let shell = host.spawn(&format!(
        "setsid -w -c sh -c 'stty sane rows {rows} cols {columns}; \
         PS1=\"\\[\\e[1m\\]h0\\[\\e[0m\\]:\\w# \" TERM={} HOME=/root exec bash --norc -i' <{TTY} >{TTY} 2>&1",
        std::env::var("TERM").unwrap_or_else(|_| "dumb".into())
    ))?;
    let raw = Raw::new()?;
    relay(ours)?;
    while shell.wait(Duration::from_secs(3600))?.timed_out {}
    // Its last words are still on their way.
    thread::sleep(Duration::from_millis(200));
    drop(raw);
    bed.finish()
}

/// Columns and rows of the user's terminal, or the usual ones.
fn terminal_size() -> (u16, u16) {
    let output = std::process::Command::new("stty")
        .arg("size")
        .stdin(std::process::Stdio::inherit())
        .output();
    let text = output
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default();
    let mut numbers = text.split_ascii_whitespace().filter_map(|n| n.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(rows @ 1..), Some(columns @ 1..)) => (columns, rows),
        _ => (80, 24),
    }
}

/// Copies bytes both ways between the user and the guest, until the program ends.
fn relay(guest: UnixStream) -> Result<()> {
    let mut to_guest = guest.try_clone()?;
    let mut from_guest = guest;
    let (prompt, prompted) = channel();
    thread::spawn(move || {
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = from_guest.read(&mut buf) {
            // Only the first one is waited for.
            let _ = prompt.send(());
            let mut out = stdout();
            if out.write_all(&buf[..n]).and_then(|()| out.flush()).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        // The shell's start would throw away what is typed before its prompt.
        if prompted.recv().is_err() {
            return;
        }
        let mut buf = [0; 512];
        while let Ok(n) = stdin().read(&mut buf) {
            // The end of a pipe is, to the guest's terminal, a Ctrl-D.
            let text = if n == 0 { &b"\x04"[..] } else { &buf[..n] };
            if to_guest.write_all(text).is_err() || n == 0 {
                break;
            }
        }
    });
    Ok(())
}
