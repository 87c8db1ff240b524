// SPDX-License-Identifier: GPL-2.0

//! `make test`: everything, counted.

use crate::bench::peer;
use crate::cmd::{build, lint};
use crate::kernel::{self, Built};
use crate::kunit;
use crate::layout::Layout;
use crate::left_out;
use crate::machine::{Kernel, Lane};
use crate::misuse;
use crate::module;
use crate::progress::{Record, Status};
use crate::slots;
use crate::step::{no_space, print, say};
use crate::stock;
use crate::tally::{self, Tally};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Scenarios on the debug kernel of the qemu lane, where emulation makes each take a minute: those
/// in which most locks are taken, since lockdep is what that kernel has and UML's has not.
const LOCKDEP: [&str; 3] = ["hwsim::", "lifecycle::", "removal::"];

/// Scenarios on the KCSAN kernel, which is as slow: those with most traffic.
const RACES: [&str; 5] = [
    "connected::",
    "hwsim::pair",
    "hwsim::rc",
    "hwsim::roce",
    "ping::",
];

/// The lanes that a run of tests may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Lanes {
    /// User Mode Linux.
    Uml,
    /// Virtual machines.
    Qemu,
    /// Both.
    All,
}

/// Lanes and kernels to test: without a word about it the uml lane, or the lane that has the kernel which was
/// asked for.
fn chosen(lanes: Option<Lanes>, kernel: Option<Kernel>) -> Result<Vec<(Lane, Kernel)>> {
    let of = |lane| build::choices(lane, kernel);
    let choices = match lanes {
        None if of(Some(Lane::Uml)).is_empty() => of(None),
        None | Some(Lanes::Uml) => of(Some(Lane::Uml)),
        Some(Lanes::Qemu) => of(Some(Lane::Qemu)),
        Some(Lanes::All) => of(None),
    };
    if choices.is_empty() {
        bail!("that lane does not have that kernel; see make help");
    }
    Ok(choices)
}

/// Runs the tests; true if all passed. The last line printed is the count.
pub fn run(
    layout: &Layout,
    lanes: Option<Lanes>,
    kernel: Option<Kernel>,
    filter: Option<&str>,
) -> Result<bool> {
    let choices = chosen(lanes, kernel)?;
    let everything = filter.is_none();
    let logs = layout.build().join("logs");
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    if !layout.checkout_is_writable() {
        say(&format!(
            "{} cannot be written: logs go to {}",
            layout.checkout.display(),
            logs.display()
        ));
    }
    let phases = phases(layout, &choices, everything);
    let status = Status::begin(Record::load(&layout.cache), &phases, everything);
    let mut tally = Tally::default();
    let ready = prepare(layout, &choices, everything, &mut tally, &status)?;
    let mut scenarios_run = 0;
    let mut misused = None;
    for Ready {
        lane,
        kernel,
        built,
    } in &ready
    {
        let begin = |what: &str| -> Result<()> {
            let key = format!("{what} {lane} {kernel}");
            let number = phases.iter().position(|(k, _)| *k == key);
            status.phase(number.context("a kernel that nobody asked for")?);
            Ok(())
        };
        if let (true, Some(built)) = (everything, built) {
            begin("kunit")?;
            match kunit::run(layout, built) {
                Ok(t) => {
                    print(&format!("   {}", t.summary()));
                    status.done(t.total());
                    tally.add(&format!("kunit {lane} {kernel}"), t);
                }
                Err(e) => failed(&mut tally, &format!("kunit {lane} {kernel}"), &e),
            }
            // One compiler is as good as another.
            if misused.is_none() {
                let t = misuse::run(layout, built).unwrap_or_else(|e| {
                    let mut tally = Tally::default();
                    failed(&mut tally, "programs", &e);
                    tally
                });
                status.done(t.total());
                tally.add("misuse", misused.insert(t).clone());
            }
        }
        begin("scenarios")?;
        for (name, why) in left_out::on(*kernel) {
            print(&format!("   without {name} on {lane} {kernel}: {why}"));
        }
        let chosen = match (lane, kernel) {
            (Lane::Qemu, Kernel::Debug) if everything => &LOCKDEP[..],
            (_, Kernel::Kcsan) if everything => &RACES[..],
            _ => filter.as_slice(),
        };
        // Each run's list of how long its scenarios took.
        let _ = fs::remove_file(logs.join(format!("times-{lane}-{kernel}")));
        let mut command = scenarios(*lane, *kernel, chosen);
        let t = counted(layout, &mut command, "scenarios", &status)?;
        scenarios_run += t.total();
        tally.add(&format!("{kernel}"), t);
    }
    status.finish();
    if let (Some(filter), 0, false) = (filter, scenarios_run, ready.is_empty()) {
        bail!(
            "no scenario that runs on {} has {filter:?} in its name{}",
            names(&choices),
            match lanes {
                Some(Lanes::All) => "",
                _ => "; LANE=all looks in every lane",
            }
        );
    }

    if !tally.failed.is_empty() {
        println!("\nfailed:");
        for name in &tally.failed {
            println!("   {name}");
        }
        println!("consoles of the machines: {}", logs.display());
    }
    println!("{}", tally.summary());
    Ok(tally.failed.is_empty())
}

/// "uml base, uml debug".
fn names(choices: &[(Lane, Kernel)]) -> String {
    let names: Vec<String> = choices.iter().map(|(l, k)| format!("{l} {k}")).collect();
    names.join(", ")
}

/// The phases of a run, in order: builds with all that needs no guest, then KUnit and the scenarios of
/// each kernel.
fn phases(layout: &Layout, choices: &[(Lane, Kernel)], everything: bool) -> Vec<(String, String)> {
    let mut builds = String::from("prepare");
    for (lane, kernel) in choices {
        if !kernel::seen(layout, *lane, *kernel) {
            builds += &format!("+kernel {lane} {kernel}");
        }
    }
    // Always more than one part: `prepare` notes what they took.
    builds += "+";
    let title = if everything {
        "unit tests, lint, builds"
    } else {
        "builds"
    };
    let mut phases = vec![(builds, title.to_owned())];
    for (lane, kernel) in choices {
        // Debian builds its kernels without KUnit.
        if everything && *kernel != Kernel::Stock {
            phases.push((
                format!("kunit {lane} {kernel}"),
                format!("KUnit, {lane} {kernel}"),
            ));
        }
        phases.push((
            format!("scenarios {lane} {kernel}"),
            format!("scenarios, {lane} {kernel}"),
        ));
    }
    phases
}

/// Runs what needs no guest if `everything` is wanted, and builds kernels and modules; says which there
/// are. Most of what is built has one thread only: the tests run beside it.
fn prepare(
    layout: &Layout,
    choices: &[(Lane, Kernel)],
    everything: bool,
    tally: &mut Tally,
    status: &Status,
) -> Result<Vec<Ready>> {
    status.phase(0);
    let start = Instant::now();
    let (ready, built_for, checks) = std::thread::scope(|scope| {
        let checks = everything.then(|| scope.spawn(|| without_guests(layout, status)));
        let mut tally = Tally::default();
        let builds = builds(layout, choices, &mut tally, status);
        let checks = match checks.map(std::thread::ScopedJoinHandle::join) {
            Some(Ok(checks)) => checks?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Tally::default(),
        };
        let (ready, built_for) = builds?;
        Ok::<_, anyhow::Error>((ready, built_for, (tally, checks)))
    })?;
    tally.add("build", checks.0);
    tally.add("check", checks.1);
    if everything {
        let rest = start.elapsed().saturating_sub(built_for);
        status.note("prepare", rest, status.tests_done());
    }
    Ok(ready)
}

/// Unit and property tests, then lint, since cargo runs once at a time in one directory. Between them the
/// scenarios are compiled.
fn without_guests(layout: &Layout, status: &Status) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut cargo = Command::new("cargo");
    cargo.args([
        "test",
        "--workspace",
        "--exclude",
        "scenarios",
        "--no-fail-fast",
        "--locked",
    ]);
    tally.add("unit", counted(layout, &mut cargo, "unit tests", status)?);
    // If that fails, so will the scenarios, and say why.
    let _ = Command::new("cargo")
        .args(["test", "--locked", "-p", "scenarios", "--no-run", "--quiet"])
        .current_dir(&layout.checkout)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let lint = lint::run(layout);
    status.announced(lint.total());
    status.done(lint.total());
    tally.add("lint", lint);
    Ok(tally)
}

/// A kernel that is ready for guests.
struct Ready {
    lane: Lane,
    kernel: Kernel,
    /// Where it was built, unless it is Debian's.
    built: Option<Built>,
}

/// Builds kernels and modules; those that are ready, and how long kernels that were not there have taken.
fn builds(
    layout: &Layout,
    choices: &[(Lane, Kernel)],
    tally: &mut Tally,
    status: &Status,
) -> Result<(Vec<Ready>, Duration)> {
    let mut ready: Vec<Ready> = Vec::new();
    let mut built_for = Duration::ZERO;
    for &(lane, kernel) in choices {
        let seen = kernel::seen(layout, lane, kernel);
        let start = Instant::now();
        let mut note = || {
            if !seen {
                built_for += start.elapsed();
                status.note(&format!("kernel {lane} {kernel}"), start.elapsed(), 0);
            }
        };
        let built = if kernel == Kernel::Stock {
            stock::ensure(layout).map(|_| {
                note();
                None
            })
        } else {
            kernel::ensure(layout, lane, kernel).and_then(|b| {
                note();
                module::ensure(layout, &b)?;
                if kernel == Kernel::Base {
                    peer::ensure(layout, &b)?;
                }
                Ok(Some(b))
            })
        };
        match built {
            Ok(built) => ready.push(Ready {
                lane,
                kernel,
                built,
            }),
            // Nothing else would come off better.
            Err(e) if no_space(&e) => return Err(e),
            // Broken kernels and modules are failures like any other: the rest is still worth a run.
            Err(e) => failed(tally, &format!("build for {lane} {kernel}"), &e),
        }
    }
    Ok((ready, built_for))
}

fn failed(tally: &mut Tally, name: &str, error: &anyhow::Error) {
    print(&format!("{name}: {error:#}"));
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
        for (name, _) in left_out::on(kernel) {
            set += &format!(" & not test(/^{name}/)");
        }
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
        for (name, _) in left_out::on(kernel) {
            cargo.args(["--skip", name]);
        }
        cargo.args(filters);
    }
    cargo
}

/// Runs a test runner, passes its output on, and counts.
fn counted(layout: &Layout, command: &mut Command, what: &str, status: &Status) -> Result<Tally> {
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
        print(&line);
        let before = tally.total();
        tally.line(&line);
        status.announced(tally::announced(&line));
        status.done(tally.total() - before);
    }
    let end = child.wait()?;
    if !end.success() && tally.failed.is_empty() {
        tally.count(&format!("{what} ({end})"), false);
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_lane_it_is_that_of_user_mode_linux() {
        let both = [(Lane::Uml, Kernel::Base), (Lane::Uml, Kernel::Debug)];
        for lanes in [None, Some(Lanes::Uml)] {
            assert_eq!(chosen(lanes, None).expect("a choice"), both);
        }
        let all = chosen(Some(Lanes::All), None).expect("a choice");
        assert!(all.len() >= 4 && all.starts_with(&both[..1]), "{all:?}");
        let one = chosen(Some(Lanes::Qemu), Some(Kernel::Debug)).expect("a choice");
        assert_eq!(names(&one), "qemu debug");
        assert!(!all.contains(&(Lane::Qemu, Kernel::Kcsan)), "{all:?}");
        let asked = chosen(None, Some(Kernel::Kcsan)).expect("a choice");
        assert_eq!(names(&asked), "qemu kcsan");
    }

    #[test]
    fn a_run_has_phases_and_a_kernel_that_is_not_there_takes_its_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout {
            checkout: dir.path().into(),
            cache: dir.path().into(),
            own: dir.path().into(),
        };
        let choices = [(Lane::Uml, Kernel::Base), (Lane::Uml, Kernel::Debug)];
        let kernel = dir.path().join("kernels/um-base-1");
        fs::create_dir_all(&kernel).expect("a directory");
        fs::write(kernel.join("linux"), "").expect("writes");
        let keys = |everything| -> Vec<String> {
            let phases = phases(&layout, &choices, everything);
            phases.into_iter().map(|p| p.0).collect()
        };
        let first = "prepare+kernel uml debug+";
        assert_eq!(
            keys(true),
            [
                first,
                "kunit uml base",
                "scenarios uml base",
                "kunit uml debug",
                "scenarios uml debug"
            ]
        );
        assert_eq!(
            keys(false),
            [first, "scenarios uml base", "scenarios uml debug"]
        );
    }
}
