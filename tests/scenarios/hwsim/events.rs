// SPDX-License-Identifier: GPL-2.0

//! Events for completions: how many there are, and on which CPU, as the kernel's own `ib_ipoib` gets them.

use super::EXCLUSIVE;
use super::caps::pair_up;
use super::weather::times;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;

/// Has the second host report completions by several settings of `ethtool -C`, and pings tell what that does.
pub(super) fn reported_together(a: &Host, b: &Host) -> Result<()> {
    for (setting, options, late) in [
        ("rx-usecs 60000 rx-frames 1000", "-c 5 -i 0.1", true),
        ("rx-usecs 60000 rx-frames 2", "-l 2 -c 2", false),
        ("rx-usecs 60000 rx-frames 1", "-c 5 -i 0.1", false),
        ("rx-usecs 0 rx-frames 0", "-c 5 -i 0.1", false),
    ] {
        b.ok(&format!("ethtool -C ib0 {setting}"))?;
        let text = a.ok(&format!("ping {options} -W 10 {}", b.ip4()))?;
        let times = times(&text)?;
        let waited = times.iter().filter(|&&time| time >= 60.0).count();
        // A packet of the neighbour table may come between.
        let right = if late {
            waited + 1 >= times.len()
        } else {
            waited < times.len()
        };
        ensure!(right && times.len() >= 2, "{setting}: {text}");
    }
    Ok(())
}

scenario! {
    /// Completions are reported together, as `ethtool -C` has it: when there are so many, or when so much time has
    /// passed.
    #[on(lockdep)]
    fn completions_are_reported_together(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = pair_up(&bed, &[])?;
        let (a, b) = bed.pair()?;
        // Nothing else comes to it.
        for host in [a, b] {
            host.ok("sysctl -qw net.ipv6.conf.ib0.disable_ipv6=1")?;
        }
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 5 {}", b.ip4()))?;
        reported_together(a, b)?;
        manager.end()?;
        bed.finish()
    }
}

/// Runs of NET_RX on the first two CPUs.
fn receptions(host: &Host) -> Result<[u64; 2]> {
    let text = host.ok("grep NET_RX: /proc/softirqs")?;
    let mut numbers = text.split_whitespace().skip(1);
    let mut next = || -> Result<u64> { Ok(numbers.next().context("two CPUs")?.parse()?) };
    Ok([next()?, next()?])
}

/// Runs of NET_RX on the first two CPUs while a host pings an address a thousand times from one of them.
pub(super) fn flood_from(host: &Host, cpu: u8, address: &str) -> Result<[u64; 2]> {
    let outside = host.outside();
    let before = receptions(&outside)?;
    host.ok(&format!(
        "taskset -c {cpu} ping -f -q -c 1000 -W 5 {address}"
    ))?;
    let after = receptions(&outside)?;
    Ok([after[0] - before[0], after[1] - before[1]])
}

/// Pings `b` from either CPU: each time, NET_RX runs for what is received on the first CPU, and for what was sent at
/// least `least` times on the second.
pub(super) fn flood_on_each_cpu(a: &Host, b: &Host, least: u64) -> Result<()> {
    for sender in [0, 1] {
        let [first, second] = flood_from(a, sender, &b.ip4())?;
        ensure!(
            first > 500 && second > least,
            "from CPU {sender}: {first} and {second}"
        );
    }
    Ok(())
}

scenario! {
    /// Events come on the CPU of the completion vector, wherever the sender runs: `ib_ipoib` has what it receives on
    /// the first one, and what it has sent on the second.
    #[on(lockdep, parallel)]
    fn vectors_have_cpus(bed) {
        let bed = bed.one_machine().cpus(2).append(EXCLUSIVE).up()?;
        let manager = pair_up(&bed, &[("comp_vectors", "2")])?;
        let (a, b) = bed.pair()?;
        flood_on_each_cpu(a, b, 500)?;
        manager.end()?;
        bed.finish()
    }
}
