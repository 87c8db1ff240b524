// SPDX-License-Identifier: GPL-2.0

//! Partitions that come late, move in the table, and go.

use super::super::manager::Manager;
use super::super::{EXCLUSIVE, Port, hca};
use super::{Driver, up};
use anyhow::{Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
const FILE: &str = "/tmp/partitions.conf";

/// Starts a manager with these partitions besides the default one; none is running.
fn start(host: &Host, partitions: &[String]) -> Result<Manager> {
    let text = partitions.join("\n");
    host.outside().ok(&format!(
        "printf 'Default=0x7fff, ipoib : ALL=full;\\n{text}\\n' >{FILE}"
    ))?;
    Manager::start(host, &hca(host), &format!("-P {FILE}"))
}

scenario! {
    /// A child waits without a carrier for its partition, has it soon after the manager has made it, follows it to
    /// another place in the table, and loses the carrier with it. The parent's stands all the while.
    #[on(lockdep)]
    fn partitions_come_and_go(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let mut manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        let guids = [Port::of(a, &hca(a))?.guid, Port::of(b, &hca(b))?.guid];
        let members = guids.map(|guid| format!("{guid:#018x}=full")).join(", ");
        let blue = format!("Blue=0x0001, ipoib : {members};");
        let green = format!("Green=0x0002, ipoib : {members};");
        for host in [a, b] {
            host.ok(&format!(
                "ip link add link ib0 name ib0.8001 type ipoib_rs pkey 0x8001
                 ip addr add 10.2.0.{}/24 dev ib0.8001
                 ip link set ib0.8001 up",
                host.number()
            ))?;
            let state = host.ok("ip -o link show ib0.8001")?;
            ensure!(!state.contains("LOWER_UP"), "{state}");
        }
        let other = "10.2.0.2";
        for partitions in [vec![blue.clone()], vec![green.clone(), blue], vec![green]] {
            manager.kill()?;
            manager = start(a, &partitions)?;
            manager.wait_for("SUBNET UP", LIMIT)?;
            if partitions.iter().any(|line| line.starts_with("Blue")) {
                a.wait_until(&format!("ping -q -c 1 -W 1 {other}"), LIMIT)?;
                a.ok(&format!("ping -q -c 5 -i 0.05 -W 5 -s 10000 {other}"))?;
            } else {
                for host in [a, b] {
                    host.wait_until("! ip -o link show ib0.8001 | grep -q LOWER_UP", LIMIT)?;
                }
            }
            a.ok(&format!("ping -q -c 3 -i 0.1 -W 5 {}", b.ip4()))?;
        }
        manager.kill()?;
        bed.finish()
    }
}
