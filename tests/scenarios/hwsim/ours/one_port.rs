// SPDX-License-Identifier: GPL-2.0

//! Interfaces of both drivers on one port.

use super::super::EXCLUSIVE;
use super::super::ipoib::{multicast_ping, send_to_group};
use super::{Driver, LIMIT, pings, set_mode, up};
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use lab::task::Task;

/// Moves the interface that `ib_ipoib` has beside ours into a namespace of its own, as a third host with its addresses.
/// The namespace stays while the task runs.
fn move_out(host: &Host) -> Result<(Task, Host)> {
    let (holder, pid) = host.netns_add("inner")?;
    host.ok(&format!("ip link set ibc0 netns {pid} name ib0"))?;
    let inner = host.inside("inner", 3);
    // Both have the port's GUID, and would have one link-local address.
    inner.ip("link set lo up\nlink set ib0 addrgenmode random")?;
    inner.ib_up()?;
    Ok((holder, inner))
}

/// Each of three reaches each other one, by both versions of IP and by multicast.
fn all_reach_each_other(ends: [&Host; 3]) -> Result<()> {
    for from in ends {
        for to in ends.iter().filter(|to| to.number() != from.number()) {
            let story = || format!("from {} to {}", from.number(), to.number());
            for target in [to.ip4(), to.ip6()] {
                from.wait_until(&format!("ping -q -c 1 -W 1 {target}"), LIMIT)
                    .with_context(story)?;
            }
            multicast_ping(from, to).with_context(story)?;
        }
    }
    Ok(())
}

/// Takes an interface down and up while the other one of its port is pinged, which loses nothing, and sends to it in vain.
fn down_and_up(host: &Host, other: &Host, far: &Host) -> Result<()> {
    let ping = far.spawn(&format!("ping -q -c 150 -i 0.02 -W 5 {}", other.ip4()))?;
    for _ in 0..2 {
        host.ok("ip link set ib0 down")?;
        for from in [other, far] {
            from.run(&format!("ping -q -c 1 -W 0.2 {}", host.ip4()))?
                .refused()?;
        }
        host.ok("ip link set ib0 up")?;
        for from in [other, far] {
            from.wait_until(&format!("ping -q -c 1 -W 1 {}", host.ip4()), LIMIT)?;
        }
    }
    let text = ping.wait(far.scaled(LIMIT))?.ok()?;
    ensure!(text.contains(" 0% packet loss"), "{text}");
    Ok(())
}

scenario! {
    /// Ours and `ib_ipoib` on the same port, in both modes: they reach each other and another host's `ib_ipoib`, by
    /// unicast and multicast, and either goes down and comes up without a loss for the other one.
    #[on(lockdep)]
    fn two_drivers_on_one_port(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"), (Driver::C, "datagram")])?;
        let (a, b) = bed.pair()?;
        let (_holder, inner) = move_out(a)?;
        for host in [a, &inner, b] {
            host.ok("echo 1 >/proc/sys/net/ipv6/conf/ib0/keep_addr_on_down")?;
        }
        for mode in ["datagram", "connected"] {
            let mtus = [set_mode(a, "ib0", mode)?, set_mode(&inner, "ib0", mode)?, set_mode(b, "ib0", mode)?];
            all_reach_each_other([a, &inner, b]).with_context(|| mode)?;
            pings([(a, mtus[0]), (&inner, mtus[1])])?;
            transfer(a, &inner, &inner.ip4(), 1)?;
            transfer(&inner, a, &a.ip6(), 1)?;
            for (host, other) in [(a, &inner), (&inner, a)] {
                if mode == "datagram" {
                    send_to_group(host, &[other.clone(), b.clone()]).with_context(|| mode)?;
                }
                down_and_up(host, other, b).with_context(|| format!("{mode}, {}", host.number()))?;
            }
            all_reach_each_other([a, &inner, b]).with_context(|| mode)?;
        }
        manager.end()?;
        bed.finish()
    }
}
