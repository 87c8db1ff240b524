// SPDX-License-Identifier: GPL-2.0

//! Fabrics that misbehave: cables that lose, repeat, garble, delay and queue packets, and switches that spread
//! datagrams.

use super::fabric::{CONFIGFS, Fabric};
use super::fields::Fields;
use super::manager::Manager;
use super::storage::addresses;
use super::{EXCLUSIVE, active, hca, ipoib_up};
use crate::connected::life::FLOOD;
use crate::order::{self, Seen};
use crate::quiet::pin;
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use regex::Regex;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Writes attributes of a fabric: paths with their values.
fn set(host: &Host, fabric: &str, attributes: &[(&str, u32)]) -> Result<()> {
    for (path, value) in attributes {
        host.outside()
            .ok(&format!("echo {value} >{CONFIGFS}/{fabric}/{path}"))?;
    }
    Ok(())
}

/// The counters of a host's port.
fn counters(host: &Host) -> Result<Fields> {
    Fields::of(host, &format!("perfquery -C {} -P 1", hca(host)))
}

/// A ping's round trip times in ms.
pub(super) fn times(text: &str) -> Result<Vec<f64>> {
    let time = Regex::new("time=([0-9.]+) ms")?;
    let times = time.captures_iter(text);
    times.map(|found| Ok(found[1].parse()?)).collect()
}

/// The numbers of the echo requests that were answered, in the order of the answers.
fn answered(text: &str) -> Result<Vec<u32>> {
    let number = Regex::new("icmp_seq=([0-9]+) ")?;
    let numbers = number.captures_iter(text);
    numbers.map(|found| Ok(found[1].parse()?)).collect()
}

/// Times at which a later number came before an earlier one.
fn overtaken(numbers: &[u32]) -> usize {
    numbers.windows(2).filter(|pair| pair[0] > pair[1]).count()
}

scenario! {
    /// Packets get lost, come twice or with a wrong CRC. opensm brings the fabric up nevertheless, and what
    /// ib_ipoib transfers arrives as it was sent.
    #[on(timed, lockdep)]
    fn a_lossy_fabric(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        bed.expect_refused_leaves("a lost answer has a port leave a group twice");
        let manager = ipoib_up(&bed, "star 2")?;
        let (a, b) = bed.pair()?;
        let faults = |ppm: u32| -> Result<()> {
            for cable in ["c1", "c2"] {
                for fault in ["loss", "duplicate", "corrupt"] {
                    set(a, "star", &[(&*format!("cables/{cable}/{fault}"), ppm)])?;
                }
            }
            Ok(())
        };
        faults(10_000)?;
        transfer(a, b, &b.ip4(), 2)?;
        transfer(b, a, &a.ip6(), 2)?;
        for host in [a, b] {
            let seen = counters(host)?;
            ensure!(seen.number("PortRcvErrors")? > 0 && seen.number("SymbolErrorCounter")? > 0, "{seen}");
        }
        let pings = a.run_for(&format!("ping -i 0.02 -c 500 -W 2 {}", b.ip4()), Duration::from_secs(30))?.stdout;
        let (all, distinct) = (answered(&pings)?, answered(&pings)?.into_iter().collect::<BTreeSet<_>>());
        ensure!((350..500).contains(&distinct.len()), "{pings}");
        ensure!(all.len() > distinct.len() && pings.contains("DUP!"), "{pings}");

        // Without faults, all is as before.
        faults(0)?;
        let pings = a.ok(&format!("ping -q -i 0.01 -c 200 -W 5 {}", b.ip4()))?;
        ensure!(pings.contains(" 200 received, 0% packet loss"), "{pings}");
        // It has complained of requests that came twice.
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// Connections lose packets, and what they carry arrives as it was sent.
    #[on(lockdep)]
    fn a_lossy_fabric_in_connected_mode(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        bed.expect_refused_leaves("a lost answer has a port leave a group twice");
        let manager = ipoib_up(&bed, "pair")?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu 65520")?;
        }
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 10 -s 30000 {}", b.ip4()))?;
        set(a, "pair", &[("cables/c1/duplicate", 50_000), ("cables/c1/delay", 200), ("cables/c1/jitter", 500)])?;
        transfer(a, b, &b.ip4(), 8)?;
        transfer(b, a, &a.ip4(), 8)?;
        // ib_ipoib wants no retries: each loss ends a connection, and TCP goes on over another one.
        set(a, "pair", &[("cables/c1/loss", 100), ("cables/c1/corrupt", 100)])?;
        transfer(a, b, &b.ip4(), 4)?;
        manager.kill()?;
        bed.finish()
    }
}

/// A disk in memory that a target serves, and an initiator that is connected with it.
const DISK: &str = "modprobe null_blk nr_devices=0 && modprobe nvmet-rdma && modprobe nvme-rdma || exit
    cd /sys/kernel/config/nullb && mkdir store && cd store || exit
    echo 32 >size && echo 1 >memory_backed && echo 1 >power || exit
    cd ../../nvmet && mkdir subsystems/disk subsystems/disk/namespaces/1 ports/1 || exit
    echo 1 >subsystems/disk/attr_allow_any_host
    echo /dev/store >subsystems/disk/namespaces/1/device_path && echo 1 >subsystems/disk/namespaces/1/enable
    cd ports/1 && echo rdma >addr_trtype && echo ipv4 >addr_adrfam && echo 192.0.2.2 >addr_traddr
    echo 4420 >addr_trsvcid && ln -s ../../subsystems/disk subsystems/disk || exit
    echo transport=rdma,traddr=192.0.2.2,host_traddr=192.0.2.1,trsvcid=4420,nqn=disk >/dev/nvme-fabrics";

scenario! {
    /// The kernel's own NVMe over RDMA wants retries: RDMA READ and WRITE lose packets, and no connection ends.
    #[on(qemu, lockdep)]
    fn storage_on_a_lossy_fabric(bed) {
        let bed = bed.one_machine().hosts(1).memory(512).up()?;
        bed.expect_refused_leaves("a lost answer has a port leave a group twice");
        let host = bed.hosts[0].outside();
        host.ok("modprobe ib_ipoib")?;
        let fabric = Fabric::make(&host, "pair")?;
        let manager = Manager::start(&host, fabric.device("h1")?, "")?;
        for hca in ["h1", "h2"] {
            active(&host, fabric.device(hca)?)?;
        }
        addresses(&host)?;
        host.run_for(DISK, Duration::from_secs(30))?.ok()?;
        host.wait_until("test -b /dev/nvme0n1", Duration::from_secs(20))?;

        for (fault, value) in [("loss", "1000"), ("corrupt", "1000"), ("duplicate", "20000"), ("delay", "100"), ("jitter", "100")] {
            fabric.write(&format!("cables/c1/{fault}"), value)?;
        }
        host.run_for(
            "head -c 16M /dev/urandom >/tmp/data
            dd if=/tmp/data of=/dev/nvme0n1 bs=256k oflag=direct status=none || exit
            dd if=/dev/nvme0n1 bs=256k count=64 iflag=direct status=none | cmp - /tmp/data",
            Duration::from_secs(120),
        )?.ok()?;
        for hca in ["h1", "h2"] {
            let seen = Fields::of(&host, &format!("perfquery {}", fabric.from(hca)?))?;
            ensure!(seen.number("PortRcvErrors")? > 0, "{seen}");
        }
        let log = host.ok("dmesg")?;
        ensure!(!log.contains("reconnect"), "{log}");
        for fault in ["loss", "corrupt", "duplicate", "delay", "jitter"] {
            fabric.write(&format!("cables/c1/{fault}"), "0")?;
        }
        host.run_for("echo 1 >/sys/class/nvme/nvme0/delete_controller", Duration::from_secs(60))?.ok()?;
        // The HCA goes first. Otherwise, removing the port takes a lock of the RDMA connection manager's inside of
        // `nvmet_config_sem`, and a command that arrives before its connection takes them the other way round.
        fabric.write("hcas/h2/power", "0")?;
        host.ok(
            "cd /sys/kernel/config/nvmet && rm ports/1/subsystems/disk && rmdir ports/1
            rmdir subsystems/disk/namespaces/1 subsystems/disk && rmdir /sys/kernel/config/nullb/store",
        )?;
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// opensm finds all of a fabric that loses packets of subnet management, and makes it Active.
    #[on(lockdep)]
    fn a_manager_on_a_lossy_fabric(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let fabric = Fabric::make(&host, "chain 3")?;
        let from = fabric.from("h1")?;
        for cable in fabric.cables.keys() {
            for (fault, value) in [("loss", "20000"), ("duplicate", "20000"), ("corrupt", "10000"), ("delay", "1000")] {
                fabric.write(&format!("cables/{cable}/{fault}"), value)?;
            }
        }
        let manager = Manager::start(&host, fabric.device("h1")?, "-s 5")?;
        host.wait_until(
            "[ $(cat /sys/class/infiniband/hwsim*/ports/*/state | grep -c ACTIVE) = 3 ]",
            Duration::from_secs(120),
        )?;
        for cable in fabric.cables.keys() {
            for fault in ["loss", "duplicate", "corrupt", "delay"] {
                fabric.write(&format!("cables/{cable}/{fault}"), "0")?;
            }
        }
        fabric.wait_active(&from, Duration::from_secs(60))?;
        fabric.is_discovered(&from)?;
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// A delay is in each round trip; jitter lets datagrams overtake; the same seed brings the same losses; a cable
    /// that is pulled loses what is on it.
    #[on(timed, lockdep)]
    fn delays_and_seeds(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        bed.expect_refused_leaves("a lost answer has a port leave a group twice");
        let manager = ipoib_up(&bed, "pair")?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 10 {}", b.ip4()))?;
        set(a, "pair", &[("cables/c1/delay", 20_000)])?;
        let text = a.ok(&format!("ping -c 10 -i 0.05 -W 10 {}", b.ip4()))?;
        let seen = times(&text)?;
        ensure!(seen.len() == 10 && seen.iter().all(|&time| time >= 40.0), "{text}");
        ensure!(overtaken(&answered(&text)?) == 0, "{text}");

        // Jitter is a hundred times the interval.
        set(a, "pair", &[("cables/c1/delay", 0), ("cables/c1/jitter", 500_000)])?;
        let text = a.ok(&format!("ping -c 100 -i 0.005 -W 10 {}", b.ip4()))?;
        ensure!(overtaken(&answered(&text)?) > 10, "{text}");
        set(a, "pair", &[("cables/c1/jitter", 0)])?;

        // Another packet than the pings would take part in their fates.
        for host in [a, b] {
            pin(host)?;
        }
        a.outside().ok("pkill -STOP -x opensm")?;
        set(a, "pair", &[("cables/c1/loss", 200_000), ("cables/c1/corrupt", 100_000)])?;
        let run = |seed: u32| -> Result<(Seen, u64)> {
            a.ok("sleep 1")?;
            set(a, "pair", &[("seed", seed)])?;
            let before = counters(b)?.number("PortRcvErrors")?;
            set(a, "pair", &[("seed", seed)])?;
            // One way only: answers that are late on a slow computer would change places with the next requests.
            let seen = order::send(&bed, 200, 0.01)?;
            Ok((seen, counters(b)?.number("PortRcvErrors")? - before))
        };
        let first = run(7)?;
        ensure!((110..175).contains(&first.0.received) && first.1 > 5, "{first:?}");
        let (same, other) = (run(7)?, run(8)?);
        ensure!(same == first && other.0.trail != first.0.trail, "{first:?} {same:?} {other:?}");

        set(a, "pair", &[("cables/c1/loss", 0), ("cables/c1/corrupt", 0), ("cables/c1/delay", 3_000_000)])?;
        let ping = a.spawn(&format!("ping -c 1 -W 8 {}", b.ip4()))?;
        a.ok("sleep 0.5")?;
        set(a, "pair", &[("cables/c1/plugged", 0), ("cables/c1/delay", 0)])?;
        set(a, "pair", &[("cables/c1/plugged", 1)])?;
        let text = ping.wait(a.scaled(Duration::from_secs(20)))?.stdout;
        ensure!(text.contains(" 0 received"), "{text}");
        // It is stopped.
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// With a rate, a stream is no faster; packets wait, and are discarded where the queue is full.
    #[on(lockdep, timed)]
    fn a_rate_is_kept(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "pair")?;
        let (a, b) = bed.pair()?;
        set(a, "pair", &[("cables/c1/rate", 20), ("cables/c1/queue", 64)])?;
        let before = counters(a)?;
        let end = iperf3(&bed, &b.ip4(), "-u -b 100M -l 1400")?;
        let number = |path: &str| end.pointer(path).and_then(serde_json::Value::as_f64).context(path.to_owned());
        let (bytes, seconds) = (number("/sum_received/bytes")?, number("/sum_received/seconds")?);
        // The queue drains when all is sent.
        let most = 20e6 / 8.0 * (seconds + 0.1) + 65536.0;
        ensure!(bytes > 1e5 && bytes <= most, "{end}");
        let after = counters(a)?;
        for (key, least) in [("PortXmitWait", 500_000), ("PortXmitDiscards", 100)] {
            let more = after.number(key)? - before.number(key)?;
            ensure!(more >= least, "{key}: {more} in {after}");
        }
        // Subnet management is not held up: the time of a flood is not that of its queue.
        set(a, "pair", &[("cables/c1/rate", 1), ("cables/c1/queue", 4096)])?;
        let flood = a.spawn_python(FLOOD, &[&b.ip4(), "1400"])?;
        flood.wait_for("ready", a.scaled(Duration::from_secs(10)))?;
        // The queue is full.
        let discarded = counters(a)?.number("PortXmitDiscards")?;
        let more = format!("[ $(perfquery -C {} -P 1 | sed -n 's/^PortXmitDiscards:[.]*//p') -gt {discarded} ]", hca(a));
        a.wait_until(&more, Duration::from_secs(15))?;
        let begin = Instant::now();
        a.ok(&format!("for i in 1 2 3 4 5; do smpquery -C {} -P 1 -D nodedesc 0,1 || exit; done", hca(a)))?;
        ensure!(begin.elapsed() < a.scaled(Duration::from_secs(8)), "{:?}", begin.elapsed());
        flood.stop()?;
        manager.end()?;
        bed.finish()
    }
}

/// Two switches with two cables between them, of which one is 50 ms slower, and a host on each.
pub(super) const PARALLEL: &str = "cd /sys/kernel/config/ib_hwsim && mkdir twin && cd twin
    mkdir hcas/h1 hcas/h2 switches/s1 switches/s2 cables/a cables/b cables/fast cables/slow
    echo h1/1 s1/1 >cables/a/ends && echo h2/1 s2/1 >cables/b/ends
    echo s1/2 s2/2 >cables/fast/ends && echo s1/3 s2/3 >cables/slow/ends
    echo 50000 >cables/slow/delay
    echo 1 >live";

/// Brings `ib0` up on both hosts of such a fabric.
fn parallel(bed: &Bed) -> Result<Manager> {
    let (a, b) = bed.pair()?;
    let outside = a.outside();
    outside.ok(
        "modprobe ib_ipoib && modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config",
    )?;
    outside.ok(PARALLEL)?;
    for host in [a, b] {
        let netns = host.netns().context("a host without a namespace")?;
        outside.ok(&format!("rdma dev set {} netns {netns}", hca(host)))?;
    }
    let manager = Manager::start(a, &hca(a), "")?;
    for host in [a, b] {
        active(host, &hca(host))?;
        host.ib_up()?;
    }
    Ok(manager)
}

scenario! {
    /// With adaptive routing by packet, datagrams overtake each other on parallel cables whose delays differ; by
    /// flowlet, those that follow each other closely do not, nor without it. Connections never do.
    #[on(lockdep)]
    fn datagrams_overtake_on_parallel_cables(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = parallel(&bed)?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 10 {}", b.ip4()))?;
        let route = |mode: &str| a.outside().ok(&format!(
            "cd {CONFIGFS}/twin/switches && echo 10000000 >s1/flowlet_gap && echo {mode} >s1/adaptive"
        ));
        let ping = format!("ping -c 200 -i 0.01 -W 10 {}", b.ip4());
        for (mode, mixes) in [("off", false), ("packet", true), ("flowlet", false), ("packet", true)] {
            route(mode)?;
            // The packets in flight on the slow cable arrive first.
            a.ok("sleep 0.3")?;
            let text = a.ok(&ping)?;
            let numbers = answered(&text)?;
            ensure!(numbers.len() == 200, "{mode}: {text}");
            ensure!((overtaken(&numbers) > 20) == mixes && (mixes || overtaken(&numbers) == 0), "{mode}: {text}");
        }
        for host in [a, b] {
            host.ok("echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu 65520")?;
        }
        a.wait_until(&format!("ping -q -c 1 -W 2 -s 30000 {}", b.ip4()), Duration::from_secs(20))?;
        let text = a.ok(&format!("{ping} -s 30000"))?;
        let numbers = answered(&text)?;
        ensure!(numbers.len() == 200 && overtaken(&numbers) == 0, "{text}");
        transfer(a, b, &b.ip4(), 4)?;
        manager.end()?;
        bed.finish()
    }
}
