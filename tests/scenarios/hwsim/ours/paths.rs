// SPDX-License-Identifier: GPL-2.0

//! Paths that take less than the ports at their ends.

use super::super::manager::Manager;
use super::super::observe::Tallies;
use super::super::{Port, fields::Fields, hca};
use super::{Driver, up_made};
use crate::capture::Capture;
use crate::connected::{connect, set_mode, story};
use crate::order::{counter, set};
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const OPTIONS: &str = "-P /tmp/partitions.conf";

/// Two HCAs with a switch each, and between these one that takes half of what they take. Captures are looked for in a
/// fabric of this name.
const NARROW: &str = "set -e
    modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config
    mkdir /sys/kernel/config/ib_hwsim/star && cd /sys/kernel/config/ib_hwsim/star
    mkdir hcas/h1 hcas/h2 switches/s1 switches/s2 switches/s3 cables/c1 cables/c2 cables/a cables/b
    echo 2048 >switches/s2/mtu
    echo h1/1 s1/1 >cables/c1/ends && echo h2/1 s3/1 >cables/c2/ends
    echo s1/2 s2/1 >cables/a/ends && echo s3/2 s2/2 >cables/b/ends
    echo 1 >live";

/// Has the subnet manager say the code of the MTU of the broadcast group.
fn partition(host: &Host, mtu: u8) -> Result<()> {
    host.outside().ok(&format!(
        "echo 'Default=0x7fff, ipoib, mtu={mtu} : ALL=full;' >/tmp/partitions.conf"
    ))?;
    Ok(())
}

/// Two hosts on a link of 4092 bytes whose path takes 2044.
fn up(bed: &Bed) -> Result<Manager> {
    let (a, b) = bed.pair()?;
    partition(a, 5)?;
    let kinds = [(Driver::Ours, "datagram"); 2];
    let manager = up_made(bed, OPTIONS, &kinds, |outside| {
        outside.ok(NARROW)?;
        Ok(())
    })?;
    for host in [a, b] {
        ensure!(host.ok("cat /sys/class/net/ib0/mtu")?.trim() == "4092");
    }
    let lids = [Port::of(a, &hca(a))?.lid, Port::of(b, &hca(b))?.lid];
    let [from, to] = lids;
    let query = format!("saquery -C {} -P 1 PR --slid {from} --dlid {to}", hca(a));
    let mtu = Fields::of(a, &query)?.number("mtu")?;
    ensure!(mtu & 0x3f == 4, "{mtu:#x}");
    Ok(manager)
}

/// Packets that a port of a switch had no room for behind it.
fn too_long(host: &Host) -> Result<u64> {
    let tallies = Tallies::settled(&host.outside(), "star")?;
    ["s1/port2", "s3/port2"]
        .map(|port| tallies.get(port, "dropped_too_long"))
        .into_iter()
        .sum()
}

scenario! {
    /// The path takes less than the broadcast group says: datagrams that it does not take are lost in the fabric, and the log
    /// says so; connections are as the path is, and carry all; with the path's MTU for the group, nothing is lost.
    #[on(lockdep)]
    fn a_path_takes_less_than_its_ends(bed) {
        let bed = bed.infiniband().up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        // With the headers of IP and ICMP and the encapsulation, 2048 bytes.
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 5 -s 2016 {}", b.ip4()))?;
        ensure!(too_long(a)? == 0);
        a.run(&format!("ping -q -c 3 -i 0.1 -W 1 -s 2017 {}", b.ip4()))?.refused()?;
        ensure!(too_long(a)? == 3, "{}", too_long(a)?);
        let log = a.outside().ok("dmesg")?;
        ensure!(log.contains("takes packets of 2048 bytes, less than the link's 4096"), "{log}");

        for host in [a, b] {
            set_mode(host, "connected")?;
            host.ok("ip link set ib0 mtu 65520")?;
        }
        connect(a, b)?;
        let before = too_long(a)?;
        let capture = Capture::start(a)?;
        for (from, to) in [(a, b), (b, a)] {
            for size in [56, 2017, 4064, 65492] {
                from.ok(&format!("ping -q -c 2 -i 0.1 -W 5 -M do -s {size} {}", to.ip4()))?;
            }
        }
        let (_, sends) = capture.stop_with_sends()?;
        let longest = sends.iter().map(|send| send.length).max().context("nothing was sent")?;
        ensure!(longest == 2048, "{longest}");
        transfer(a, b, &b.ip4(), 2)?;
        transfer(b, a, &a.ip6(), 2)?;
        ensure!(too_long(a)? == before);

        // Packets of its MTU whose checksum is left out are one InfiniBand packet, whoever has asked.
        for host in [a, b] {
            set(host, "large_frames", 0)?;
            host.ok("ip link set ib0 mtu 2044")?;
        }
        connect(a, b)?;
        for (from, to) in [(a, b), (b, a)] {
            let before = counter(to, "rc_rx_partial")?;
            let capture = Capture::start(to)?;
            transfer(from, to, &to.ip4(), 2)?;
            let (_, sends) = capture.stop_with_sends()?;
            let cut = sends.iter().filter(|send| !send.is_whole).count();
            ensure!(cut == 0 && sends.len() > 100, "{cut} of {} from {}", sends.len(), from.number());
            ensure!(counter(to, "rc_rx_partial")? - before > 100, "{}", story(to));
        }

        manager.kill()?;
        partition(a, 4)?;
        let manager = Manager::start(a, &hca(a), OPTIONS)?;
        for host in [a, b] {
            set_mode(host, "datagram")?;
            host.wait_until("[ $(cat /sys/class/net/ib0/mtu) = 2044 ]", LIMIT)?;
        }
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        let before = too_long(a)?;
        for size in [2016, 2017, 65507] {
            a.ok(&format!("ping -q -c 2 -i 0.1 -W 5 -s {size} {}", b.ip4()))?;
        }
        transfer(a, b, &b.ip4(), 1)?;
        ensure!(too_long(a)? == before);
        manager.kill()?;
        bed.finish()
    }
}
