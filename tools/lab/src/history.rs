// SPDX-License-Identifier: GPL-2.0

//! One history in simulated time: a guest whose only input is a plan.

use crate::accounts::{self, HEALED};
use crate::classify::{classify, message};
use crate::layout::{Layout, digest};
use crate::limit::Limit;
use crate::machine::{Kernel, Lane, Spec};
use crate::module::MODULES;
use crate::processor::Processor;
use crate::slots;
use crate::stage::Stage;
use crate::uml;
use crate::woven::reached;
use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use regex::Regex;
use sim::Plan;
use sim::draw::draw;
use sim::plan::{Act, Driver, is_fatal};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// Real time after which a guest is taken to hang. Most histories take some seconds, and one takes a minute now and then on a
/// busy machine.
const LONGEST: Duration = Duration::from_secs(120);

/// The wall clock of all guests at their start, in nanoseconds: 2026-01-01.
const START: u64 = 1_767_225_600_000_000_000;

/// Nanoseconds that a system call takes.
const SYSTEM_CALL: u32 = 1000;

/// Where a guest finds its files.
const FILES: &str = "/srv";

/// Memory of a guest in MiB.
const MEMORY: u32 = 768;

/// First line of a report that is named in the next one.
const CUT: &str = "------------[ cut here ]------------";

/// Limit of a guest whose driver has a fault: many of these hang.
pub(crate) const IMPATIENT: Duration = Duration::from_secs(90);

/// Kind of the failure of a guest that hangs.
pub(crate) const NO_END: &str = "no end";

/// Beginning of the names of tests that are histories.
pub(crate) const HISTORIES: &str = "histories::";

/// Seeds that `make test` plays, but for that one of them in which `ib_ipoib` fails.
const SEEDS: Range<u64> = 0..21;
const VOID: u64 = 17;

/// Directory of the plans that have failed once, with the reason in comments.
const PLANS: &str = "tests/histories";

/// Lines of a log that are shown beside what was wrong.
const SHOWN: usize = 30;

/// A history that was played.
#[derive(Debug)]
pub(crate) struct Played {
    /// Its failure, if any.
    pub(crate) wrong: Option<Wrong>,
    /// `ib_ipoib` has failed, on some host: nothing was judged from then on.
    pub(crate) void: bool,
    /// A digest of console, log and packets.
    pub(crate) digest: String,
    /// The places that were reached, if the module has some.
    pub(crate) reached: BTreeSet<usize>,
    /// Real time that it took.
    pub(crate) took: Duration,
}

/// A failure of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Its kind: equal for failures that count as one.
    pub(crate) kind: String,
    /// All that there is to tell.
    pub(crate) text: String,
}

impl Wrong {
    /// A kind is a sentence without its numbers.
    fn new(kind: &str, text: String) -> Wrong {
        static NUMBERS: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"\b[0-9a-f]{8,}\b|0x[0-9a-f]+|[0-9]+").ok());
        let kind = match &*NUMBERS {
            Some(numbers) => numbers.replace_all(kind, "").into_owned(),
            None => kind.to_owned(),
        };
        Wrong { kind, text }
    }
}

/// Plays histories of a checkout on a kernel.
#[derive(Debug, Clone)]
pub(crate) struct Player {
    stage: Stage,
    agent: PathBuf,
    program: PathBuf,
    iproute: PathBuf,
    kernel: Kernel,
    /// Packets are captured.
    pub(crate) trace: bool,
    /// The number of the change that is made, if the module has changes.
    pub(crate) mutant: Option<usize>,
    /// Real time after which a guest is taken to hang.
    pub(crate) patience: Duration,
}

impl Player {
    /// A player of what `layout` has built, on what is staged of a kernel.
    pub(crate) fn new(layout: &Layout, stage: Stage, kernel: Kernel) -> Player {
        Player {
            stage,
            agent: layout.agent(),
            program: layout.own.join("target/debug/sim"),
            iproute: layout.iproute(),
            kernel,
            trace: false,
            mutant: None,
            patience: LONGEST,
        }
    }

    /// The program that guests run.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Plays a plan in a directory, which then has `plan`, `log`, `console`, and, if it has failed, `state`.
    pub(crate) fn play(&self, plan: &Plan, dir: &Path) -> Result<Played> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        fs::write(dir.join("plan"), plan.to_string())?;
        if self.trace {
            fs::write(dir.join("trace"), "")?;
        }
        if let Some(number) = self.mutant {
            // Not in the kernel's command line: until the change changes something, the history is the one without it.
            let options = format!("options {} mutant={number}\n", MODULES[0]);
            fs::write(dir.join("options"), options)?;
        }
        // A short path for the sockets of the kernel.
        let sockets = tempfile::Builder::new()
            .prefix("sim")
            .tempdir_in("/tmp")
            .context("/tmp")?;
        let spec = self.spec(plan, dir, sockets.path());
        let console = dir.join("console");
        let output = File::create(&console)?;
        let start = Instant::now();
        let (mut command, channel) = uml::command(&spec)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output));
        let processor = Processor::take()?;
        let mut child = processor.run(|| self.spawn(&mut command, dir))??;
        drop(channel);
        let limit = Limit::begin(child.id(), self.patience);
        child.wait()?;
        let took = start.elapsed();
        let struck = limit.struck();
        drop(limit);
        let read = |name: &str| {
            fs::read(dir.join(name))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap_or_default()
        };
        let (log, console) = (read("log"), read("console"));
        let same = without_files(&console);
        let mut parts = vec![log.as_bytes(), same.as_bytes()];
        let mut traces = Vec::new();
        for host in 1..=plan.setting.hosts.len() {
            traces.push(fs::read(dir.join(format!("h{host}.pcap"))).unwrap_or_default());
        }
        parts.extend(traces.iter().map(Vec::as_slice));
        let theirs_failed = theirs_has_failed(&console);
        let wrong = reported(plan, &console).or_else(|| {
            if theirs_failed {
                return None;
            }
            if struck {
                let seconds = self.patience.as_secs();
                let text = format!("the guest did not end within {seconds} s\n{}", tail(&log));
                return Some(Wrong::new(NO_END, text));
            }
            judge(plan, &console, &read("outcome"), &read("counters"))
        });
        Ok(Played {
            void: wrong.is_none() && theirs_failed,
            wrong,
            digest: digest(&parts),
            reached: reached(&console).collect(),
            took,
        })
    }

    /// Starts the guest in a mount namespace that has all its files at [`FILES`]: the kernel's command line, which the
    /// random numbers depend on, is the same in each checkout then.
    fn spawn(&self, command: &mut Command, dir: &Path) -> Result<Child> {
        const NONE: Option<&str> = None;
        let bind = |from: &Path, name: &str| -> Result<()> {
            let to = Path::new(FILES).join(name);
            if from.is_dir() {
                fs::create_dir(&to)?;
            } else {
                File::create(&to)?;
            }
            mount(Some(from), &to, NONE, MsFlags::MS_BIND, NONE)
                .with_context(|| from.display().to_string())
        };
        thread::scope(|scope| {
            let spawned = scope.spawn(|| {
                unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)?;
                // The mounts of tools/bootstrap are private, and so are these.
                mount(NONE, FILES, Some("tmpfs"), MsFlags::empty(), NONE).context(FILES)?;
                bind(&self.stage.modules(), "modules")?;
                bind(&self.agent, "agent")?;
                bind(&self.program, "sim")?;
                bind(&self.iproute, "iproute")?;
                bind(dir, "history")?;
                command.spawn().context("start the kernel")
            });
            spawned.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// The guest of a plan.
    fn spec(&self, plan: &Plan, dir: &Path, sockets: &Path) -> Spec {
        let file = |name| Path::new(FILES).join(name);
        let append = [
            "time-travel=inf-cpu".to_owned(),
            format!("time-travel-start={START}"),
            format!("time-travel-syscall={SYSTEM_CALL}"),
            format!("random-seed={}", plan.setting.seed),
            "ib_core.netns_mode=0".to_owned(),
            "kmemleak=on".to_owned(),
            "loglevel=8".to_owned(),
            format!("lab.program={}", file("sim").display()),
            format!("lab.argument={}", file("history").display()),
        ];
        Spec {
            name: "sim".into(),
            lane: Lane::Uml,
            image: self.stage.image(),
            initramfs: None,
            modules: file("modules"),
            init: file("agent"),
            iproute: Some(file("iproute")),
            ib_hwsim: None,
            root: "/".into(),
            memory: if self.kernel.is_checked() {
                2 * MEMORY
            } else {
                MEMORY
            },
            cpus: 1,
            port: None,
            number: 1,
            icount: false,
            plugin: None,
            terminal: None,
            append: append.into(),
            dir: sockets.to_owned(),
            log: dir.join("console"),
            boot_limit: LONGEST,
            lifetime: LONGEST,
        }
    }
}

/// The plans that `make test` plays, by name: those of the first seeds, and those that have failed once, which stay the same
/// whatever seeds are drawn to.
pub(crate) fn plans(checkout: &Path) -> Result<Vec<(String, Plan)>> {
    let mut plans: Vec<(String, Plan)> = SEEDS
        .filter(|seed| *seed != VOID)
        .map(|seed| (format!("seed_{seed:02}"), draw(seed)))
        .collect();
    let dir = checkout.join(PLANS);
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let plan = Plan::parse(&text).with_context(|| path.display().to_string())?;
        plans.push((name.into_owned(), plan));
    }
    Ok(plans)
}

/// Plays a plan as a test of this name. Logs are where those of scenarios are.
pub(crate) fn test(name: &str, plan: &Plan, kernel: Kernel) -> Result<()> {
    let layout = Layout::from_env()?;
    let _slots = slots::take(&layout.cache, slots::OF_PROCESSOR)?;
    let stage = Stage::of(&layout, Lane::Uml, kernel);
    let dir = layout.build().join("logs").join(name);
    let played = Player::new(&layout, stage, kernel).play(plan, &dir)?;
    if let Some(wrong) = played.wrong {
        bail!("{}", wrong.text);
    }
    ensure!(!played.void, "ib_ipoib has failed: nothing was judged");
    Ok(())
}

/// A console without UML's complaint about its output, which names a file descriptor that differs between runs.
fn without_files(console: &str) -> String {
    let lines = console.split_inclusive('\n');
    lines
        .filter(|line| !line.contains("epollctl add err fd"))
        .collect()
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

/// Finds the kernel's first report in a console that the plan does not ask for.
fn reported(plan: &Plan, console: &str) -> Option<Wrong> {
    let lines: Vec<&str> = console.lines().collect();
    // A device that fails may not let go of what it has.
    let may_be_left = devices_fail(plan);
    let (at, report) = lines.iter().enumerate().find_map(|(at, line)| {
        let report = classify(line)?;
        let is_left = ["queue left", "object left"].contains(&report.kind.name);
        (!is_left || !may_be_left).then_some((at, report))
    })?;
    // From there on, the history is void.
    if is_theirs(&lines[at..]) {
        return None;
    }
    // A line behind the cut says what it is.
    let named = if report.line == CUT { 2 } else { 1 };
    let named = lines[at..].iter().take(named).map(|line| message(line));
    let kind = format!(
        "{}: {}",
        report.kind.name,
        named.collect::<Vec<_>>().join(" ")
    );
    let text = lines[at..].iter().take(SHOWN).copied();
    Some(Wrong::new(&kind, text.collect::<Vec<_>>().join("\n")))
}

/// Returns true if a report is about `ib_ipoib`: its first two lines name the module, or it is a panic in a work item of that,
/// with no module of this checkout at the top of the stack.
fn is_theirs(report: &[&str]) -> bool {
    let head = |lines: usize| report.iter().take(lines);
    let is_panic = head(1).any(|line| line.contains("Kernel panic - "));
    let is_own = |line: &&str| line.contains("[ipoib_rs]") || line.contains("[ib_hwsim]");
    head(2).any(|line| line.contains("[ib_ipoib]"))
        || is_panic
            && head(5).any(|line| line.contains("Workqueue: ") && line.contains("[ib_ipoib]"))
            && !head(16).any(is_own)
}

/// Returns true if the kernel has reported a failure of `ib_ipoib` itself.
fn theirs_has_failed(console: &str) -> bool {
    let lines: Vec<&str> = console.lines().collect();
    let reports = |line: &str| line.contains("WARNING: ") || line.contains("Kernel panic - ");
    (0..lines.len()).any(|at| reports(lines[at]) && is_theirs(&lines[at..]))
}

/// Finds what is wrong with a history, of which the kernel has reported nothing, by what it has left.
fn judge(plan: &Plan, console: &str, outcome: &str, counters: &str) -> Option<Wrong> {
    if let Some(text) = outcome.strip_prefix("failed: ") {
        let kind = text.split(':').take(2).collect::<Vec<_>>().join(":");
        return Some(Wrong::new(&kind, text.to_owned()));
    }
    if outcome != "passed\n" {
        let text = format!("the guest ended too early\n{}", tail(console));
        return Some(Wrong::new("ended early", text));
    }
    let log: Vec<String> = console.lines().map(str::to_owned).collect();
    let e = balanced(plan, &log, counters).err()?;
    let text = format!("{e:#}");
    let kind = text.lines().next().unwrap_or_default().to_owned();
    Some(Wrong::new(&kind, text))
}

/// Fails if counters are missing or do not add up, or tell that the driver has healed itself without a cause in the plan.
fn balanced(plan: &Plan, log: &[String], counters: &str) -> Result<()> {
    let ours = plan.setting.hosts.iter();
    let ours = ours.filter(|host| host.driver == Driver::Ours);
    let interfaces: usize = ours.map(|host| 1 + usize::from(host.child)).sum();
    let mut all = accounts::parse(counters, devices_fail(plan))?;
    let deleted = accounts::last_words(log)?;
    // All are there at the end, and are deleted then.
    ensure!(
        all.len() == interfaces && deleted.len() >= interfaces,
        "counters of {} interfaces, and of {} deleted ones",
        all.len(),
        deleted.len()
    );
    all.extend(deleted);
    for (name, counters) in &all {
        let differences = accounts::differences(counters)?;
        ensure!(
            differences.is_empty(),
            "{}\nthe counters of {name} do not add up",
            differences.join("\n")
        );
    }
    let told = accounts::healed(&all, &[], may_heal(plan))?;
    ensure!(told.is_empty(), "the driver has healed itself\n{told}");
    Ok(())
}

/// Returns true if devices of a plan fail.
fn devices_fail(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| match &step.act {
        Act::Fail(..) => true,
        Act::Event(_, event) => is_fatal(event),
        _ => false,
    })
}

/// The counters of healing that a plan may have count.
fn may_heal(plan: &Plan) -> &'static [&'static str] {
    let is_scarce = |act: &Act| matches!(act, Act::Starve(..) | Act::Scarce(_));
    if devices_fail(plan) || plan.steps.iter().any(|step| is_scarce(&step.act)) {
        &HEALED
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::plan::Step;

    fn plan(acts: &[Act]) -> Plan {
        let steps = acts.iter().map(|act| Step {
            at: 0,
            hand: 0,
            act: act.clone(),
        });
        Plan {
            steps: steps.collect(),
            ..draw(1)
        }
    }

    #[test]
    fn reports_have_kinds_without_numbers() {
        let console = "[ 1.0] a\n[ 2.0] ------------[ cut here ]------------\n\
                       [ 2.0] WARNING: net/core/dev.c:12 at f+0x1/0x2 00000000ab12cd34\n[ 2.0] b\n";
        let reported = |console: &str| reported(&plan(&[]), console);
        let wrong = reported(console).expect("a report");
        assert!(wrong.kind.starts_with("BUG/WARNING"), "{}", wrong.kind);
        let other = console
            .replace("dev.c:12 at f+0x1", "dev.c:15 at f+0x7")
            .replace("ab12cd34\n[ 2.0] b", "cd12ab34\n[ 2.0] c");
        assert_eq!(reported(&other).expect("a report").kind, wrong.kind);
        assert_eq!(reported("[ 1.0] a\n"), None);
    }

    #[test]
    fn what_follows_a_failure_of_theirs_is_void() {
        let theirs = "[ 1.0] ------------[ cut here ]------------\n\
                      [ 1.0] WARNING: include/rdma/ib_verbs.h:1 at f+0x1/0x2 [ib_ipoib], CPU#0\n";
        let other = "[ 2.0] WARNING: net/core/dev.c:12 at f+0x1/0x2\n";
        let reported = |console: &str| reported(&plan(&[]), console);
        assert_eq!(reported(&format!("{theirs}{other}")), None);
        assert!(theirs_has_failed(theirs) && !theirs_has_failed(other));
        assert!(reported(&format!("{other}{theirs}")).is_some());
        let panic = "[ 1.0] Kernel panic - not syncing: Segfault with no mm\n\
                     [ 1.0] CPU: 0 UID: 0 PID: 27 Comm: kworker/u4:1\n\
                     [ 1.0] Workqueue: ipoib_flush ipoib_ifupdown_task [ib_ipoib]\n\
                     [ 1.0]  [<8086745e>] ? ipoib_init_qp+0x8e/0x200 [ib_ipoib]\n";
        assert!(theirs_has_failed(panic) && reported(panic).is_none());
        for ours in [
            panic.replace(
                "ipoib_init_qp+0x8e/0x200 [ib_ipoib]",
                "f+0x1/0x2 [ib_hwsim]",
            ),
            panic.replace(
                "ipoib_flush ipoib_ifupdown_task [ib_ipoib]",
                "events f [ipoib_rs]",
            ),
        ] {
            assert!(!theirs_has_failed(&ours) && reported(&ours).is_some());
        }
    }

    #[test]
    fn numbers_of_files_are_no_part_of_a_history() {
        let console = |n| {
            format!("[ 0.0] a\n[ 0.0] epollctl add err fd {n}, Operation not permitted\n[ 0.1] b\n")
        };
        assert_eq!(without_files(&console(7)), "[ 0.0] a\n[ 0.1] b\n");
        assert_eq!(without_files(&console(7)), without_files(&console(8)));
    }

    #[test]
    fn failures_have_kinds() {
        let judge = |outcome: &str| judge(&plan(&[]), "", outcome, "").expect("wrong").kind;
        let late = judge("failed: after the last fault: not reached: 1 to 2");
        assert_eq!(
            late,
            judge("failed: after the last fault: not reached: 2 to 1")
        );
        assert_ne!(late, judge("failed: before the first step: x"));
        assert_eq!(judge(""), "ended early");
        // All counters are missing.
        assert!(judge("passed\n").starts_with("counters of"));
    }

    #[test]
    fn healing_wants_a_cause() {
        let event = |event: &str| plan(&[Act::Event(1, event.into())]);
        assert!(may_heal(&plan(&[Act::Forget(1)])).is_empty());
        assert!(may_heal(&event("lid_change")).is_empty());
        assert!(!may_heal(&event("device_fatal")).is_empty());
        assert!(!may_heal(&plan(&[Act::Scarce(true)])).is_empty());
        assert!(!may_heal(&plan(&[Act::Fail(1, "hold".into())])).is_empty());
    }
}
