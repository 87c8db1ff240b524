// SPDX-License-Identifier: GPL-2.0

//! Neighbours of RoCE ports that send to Ethernet addresses by themselves, as adapters do: what the IP stack knows of them
//! has to be right, and to be heard of when it changes.

use super::roce::up;
use crate::gids::{follow_ethernet_addresses, reach_each_other};
use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

scenario! {
    /// Peers follow the Ethernet address of a port, whatever GID it has.
    #[on(lockdep, races)]
    fn roce_peers_follow_ethernet_addresses(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        follow_ethernet_addresses(&bed)?;
        bed.finish()
    }
}

/// Has a host believe that a neighbour is where nobody is.
fn mislead(host: &Host, neighbour: &str) -> Result<()> {
    host.ok(&format!(
        "ip neigh replace {neighbour} lladdr 02:de:ad:00:00:01 dev eth0 nud stale"
    ))?;
    Ok(())
}

/// Waits until a host knows better.
fn knows_better(host: &Host, neighbour: &str) -> Result<()> {
    let known = format!("ip neigh show {neighbour} dev eth0 | grep -v 02:de:ad | grep -q lladdr");
    host.wait_until(&known, Duration::from_secs(15))
        .with_context(|| host.ok("ip neigh").unwrap_or_default())
}

scenario! {
    /// A port sends to an Ethernet address where nobody is any more, since its host has not heard of the new one: nobody but
    /// the driver would look. It finds the peer again, whether it was told while it sent or before it began.
    #[on(lockdep, races)]
    fn roce_ports_verify_what_the_host_believes(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok(&format!(
                "ip link set eth0 addrgenmode none && ip addr add fd00:9::{}/64 dev eth0 nodad
                 ip -6 addr flush dev eth0 scope link",
                host.number()
            ))?;
            host.wait_until("grep -q :09: /sys/class/net/ib0/address", Duration::from_secs(10))?;
        }
        reach_each_other(&bed)?;
        let resolved = counter(a, "paths_resolved")?;
        mislead(a, "fd00:9::2")?;
        // It sends there, and is told when the probes go unanswered.
        let pinging = a.spawn(&format!("ping -q -i 0.1 {}", b.ip4()))?;
        knows_better(a, "fd00:9::2")?;
        reach_each_other(&bed)?;
        pinging.stop()?;
        ensure!(counter(a, "paths_resolved")? > resolved + 1);

        a.ok("ip link set ib0 down")?;
        mislead(a, "fd00:9::2")?;
        a.ok(&format!("ip link set ib0 up && ip addr add {}/64 dev ib0 nodad", a.ip6()))?;
        let pinging = a.spawn(&format!("ping -q -i 0.1 {}", b.ip4()))?;
        knows_better(a, "fd00:9::2")?;
        reach_each_other(&bed)?;
        pinging.stop()?;
        bed.finish()
    }
}
