// SPDX-License-Identifier: GPL-2.0

//! Questions to the subnet administrator that an HCA does not send, or that are lost.

use super::super::EXCLUSIVE;
use super::super::fabric::CONFIGFS;
use super::{Driver, LIMIT, set_mode, up};
use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Has the HCA of the second host send nothing any more, and the interface ask for a path then.
fn ask(host: &Host, faults: &str) -> Result<()> {
    let outside = host.outside();
    let address = host.ok("cat /sys/class/net/ib0/address")?;
    let (front, guid) = address.trim().split_at(36);
    // Another port's GUID, which nobody has asked for yet.
    let other = format!("{front}02:00:5e:ff:fe:00:53:99");
    ensure!(!guid.ends_with("53:99"));
    host.ok(&format!(
        "ip neigh replace 10.1.0.99 lladdr {other} dev ib0 nud permanent"
    ))?;
    outside.ok(&format!("echo hold >{faults}"))?;
    host.run("ping -q -c 1 -W 1 10.1.0.99")?.refused()?;
    let paths = outside.ok("cat /sys/kernel/debug/ipoib_rs/*/path")?;
    ensure!(paths.contains("complete:     no"), "{paths}");
    Ok(())
}

scenario! {
    /// An HCA that completes nothing, not even what it has of the subnet administrator's, delays neither an interface that
    /// goes down nor the end of one, in both modes.
    #[on(lockdep, races)]
    fn an_interface_ends_before_its_questions_are_sent(bed) {
        let bed = bed.leaks().one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        let faults = format!("{CONFIGFS}/pair/hcas/h2/faults");
        let soon = |script: &str| b.run_for(script, Duration::from_secs(10))?.ok();
        for mode in ["datagram", "connected"] {
            set_mode(b, "ib0", mode)?;
            b.wait_until(&format!("ping -q -c 1 -W 1 {}", a.ip4()), LIMIT)?;
            ask(b, &faults)?;
            soon("ip link set ib0 down").context("down")?;
            soon("ip link set ib0 up").context("up")?;
            b.outside().ok(&format!("echo clear hold >{faults}"))?;
            b.wait_until(&format!("ping -q -c 1 -W 1 {}", a.ip4()), LIMIT)?;
        }
        ask(b, &faults)?;
        soon("ip link del ib0").context("del")?;
        b.outside().ok(&format!("echo clear hold >{faults}"))?;
        manager.kill()?;
        bed.finish()
    }
}

/// Sends 64 datagrams to each of the addresses 10.1.0.101 to 10.1.0.140, by sockets that wait for nothing.
const BURST: &str = "
import socket
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(40)]
for _ in range(64):
    for n, s in enumerate(sockets, 101):
        s.sendto(b'x', ('10.1.0.%d' % n, 9))
";

scenario! {
    /// Frames that wait for many paths are bounded together, as long as nobody answers for them.
    fn frames_for_many_paths_are_bounded(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        b.outside().ok(&format!("for loss in {CONFIGFS}/pair/cables/*/loss; do echo 1000000 >$loss; done"))?;
        b.ok("front=$(cut -c -36 /sys/class/net/ib0/address)
             for n in $(seq 101 140); do
                 ip neigh replace 10.1.0.$n lladdr ${front}02:00:5e:ff:fe:01:00:$(printf %02x $n) dev ib0 nud permanent || exit
             done")?;
        b.python(BURST, &[])?.ok()?;
        let (queued, refused) = (counter(b, "tx_path_queued")?, counter(b, "tx_drop_queue_full")?);
        ensure!(queued >= 1024 && refused > 500, "{queued} have waited, {refused} had no room");
        manager.kill()?;
        bed.finish()
    }
}
