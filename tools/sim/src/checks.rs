// SPDX-License-Identifier: GPL-2.0

//! The end of a history: all is healed, counters are read, and all goes away.

use crate::fabric;
use crate::hands::{DEBUG, load, scarce};
use crate::host::{exists, ip, name};
use crate::program::{inside, run};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use sim::plan::{Driver, Fault, Interface};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// After so long without a fault, each host reaches each other one.
pub(crate) const HEALED: Duration = Duration::from_secs(10);

/// Frames that are under way have so long to arrive.
const SETTLED: Duration = Duration::from_secs(2);

/// Program that prints the counters of all interfaces.
const READ: &str = include_str!("../../../tests/guest/accounts/read.sh");

/// The most queue pairs of an HCA: two for management, and for each of two interfaces one for datagrams and one for each
/// connection, of which there are eight to each of four peers, either way, at most.
const QUEUE_PAIRS: usize = 2 + 2 * (1 + 2 * 8 * 4);

/// KiB of memory that a guest always has left.
const MEMORY_LEFT: u64 = 64 << 10;

/// Fails if more is used than ever has to be.
pub(crate) fn bounds(world: &World) -> Result<()> {
    for (host, _) in world.hosts() {
        // There is no such file while the HCA is off.
        let table = format!("{DEBUG}/ib_hwsim/sim/h{host}/qps");
        let pairs = fs::read_to_string(table).unwrap_or_default();
        let pairs = pairs.lines().count().saturating_sub(1);
        ensure!(pairs <= QUEUE_PAIRS, "host {host} has {pairs} queue pairs");
    }
    let text = fs::read_to_string("/proc/meminfo")?;
    let left = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .context("MemAvailable")?;
    ensure!(left >= MEMORY_LEFT, "{left} KiB of memory are left");
    Ok(())
}

/// Ends all faults, and makes what is not there.
pub(crate) fn heal(world: &World) -> Result<()> {
    scarce(false)?;
    for (host, _) in world.hosts() {
        fabric::end_manager(world, host, true)?;
    }
    for cable in fabric::cables(world) {
        for fault in [
            Fault::Loss(0),
            Fault::Duplicate(0),
            Fault::Corrupt(0),
            Fault::Delay(0),
            Fault::Jitter(0),
            Fault::Rate(0),
        ] {
            fabric::impair(world, cable, fault)?;
        }
    }
    fabric::route(world, "off")?;
    fabric::write_partitions(world, None)?;
    for (host, setting) in world.hosts() {
        fabric::set(&format!("hcas/h{host}/faults"), "clear")?;
        // Interfaces that are in other namespaces go; what is made then is at home.
        for (other, _) in world.hosts().filter(|(other, _)| *other != host) {
            for interface in [Interface::Child, Interface::Parent] {
                let away = format!("{}-{host}", name(interface));
                if exists(other, &away) {
                    let _ = ip(other, &format!("link del {away}\n"));
                }
            }
        }
        // An HCA that has reported that it is beyond use is, until it is switched off. And the kernel's own driver makes
        // its interfaces where its device is.
        if fabric::device(host)?.is_empty()
            || world.beyond_use(host)
            || setting.driver == Driver::Theirs
        {
            fabric::set(&format!("hcas/h{host}/power"), "0")?;
            fabric::set(&format!("hcas/h{host}/power"), "1")?;
        }
        fabric::take_in(host)?;
    }
    // Those of an HCA come off as it is switched off.
    for cable in fabric::cables(world) {
        fabric::set(&format!("{}/plugged", fabric::cable(cable)), "1")?;
    }
    fabric::start_manager(world, 1, false)?;
    load(world, true)?;
    for (host, _) in world.hosts() {
        fabric::set_up(world, host).with_context(|| format!("host {host}"))?;
    }
    Ok(())
}

/// Writes the counters of all interfaces into a file, when nothing is under way any more, or should not be.
pub(crate) fn accounts(world: &World, file: &Path) -> Result<()> {
    let deadline = Instant::now() + SETTLED;
    loop {
        let text = run(&["sh", "-c", READ], "")?;
        let waits = ["tx_waiting: ", "tx_posted: ", "rx_seq_holding: "];
        let at_rest = text.lines().all(|line| {
            let counter = waits.iter().find_map(|w| line.trim().strip_prefix(w));
            counter.is_none_or(|n| n == "0")
        });
        if at_rest || Instant::now() > deadline {
            world.log("counters");
            return fs::write(file, text).context("counters");
        }
        sleep(Duration::from_millis(100));
    }
}

/// Takes away interfaces, subnet managers, fabric and modules, and looks for memory that is left.
pub(crate) fn tear_down(world: &World) -> Result<()> {
    for (host, setting) in world.hosts() {
        if setting.child {
            ip(host, "link del ib0.8001\n")?;
        }
        if setting.driver == Driver::Ours {
            ip(host, "link del ib0\n")?;
        }
        fabric::end_manager(world, host, false)?;
    }
    run(&["modprobe", "-r", "ipoib_rs"], "")?;
    if world.has_theirs() {
        run(&["modprobe", "-r", "ib_ipoib"], "")?;
    }
    fabric::remove(world)?;
    run(&["modprobe", "-r", "ib_hwsim"], "")?;
    leaks()
}

/// What there is to see of a history that has failed.
pub(crate) fn state(world: &World) -> String {
    let mut text = String::new();
    let ports = format!(
        "grep -H . {DEBUG}/ib_hwsim/sim/*/port* /sys/kernel/config/ib_hwsim/sim/cables/*/*"
    );
    text += &run(&["sh", "-c", &ports], "").unwrap_or_else(|e| format!("{e:#}\n"));
    for (host, _) in world.hosts() {
        for words in [
            &["ip", "-d", "-s", "addr"][..],
            &["ip", "neigh"],
            &["rdma", "link"],
            &["ethtool", "-S", "ib0"],
        ] {
            let output = inside(host, || run(words, ""));
            let output = output.unwrap_or_else(|e| format!("{e:#}\n"));
            text += &format!("# host {host}: {}\n{output}\n", words.join(" "));
        }
        let log = format!("/var/log/opensm-h{host}.log");
        text += &format!("# {log}\n{}", fs::read_to_string(&log).unwrap_or_default());
    }
    text
}

/// Fails if kmemleak finds something: it looks twice for what is five seconds old.
fn leaks() -> Result<()> {
    let file = format!("{DEBUG}/kmemleak");
    sleep(Duration::from_millis(5500));
    for _ in 0..2 {
        fs::write(&file, "scan").context("kmemleak")?;
    }
    let report = fs::read_to_string(&file)?;
    ensure!(report.is_empty(), "kmemleak:\n{report}");
    Ok(())
}
