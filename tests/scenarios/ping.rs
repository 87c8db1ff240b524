// SPDX-License-Identifier: GPL-2.0

//! ping: the first thing that anybody tries.

use lab::scenario;
use std::time::Duration;

/// Payload sizes: none, around the IP header's own, around ib0's MTU of 4092 less headers, several
/// fragments, and the largest that IP has.
const SIZES: &[u32] = &[0, 1, 56, 1400, 4043, 4044, 4063, 4064, 4065, 8192, 65507];

scenario! {
    /// IPv4 and IPv6 pass in both directions, at every size, nothing lost.
    #[on(both, races, infiniband)]
    fn every_size_passes(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for (from, to) in [(a, b), (b, a)] {
            let mut script = String::from("set -e\n");
            for size in SIZES {
                for target in [format!("-4 {}", to.ip4()), format!("-6 {}", to.ip6())] {
                    script += &format!("ping -c 2 -i 0.01 -W 5 -s {size} {target} >/tmp/ping.log || {{ cat /tmp/ping.log; exit 1; }}\n");
                }
            }
            from.run_for(&script, Duration::from_secs(40))?.ok()?;
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
        let text = a.run_for(&format!("ping -q -f -c 2000 {}", b.ip4()), Duration::from_secs(30))?.ok()?;
        anyhow::ensure!(text.contains(" 0% packet loss"), "{text}");
        bed.finish()
    }
}
