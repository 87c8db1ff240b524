// SPDX-License-Identifier: GPL-2.0

//! Many interfaces of `ib_ipoib` in connected mode, which have no other way to send to ours.

use super::super::{EXCLUSIVE, inhabit, make};
use super::add;
use crate::connected::story;
use crate::inspect::{directory, table};
use crate::order::{counter, set};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Interfaces of a host, all on its one port: with its own one, as many as an HCA has queue pairs in a group.
const EACH: u32 = 7;

/// Has each interface of a host ping a host in a subnet of its own, all of them at a time, until `is_enough`.
///
/// `ib_ipoib` waits a second for the administrator to tell it a path, and then drops the frames that wait for that. So where
/// all is slow, the first ones may be lost.
fn pings_until(from: &Host, number: u32, is_enough: impl FnMut() -> Result<bool>) -> Result<()> {
    let pings = (1..=EACH)
        .map(|n| from.spawn(&format!("ping -q -i 0.2 -s 1000 -I c{n} 10.{number}.{n}.1")));
    let pings = pings.collect::<Result<Vec<_>>>()?;
    from.until(Duration::from_secs(20), is_enough)?;
    for ping in pings {
        ping.stop()?;
    }
    Ok(())
}

/// Has them do so, and each get all answers.
fn pings(from: &Host, number: u32, packets: u32) -> Result<()> {
    let script = format!(
        "for n in $(seq {EACH}); do
             ping -q -c {packets} -i 0.2 -W 5 -s 1000 -I c$n 10.{number}.$n.1 >/tmp/ping-$n &
         done
         wait
         grep -L ' 0% packet loss' $(seq -f /tmp/ping-%g {EACH}); true"
    );
    let lost = from.run_for(&script, Duration::from_secs(120))?.ok()?;
    ensure!(
        lost.trim().is_empty(),
        "host {}: losses of {lost}",
        from.number()
    );
    Ok(())
}

scenario! {
    /// Seventy interfaces of `ib_ipoib` have a connection each to one of ours, which itself may have two. Nothing is lost, and none
    /// of them has to go.
    #[on(uml, timed)]
    fn many_peers_send(bed) {
        let bed = bed.one_machine().hosts(11).memory(2048).append(EXCLUSIVE).lifetime(Duration::from_secs(400)).up()?;
        let [ours, others @ ..] = &bed.hosts[..] else {
            anyhow::bail!("no host");
        };
        let outside = ours.outside();
        outside.ok("modprobe ipoib_rs && modprobe ib_ipoib recv_queue_size=16 send_queue_size=16")?;
        make(&outside, "star 11")?;
        let manager = inhabit(&bed, "")?;
        add(ours, "mode connected")?;
        // ib_ipoib lets go of RTNL to change a mode, and only tries to take it again: with EBUSY if it fails. So nothing is up yet.
        let make = format!("set -e; for n in $(seq {EACH}); do ip link add link ib0 name c$n type ipoib mode connected; done");
        for host in others {
            host.ok(&make)?;
        }
        ours.ib_up()?;
        ours.ok("ip link set ib0 mtu 65520")?;
        set(ours, "rc_max_connections", 2)?;
        for host in others {
            let number = 100 + u32::from(host.number());
            ours.ok(&format!("for n in $(seq {EACH}); do ip addr add 10.{number}.$n.1/24 dev ib0; done"))?;
            host.ib_up()?;
            let up = format!(
                "set -e
                 for n in $(seq {EACH}); do
                     ip addr add 10.{number}.$n.2/24 dev c$n
                     ip link set c$n mtu 65520 up
                 done"
            );
            host.run_for(&up, Duration::from_secs(60))?.ok()?;
            host.wait_until(
                &format!("[ $(ip -o link show | grep -c ' c[0-9]*[:@].*LOWER_UP') = {EACH} ]"),
                Duration::from_secs(30),
            )?;
        }
        let senders = || -> Result<usize> {
            let rows = table(ours, &format!("{}/connections", directory(ours, "ib0")?))?;
            Ok(rows.iter().filter(|row| row["state"] == "receiving").count())
        };
        for (host, before) in others.iter().zip((0..).step_by(EACH as usize)) {
            let are_all_there = || Ok(senders()? >= before + EACH as usize);
            pings_until(host, 100 + u32::from(host.number()), are_all_there).with_context(|| story(ours))?;
        }
        let before = senders()?;
        for host in others {
            pings(host, 100 + u32::from(host.number()), 5).with_context(|| story(ours))?;
        }
        let wanted = others.len() * EACH as usize;
        ensure!(before == wanted && senders()? == wanted, "{before}, {} of {wanted}: {}", senders()?, story(ours));
        ensure!(counter(ours, "rc_refused")? == 0, "{}", story(ours));
        manager.end()?;
        bed.finish()
    }
}
