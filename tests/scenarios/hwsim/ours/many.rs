// SPDX-License-Identifier: GPL-2.0

//! A large fabric, with an interface on each port.

use super::super::EXCLUSIVE;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::layout::Layout;
use lab::scenario;
use regex::Regex;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A fat tree.
struct Tree {
    hosts: u64,
    /// Ports of a switch.
    radix: u64,
    /// Others that each host pings.
    peers: u64,
    /// How many hosts these are apart.
    stride: u64,
}

const LARGE: Tree = Tree {
    hosts: 648,
    radix: 36,
    peers: 20,
    stride: 31,
};

/// For the debug kernel.
const SMALL: Tree = Tree {
    hosts: 32,
    radix: 8,
    peers: 6,
    stride: 5,
};

const PING: &str = include_str!("../../../guest/hwsim/many/ping.py");
const TOP: &str = include_str!("../../../guest/hwsim/many/top.py");
const LIMIT: Duration = Duration::from_secs(300);

/// Packets that a queue pair of the first HCA, on which the manager is, has received: `GSI`, requests to the administrator;
/// `SMI`, what nodes answer.
fn received(outside: &Host, kind: &str) -> Result<u64> {
    let text = outside.ok(&format!(
        "awk '$2 == \"{kind}\" {{ print $10 }}' /sys/kernel/debug/ib_hwsim/fat-tree/h1/qps"
    ))?;
    text.trim().parse().with_context(|| text)
}

fn asked(outside: &Host) -> Result<u64> {
    received(outside, "GSI")
}

/// Frames that the first host has received: nearly all of them ARP requests, which each host broadcasts.
fn heard(outside: &Host) -> Result<u64> {
    let text = outside.ok("ip netns exec h1 ethtool -S ib0 | awk '/ rx_frames:/ { print $2 }'")?;
    text.trim().parse().with_context(|| text)
}

/// Compiles ipoibctl as its package has it.
fn optimised() -> Result<PathBuf> {
    let layout = Layout::from_env()?;
    let output = Command::new("cargo")
        .args(["build", "--release", "--locked", "--package", "ipoibctl"])
        .current_dir(&layout.checkout)
        .output()
        .context("cargo")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let debug = layout.ipoibctl();
    let target = debug.ancestors().nth(2).context("no target directory")?;
    Ok(target.join("release/ipoibctl"))
}

/// Runs `ipoibctl status` on the first host a few times: the least time that it takes, in seconds. A system call in User
/// Mode Linux takes twice as long whenever the host has the kernel and its process on two CPUs.
fn least(outside: &Host, tool: &Path) -> Result<f64> {
    let script = format!(
        "mount -t debugfs none /sys/kernel/debug; TIMEFORMAT=%R
         for n in $(seq 20); do time {} status >/tmp/ipoibctl; [ $? -le 1 ] || exit; done 2>&1",
        tool.display()
    );
    let said = outside.ok(&format!("ip netns exec h1 bash -c '{script}'"))?;
    let times = said.lines().map(str::parse::<f64>);
    let times = times
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| said.clone())?;
    times.into_iter().reduce(f64::min).context("no time")
}

/// Time that ipoibctl takes for a host whose peers are all others.
fn seen(outside: &Host, tool: &Path, hosts: u64) -> Result<String> {
    let status = least(outside, tool)?;
    let text = outside.ok("cat /tmp/ipoibctl")?;
    // Those that are to be asked for anew are usable, too.
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("paths "));
    let numbers = Regex::new(r"(\d+) (?:old|ready)")?;
    let numbers = numbers.captures_iter(line.context("no paths")?);
    let paths: u64 = numbers
        .filter_map(|found| found[1].parse::<u64>().ok())
        .sum();
    ensure!(paths == hosts - 1, "{text}");
    if hosts == LARGE.hosts {
        ensure!(status <= 0.05, "status takes {status} s");
    }
    outside.ok(&format!(
        "ip netns exec h1 sh -c 'mount -t debugfs none /sys/kernel/debug; {} top --json -d 0.1 >/tmp/ipoibctl; [ $? -le 1 ]'",
        tool.display()
    ))?;
    let report: serde_json::Value = serde_json::from_str(&outside.ok("cat /tmp/ipoibctl")?)?;
    let peers = report["peers"].as_array().context("no peers")?;
    ensure!(peers.len() as u64 == hosts - 1, "{} peers", peers.len());
    let tool = tool.display().to_string();
    let said = outside.spawn_python(TOP, &[&tool])?.wait(LIMIT)?.ok()?;
    let numbers = said.split_whitespace().map(str::parse::<f64>);
    let numbers = numbers
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| said.clone())?;
    let (drawn, shares) = numbers.split_first().with_context(|| said.clone())?;
    let share = shares
        .iter()
        .copied()
        .reduce(f64::min)
        .context("no share")?;
    ensure!(*drawn > 100.0, "top draws {drawn} bytes");
    if hosts == LARGE.hosts {
        ensure!(share <= 0.01, "top takes {shares:?} of a CPU");
    }
    Ok(format!(
        "ipoibctl status: {status:.3} s; top: {shares:?} of a CPU"
    ))
}

scenario! {
    /// 648 hosts (32 on the debug kernel), each of which pings 20 others while the manager sweeps again: the administrator
    /// is asked for each path once, or twice where the sweep makes it doubtful, and for the groups. Then the first host
    /// pings all others, and ipoibctl shows it without delay. The figures are in `build/logs`.
    #[on(uml)]
    fn many_hosts_ask_for_each_path(bed) {
        let Tree { hosts, radix, peers, stride } = if bed.kernel().is_checked() { SMALL } else { LARGE };
        let tool = if bed.kernel().is_checked() { Layout::from_env()?.ipoibctl() } else { optimised()? };
        let bed = bed.one_machine().hosts(1).memory(6144).append(EXCLUSIVE).lifetime(Duration::from_secs(900)).up()?;
        let outside = bed.hosts[0].outside();
        let log = Layout::from_env()?.build().join(format!("logs/hosts-{hosts}"));
        let mut text = String::new();
        let mut note = |line: String| -> Result<()> {
            println!("{line}");
            text += &format!("{line}\n");
            std::fs::write(&log, &text).with_context(|| log.display().to_string())
        };
        let begin = Instant::now();
        let mut step = |what: &str| note(format!("{what} after {:.1} s", begin.elapsed().as_secs_f32()));
        outside.ok("modprobe ib_umad && modprobe ib_hwsim")?;
        outside.run_for(&format!("ib-hwsim fat-tree {hosts} {radix}"), LIMIT)?.ok()?;
        outside.run_for("ib-hwsim netns", LIMIT)?.ok()?;
        step("made")?;
        // All hosts share the kernel's table of neighbours.
        outside.ok("for n in 1 2 3; do echo 100000 >/proc/sys/net/ipv4/neigh/default/gc_thresh$n; done")?;
        outside.run_for("modprobe ipoib_rs ports=all send_queue_size=64 recv_queue_size=64", LIMIT)?.ok()?;
        step("interfaces")?;
        outside.run_for("ib-hwsim sm", LIMIT)?.ok()?;
        step("Active")?;
        let started = asked(&outside)?;
        let arguments = [hosts, peers, stride].map(|number| number.to_string());
        let [h, p, s] = &arguments;
        outside.spawn_python(PING, &["up", h, p, s])?.wait(LIMIT)?.ok()?;
        step("up")?;
        let joined = asked(&outside)?;
        let before = heard(&outside)?;
        let pings = outside.spawn_python(PING, &["ping", h, p, s])?;
        pings.wait_for("round 2", LIMIT)?;
        let quiet = received(&outside, "SMI")?;
        outside.ok("pkill -HUP -x opensm")?;
        // The last round, so that the sweep has been under way while they asked.
        pings.wait_for(&format!("round {}", peers / 2), LIMIT)?;
        let swept = received(&outside, "SMI")? - quiet;
        let said = pings.wait(LIMIT)?.ok()?;
        step("all pinged")?;
        let paths = asked(&outside)? - joined;
        let heard = heard(&outside)? - before;
        note(format!("asked to come up: {}; for {} paths: {paths}; {}", joined - started, hosts * peers, said.lines().last().unwrap_or_default()))?;
        note(format!("answers to the manager's sweep: {swept}; frames at the first host: {heard}"))?;
        outside.spawn_python(PING, &["first", h, p, s])?.wait(LIMIT)?.ok()?;
        note(seen(&outside, &tool, hosts)?)?;
        // The broadcast group, and some that IPv4 brings.
        ensure!(joined - started <= 8 * hosts, "{} to come up", joined - started);
        ensure!((hosts * peers..=2 * hosts * peers + 8 * hosts).contains(&paths), "{paths} for paths");
        // The sweep asks each host for one thing at least, while they ask.
        ensure!(swept >= hosts, "{swept} answers to the sweep");
        ensure!((hosts..=2 * hosts * peers).contains(&heard), "{heard} frames at the first host");
        // Each would wait for an administrator that is gone.
        outside.run_for("modprobe -r ipoib_rs", LIMIT)?.ok()?;
        outside.ok("pkill -KILL -x opensm")?;
        outside.run_for("ib-hwsim down", LIMIT)?.ok()?;
        bed.finish()
    }
}
