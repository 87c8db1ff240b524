// SPDX-License-Identifier: GPL-2.0

//! The program that plays a history in a guest, whose agent starts it as root with the directory of the history: the file
//! `plan` there says what is to happen, and it leaves `log`, `counters` and `outcome`.

mod checks;
mod fabric;
mod hands;
mod host;
mod program;
mod traffic;
mod watch;
mod world;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use sim::Plan;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use traffic::Traffic;
use world::World;

/// Where the guest has the history's directory.
const DIRECTORY: &str = "/run/history";

/// Where modprobe looks for options.
const MODPROBE: &str = "/run/modprobe.d";

/// Guest time to find out about a failure. Programs that ask for what is locked for ever do not end.
const STATE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let Some(directory) = std::env::args().nth(1) else {
        eprintln!("sim plays histories in a lab guest: make sim");
        return ExitCode::from(2);
    };
    match history(&directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Plays the history in a directory of the machine that the guest runs on.
fn history(directory: &str) -> Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("none"),
        DIRECTORY,
        Some("hostfs"),
        flags,
        Some(directory),
    )
    .context("mount the history's directory")?;
    let at = Path::new(DIRECTORY);
    // Options of modules, for those who look for bugs that they have made.
    if at.join("options").exists() {
        fs::create_dir_all(MODPROBE)?;
        fs::copy(at.join("options"), Path::new(MODPROBE).join("history.conf"))?;
    }
    let plan = Plan::parse(&fs::read_to_string(at.join("plan")).context("plan")?)?;
    let trace = at.join("trace").exists();
    let world = Arc::new(World::new(plan.setting.clone(), trace, &at.join("log"))?);
    let result = play(&world, &plan);
    let outcome = match &result {
        _ if checks::theirs_has_failed(&world) => "void\n".to_owned(),
        Ok(()) => "passed\n".to_owned(),
        Err(e) => format!("failed: {e:#}\n"),
    };
    fs::write(at.join("outcome"), &outcome)?;
    if result.is_err() {
        tell(&world, at);
        // A thread of this program may hang in the kernel: then the program cannot end, and the agent would wait for it.
        reboot(RebootMode::RB_POWER_OFF)?;
    }
    Ok(())
}

/// Writes what there is to see of a history that has failed, as far as it can be seen.
fn tell(world: &Arc<World>, at: &'static Path) {
    let shared = Arc::clone(world);
    let writer = thread::spawn(move || {
        let _ = fabric::save_traces(&shared, at);
        let _ = fs::write(at.join("state"), checks::state(&shared));
    });
    let deadline = Instant::now() + STATE;
    while !writer.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Makes the hosts, has the plan's steps done, heals all, and checks what has to hold then.
fn play(world: &Arc<World>, plan: &Plan) -> Result<()> {
    fabric::make(world).context("before the first step")?;
    let traffic = Arc::new(Traffic::start(world)?);
    traffic
        .all_reached(checks::HEALED)
        .context("before the first step")?;
    hands::play(world, &plan.steps, &traffic)?;
    world.log("heal");
    checks::heal(world).context("healing")?;
    traffic
        .all_reached(checks::HEALED)
        .context("after the last fault")?;
    checks::connected(world).context("after the last fault")?;
    traffic.stop()?;
    checks::checksums(world)?;
    let at = Path::new(DIRECTORY);
    checks::accounts(world, &at.join("counters"))?;
    fabric::save_traces(world, at)?;
    // Queues that ib_ipoib has left behind keep modules from being unloaded.
    ensure!(!checks::theirs_has_failed(world), "ib_ipoib has failed");
    checks::tear_down(world).context("removal")
}
