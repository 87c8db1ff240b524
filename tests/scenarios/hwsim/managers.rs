// SPDX-License-Identifier: GPL-2.0

//! Two subnet managers, and partitions.

use super::fabric::Fabric;
use super::manager::Manager;
use super::{EXCLUSIVE, Port, device, hca, ipoib_up_with};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Waits until an HCA knows the one with a LID as master.
fn wait_master(host: &Host, hca: &str, lid: u64) -> Result<()> {
    host.wait_until(
        &format!("sminfo -C {hca} -P 1 | grep -q 'sm lid {lid} .*SMINFO_MASTER'"),
        LIMIT,
    )
}

scenario! {
    /// Of two SMs one waits, and takes over when the master is killed. One with a higher priority is handed the
    /// fabric. No port loses its LID.
    #[on(timed, lockdep)]
    fn the_standby_takes_over(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let fabric = Fabric::make(&host, "star 3")?;
        let from = fabric.from("h3")?;
        let [first, second, third] = [device(1), device(2), device(3)];
        let master = Manager::start(&host, &first, "")?;
        fabric.wait_active(&from, LIMIT)?;
        let lids = [Port::of(&host, &first)?.lid, Port::of(&host, &second)?.lid];
        wait_master(&host, &third, lids[0])?;
        let standby = Manager::standby(&host, &second)?;
        wait_master(&host, &third, lids[0])?;

        master.kill()?;
        wait_master(&host, &third, lids[1])?;
        let ports = [Port::of(&host, &first)?, Port::of(&host, &second)?];
        ensure!([ports[0].lid, ports[1].lid] == lids, "{ports:?}");
        fabric.wait_active(&from, LIMIT)?;

        let higher = Manager::start(&host, &first, "-p 10")?;
        wait_master(&host, &third, lids[0])?;
        fabric.wait_active(&from, LIMIT)?;
        fabric.is_discovered(&from)?;
        standby.kill()?;
        higher.kill()?;
        bed.finish()
    }
}

scenario! {
    /// Two of three hosts are in a partition of their own: their child interfaces reach each other, and the
    /// third has neither the P_Key nor a carrier.
    #[on(lockdep)]
    fn partitions_separate(bed) {
        let bed = bed.one_machine().hosts(3).append(EXCLUSIVE).up()?;
        let [a, b, c] = &bed.hosts[..] else {
            anyhow::bail!("three hosts");
        };
        let manager = ipoib_up_with(&bed, "star 3", "")?;
        let guids = [Port::of(a, &hca(a))?.guid, Port::of(b, &hca(b))?.guid];
        let lid = Port::of(c, &hca(c))?.lid;
        manager.end()?;
        let members: Vec<String> = guids.iter().map(|guid| format!("{guid:#018x}=full")).collect();
        a.outside().ok(&format!(
            "cat >/tmp/partitions.conf <<'END'
Default=0x7fff, ipoib : ALL=full;
Blue=0x0001, ipoib : {};
END",
            members.join(", ")
        ))?;
        let manager = Manager::start(a, &hca(a), "-P /tmp/partitions.conf")?;
        for (host, address) in [(a, "10.2.0.1"), (b, "10.2.0.2"), (c, "10.2.0.3")] {
            host.ok(&format!(
                "ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001
                 ip addr add {address}/24 dev ib0.8001
                 ip link set ib0.8001 up"
            ))?;
        }
        for (from, to) in [(a, "10.2.0.2"), (b, "10.2.0.1")] {
            from.wait_until(&format!("ping -q -c 1 -W 1 {to}"), LIMIT)?;
            from.ok(&format!("ping -q -c 5 -i 0.05 -W 5 -s 10000 {to}"))?;
        }
        a.ok(&format!("ping -q -c 1 -W 5 {}", c.ip4())).context("the partition of all")?;
        let state = c.ok("ip -o link show ib0.8001")?;
        ensure!(!state.contains("LOWER_UP"), "{state}");
        a.run("ping -q -c 2 -i 0.2 -W 1 10.2.0.3")?.refused()?;
        let keys = a.ok(&format!("smpquery -C {} -P 1 pkeys {lid} 1", hca(a)))?;
        ensure!(keys.contains("0xffff") && !keys.contains("0x8001"), "{keys}");
        manager.kill()?;
        bed.finish()
    }
}
