// SPDX-License-Identifier: GPL-2.0

//! Random faults of the fabric, from a seed, under traffic: after each round of them all interfaces are up again.

use super::super::churn::Random;
use super::super::fabric::CONFIGFS;
use super::super::manager::Manager;
use super::super::{EXCLUSIVE, hca};
use super::{Driver, up};
use crate::transfer::Transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

const SEED: u64 = 418;
/// Faults in a round.
const FAULTS: u32 = 50;
/// From the last fault until all interfaces are up again.
const LIMIT: Duration = Duration::from_secs(10);
/// How a manager is started again: as ever, and with other LIDs.
const RESTARTS: [&str; 2] = ["", "-r"];
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
    for _ in 0..FAULTS {
        match random.below(25) {
            0 => {
                manager.kill()?;
                let options = RESTARTS[random.below(RESTARTS.len())];
                manager = Manager::start(first, &hca(first), options)?;
            }
            1..=8 => {
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
    Ok(manager)
}

/// Each host reaches each other one.
fn all_reach_all(hosts: &[Host]) -> Result<()> {
    for from in hosts {
        from.wait_until("ip -o link show ib0 | grep -q LOWER_UP", LIMIT)
            .with_context(|| format!("host {}", from.number()))?;
    }
    for from in hosts {
        for to in hosts.iter().filter(|to| to.number() != from.number()) {
            from.wait_until(&format!("ping -q -c 1 -W 1 {}", to.ip4()), LIMIT)
                .with_context(|| format!("from host {}", from.number()))?;
        }
    }
    Ok(())
}

scenario! {
    /// Cables are pulled and plugged, managers are killed and started again, also with other LIDs, and HCAs report
    /// events: streams between ours, and with `ib_ipoib`, go on. Afterwards nothing is left of the interfaces.
    #[on(lockdep)]
    fn random_faults_heal(bed) {
        let (rounds, factor) = bed.rounds(2)?;
        let bed = bed.one_machine().hosts(4).append(EXCLUSIVE).lifetime(Duration::from_secs(240) * factor).up()?;
        let (ours, c) = (Driver::Ours, (Driver::C, "datagram"));
        let kinds = [(ours, "datagram"), c, (ours, "connected"), (ours, "datagram")];
        let mut manager = up(&bed, "star 4", "", &kinds)?;
        let [first, second, third, fourth] = &bed.hosts[..] else {
            anyhow::bail!("four hosts");
        };
        let mut random = Random(SEED);
        for number in 0..rounds {
            all_reach_all(&bed.hosts).with_context(|| format!("before round {number}"))?;
            let streams = [
                Transfer::start(first, second, &second.ip4(), 1, 5)?,
                Transfer::start(third, fourth, &fourth.ip6(), 1, 5)?,
                Transfer::start(fourth, third, &third.ip4(), 1, 5)?,
            ];
            manager = round(&bed, &mut random, manager)?;
            all_reach_all(&bed.hosts).with_context(|| format!("after round {number}"))?;
            for stream in streams {
                stream.finish().with_context(|| format!("round {number}"))?;
            }
        }
        for host in [first, third, fourth] {
            host.ok("ip link del ib0")?;
            let left = host.ok("rdma resource show qp | grep -c ipoib_rs || :")?;
            ensure!(left.trim() == "0", "{left}");
        }
        manager.kill()?;
        bed.finish()
    }
}
