// SPDX-License-Identifier: GPL-2.0

//! The first process of a lab guest.
//!
//! As pid 1 it gives the guest a writable root and its pseudo file systems, starts itself once
//! more as the server, and reaps what is orphaned. The kernel's command line may name a program
//! with an argument, which is started in the server's place: the guest ends with it. The server answers the lab over a serial
//! channel. Two processes, so that the reaper cannot take the exit status of the server's own
//! children away from it.

mod guest;
mod serve;
mod task;

use anyhow::{Context, Result};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::process::{Command, ExitCode};

/// Argument with which pid 1 starts the server.
const SERVE: &str = "serve";

fn main() -> ExitCode {
    let result = if std::process::id() == 1 {
        init()
    } else if std::env::args().nth(1).as_deref() == Some(SERVE) {
        serve::serve()
    } else {
        eprintln!("lab-agent runs as a lab guest's init");
        return ExitCode::from(2);
    };
    if let Err(e) = result {
        guest::log(&format!("lab-agent: {e:#}"));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Pid 1: never returns while the machine is wanted.
fn init() -> Result<()> {
    let outcome = guest::set_up().and_then(|()| {
        let settings = guest::settings()?;
        let (program, argument) = match (settings.get("program"), settings.get("argument")) {
            (Some(program), Some(argument)) => (program.as_str(), argument.as_str()),
            _ => ("/proc/self/exe", SERVE),
        };
        let server = Command::new(program)
            .arg(argument)
            .spawn()
            .context("the server does not start")?;
        loop {
            let status = waitpid(None::<Pid>, None::<WaitPidFlag>).context("waitpid")?;
            if status.pid().map(Pid::as_raw) == i32::try_from(server.id()).ok() {
                return Ok(());
            }
        }
    });
    if let Err(e) = outcome {
        guest::log(&format!("lab-agent: init: {e:#}"));
    }
    guest::power_off()
}
