// SPDX-License-Identifier: GPL-2.0

//! The program that plays a history in a guest, whose agent starts it as root with the directory of the history: the file
//! `plan` there says what is to happen, and it leaves `log`, `counters` and `outcome`.

mod checks;
mod fabric;
mod hands;
mod host;
mod program;
mod traffic;
mod world;

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use sim::Plan;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use world::World;

/// Where the guest has the history's directory.
const DIRECTORY: &str = "/run/history";

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
    let plan = Plan::parse(&fs::read_to_string(at.join("plan")).context("plan")?)?;
    let world = World::new(
        plan.setting.clone(),
        at.join("trace").exists(),
        &at.join("log"),
    )?;
    let result = play(&world, &plan);
    let outcome = match &result {
        Ok(()) => "passed\n".to_owned(),
        Err(e) => format!("failed: {e:#}\n"),
    };
    if result.is_err() {
        fabric::save_traces(&world, at)?;
        fs::write(at.join("state"), checks::state(&world))?;
    }
    fs::write(at.join("outcome"), &outcome)?;
    if let Err(e) = result {
        bail!("{e:#}");
    }
    Ok(())
}

/// Makes the hosts, has the plan's steps done, heals all, and checks what has to hold then.
fn play(world: &World, plan: &Plan) -> Result<()> {
    fabric::make(world).context("before the first step")?;
    let traffic = traffic::Traffic::start(world)?;
    traffic
        .all_reached(checks::HEALED)
        .context("before the first step")?;
    hands::play(world, &plan.steps, &traffic)?;
    world.log("heal");
    checks::heal(world).context("healing")?;
    traffic
        .all_reached(checks::HEALED)
        .context("after the last fault")?;
    traffic.stop()?;
    let at = Path::new(DIRECTORY);
    checks::accounts(world, &at.join("counters"))?;
    fabric::save_traces(world, at)?;
    checks::tear_down(world).context("removal")
}
