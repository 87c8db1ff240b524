// SPDX-License-Identifier: GPL-2.0

//! HCAs that can do more or less than others, by their attributes: the kernel's own `ib_ipoib` uses what there is, and
//! does without what there is not.

use super::fields::Fields;
use super::{EXCLUSIVE, fabric::CONFIGFS, hca, inhabit, make, manager::Manager};
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use serde_json::Value;
use std::time::Duration;

/// Makes a pair whose HCAs have these attributes.
pub(super) fn make_pair(outside: &Host, attributes: &[(&str, &str)]) -> Result<()> {
    make(outside, "pair")?;
    let mut script = format!("set -e\ncd {CONFIGFS}/pair\necho 0 >live\n");
    for (attribute, value) in attributes {
        for node in ["h1", "h2"] {
            let file = format!("hcas/{node}/{attribute}");
            script += &format!("echo {value} >{file}\n[ $(cat {file}) = {value} ]\n");
        }
    }
    outside.ok(&format!("{script}echo 1 >live"))?;
    Ok(())
}

/// Does that; opensm, as the ports are Active.
fn pair(bed: &Bed, attributes: &[(&str, &str)]) -> Result<Manager> {
    let outside = bed.hosts.first().context("no host")?.outside();
    outside.ok("modprobe ib_ipoib")?;
    make_pair(&outside, attributes)?;
    inhabit(bed, "")
}

/// Does that, and brings `ib0` up on both hosts.
pub(super) fn pair_up(bed: &Bed, attributes: &[(&str, &str)]) -> Result<Manager> {
    let manager = pair(bed, attributes)?;
    for host in &bed.hosts {
        host.ib_up()?;
    }
    Ok(manager)
}

/// Features of `ib0` that `ethtool` shows: whether each is on.
pub(super) fn features(host: &Host) -> Result<[bool; 3]> {
    let fields = Fields::of(host, "ethtool -k ib0")?;
    let names = [
        "tx-checksum-ipv4",
        "rx-checksumming",
        "tcp-segmentation-offload",
    ];
    let mut features = [false; 3];
    for (feature, name) in features.iter_mut().zip(names) {
        *feature = fields.text(name)?.starts_with("on");
    }
    Ok(features)
}

/// Segments, datagrams and packets of a host whose checksum was wrong, as the stack found.
pub(super) fn wrong_checksums(host: &Host) -> Result<u64> {
    let text = host.ok(
        "nstat -asz TcpInCsumErrors UdpInCsumErrors IpExtInCsumErrors IpInHdrErrors | grep -v '^#'",
    )?;
    let numbers = text
        .lines()
        .map(|line| line.split_whitespace().nth(1).context("a number"));
    numbers.map(|number| Ok(number?.parse::<u64>()?)).sum()
}

/// Streams both ways, and what they carry arrives as it was sent.
fn streams(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    for options in ["", "-R", "--bidir", "-u -b 4M -l 1400"] {
        let end: Value = iperf3(bed, &b.ip4(), options)?;
        let bytes = ["/sum_received/bytes", "/sum/bytes"];
        let bytes = bytes.iter().find_map(|path| end.pointer(path)?.as_f64());
        ensure!(bytes.is_some_and(|bytes| bytes > 1e5), "{options}: {end}");
    }
    for (from, to) in [(a, b), (b, a)] {
        transfer(from, to, &to.ip4(), 4)?;
        transfer(from, to, &to.ip6(), 2)?;
    }
    Ok(())
}

/// Packets that ib0 and its HCA's port have sent.
pub(super) fn sent(host: &Host) -> Result<[u64; 2]> {
    let interface = host.ok("cat /sys/class/net/ib0/statistics/tx_packets")?;
    let counters = Fields::of(host, &format!("perfquery -C {} -P 1 -x", hca(host)))?;
    Ok([interface.trim().parse()?, counters.number("PortXmitPkts")?])
}

const WATCH: &str = include_str!("../../guest/hwsim/caps/watch.py");

const CRAFT: &str = include_str!("../../guest/hwsim/caps/craft.py");

/// Sends datagrams whose checksum is right, wrong or none. Returns what the receiver has seen of each, in the order
/// of the alphabet.
fn crafted(from: &Host, to: &Host) -> Result<Vec<String>> {
    // GRO checks for itself.
    to.ok("ethtool -K ib0 gro off")?;
    let limit = to.scaled(Duration::from_secs(15));
    let watch = to.spawn_python(WATCH, &[])?;
    watch.wait_for("watching", limit)?;
    from.ok(&format!("ping -q -c 1 -W 5 {}", to.ip4()))?;
    let address = to.ok("cat /sys/class/net/ib0/address")?;
    from.python(CRAFT, &[&from.ip4(), &to.ip4(), address.trim()])?
        .ok()?;
    watch.wait_for("got last", limit)?;
    let text = watch.peek()?.stdout;
    watch.stop()?;
    to.ok("ethtool -K ib0 gro on")?;
    let mut seen: Vec<String> = text
        .lines()
        .filter(|line| *line != "watching")
        .map(str::to_owned)
        .collect();
    seen.sort();
    Ok(seen)
}

scenario! {
    /// With checksums and LSO, `ib_ipoib` leaves both to the HCA: what TCP sends arrives whole and is right, in more
    /// packets than it was handed over in, and what is wrong is not said to be right.
    #[on(lockdep)]
    fn checksums_and_segments_are_made(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = pair_up(&bed, &[("checksum", "1"), ("lso", "65536")])?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            ensure!(features(host)? == [true; 3], "{}", host.ok("ethtool -k ib0")?);
        }
        for size in [0, 1, 2016, 2017, 65507] {
            a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", b.ip4()))?;
        }
        let [handed, went] = sent(a)?;
        transfer(a, b, &b.ip4(), 4)?;
        let [handed, went] = [sent(a)?[0] - handed, sent(a)?[1] - went];
        // An MSS is less than 2044 bytes.
        ensure!(went > (4 << 20) / 2044, "{went} packets");
        ensure!(handed < went * 3 / 4, "{went} packets of {handed}");
        streams(&bed)?;
        for host in [a, b] {
            ensure!(wrong_checksums(host)? == 0, "{}", host.ok("nstat -as")?);
        }
        let seen = crafted(a, b)?;
        let expected = [
            "checked last", "checked right", "got last", "got none", "got right", "unchecked header", "unchecked none",
            "unchecked wrong",
        ];
        ensure!(seen == expected, "{seen:?}");
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Checksums alone, LSO alone, of which `ib_ipoib` makes nothing, and neither: then nothing is said to have been
    /// checked.
    #[on(timed, lockdep)]
    fn hcas_without_offloads(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        for (attributes, expected) in [
            (&[("checksum", "1")][..], [true, true, false]),
            (&[("lso", "65536")], [false; 3]),
            (&[], [false; 3]),
        ] {
            let manager = pair_up(&bed, attributes)?;
            for host in [a, b] {
                ensure!(features(host)? == expected, "{}", host.ok("ethtool -k ib0")?);
            }
            streams(&bed)?;
            for host in [a, b] {
                ensure!(wrong_checksums(host)? == 0, "{}", host.ok("nstat -as")?);
            }
            if attributes.is_empty() {
                let seen = crafted(a, b)?;
                let checked = seen.iter().any(|line| line.starts_with("checked"));
                ensure!(!checked && seen.contains(&"got right".to_owned()), "{seen:?}");
                // The stack finds them: a wrong header counts twice.
                ensure!(wrong_checksums(b)? == 3, "{}", b.ok("nstat -as")?);
            }
            // Nobody would hear them leave their groups afterwards, which they wait for.
            for host in [a, b] {
                host.ok("ip link set ib0 down")?;
            }
            manager.end()?;
            outside.ok("ib-hwsim down")?;
        }
        bed.finish()
    }
}

scenario! {
    /// Connected mode on an HCA without shared receive queues.
    #[on(lockdep)]
    fn connected_mode_without_srq(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = pair_up(&bed, &[("max_srq", "0")])?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu 65520")?;
        }
        for (from, to) in [(a, b), (b, a)] {
            from.ok(&format!("ping -q -c 3 -i 0.05 -W 5 -M do -s 65492 {}", to.ip4()))?;
            let link = format!("rdma res show qp link {} type RC", hca(from));
            ensure!(from.ok(&link)?.contains("state RTS"), "no connection");
        }
        transfer(a, b, &b.ip4(), 8)?;
        transfer(b, a, &a.ip6(), 8)?;
        ensure!(!a.ok("dmesg")?.contains("failed to allocate SRQ"), "the verbs are there");
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// On an HCA without multicast, `ib_ipoib` says so and has no carrier; its ports are Active, since management needs
    /// no multicast.
    #[on(lockdep)]
    fn an_hca_without_multicast(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = pair(&bed, &[("multicast", "0")])?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("ip link set ib0 up")?;
        }
        a.wait_until("dmesg | grep -q \"couldn't attach QP to multicast group\"", Duration::from_secs(20))?;
        for host in [a, b] {
            host.run("ip -o link show ib0 | grep -q LOWER_UP")?.refused()?;
            host.ok("ip link set ib0 down")?;
        }
        a.ok(&format!("saquery -C {} -P 1 NodeRecord", hca(a)))?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// An HCA that can just do what RDMA core and `ib_ipoib` ask for, and nothing that they could do without.
    #[on(lockdep)]
    fn a_small_hca_is_enough(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let attributes = [
            ("max_send_sge", "4"), ("max_qp_wr", "512"), ("block_loopback", "0"), ("max_qp", "1"), ("max_cq", "3"),
            ("max_cqe", "1280"), ("max_mr", "1"),
            ("max_ah", "32"), ("max_inline_data", "64"), ("checksum", "1"), ("lso", "65536"),
        ];
        let manager = pair_up(&bed, &attributes)?;
        let (a, b) = bed.pair()?;
        for size in [0, 2016, 65507] {
            a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", b.ip4()))?;
            a.ok(&format!("ping -6 -q -c 2 -i 0.05 -W 5 -s {size} {}", b.ip6()))?;
        }
        streams(&bed)?;
        // There is no queue pair for a connection.
        a.ok("echo connected >/sys/class/net/ib0/mode")?;
        b.ok("echo connected >/sys/class/net/ib0/mode")?;
        a.run(&format!("ping -q -c 2 -W 1 {}", b.ip4()))?.refused()?;
        let link = format!("rdma res show qp link {} type RC", hca(a));
        ensure!(!a.ok(&link)?.contains("state"), "a queue pair too many");
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// An HCA with too few resources is refused, and `ib_ipoib` says which it lacks.
    #[on(lockdep)]
    fn too_small_an_hca_is_refused(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        host.ok("modprobe ib_ipoib send_queue_size=1024")?;
        for (attribute, value, why) in [
            ("max_cq", "1", "failed to create receive CQ"),
            ("max_cq", "2", "failed to create send CQ"),
            ("max_cqe", "1280", "failed to create receive CQ"),
            ("max_qp_wr", "1023", "failed to create QP"),
        ] {
            host.ok("ib-hwsim pair")?;
            let script = format!("set -e
                cd {CONFIGFS}/pair
                echo 0 >live
                dmesg -C
                for node in h1 h2; do echo {value} >hcas/$node/{attribute}; done
                echo 1 >live");
            host.ok(&script)?;
            let found = format!("dmesg | grep -q '{why}'");
            host.wait_until(&found, Duration::from_secs(5)).with_context(|| format!("{attribute} {value}"))?;
            host.run("ip link show ib0")?.refused()?;
            Manager::once(&host, "hwsim0")?;
            host.ok("ib-hwsim down")?;
        }
        bed.finish()
    }
}
