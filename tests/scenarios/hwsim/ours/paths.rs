// SPDX-License-Identifier: GPL-2.0

//! Paths that take less than the ports at their ends.

use super::super::manager::Manager;
use super::super::observe::Tallies;
use super::super::{EXCLUSIVE, Port, fields::Fields, hca};
use super::{Driver, up_made};
use crate::capture::Capture;
use crate::connected::{connect, set_mode, story};
use crate::inspect::directory;
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
    echo s1/2 s2/1 >cables/a/ends && echo s3/2 s2/2 >cables/b/ends";

/// A third one, on the switch of the first. All HCAs make checksums and segments.
const WIDE: &str = "mkdir hcas/h3 cables/c3 && echo h3/1 s1/3 >cables/c3/ends
    for hca in h1 h2 h3; do echo 1 >hcas/$hca/checksum && echo 65536 >hcas/$hca/lso; done";

/// Datagrams that nobody cuts up.
const BURST: &str = include_str!("../../../guest/hwsim/paths/burst.py");

/// Has the subnet manager say the code of the MTU of the broadcast group.
pub(super) fn partition(host: &Host, mtu: u8) -> Result<()> {
    host.outside().ok(&format!(
        "echo 'Default=0x7fff, ipoib, mtu={mtu} : ALL=full;' >/tmp/partitions.conf"
    ))?;
    Ok(())
}

/// Two hosts on a link of MTU `link`, whose code is `code`; the path between them takes 2044. Paths to a third host, if there
/// is one, take all.
fn up(bed: &Bed, code: u8, link: &str) -> Result<Manager> {
    let [a, b, others @ ..] = bed.hosts.as_slice() else {
        anyhow::bail!("too few hosts");
    };
    partition(a, code)?;
    let kinds = [(Driver::Ours, "datagram"); 3];
    let manager = up_made(bed, OPTIONS, &kinds, |outside| {
        let more = if others.is_empty() { "" } else { WIDE };
        outside.ok(&format!("{NARROW}\n{more}\necho 1 >live"))?;
        Ok(())
    })?;
    for host in &bed.hosts {
        ensure!(host.ok("cat /sys/class/net/ib0/mtu")?.trim() == link);
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

/// Pings with packets of so many bytes that nobody may cut up.
pub(super) fn whole(mtu: u32, host: &Host) -> [String; 2] {
    [
        ("ping", host.ip4(), mtu - 28),
        ("ping -6", host.ip6(), mtu - 48),
    ]
    .map(|(ping, target, size)| format!("{ping} -c 4 -i 0.3 -W 1 -M do -s {size} {target}"))
}

/// Fails unless packets to a host are answered that are longer than its path takes, and the route to it has that MTU then.
fn hears_of_the_path(from: &Host, to: &Host) -> Result<()> {
    for command in whole(2045, to) {
        let said = from.run(&command)?.refused()?;
        ensure!(said.contains("mtu") && said.contains("2044"), "{said}");
        ensure!(said.to_lowercase().contains("message too long"), "{said}");
    }
    for target in [to.ip4(), to.ip6()] {
        let route = from.ok(&format!("ip route get {target}"))?;
        ensure!(route.contains("mtu 2044"), "{route}");
    }
    for command in whole(2044, to) {
        from.ok(&command)?;
    }
    Ok(())
}

/// Forgets what is known of paths' MTUs.
pub(super) fn forget(host: &Host) -> Result<()> {
    host.ok("ip route flush cache && ip -6 route flush cache")?;
    Ok(())
}

/// Packets that were too big, and those that were answered.
fn refusals(host: &Host) -> Result<[u64; 2]> {
    Ok([
        counter(host, "tx_drop_too_big")?,
        counter(host, "tx_too_big")?,
    ])
}

scenario! {
    /// A path takes less than the broadcast group says, and another one does not. Who sends longer packets by the former hears
    /// of its MTU, by IPv4 and IPv6, and what may be cut up arrives in pieces; the other one takes all, and the HCA segments
    /// for it. Nothing is lost in the fabric, and what is not sent leaves no gap in the numbers of frames.
    #[on(lockdep, races)]
    fn each_path_has_its_mtu(bed) {
        let bed = bed.one_machine().hosts(3).append(EXCLUSIVE).up()?;
        let manager = up(&bed, 5, "4092")?;
        let [a, b, c] = bed.hosts.as_slice() else {
            anyhow::bail!("three hosts");
        };
        a.ok("ethtool -K ib0 tx-checksum-ipv6 on tx-tcp6-segmentation on")?;
        hears_of_the_path(a, b)?;
        hears_of_the_path(b, a)?;
        for command in whole(4092, c) {
            a.ok(&command)?;
        }
        let [dropped, answered] = refusals(a)?;
        ensure!(dropped == answered && answered > 0, "{dropped} {answered}");

        for (from, to) in [(a, b), (b, a)] {
            for size in [2017, 4064, 4065, 65507] {
                for target in [to.ip4(), to.ip6()] {
                    from.ok(&format!("ping -q -c 2 -i 0.1 -W 5 -s {size} {target}"))?;
                    from.ok(&format!("ping -q -c 2 -i 0.1 -W 5 -M dont -s {size} {target}"))?;
                }
            }
        }
        for target in [b.ip4(), b.ip6()] {
            // The MSS has the MTU that the receiver knows.
            for host in [a, b] {
                forget(host)?;
            }
            let [before, _] = refusals(a)?;
            transfer(a, b, &target, 4)?;
            ensure!(refusals(a)?[0] > before, "nothing was too big for {target}");
        }
        for target in [c.ip4(), c.ip6()] {
            let before = (counter(a, "tx_large")?, refusals(a)?);
            transfer(a, c, &target, 4)?;
            let after = (counter(a, "tx_large")?, refusals(a)?);
            ensure!(after.0 > before.0 + 20 && after.1 == before.1, "{before:?} {after:?} to {target}");
        }
        transfer(b, a, &a.ip4(), 2)?;

        // A packet that is too long, waiting for its path in the middle of others.
        a.ok("ip link set ib0 down && ip link set ib0 up && ip -6 addr replace fd00:1::1/64 dev ib0 nodad")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", c.ip4()), LIMIT)?;
        let address = b.ok("cat /sys/class/net/ib0/address")?;
        a.ok(&format!("ip neigh replace {} lladdr {} dev ib0 nud permanent", b.ip4(), address.trim()))?;
        let before = refusals(a)?;
        a.python(BURST, &[&b.ip4(), "100", "100", "4000", "100", "100"])?.ok()?;
        a.ok(&format!("ping -q -c 2 -i 0.1 -W 5 {}", b.ip4()))?;
        let after = refusals(a)?;
        ensure!(after == before.map(|n| n + 1), "{before:?} {after:?}");
        for host in [a, b, c] {
            let text = host.ok("ethtool -S ib0")?;
            ensure!(counter(host, "rx_seq_in_order")? > 0 && counter(host, "rx_seq_held")? == 0, "{text}");
        }
        ensure!(too_long(a)? == 0, "{}", too_long(a)?);

        // In connected mode, a sender without a connection is told of the path, too.
        a.ok(&format!("ip neigh del {} dev ib0", b.ip4()))?;
        set_mode(a, "connected")?;
        a.ok("ip link set ib0 mtu 65520")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        forget(a)?;
        hears_of_the_path(a, b)?;
        transfer(a, b, &b.ip4(), 2)?;
        ensure!(too_long(a)? == 0, "{}", too_long(a)?);
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// The path takes less than the broadcast group says, which the log says: longer packets are cut up for it; connections
    /// are as the path is, and carry all; with the path's MTU for the group, nothing is too long.
    #[on(lockdep)]
    fn a_path_takes_less_than_its_ends(bed) {
        let bed = bed.infiniband().up()?;
        let manager = up(&bed, 5, "4092")?;
        let (a, b) = bed.pair()?;
        // With the headers of IP and ICMP and the encapsulation, 2048 bytes.
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 5 -s 2016 {}", b.ip4()))?;
        ensure!(too_long(a)? == 0);
        let ping = format!("ping -q -c 3 -i 0.1 -W 5 -s 2017 {}", b.ip4());
        a.wait_until(&ping, LIMIT)?;
        ensure!(too_long(a)? == 0, "{}", too_long(a)?);
        let log = a.outside().ok("dmesg")?;
        ensure!(log.contains("takes packets of 2048 bytes, less than the link's 4096"), "{log}");

        for host in [a, b] {
            set_mode(host, "connected")?;
            host.ok("ip link set ib0 mtu 65520")?;
            forget(host)?;
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

scenario! {
    /// The broadcast group gets a larger MTU than a path that is in use takes. Senders hear of it, and no group stays that
    /// was joined with the smaller one, which would keep others out.
    fn the_link_grows_beyond_a_path(bed) {
        let bed = bed.infiniband().up()?;
        let manager = up(&bed, 4, "2044")?;
        let (a, b) = bed.pair()?;
        for command in whole(2044, b) {
            a.ok(&command)?;
        }
        manager.kill()?;
        partition(a, 5)?;
        let manager = Manager::start(a, &hca(a), OPTIONS)?;
        for host in [a, b] {
            host.wait_until("[ $(cat /sys/class/net/ib0/mtu) = 4092 ]", LIMIT)?;
        }
        hears_of_the_path(a, b)?;
        hears_of_the_path(b, a)?;
        for host in [a, b] {
            let groups = format!("{}/groups", directory(host, "ib0")?);
            let others = format!("grep -v -e mgid -e joined -e send-only {groups}");
            host.wait_until(&format!("grep -q ffff:ffff {groups} && ! {others}"), LIMIT * 2)?;
        }
        ensure!(too_long(a)? == 0, "{}", too_long(a)?);
        manager.kill()?;
        bed.finish()
    }
}

/// Sends a datagram of 1000 bytes to a host whose path takes less, and returns the route that is known afterwards.
fn too_long_for_the_path(from: &Host, to: &Host) -> Result<String> {
    let before = counter(from, "tx_drop_too_big")?;
    from.python(BURST, &[&to.ip4(), "1000"])?.ok()?;
    let dropped = || Ok(counter(from, "tx_drop_too_big")? == before + 1);
    from.until(LIMIT, dropped).with_context(|| story(from))?;
    from.ok(&format!("ip route get {}", to.ip4()))
}

scenario! {
    /// The first packet on an interface's first narrow path waits for the path without its route, and is dropped without an
    /// ICMP error; the next one gets an error. IPv4 makes no fragments of less than 552 bytes unless
    /// net.ipv4.route.min_pmtu allows it.
    fn a_path_is_narrower_than_ipv4_takes(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        partition(a, 5)?;
        let fabric = format!("{}\necho 1 >live", NARROW.replace("2048", "256"));
        let manager = up_made(&bed, OPTIONS, &[(Driver::Ours, "datagram"); 2], |outside| {
            outside.ok(&fabric)?;
            Ok(())
        })?;
        a.ok(&format!("ip link del ib0 && ip link add ib0 type ipoib_rs device {}", hca(a)))?;
        a.ib_up()?;
        let address = b.ok("cat /sys/class/net/ib0/address")?;
        a.ok(&format!("ip neigh replace {} lladdr {} dev ib0 nud permanent", b.ip4(), address.trim()))?;
        let route = too_long_for_the_path(a, b)?;
        ensure!(!route.contains("mtu"), "{route}");
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        let route = too_long_for_the_path(a, b)?;
        ensure!(route.contains("mtu lock 552"), "{route}");

        let [short, long] = [200, 400].map(|size| format!("ping -q -c 3 -i 0.2 -W 1 -s {size} {}", b.ip4()));
        a.ok(&short)?;
        a.run(&long)?.refused()?;
        for host in [a, b] {
            host.ok("sysctl -qw net.ipv4.route.min_pmtu=252 && ip route flush cache")?;
        }
        a.wait_until(&long, LIMIT)?;
        let route = a.ok(&format!("ip route get {}", b.ip4()))?;
        ensure!(route.contains("mtu 252"), "{route}");
        manager.end()?;
        bed.finish()
    }
}
