// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver over Ethernet ports: what comes of the settings that an HCA carries out.

use super::events::{flood_from, flood_on_each_cpu, reported_together};
use super::roce::{ping, second_interface, up, write};
use super::roce_devices::wrong_checksums_found;
use super::weather::times;
use crate::connected::connect;
use anyhow::ensure;
use lab::scenario;
use std::time::Duration;

scenario! {
    /// A device that says of wrong checksums that they are right is believed with `rx on`, and not with `rx off`.
    #[on(lockdep, races)]
    fn checksums_are_trusted_on_demand(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| {
            let (_, b) = bed.pair()?;
            write(b, "checksum", "1")?;
            write(b, "faults", "csum_flag")
        })?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        for (rx, expected) in [("on", 0), ("off", 10), ("on", 0)] {
            b.ok(&format!("ethtool -K ib0 rx {rx}"))?;
            let (found, story) = wrong_checksums_found(&bed)?;
            ensure!(found == expected, "rx {rx}: {found} found, {story}");
        }
        bed.finish()
    }
}

scenario! {
    /// Received frames are reported together, as `ethtool -C` has it, by datagrams and by connections.
    #[on(lockdep)]
    fn receptions_are_reported_together(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        // Nothing else comes to it.
        for host in [a, b] {
            host.ok("sysctl -qw net.ipv6.conf.ib0.disable_ipv6=1")?;
        }
        ping(a, b)?;
        reported_together(a, b)?;
        for host in [a, b] {
            host.ok("ip link set ib0 type ipoib_rs mode connected")?;
        }
        connect(a, b)?;
        reported_together(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Receives of an interface are polled on the CPU of one completion vector, and what it has sent on that of
    /// another, wherever the sender runs.
    #[on(lockdep, parallel)]
    fn both_vectors_are_used(bed) {
        let bed = bed.one_machine().cpus(2).up()?;
        up(&bed, "", |bed| bed.hosts.iter().try_for_each(|host| write(host, "comp_vectors", "2")))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        // Sends are asked about now and then only.
        flood_on_each_cpu(a, b, 100)?;
        bed.finish()
    }
}

scenario! {
    /// Interfaces of an HCA take turns with its completion vectors: with three, the second one receives by the third, and
    /// has what it has sent reported by the first, both of which are the first CPU's.
    #[on(lockdep, parallel)]
    fn interfaces_take_turns_with_vectors(bed) {
        let bed = bed.one_machine().cpus(2).up()?;
        up(&bed, "", |bed| bed.hosts.iter().try_for_each(|host| write(host, "comp_vectors", "3")))?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            second_interface(host)?;
        }
        a.wait_until("ping -q -c 1 -W 1 10.2.0.2", Duration::from_secs(20))?;
        ping(a, b)?;
        flood_on_each_cpu(a, b, 100)?;
        for sender in [0, 1] {
            let [first, second] = flood_from(a, sender, "10.2.0.2")?;
            ensure!(first > 500 && second < 50, "from CPU {sender}: {first} and {second}");
        }
        bed.finish()
    }
}

scenario! {
    /// Where the completion queue of connections refuses a setting, that of datagrams has its own one still.
    #[on(lockdep)]
    fn a_refused_moderation_changes_nothing(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("sysctl -qw net.ipv6.conf.ib0.disable_ipv6=1")?;
        }
        connect(a, b)?;
        write(b, "faults", "modify_cq EIO at 2")?;
        let text = b.run("ethtool -C ib0 rx-usecs 60000 rx-frames 1000")?.refused()?;
        ensure!(text.contains("does not moderate completions"), "{text}");
        let shown = b.ok("ethtool -c ib0")?;
        ensure!(shown.contains("rx-usecs:\t0\n"), "{shown}");
        // Datagrams from a peer that has no connections are reported at once.
        a.ok("ip link set ib0 type ipoib_rs mode datagram")?;
        ping(a, b)?;
        let text = a.ok(&format!("ping -c 5 -i 0.1 -W 10 {}", b.ip4()))?;
        let times = times(&text)?;
        let late = times.iter().filter(|&&time| time >= 60.0).count();
        ensure!(times.len() == 5 && late <= 1, "{text}");
        bed.finish()
    }
}
