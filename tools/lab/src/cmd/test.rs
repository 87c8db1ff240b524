// SPDX-License-Identifier: GPL-2.0

//! `make test`: everything, counted.

use crate::bench::peer;
use crate::cmd::{build, lint};
use crate::kernel::{self, Built};
use crate::kunit;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::module;
use crate::slots;
use crate::step::say;
use crate::tally::Tally;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Scenarios that want what only the debug kernels have.
const DEBUG_ONLY: &str = "faults::";

/// Scenarios with the C driver, which is not what the debug kernels are for.
const BASE_ONLY: &str = "interop::";

/// Scenarios on the debug kernel of the qemu lane, where emulation makes each take a minute: those
/// in which most locks are taken, since lockdep is what that kernel has and UML's has not.
const LOCKDEP: [&str; 2] = ["lifecycle::", "removal::"];

/// Runs the tests; true if all passed. The last line printed is the count.
pub fn run(
    layout: &Layout,
    lane: Option<Lane>,
    kernel: Option<Kernel>,
    filter: Option<&str>,
) -> Result<bool> {
    let choices = build::choices(lane, kernel);
    let everything = filter.is_none();
    let mut tally = Tally::default();
    let ready = std::thread::scope(|scope| -> Result<Vec<Built>> {
        // Most of it and of what is built has one thread only.
        let lint = everything.then(|| {
            say("lint");
            scope.spawn(|| lint::run(layout))
        });
        let ready = prepare(layout, choices, everything, &mut tally);
        if let Some(lint) = lint {
            match lint.join() {
                Ok(t) => tally.add("lint", t),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        ready
    })?;
    for built in &ready {
        let Built { lane, kernel, .. } = built;
        if filter.is_none() {
            say(&format!("KUnit, {lane} {kernel}"));
            match kunit::run(layout, built) {
                Ok(t) => {
                    println!("   {}", t.summary());
                    tally.add(&format!("kunit {lane} {kernel}"), t);
                }
                Err(e) => failed(&mut tally, &format!("kunit {lane} {kernel}"), &e),
            }
        }
        say(&format!("scenarios, {lane} {kernel}"));
        let chosen = match (lane, kernel) {
            (Lane::Qemu, Kernel::Debug) if filter.is_none() => &LOCKDEP[..],
            _ => filter.as_slice(),
        };
        let t = counted(layout, &mut scenarios(*lane, *kernel, chosen), "scenarios")?;
        tally.add(&format!("{kernel}"), t);
    }

    if !tally.failed.is_empty() {
        println!("\nfailed:");
        for name in &tally.failed {
            println!("   {name}");
        }
        println!(
            "consoles of the machines: {}",
            layout.build().join("logs").display()
        );
    }
    println!("{}", tally.summary());
    Ok(tally.failed.is_empty())
}

/// Runs the unit tests if `everything` is wanted, and builds kernels and modules; says which there are.
fn prepare(
    layout: &Layout,
    choices: Vec<(Lane, Kernel)>,
    everything: bool,
    tally: &mut Tally,
) -> Result<Vec<Built>> {
    if everything {
        say("unit and property tests");
        let mut cargo = Command::new("cargo");
        cargo.args([
            "test",
            "--workspace",
            "--exclude",
            "scenarios",
            "--no-fail-fast",
            "--locked",
        ]);
        tally.add("unit", counted(layout, &mut cargo, "unit tests")?);
    }

    // Broken kernels and modules are failures like any other: the rest is still worth a run.
    let mut ready: Vec<Built> = Vec::new();
    for (lane, kernel) in choices {
        match kernel::ensure(layout, lane, kernel).and_then(|b| {
            module::ensure(layout, &b)?;
            if kernel == Kernel::Base {
                peer::ensure(layout, &b)?;
            }
            Ok(b)
        }) {
            Ok(built) => ready.push(built),
            Err(e) => failed(tally, &format!("build for {lane} {kernel}"), &e),
        }
    }
    Ok(ready)
}

fn failed(tally: &mut Tally, name: &str, error: &anyhow::Error) {
    println!("{name}: {error:#}");
    tally.count(name, false);
}

/// The scenarios of a lane on a kernel, all or those whose names contain one of `filters`, by nextest
/// where it is there.
fn scenarios(lane: Lane, kernel: Kernel, filters: &[&str]) -> Command {
    let nextest = Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    let mut cargo = Command::new("cargo");
    cargo.env("LAB_KERNEL", kernel.to_string());
    // How many machines really run at once is ruled by their slots, over all runs.
    let threads = slots::machines(lane).to_string();
    if nextest {
        let mut set = format!("test(/::{lane}$/)");
        if !filters.is_empty() {
            let any: Vec<String> = filters.iter().map(|f| format!("test(~{f})")).collect();
            set += &format!(" & ({})", any.join(" | "));
        }
        set += &format!(" & not test(/^{}/)", not_on(kernel));
        cargo.args([
            "nextest",
            "run",
            "--locked",
            "-p",
            "scenarios",
            "--no-fail-fast",
            "-j",
            &threads,
        ]);
        cargo.args(["-E", &set]);
    } else {
        cargo.args([
            "test",
            "--locked",
            "-p",
            "scenarios",
            "--no-fail-fast",
            "--",
        ]);
        cargo.args(["--test-threads", &threads]);
        // libtest's filters are alternatives: the other lane's tests are skipped instead.
        let other = match lane {
            Lane::Uml => "::qemu",
            Lane::Qemu => "::uml",
        };
        cargo.args(["--skip", other]);
        cargo.args(["--skip", not_on(kernel)]);
        cargo.args(filters);
    }
    cargo
}

/// The scenarios that are left out on a kernel.
const fn not_on(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Base => DEBUG_ONLY,
        Kernel::Debug => BASE_ONLY,
    }
}

/// Runs a test runner, passes its output on, and counts.
fn counted(layout: &Layout, command: &mut Command, what: &str) -> Result<Tally> {
    let (output, input) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let mut child = command
        .current_dir(&layout.checkout)
        .stdin(Stdio::null())
        .stdout(Stdio::from(input.try_clone()?))
        .stderr(Stdio::from(input))
        .spawn()
        .with_context(|| format!("{what}: {:?}", command.get_program()))?;
    // They hold the pipe's writing end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut tally = Tally::default();
    for line in BufReader::new(File::from(output)).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        tally.line(&line);
    }
    let status = child.wait()?;
    if !status.success() && tally.failed.is_empty() {
        tally.count(&format!("{what} ({status})"), false);
    }
    Ok(tally)
}
