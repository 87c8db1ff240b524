// SPDX-License-Identifier: GPL-2.0

//! Frames that no honest peer sends, put on the wire by hand with a valid ICRC.

use crate::capture::Capture;
use crate::inspect::identity;
use crate::order::{self, counter};
use anyhow::{Result, ensure};
use lab::bed::{Bed, Host};
use lab::{forge, scenario};
use std::time::{Duration, Instant};

const HONEST: &str = include_str!("../guest/hostile/honest.py");

pub(crate) const HOSTILE: &str = include_str!("../guest/hostile/hostile.py");

fn forge(bed: &Bed, program: &str) -> Result<String> {
    let (a, b) = bed.pair()?;
    a.python(&forge::program(a, b, program)?, &[])?.ok()
}

scenario! {
    /// Every malformed frame is dropped and counted; honest traffic goes on.
    fn malformed_frames_are_dropped_and_counted(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;

        // An ARP request from the forger: answered, so it got through.
        let capture = Capture::start(a)?;
        forge(&bed, HONEST)?;
        std::thread::sleep(b.scaled(Duration::from_millis(300)));
        let answered = capture.stop()?.iter().any(|d| d.ether_type() == 0x0806 && d.payload.get(11) == Some(&2));
        ensure!(answered, "the forger's honest frame got no answer: its other frames prove nothing");

        let drops = |host: &Host| -> Result<u64> {
            let text = host.ok("cat /sys/class/net/ib0/statistics/rx_dropped /sys/class/net/ib0/statistics/rx_errors")?;
            Ok(text.split_whitespace().filter_map(|n| n.parse::<u64>().ok()).sum())
        };
        let before = drops(b)?;
        let sent = forge(&bed, HOSTILE)?;
        ensure!(drops(b)? > before + 100, "{} of {} counted", drops(b)? - before, sent.trim());
        for (from, to) in [(a, b), (b, a)] {
            from.wait_until(&format!("ping -c 3 -i 0.1 -W 1 {}", to.ip4()), Duration::from_secs(15))?;
            from.ok(&format!("ping -6 -c 1 -W 5 {}", to.ip6()))?;
        }
        ensure!(b.ok("ip -o link show ib0")?.contains("LOWER_UP"));
        bed.finish()
    }
}

const STRANGERS: &str = include_str!("../guest/hostile/strangers.py");

scenario! {
    /// A host is asked by many peers whose GIDs no neighbour has, and waits a second for each. A new peer does not wait with
    /// them.
    fn strangers_keep_nobody_waiting(bed) {
        let bed = bed.hosts(3).up()?;
        bed.ib()?;
        let [a, b, c] = bed.hosts.as_slice() else {
            anyhow::bail!("three hosts");
        };
        let program = forge::program(a, b, STRANGERS)?;
        let forger = a.spawn_python(&program, &["800", "40"])?;
        forger.wait_for("ready", a.scaled(Duration::from_secs(10)))?;
        b.wait_until("ethtool -S ib0 | grep -q 'paths_failed: [1-9]'", Duration::from_secs(10))?;
        let (before, begun) = (counter(b, "paths_failed")?, Instant::now());
        c.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(4))?;
        let (failed, took) = (counter(b, "paths_failed")? - before, begun.elapsed());
        ensure!(took < Duration::from_secs(1) || failed > 20, "{took:?}, and {failed} were not found meanwhile");
        forger.stop()?;
        bed.finish()
    }
}

scenario! {
    /// Unknown peers fill a host's table of paths. A known peer notices nothing, and a new one finds room.
    fn a_flood_of_strangers_finds_no_room(bed) {
        let bed = bed.hosts(4).up()?;
        bed.ib()?;
        let [a, b, c, d] = bed.hosts.as_slice() else {
            anyhow::bail!("four hosts");
        };
        c.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        let pinging = c.spawn(&format!("ping -q -i 0.05 -W 1 {}", b.ip4()))?;
        let program = forge::program(a, b, STRANGERS)?;
        let forger = a.spawn_python(&program, &["100000000", "0"])?;
        let full = "ethtool -S ib0 | grep -q 'tx_drop_table_full: [1-9]'";
        b.wait_until(full, Duration::from_secs(60))?;
        let before = counter(b, "tx_drop_table_full")?;
        d.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(2))?;
        // The flood goes on.
        let more = format!("test $(ethtool -S ib0 | awk '/ tx_drop_table_full:/ {{ print $2 }}') -gt {before}");
        b.wait_until(&more, Duration::from_secs(30))?;
        forger.stop()?;
        // The ring may have had no room for some in the flood; without a path there is no answer at all.
        let seen = pinging.stop()?.ok()?;
        let lost: f64 = seen.split(", ").find_map(|part| part.strip_suffix("% packet loss")?.parse().ok()).unwrap_or(100.0);
        ensure!(lost <= 20.0, "{seen}");
        bed.finish()
    }
}

/// Datagrams that soft-RoCE drops before it knows a QP.
pub(crate) const STRAY: &str = include_str!("../guest/hostile/stray.py");

scenario! {
    /// Datagrams that are shorter than the headers that soft-RoCE looks for, or are to an address that is no GID, are
    /// dropped below us, and do the host no harm.
    #[on(patched)]
    fn datagrams_without_headers_do_no_harm(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let gid = identity(b)?.0;
        b.ok("ip addr add fd00:9::1/128 dev lo")?;
        a.ok(&format!("ip route add fd00:9::1 via {gid} dev eth0"))?;
        let ip4 = b.eth4();
        for (kind, address) in [
            ("short", &*gid),
            ("longer", &*gid),
            ("options", &*ip4),
            ("long", "fd00:9::1"),
        ] {
            a.python(STRAY, &[kind, address])?.ok()?;
        }
        a.ok(&format!("ping -c 3 -i 0.1 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// Forged sources do not get more memory than there is for sources, and do not crowd out a source
    /// that is real: its frames are put in order as before.
    fn forged_sources_crowd_out_each_other(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        // So many frames that the source is established.
        a.ok(&format!("ping -q -c 100 -i 0.01 -W 5 {}", b.ip4()))?;
        let pinging = a.spawn(&format!("ping -q -i 0.02 {}", b.ip4()))?;
        a.python(&forge::program(a, b, forge::SOURCES)?, &["20000", "2000"])?.ok()?;
        ensure!(counter(b, "rx_seq_evicted")? > 5_000, "{}", b.ok("ethtool -S ib0")?);
        ensure!((1000..=2048).contains(&counter(b, "rx_seq_sources")?), "{}", b.ok("ethtool -S ib0")?);
        pinging.stop()?;
        let before = counter(b, "rx_seq_filled")?;
        a.ok("tc qdisc replace dev eth0 root netem limit 10000 delay 5ms reorder 50%")?;
        b.ok("sysctl -qw net.ipoib.ib0.reorder_timeout_us=100000")?;
        let seen = order::send(&bed, 500, 0.001)?;
        // Half of them without order. A sender that had no processor for a while makes up for that, and
        // more overtake one than the window is wide.
        ensure!(seen.received == 500 && seen.inverted < 100, "{seen:?}");
        ensure!(counter(b, "rx_seq_filled")? > before, "{}", b.ok("ethtool -S ib0")?);
        bed.finish()
    }
}
