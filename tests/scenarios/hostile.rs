// SPDX-License-Identifier: GPL-2.0

//! Frames that no honest peer sends, put on the wire by hand with a valid ICRC.

use crate::capture::Capture;
use crate::hwsim::ours::hijack::NOBODY;
use crate::inspect::{directory, identity};
use crate::order::{self, counter};
use crate::ping::{lossless, requests};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::{forge, scenario};
use std::time::Duration;

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
            lossless(from, &format!("-c 3 -i 0.1 -W 5 {}", to.ip4()))?;
            lossless(from, &format!("-c 1 -W 5 {}", to.ip6()))?;
        }
        ensure!(b.ok("ip -o link show ib0")?.contains("LOWER_UP"));
        bed.finish()
    }
}

scenario! {
    /// The module parameter `qkey` sets the Q_Key of all datagrams. The device drops datagrams with the default Q_Key.
    fn the_q_key_is_the_parameters(bed) {
        let bed = bed.append("ipoib_rs.qkey=0x345678").up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let capture = Capture::start(a)?;
        lossless(a, &format!("-c 3 -i 0.1 -W 5 {}", b.ip4()))?;
        forge(&bed, HONEST)?;
        // Any answer would come before the answers to these pings.
        lossless(a, &format!("-c 3 -i 0.1 -W 5 {}", b.ip4()))?;
        let datagrams = capture.stop()?;
        // Only the forged datagram has the default Q_Key. Six requests and six replies have the other one.
        let keys: Vec<u32> = datagrams.iter().map(|datagram| datagram.qkey).collect();
        ensure!(keys.iter().filter(|key| **key == 0x345678).count() >= 12, "{keys:x?}");
        ensure!(keys.iter().filter(|key| **key != 0x345678).eq([&0x8001_0b1b]), "{keys:x?}");
        // Target address of an answer to the forger.
        let answered = datagrams.iter().any(|d| d.ether_type() == 0x0806 && d.payload.get(56..60) == Some(&[10, 1, 0, 99]));
        ensure!(!answered, "an answer to a datagram with another Q_Key: {datagrams:?}");
        bed.finish()
    }
}

const TAKE_QKEY: &str = include_str!("../guest/hostile/take_qkey.py");

scenario! {
    /// The Q_Key of datagrams has the high bit set: a user without any privilege cannot give it to a queue pair. Without that
    /// bit it can, and root can in any case.
    fn users_cannot_take_the_q_key(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let capture = Capture::start(a)?;
        lossless(a, &format!("-c 1 -W 5 {}", b.ip4()))?;
        let key = capture.stop()?.first().context("no datagram")?.qkey;
        let plain = key & !(1 << 31);
        for (user, key, answer) in [(NOBODY, key, "EPERM"), (NOBODY, plain, "taken"), ("", key, "taken")] {
            let said = a.python(&format!("{user}{TAKE_QKEY}"), &[&a.rxe(), &key.to_string()])?.ok()?;
            ensure!(said.trim() == answer, "{key:#x}: {said}, not {answer}");
        }
        bed.finish()
    }
}

const STRANGERS: &str = include_str!("../guest/hostile/strangers.py");

scenario! {
    /// A host is asked by many peers whose GIDs no neighbour has, and waits a second for each. A new peer does not wait with
    /// them.
    #[on(timed)]
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
        c.ok(&format!("ping -q -c 1 -W 1 {}", b.ip4()))?;
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
        // Room for what comes while nobody polls.
        b.ok("ethtool -G ib0 rx 2048")?;
        c.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        let pinging = c.spawn(&format!("exec ping -q -i 0.05 -W 1 {}", b.ip4()))?;
        let program = forge::program(a, b, STRANGERS)?;
        // At this rate the table's 8,192 slots fill in seconds, and a slow computer keeps up.
        let forger = a.spawn_python(&program, &["100000000", "2000"])?;
        // A row for each path, and the heading. What is not used stays for a minute.
        let full = format!("sleep 0.5; [ $(wc -l <{}/paths) -gt 8192 ]", directory(b, "ib0")?);
        b.wait_until(&full, Duration::from_secs(60))?;
        d.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(2))?;
        b.ok(&full)?;
        forger.stop()?;
        let report = pinging.stop()?.stdout;
        // Where the receiver gets too little of the processor, its ring has no room for some. Without a path, nearly none
        // would be answered.
        let (sent, answered) = requests(&report)?;
        ensure!(answered * 5 >= sent * 4, "{report}");
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
