// SPDX-License-Identifier: GPL-2.0

//! `make test`: everything, counted.

use crate::bench::peer;
use crate::cmd::scenarios::{Scenarios, Wanted};
use crate::cmd::{build, fuzz, lint};
use crate::hollow;
use crate::kept::{self, Kept};
use crate::kernel::{self, Built};
use crate::kunit;
use crate::layout::Layout;
use crate::limit::Limit;
use crate::machine::{Kernel, Lane};
use crate::misuse;
use crate::module;
use crate::progress::{Record, Status};
use crate::stage::Stage;
use crate::step::{no_space, print, say};
use crate::stock::{self, Modules};
use crate::tally::{self, Tally};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The most that `make test` takes by itself: with an empty cache and two cores it takes half an hour.
const PLAIN: Duration = Duration::from_secs(3 * 3600);

/// Limit of any other run. The qemu lane takes hours; repeated scenarios take as long as `ROUNDS` demands.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The number of the first phase: builds, and what needs no guest.
const BUILDS: usize = 0;

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

/// Options of a run of tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// These lanes.
    pub lanes: Option<Lanes>,
    /// Only this kernel.
    pub kernel: Option<Kernel>,
    /// Only scenarios whose names contain this.
    pub filter: Option<&'a str>,
}

impl Request<'_> {
    /// Unit tests, lint and KUnit as well, not only scenarios.
    fn everything(&self) -> bool {
        self.filter.is_none()
    }

    /// Returns true if KUnit is to run on a kernel. Debian builds its own without.
    fn kunit(&self, lane: Lane, kernel: Kernel) -> bool {
        let name = format!("kunit::{lane}_{kernel}");
        kernel != Kernel::Stock && self.filter.is_none_or(|filter| name.contains(filter))
    }

    /// Returns true if no lane, kernel or scenario is named.
    fn plain(&self) -> bool {
        self.lanes.is_none() && self.kernel.is_none() && self.filter.is_none()
    }

    /// How long it may take.
    fn limit(&self) -> Duration {
        if self.plain() { PLAIN } else { LONGEST }
    }

    /// The scenarios of a lane. The uml lane has time for those that run when asked for; the qemu lane only for
    /// those that are named.
    fn wanted(&self, lane: Lane) -> Wanted<'_> {
        Wanted {
            filter: self.filter,
            asked: match lane {
                Lane::Uml => !self.plain(),
                Lane::Qemu => self.filter.is_some(),
            },
        }
    }

    /// The name of a phase with scenarios, under which the cache remembers how long it takes.
    fn phase(&self, lane: Lane, kernel: Kernel) -> String {
        let what = if self.plain() { "sample" } else { "scenarios" };
        format!("{what} {lane} {kernel}")
    }
}

/// Runs the tests; true if all passed. The last line printed is the count.
pub fn run(layout: &Layout, request: &Request<'_>) -> Result<bool> {
    let choices = chosen(request.lanes, request.kernel)?;
    let logs = layout.build().join("logs");
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    if !layout.checkout_is_writable() {
        say(&format!(
            "{} cannot be written: logs go to {}",
            layout.checkout.display(),
            logs.display()
        ));
    }
    let phases = phases(layout, &choices, request);
    let status = Status::begin(Record::load(&layout.cache), &phases, request.everything());
    let run = Run {
        layout,
        request,
        choices,
        phases,
        status,
        deadline: Instant::now() + request.limit(),
    };
    let tally = run.all()?;
    run.status.finish();

    if !tally.failed.is_empty() {
        println!("\nfailed:");
        for name in &tally.failed {
            println!("   {name}");
            for line in tally.cause(name) {
                println!("      {line:.200}");
            }
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

/// The phases of a run, in order: builds, then KUnit and the scenarios of each kernel.
fn phases(
    layout: &Layout,
    choices: &[(Lane, Kernel)],
    request: &Request<'_>,
) -> Vec<(String, String)> {
    let mut builds = String::from("prepare");
    for (lane, kernel) in choices {
        if !kernel::seen(layout, *lane, *kernel) {
            builds += &format!("+kernel {lane} {kernel}");
        }
    }
    // Always more than one part: what they took is noted for each.
    builds += "+";
    let title = if request.everything() {
        "unit tests, lint, builds"
    } else {
        "builds"
    };
    let mut phases = vec![(builds, title.to_owned())];
    for &(lane, kernel) in choices {
        if request.kunit(lane, kernel) {
            phases.push((
                format!("kunit {lane} {kernel}"),
                format!("KUnit, {lane} {kernel}"),
            ));
        }
        phases.push((
            request.phase(lane, kernel),
            format!("scenarios, {lane} {kernel}"),
        ));
    }
    phases
}

/// A kernel that is ready for guests.
struct Ready {
    lane: Lane,
    kernel: Kernel,
    /// Where it was built, unless it is Debian's.
    built: Option<Built>,
}

/// A run of tests.
struct Run<'a> {
    layout: &'a Layout,
    request: &'a Request<'a>,
    choices: Vec<(Lane, Kernel)>,
    phases: Vec<(String, String)>,
    status: Status,
    deadline: Instant,
}

impl Run<'_> {
    /// All of it. What needs no guest runs beside the rest: much of either has one thread only.
    fn all(&self) -> Result<Tally> {
        self.status.phase(BUILDS);
        thread::scope(|scope| {
            let checks = self
                .request
                .everything()
                .then(|| scope.spawn(|| self.without_guests()));
            let (mut tally, prepared) = self.with_guests()?;
            if let Some(checks) = checks {
                tally.add("check", joined(checks)?);
                let tests = self.status.tests_done(BUILDS);
                self.status.note("prepare", prepared, tests);
            }
            Ok(tally)
        })
    }

    /// Unit and property tests, fuzz targets, then lint, since cargo builds once at a time in one directory.
    fn without_guests(&self) -> Result<Tally> {
        let mut tally = Tally::default();
        self.status
            .announced(BUILDS, fuzz::count(self.layout) + lint::CHECKS.len());
        // With the scenarios, which guests wait for. If that fails, so will the tests, and say why.
        let _ = Command::new("cargo")
            .args(["test", "--workspace", "--locked", "--no-run", "--quiet"])
            .current_dir(&self.layout.checkout)
            .stderr(Stdio::null())
            .status();
        give_way();
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--workspace", "--locked"]);
        cargo.args(["--exclude", "scenarios", "--no-fail-fast"]);
        tally.add(
            "unit",
            self.counted(&mut cargo, "unit tests", BUILDS, lint::LIMIT)?,
        );
        let fuzz = fuzz::briefly(self.layout, &|| self.status.done(BUILDS, 1));
        tally.add("fuzz", fuzz);
        let lint = lint::run(self.layout);
        self.status.done(BUILDS, lint.total());
        tally.add("lint", lint);
        Ok(tally)
    }

    /// Builds, then KUnit and scenarios. The counts, and how long it took until guests began, less the time for kernels
    /// that were not there.
    fn with_guests(&self) -> Result<(Tally, Duration)> {
        let mut tally = Tally::default();
        let start = Instant::now();
        let (ready, built_for) = self.builds(&mut tally)?;
        let scenarios = Scenarios::build(self.layout);
        let prepared = start.elapsed().saturating_sub(built_for);
        let scenarios = match scenarios {
            Ok(scenarios) => scenarios,
            Err(e) if no_space(&e) => return Err(e),
            Err(e) => {
                failed(&mut tally, "scenarios", &e);
                return Ok((tally, prepared));
            }
        };
        let found = ready.iter().any(|on| {
            self.request.kunit(on.lane, on.kernel) || !self.names(&scenarios, on).is_empty()
        });
        if let (Some(filter), false, false) = (self.request.filter, found, ready.is_empty()) {
            bail!(
                "no scenario that runs on {} has {filter:?} in its name{}",
                names(&self.choices),
                match self.request.lanes {
                    Some(Lanes::All) => "",
                    _ => "; LANE=all looks in every lane",
                }
            );
        }
        let mut misused = false;
        for on in &ready {
            if let (true, Some(built)) = (self.request.kunit(on.lane, on.kernel), &on.built) {
                self.kunit(built, &mut tally, &mut misused)?;
            }
            self.scenarios(&scenarios, on, &mut tally)?;
        }
        Ok((tally, prepared))
    }

    /// Builds kernels and modules; those that are ready, and how long kernels that were not there have taken.
    ///
    /// A kernel's modules are built beside the next kernel: both builds begin with crates that wait for each other, and
    /// leave processors idle.
    fn builds(&self, tally: &mut Tally) -> Result<(Vec<Ready>, Duration)> {
        let mut built_for = Duration::ZERO;
        let results: Vec<Result<Option<Built>>> = thread::scope(|scope| {
            let mut builds = Vec::new();
            for &(lane, kernel) in &self.choices {
                let seen = kernel::seen(self.layout, lane, kernel);
                let start = Instant::now();
                let built = self.kernel(lane, kernel);
                if !seen && built.is_ok() {
                    built_for += start.elapsed();
                    self.status
                        .note(&format!("kernel {lane} {kernel}"), start.elapsed(), 0);
                }
                // Nothing else would come off better.
                let full = built.as_ref().is_err_and(no_space);
                builds.push(scope.spawn(|| built.and_then(|built| self.modules(built))));
                if full {
                    break;
                }
            }
            builds.into_iter().map(joined).collect()
        });
        let mut ready = Vec::new();
        for (&(lane, kernel), built) in self.choices.iter().zip(results) {
            match built {
                Ok(built) => ready.push(Ready {
                    lane,
                    kernel,
                    built,
                }),
                Err(e) if no_space(&e) => return Err(e),
                // Broken kernels and modules are failures like any other: the rest is still worth a run.
                Err(e) => failed(tally, &format!("build for {lane} {kernel}"), &e),
            }
        }
        Ok((ready, built_for))
    }

    /// Builds a kernel unless it is Debian's, of which everything is made ready at once.
    fn kernel(&self, lane: Lane, kernel: Kernel) -> Result<Option<Built>> {
        if kernel == Kernel::Stock {
            stock::ensure(self.layout, Modules::All)?;
            return Ok(None);
        }
        kernel::ensure(self.layout, lane, kernel).map(Some)
    }

    /// Builds the modules for a kernel of the lab's.
    fn modules(&self, built: Option<Built>) -> Result<Option<Built>> {
        if let Some(built) = &built {
            module::ensure(self.layout, built)?;
            if built.kernel == Kernel::Base {
                peer::ensure(self.layout, built)?;
            }
        }
        Ok(built)
    }

    /// Runs the KUnit suites on a kernel, and once the programs that must not compile.
    fn kunit(&self, built: &Built, tally: &mut Tally, misused: &mut bool) -> Result<()> {
        let name = format!("kunit {} {}", built.lane, built.kernel);
        let phase = self.begin(&name)?;
        match kunit::run(self.layout, built) {
            Ok(suites) => {
                print(&format!("   {}", suites.summary()));
                self.status.done(phase, suites.total());
                tally.add(&name, suites);
            }
            Err(e) => failed(tally, &name, &e),
        }
        // One compiler is as good as another.
        if !std::mem::replace(misused, true) {
            match misuse::run(self.layout, built) {
                Ok(programs) => {
                    self.status.done(phase, programs.total());
                    tally.add("misuse", programs);
                }
                Err(e) => failed(tally, "misuse", &e),
            }
        }
        Ok(())
    }

    /// The names of the scenarios to run on a kernel.
    fn names<'s>(&self, scenarios: &'s Scenarios, on: &Ready) -> Vec<&'s str> {
        scenarios.choose(on.lane, on.kernel, self.request.wanted(on.lane))
    }

    /// Runs the scenarios of a kernel.
    fn scenarios(&self, scenarios: &Scenarios, on: &Ready, tally: &mut Tally) -> Result<()> {
        let phase = self.begin(&self.request.phase(on.lane, on.kernel))?;
        let mut names = self.names(scenarios, on);
        let stage = Stage::of(self.layout, on.lane, on.kernel);
        let load = || Kept::load(self.layout, &stage, scenarios.program());
        let before = match on.built {
            Some(_) if !hollow::wanted() => Some(load()?),
            _ => None,
        };
        if let (Some(before), true, false) = (&before, self.request.plain(), kept::is_fresh()) {
            let mut passed = Tally::default();
            names.retain(|name| {
                let keeps = before.has(name);
                if keeps {
                    passed.keep(name);
                }
                !keeps
            });
            if passed.kept > 0 {
                self.status.leave_out(phase);
            }
            self.status.announced(phase, passed.total());
            self.status.done(phase, passed.total());
            tally.add("scenarios", passed);
        }
        if names.is_empty() {
            return Ok(());
        }
        // Each run's list of how long its scenarios took.
        let times = format!("logs/times-{}-{}", on.lane, on.kernel);
        let _ = fs::remove_file(self.layout.build().join(times));
        let mut command = scenarios.command(on.lane, &names);
        let counted = self.counted(&mut command, "scenarios", phase, LONGEST)?;
        if let Some(before) = before {
            before.note(&load()?, &counted.ok, &counted.failed)?;
        }
        tally.add("scenarios", counted);
        Ok(())
    }

    /// Begins a phase; its number.
    fn begin(&self, key: &str) -> Result<usize> {
        let number = self.phases.iter().position(|(k, _)| k == key);
        let number = number.context("a kernel that nobody asked for")?;
        self.status.phase(number);
        Ok(number)
    }

    /// The time that is left to the run.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Runs a test runner for `limit` at most, passes its output on, and counts its tests in a phase.
    fn counted(
        &self,
        command: &mut Command,
        what: &str,
        phase: usize,
        limit: Duration,
    ) -> Result<Tally> {
        let (output, input) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let mut child = command
            .current_dir(&self.layout.checkout)
            .stdin(Stdio::null())
            .stdout(Stdio::from(input.try_clone()?))
            .stderr(Stdio::from(input))
            .spawn()
            .with_context(|| format!("{what}: {:?}", command.get_program()))?;
        // They hold the pipe's writing end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let limit = Limit::begin(child.id(), limit.min(self.left()));
        let mut tally = Tally::default();
        for line in BufReader::new(File::from(output)).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            print(&line);
            let before = tally.total();
            tally.line(&line);
            self.status.announced(phase, tally::announced(&line));
            self.status.done(phase, tally.total() - before);
        }
        let end = child.wait()?;
        if limit.struck() {
            tally.count(&format!("{what}: out of time"), false);
        }
        tally.close(what);
        if !end.success() && tally.failed.is_empty() {
            tally.count(&format!("{what} ({end})"), false);
        }
        Ok(tally)
    }
}

/// Lowers the priority of this thread and of what it starts. Guests need processors in time, compilers do not.
fn give_way() {
    // Without it, all goes on, but slower.
    let _ = Command::new("renice")
        .args(["-n", "10", "-p", &nix::unistd::gettid().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// The result of a thread, which passes its panic on.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn failed(tally: &mut Tally, name: &str, error: &anyhow::Error) {
    print(&format!("{name}: {error:#}"));
    tally.count(name, false);
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
        let asked = chosen(None, Some(Kernel::Lockdep)).expect("a choice");
        assert_eq!(names(&asked), "uml lockdep");
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
        let keys = |request: Request<'_>| -> Vec<String> {
            let phases = phases(&layout, &choices, &request);
            phases.into_iter().map(|p| p.0).collect()
        };
        let first = "prepare+kernel uml debug+";
        assert_eq!(
            keys(Request::default()),
            [
                first,
                "kunit uml base",
                "sample uml base",
                "kunit uml debug",
                "sample uml debug"
            ]
        );
        let ping = Request {
            filter: Some("ping"),
            ..Request::default()
        };
        assert_eq!(
            keys(ping),
            [first, "scenarios uml base", "scenarios uml debug"]
        );
        let kunit = Request {
            filter: Some("kunit"),
            ..Request::default()
        };
        assert_eq!(
            keys(kunit),
            [
                first,
                "kunit uml base",
                "scenarios uml base",
                "kunit uml debug",
                "scenarios uml debug"
            ]
        );
    }

    #[test]
    fn scenarios_that_run_when_asked_for() {
        let named = Request {
            lanes: Some(Lanes::All),
            ..Request::default()
        };
        let filtered = Request {
            filter: Some("ping"),
            ..Request::default()
        };
        for (request, uml, qemu) in [
            (Request::default(), false, false),
            (named, true, false),
            (filtered, true, true),
        ] {
            assert_eq!(request.wanted(Lane::Uml).asked, uml, "{request:?}");
            assert_eq!(request.wanted(Lane::Qemu).asked, qemu, "{request:?}");
        }
    }
}
