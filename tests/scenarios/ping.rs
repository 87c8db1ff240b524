// SPDX-License-Identifier: GPL-2.0

//! ping: the first thing that anybody tries.

use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Payload sizes: none, around the IP header's own, around ib0's MTU of 4092 less headers, several
/// fragments, and the largest that IP has.
const SIZES: &[u32] = &[0, 1, 56, 1400, 4043, 4044, 4063, 4064, 4065, 8192, 65507];

/// Numbers of requests that ping reports as sent and as answered.
pub(crate) fn requests(report: &str) -> Result<(u64, u64)> {
    let words = || report.split_whitespace();
    let before = |word: &str| -> Result<u64> {
        let at = words().position(|w| w == word).context(report.to_owned())?;
        words()
            .nth(at.wrapping_sub(1))
            .unwrap_or_default()
            .parse()
            .context(report.to_owned())
    };
    Ok((before("packets")?, before("received,")?))
}

/// Number of requests that ping reports as unanswered.
pub(crate) fn unanswered(report: &str) -> Result<u64> {
    let (sent, answered) = requests(report)?;
    Ok(sent - answered)
}

/// Sends pings with these arguments, all of which have to be answered.
pub(crate) fn lossless(from: &Host, arguments: &str) -> Result<()> {
    let report = from.ok(&format!("ping -q {arguments}"))?;
    ensure!(unanswered(&report)? == 0, "{report}");
    Ok(())
}

/// Lines of a shell script that pings each target twice with each payload, and fails if an answer is missing.
pub(crate) fn sizes(sizes: &[u32], targets: &[String]) -> String {
    let each = |size| targets.iter().map(move |target| (size, target));
    let lines = sizes.iter().flat_map(each).map(|(size, target)| {
        format!(
            "ping -q -c 2 -i 0.01 -W 5 -s {size} {target} >/tmp/ping.log && grep -q ' 0% packet loss' /tmp/ping.log || {{ cat /tmp/ping.log; exit 1; }}\n"
        )
    });
    lines.collect()
}

scenario! {
    /// IPv4 and IPv6 pass in both directions, at every size, nothing lost.
    #[on(both, races, infiniband)]
    fn every_size_passes(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for (from, to) in [(a, b), (b, a)] {
            from.run_for(&sizes(SIZES, &[to.ip4(), to.ip6()]), Duration::from_secs(40))?.ok()?;
        }
        bed.finish()
    }
}

scenario! {
    /// A frame as large as the MTU passes unfragmented; one byte more is refused by the sender.
    #[on(races, infiniband)]
    fn the_mtu_is_what_it_says(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -M do -c 1 -W 5 -s {} {}", 4092 - 28, b.ip4()))?;
        a.run(&format!("ping -M do -c 1 -W 5 -s {} {}", 4092 - 27, b.ip4()))?.refused()?;
        a.ok(&format!("ping -6 -M do -c 1 -W 5 -s {} {}", 4092 - 48, b.ip6()))?;
        bed.finish()
    }
}

scenario! {
    /// A flood loses nothing on a clean wire.
    #[on(both, races, infiniband)]
    fn a_flood_loses_nothing(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        // One packet first: address resolution may cost a flood its head.
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        lossless(a, &format!("-f -c 2000 {}", b.ip4()))?;
        bed.finish()
    }
}
