// SPDX-License-Identifier: GPL-2.0

//! Random faults, from a seed: after each hundred of them every port is Active again.

use super::fabric::{CONFIGFS, Fabric};
use crate::random::Random;
use anyhow::{Context, ensure};
use lab::scenario;
use std::fmt::Write;
use std::time::Duration;

const SEED: u64 = 1415;
/// Faults in a round.
const FAULTS: u32 = 100;
/// How an SM is started again: as ever, with other LIDs, and with a partition more.
const RESTARTS: [&str; 3] = ["", "-r", "-P /tmp/partitions.conf"];

/// A shell script of a round: faults, each after a short while. Of each cable it is known whether it is plugged;
/// HCAs that are switched off and on again lose theirs.
fn round(random: &mut Random, fabric: &Fabric, guid: u64) -> String {
    let cables: Vec<&String> = fabric.cables.keys().collect();
    let hcas: Vec<&String> = fabric.hcas.keys().filter(|name| *name != "h1").collect();
    let mut plugged = vec![true; cables.len()];
    let mut script = String::from("set -e\n");
    for _ in 0..FAULTS {
        let line = match random.below(50) {
            0 => format!(
                "pkill -KILL -x opensm || :; opensm -B -g {guid:#018x} {} >/dev/null",
                RESTARTS[random.below(RESTARTS.len())]
            ),
            1..=4 => {
                let name = hcas[random.below(hcas.len())];
                for (cable, state) in cables.iter().zip(&mut plugged) {
                    let ends = &fabric.cables[*cable];
                    *state &= ends.iter().all(|(node, _)| node != name);
                }
                format!("echo 0 >hcas/{name}/power; echo 1 >hcas/{name}/power")
            }
            _ => {
                let n = random.below(cables.len());
                plugged[n] = !plugged[n];
                format!(
                    "echo {} >cables/{}/plugged",
                    u8::from(plugged[n]),
                    cables[n]
                )
            }
        };
        // That a formatted line cannot be added to a string does not happen.
        let _ = writeln!(script, "{line}\nsleep 0.0{}", random.below(10));
    }
    for (cable, _) in cables.iter().zip(plugged).filter(|(_, plugged)| !plugged) {
        let _ = writeln!(script, "echo 1 >cables/{cable}/plugged");
    }
    script
}

scenario! {
    /// Two hundred faults in a fat tree, half as many on debug kernels (a thousand with ROUNDS=10): cables are pulled and plugged, HCAs lose their
    /// power, and the SM is killed and started again, also with other LIDs and other partitions.
    #[on(lockdep)]
    fn random_faults_heal(bed) {
        let rounds = if bed.kernel().is_checked() { 1 } else { 2 };
        let (rounds, factor) = bed.rounds(rounds)?;
        let bed = bed.leaks().one_machine().hosts(1).lifetime(Duration::from_secs(240) * factor).up()?;
        let host = bed.hosts[0].outside();
        let mut fabric = Fabric::make(&host, "fat-tree 8 4")?;
        let guid = fabric.hcas.get("h1").context("no h1")?.guid + 1;
        let all = fabric.cables.len();
        let members: Vec<String> = fabric.hcas.values().take(4).map(|n| format!("{:#018x}=full", n.guid + 1)).collect();
        host.ok(&format!(
            "echo 'Default=0x7fff, ipoib : ALL=full; Blue=0x0001 : {};' >/tmp/partitions.conf
             mkdir -p /var/cache/opensm
             opensm -B -g {guid:#018x} >/dev/null",
            members.join(", ")
        ))?;
        let from = fabric.from("h1")?;
        let mut random = Random(SEED);
        for number in 0..rounds {
            let what = || format!("round {number} from seed {SEED}");
            fabric.wait_active(&from, Duration::from_secs(60)).with_context(what)?;
            fabric.is_discovered(&from).with_context(what)?;
            let script = round(&mut random, &fabric, guid);
            host.run_for(&format!("cd {CONFIGFS}/fat-tree\n{script}"), Duration::from_secs(60))?
                .ok()
                .with_context(what)?;
            fabric.read()?;
            ensure!(fabric.cables.len() == all, "{}: {} cables are plugged", what(), fabric.cables.len());
        }
        fabric.wait_active(&from, Duration::from_secs(60))?;
        fabric.is_discovered(&from)?;
        host.ok("pkill -KILL -x opensm")?;
        bed.finish()
    }
}
