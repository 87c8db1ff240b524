// SPDX-License-Identifier: GPL-2.0

//! Random faults of the fabric, from a seed, under traffic: after each round of them all interfaces are up again.

use super::super::fabric::CONFIGFS;
use super::super::ipoib::multicast;
use super::super::mads::UMAD;
use super::super::manager::Manager;
use super::super::{EXCLUSIVE, hca};
use super::{Driver, up};
use crate::random::Random;
use crate::transfer::Transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::layout::Layout;
use lab::scenario;
use std::time::{Duration, Instant};

const SEED: u64 = 18;
/// Faults in a round.
const FAULTS: u32 = 50;
/// Seconds that streams last: longer than the faults of a round, of which some last eight.
const SECONDS: u32 = 12;
/// From the last fault until all interfaces are up again.
const LIMIT: Duration = Duration::from_secs(10);
/// Options of a manager that has the children's partition. With -s 2 one whose port is down when it starts looks again
/// after 2 s, not 10.
const WITH_CHILDREN: &str = "-s 2 -P /tmp/blue.conf";
/// Options of one that has not.
const WITHOUT_CHILDREN: &str = "-s 2";
/// Options of one that is started again: as ever, with other LIDs, without the children's partition, with that at another
/// place of the tables, and with other LIDs, too.
const RESTARTS: [&str; 5] = [
    WITH_CHILDREN,
    "-s 2 -r -P /tmp/blue.conf",
    WITHOUT_CHILDREN,
    "-s 2 -P /tmp/green.conf",
    "-s 2 -r -P /tmp/green.conf",
];
const PARTITIONS: &str = "
printf 'Default=0x7fff, ipoib : ALL=full;\\nBlue=0x0001, ipoib : ALL=full;\\n' >/tmp/blue.conf
printf 'Default=0x7fff, ipoib : ALL=full;\\nGreen=0x0002 : ALL=full;\\nBlue=0x0001, ipoib : ALL=full;\\n' >/tmp/green.conf";
const GUIDS: &str = include_str!("../../../guest/hwsim/weather/guids.py");
/// Events that an HCA reports though nothing has changed.
const EVENTS: [&str; 6] = [
    "client_reregister",
    "lid_change",
    "sm_change",
    "pkey_change",
    "gid_change",
    "port_active",
];

/// One round: the manager that runs afterwards.
fn round(bed: &Bed, random: &mut Random, mut manager: Manager) -> Result<Manager> {
    let first = bed.hosts.first().context("no host")?;
    let outside = first.outside();
    let fabric = format!("{CONFIGFS}/star");
    let list = |kind: &str| -> Result<Vec<String>> {
        let text = outside.ok(&format!("ls {fabric}/{kind}"))?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    };
    let (cables, hcas) = (list("cables")?, list("hcas")?);
    let mut plugged = vec![true; cables.len()];
    let mut options = WITH_CHILDREN;
    for _ in 0..FAULTS {
        match random.below(25) {
            0..=1 => {
                manager.kill()?;
                options = RESTARTS[random.below(RESTARTS.len())];
                manager = Manager::start(first, &hca(first), options)?;
            }
            2 => {
                let host = &bed.hosts[random.below(bed.hosts.len())];
                // None, or one that the port has beside its own.
                let guid = format!("{:#x}", random.below(3) << 40);
                host.python(&format!("{UMAD}{GUIDS}"), &[&hca(host), &guid])?
                    .ok()?;
            }
            3..=9 => {
                let event = EVENTS[random.below(EVENTS.len())];
                let name = &hcas[random.below(hcas.len())];
                outside.ok(&format!("echo {event} >{fabric}/hcas/{name}/event"))?;
            }
            _ => {
                let n = random.below(cables.len());
                plugged[n] = !plugged[n];
                let state = u8::from(plugged[n]);
                outside.ok(&format!(
                    "echo {state} >{fabric}/cables/{}/plugged",
                    cables[n]
                ))?;
            }
        }
        outside.ok(&format!("sleep 0.0{}", random.below(10)))?;
    }
    for (cable, _) in cables.iter().zip(plugged).filter(|(_, plugged)| !plugged) {
        outside.ok(&format!("echo 1 >{fabric}/cables/{cable}/plugged"))?;
    }
    if options == WITHOUT_CHILDREN {
        manager.kill()?;
        manager = Manager::start(first, &hca(first), WITH_CHILDREN)?;
    }
    Ok(manager)
}

/// Each interface of ours has a carrier, and reaches the others in its partition; how long that took.
fn ours_are_up(hosts: &[&Host]) -> Result<Duration> {
    let begin = Instant::now();
    let mut pings = Vec::new();
    for from in hosts {
        for name in ["ib0", "ib0.8001"] {
            from.wait_until(&format!("ip -o link show {name} | grep -q LOWER_UP"), LIMIT)
                .with_context(|| format!("{name} of host {}", from.number()))?;
        }
        for to in hosts.iter().filter(|to| to.number() != from.number()) {
            pings.push((from, to.ip4()));
            pings.push((from, to.ip6()));
            pings.push((from, format!("10.2.0.{}", to.number())));
        }
    }
    for (from, target) in pings {
        from.wait_until(&format!("ping -q -c 1 -W 1 {target}"), LIMIT)
            .with_context(|| format!("host {} to {target}", from.number()))?;
    }
    let took = begin.elapsed();
    let limit = hosts.first().context("no host")?.scaled(LIMIT);
    ensure!(took <= limit, "up again after {took:?}");
    Ok(took)
}

/// `ib_ipoib` and ours reach each other, which may take it longer.
fn theirs_is_up(theirs: &Host, ours: &[&Host]) -> Result<()> {
    for host in ours {
        for (from, to) in [(theirs, *host), (*host, theirs)] {
            for target in [to.ip4(), to.ip6()] {
                from.wait_until(&format!("ping -q -c 1 -W 1 {target}"), 2 * LIMIT)
                    .with_context(|| format!("host {} to {target}", from.number()))?;
            }
        }
    }
    Ok(())
}

/// The objects of this tree's driver that the RDMA core lists for the HCA of a host.
fn objects(host: &Host) -> Result<String> {
    host.ok("for kind in qp cq pd cm_id; do rdma resource show $kind | grep ipoib_rs; done || :")
}

scenario! {
    /// Fifty faults, twice as many on base kernels (a thousand with ROUNDS=20): cables are pulled and plugged, managers are
    /// killed and started again, also with other LIDs and other partitions, ports get and lose GUIDs, and HCAs report
    /// events. Interfaces of ours and their children are up within ten seconds of the last fault of a round, and all
    /// streams between ours and with `ib_ipoib` go on. Afterwards nothing is left of the interfaces. The times are in
    /// `build/logs/random-faults-base`, or `-debug`.
    #[on(lockdep)]
    fn random_faults_heal(bed) {
        let kernel = bed.kernel();
        let rounds = if kernel.is_checked() { 1 } else { 2 };
        let (rounds, factor) = bed.rounds(rounds)?;
        let bed = bed.leaks().one_machine().hosts(4).append(EXCLUSIVE).lifetime(Duration::from_secs(240) * factor).up()?;
        bed.expect_refused_leaves("a lost answer has a port leave a group twice");
        let [first, second, third, fourth] = &bed.hosts[..] else {
            anyhow::bail!("four hosts");
        };
        first.outside().ok(PARTITIONS)?;
        let (ours, c) = (Driver::Ours, (Driver::C, "datagram"));
        let kinds = [(ours, "datagram"), c, (ours, "connected"), (ours, "datagram")];
        let mut manager = up(&bed, "star 4", WITH_CHILDREN, &kinds)?;
        let ours = [first, third, fourth];
        for host in ours {
            host.ok(&format!(
                "set -e
                 ip link add link ib0 name ib0.8001 type ipoib_rs pkey 0x8001
                 ip addr add 10.2.0.{}/24 dev ib0.8001
                 ip link set ib0.8001 up",
                host.number()
            ))?;
        }
        let mut random = Random(SEED);
        let log = Layout::from_env()?.build().join(format!("logs/random-faults-{kernel}"));
        let mut text = String::new();
        ours_are_up(&ours)?;
        theirs_is_up(second, &ours)?;
        for number in 0..rounds {
            let what = || format!("round {number} from seed {SEED}");
            let streams = [
                Transfer::start(first, second, &second.ip4(), 1, SECONDS)?,
                Transfer::start(third, fourth, &fourth.ip6(), 1, SECONDS)?,
                Transfer::start(fourth, third, &third.ip4(), 1, SECONDS)?,
                Transfer::start(third, first, "10.2.0.1", 1, SECONDS)?,
            ];
            let begin = Instant::now();
            manager = round(&bed, &mut random, manager).with_context(what)?;
            let lasted = begin.elapsed().as_secs_f32();
            let took = ours_are_up(&ours).with_context(what)?.as_secs_f32();
            for stream in streams {
                stream.finish().with_context(what)?;
            }
            theirs_is_up(second, &ours).with_context(what)?;
            multicast(first, fourth).with_context(what)?;
            text += &format!("{}: {FAULTS} faults in {lasted:.1} s, up again after {took:.1} s\n", what());
            std::fs::write(&log, &text).with_context(|| log.display().to_string())?;
        }
        for host in ours {
            ensure!(objects(host)?.lines().count() > 3);
            host.ok("ip link del ib0")?;
            let left = objects(host)?;
            ensure!(left.is_empty(), "{left}");
        }
        manager.kill()?;
        // Unloading waits for any user of a device that is left.
        let outside = first.outside();
        outside.run_for("modprobe -r ipoib_rs && ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}
