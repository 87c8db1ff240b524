// SPDX-License-Identifier: GPL-2.0

//! Random requests by netlink, ethtool, sysfs, sysctl and configfs, reproducible by their seed.

use super::EXCLUSIVE;
use super::fabric::CONFIGFS;
use super::ours::{Driver, up};
use crate::ping::lossless;
use anyhow::{Context, Result, ensure};
use lab::scenario;
use std::time::Duration;

const REQUESTS: &str = include_str!("../../guest/hwsim/thrown/requests.py");

/// Checks that some requests of each kind were taken and some refused.
fn taken_and_refused(report: &str) -> Result<()> {
    let lines: Vec<&str> = report
        .lines()
        .filter_map(|line| line.strip_prefix("thrown: "))
        .collect();
    ensure!(!lines.is_empty(), "{report}");
    for line in lines {
        let counts = line
            .split(' ')
            .skip(1)
            .map(str::parse)
            .collect::<Result<Vec<u32>, _>>()?;
        ensure!(
            counts.len() == 2 && counts.iter().all(|count| *count > 0),
            "{report}"
        );
    }
    Ok(())
}

scenario! {
    /// Random requests by netlink, ethtool's ioctl and its generic netlink, sysfs, sysctl and configfs while the interface
    /// carries traffic. Afterwards the pair exchanges packets without loss. `ROUNDS` is the number of seeds.
    fn requests_at_a_live_pair(bed) {
        let (seeds, longer) = bed.rounds(1)?;
        let bed = bed.one_machine().append(EXCLUSIVE).lifetime(Duration::from_secs(240) * longer).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        for seed in 1..=seeds {
            let seed = seed.to_string();
            let pinging = b.repeat(&format!("ping -q -c 5 -i 0.01 -W 1 {}", a.ip4()))?;
            let outside = a.outside();
            let interface = a.spawn_python(REQUESTS, &[&seed, "400"])?;
            let fabric = outside.spawn_python(REQUESTS, &[&seed, "400", CONFIGFS])?;
            for task in [interface, fabric] {
                let output = task.wait(a.scaled(Duration::from_secs(60)))?.ok().with_context(|| format!("seed {seed}"))?;
                taken_and_refused(&output).with_context(|| format!("seed {seed}"))?;
            }
            pinging.stop()?;
            a.ok("ip link set ib0 up arp on promisc off allmulticast off multicast on")?;
            a.ok(&format!("ip addr replace {}/24 dev ib0", a.ip4()))?;
            for (from, to) in [(a, b), (b, a)] {
                from.wait_until(&format!("ping -q -c 1 -W 1 {}", to.ip4()), Duration::from_secs(10))?;
                lossless(from, &format!("-c 20 -i 0.01 -W 5 {}", to.ip4()))?;
            }
        }
        manager.end()?;
        bed.finish()
    }
}
