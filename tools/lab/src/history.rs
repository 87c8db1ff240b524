// SPDX-License-Identifier: GPL-2.0

//! One history in simulated time: a guest whose only input is a plan.

use crate::accounts::{self, Counters, HEALED};
use crate::classify::{classify, message};
use crate::layout::{Layout, digest};
use crate::limit::Limit;
use crate::machine::{Kernel, Lane, Spec};
use crate::stage::Stage;
use crate::uml;
use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use regex::Regex;
use sim::Plan;
use sim::plan::Act;
use std::fs::{self, File};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// Real time after which a guest hangs. Most histories take some seconds, and seldom one a minute on a busy machine.
const LONGEST: Duration = Duration::from_secs(240);

/// The wall clock of all guests at their start, in nanoseconds: 2026-01-01.
const START: u64 = 1_767_225_600_000_000_000;

/// Nanoseconds that a system call takes.
const SYSTEM_CALL: u32 = 1000;

/// Where a guest finds its files.
const FILES: &str = "/srv";

/// Memory of a guest in MiB.
const MEMORY: u32 = 512;

/// Lines of a log that are shown beside what was wrong.
const SHOWN: usize = 30;

/// A history that was played.
#[derive(Debug)]
pub(crate) struct Played {
    /// What was wrong, if anything.
    pub(crate) wrong: Option<Wrong>,
    /// Names the content of the kernel's log, the history's own, and the packets' trace: the same for the same history.
    pub(crate) digest: String,
    /// Real time that it took.
    pub(crate) took: Duration,
}

/// What was wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The same for failures that are taken for the same.
    pub(crate) kind: String,
    /// All that there is to tell.
    pub(crate) text: String,
}

impl Wrong {
    /// A kind is a sentence without its numbers.
    fn new(kind: &str, text: String) -> Wrong {
        static NUMBERS: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new("0x[0-9a-f]+|[0-9]+").ok());
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
}

impl Player {
    pub(crate) fn new(layout: &Layout, kernel: Kernel) -> Player {
        Player {
            stage: Stage::of(layout, Lane::Uml, kernel),
            agent: layout.agent(),
            program: layout.own.join("target/debug/sim"),
            iproute: layout.iproute(),
            kernel,
            trace: false,
        }
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
        let mut child = self.spawn(&mut command, dir)?;
        drop(channel);
        let limit = Limit::begin(child.id(), LONGEST);
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
        let mut parts = vec![log.as_bytes(), console.as_bytes()];
        let mut traces = Vec::new();
        for host in 1..=plan.setting.hosts.len() {
            traces.push(fs::read(dir.join(format!("h{host}.pcap"))).unwrap_or_default());
        }
        parts.extend(traces.iter().map(Vec::as_slice));
        let wrong = if struck {
            let text = format!("no end within {} s\n{}", LONGEST.as_secs(), tail(&log));
            Some(Wrong::new("no end", text))
        } else {
            judge(plan, &console, &read("outcome"), &read("counters"))?
        };
        Ok(Played {
            wrong,
            digest: digest(&parts),
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

    fn spec(&self, plan: &Plan, dir: &Path, sockets: &Path) -> Spec {
        let file = |name| Path::new(FILES).join(name);
        let append = [
            "time-travel=inf-cpu".to_owned(),
            format!("time-travel-start={START}"),
            format!("time-travel-syscall={SYSTEM_CALL}"),
            format!("random-seed={}", plan.setting.seed),
            "ib_core.netns_mode=0".to_owned(),
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

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

/// Finds what is wrong with a history by what it has left.
fn judge(plan: &Plan, console: &str, outcome: &str, counters: &str) -> Result<Option<Wrong>> {
    let lines: Vec<&str> = console.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(report) = classify(line).filter(|report| !is_expected(plan, &report.line)) else {
            continue;
        };
        let text = lines[at..].iter().take(SHOWN).copied().collect::<Vec<_>>();
        // The line behind the cut says more.
        let named = lines[at..].iter().take(3).map(|line| message(line));
        let kind = format!(
            "{}: {}",
            report.kind.name,
            named.collect::<Vec<_>>().join(" ")
        );
        return Ok(Some(Wrong::new(&kind, text.join("\n"))));
    }
    if let Some(text) = outcome.strip_prefix("failed: ") {
        let kind = text.split(':').take(2).collect::<Vec<_>>().join(":");
        return Ok(Some(Wrong::new(&kind, text.to_owned())));
    }
    if outcome.is_empty() {
        let text = format!("the guest has ended too early\n{}", tail(console));
        return Ok(Some(Wrong::new("ended early", text)));
    }
    let log: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    let judged = accounts::parse(counters, has_broken_devices(plan)).and_then(|mut all| {
        all.extend(accounts::last_words(&log)?);
        balanced(plan, &all)
    });
    match judged {
        Ok(()) => Ok(None),
        Err(e) => {
            let text = format!("{e:#}");
            let kind = text.lines().next().unwrap_or_default().to_owned();
            Ok(Some(Wrong::new(&kind, text)))
        }
    }
}

/// Fails if counters do not add up, or tell that the driver has healed itself without a cause in the plan.
fn balanced(plan: &Plan, all: &[(String, Counters)]) -> Result<()> {
    for (name, counters) in all {
        let differences = accounts::differences(counters)?;
        ensure!(
            differences.is_empty(),
            "{}\nthe counters of {name} do not add up",
            differences.join("\n")
        );
    }
    let told = accounts::healed(all, &[], may_heal(plan))?;
    ensure!(told.is_empty(), "the driver has healed itself\n{told}");
    Ok(())
}

/// Returns true if a plan makes devices fail.
fn has_broken_devices(plan: &Plan) -> bool {
    let breaks = |act: &Act| matches!(act, Act::Fail(..) | Act::Event(..));
    plan.steps.iter().any(|step| breaks(&step.act))
}

/// The counters of healing that a plan may have count.
fn may_heal(plan: &Plan) -> &'static [&'static str] {
    let scarce = |act: &Act| matches!(act, Act::Starve(_) | Act::Scarce(_));
    if has_broken_devices(plan) || plan.steps.iter().any(|step| scarce(&step.act)) {
        &HEALED
    } else {
        &[]
    }
}

/// Returns true if a report is one that a plan asks for.
fn is_expected(plan: &Plan, line: &str) -> bool {
    let scarce = |act: &Act| matches!(act, Act::Starve(_) | Act::Scarce(_));
    // The tracker of references says that it has no memory to go on.
    line.starts_with("ref_tracker: memory allocation failure")
        && plan.steps.iter().any(|step| scarce(&step.act))
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
            ..sim::draw::draw(1)
        }
    }

    #[test]
    fn reports_come_first_and_kinds_have_no_numbers() {
        let console = "[ 1.0] a\n[ 2.0] ------------[ cut here ]------------\n[ 2.0] WARNING: net/core/dev.c:12 at f+0x1/0x2\n";
        let judge = |console: &str, outcome: &str| {
            judge(&plan(&[]), console, outcome, "").expect("a judgement")
        };
        let wrong =
            judge(console, "failed: after the last fault: not reached: 1 to 2").expect("wrong");
        assert!(wrong.kind.starts_with("BUG/WARNING"), "{}", wrong.kind);
        let other = console.replace("dev.c:12 at f+0x1", "dev.c:15 at f+0x7");
        assert_eq!(judge(&other, "").expect("wrong").kind, wrong.kind);
        let late = judge("", "failed: after the last fault: not reached: 1 to 2").expect("wrong");
        let later = judge("", "failed: after the last fault: not reached: 2 to 1").expect("wrong");
        assert_eq!(late.kind, later.kind);
        assert!(judge("", "").is_some());
        assert_eq!(judge("", "passed\n"), None);
    }

    #[test]
    fn healing_wants_a_cause() {
        assert!(may_heal(&plan(&[Act::Forget(1)])).is_empty());
        assert!(!may_heal(&plan(&[Act::Starve(3)])).is_empty());
        assert!(!may_heal(&plan(&[Act::Fail(1, "hold".into())])).is_empty());
        let line = "ref_tracker: memory allocation failure, unreliable refcount tracker.";
        assert!(is_expected(&plan(&[Act::Scarce(true)]), line));
        assert!(!is_expected(&plan(&[]), line));
    }
}
