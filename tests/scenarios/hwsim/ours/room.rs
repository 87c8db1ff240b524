// SPDX-License-Identifier: GPL-2.0

//! Devices without queue pairs for all connections.

use super::super::{EXCLUSIVE, hca, make};
use super::{CONFIGFS, Driver, LIMIT, up_made};
use crate::connected::story;
use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;

/// How many queue pairs for connections a host's device has.
fn connections(host: &Host) -> Result<usize> {
    let table = host.ok(&format!(
        "rdma resource show qp link {}/1 type RC",
        hca(host)
    ))?;
    Ok(table.lines().count())
}

/// Sends what only a connection carries, until that arrives.
fn reaches(from: &Host, to: &Host) -> Result<()> {
    let ping = format!("ping -q -c 1 -W 1 -s 20000 {}", to.ip4());
    from.wait_until(&ping, LIMIT)
        .with_context(|| format!("{}{}", story(from), story(to)))
}

/// Both peers of a host whose device has room for one connection get one in turn, whoever asks.
fn take_turns(bed: &Bed) -> Result<()> {
    let [few, b, c] = bed.hosts.as_slice() else {
        anyhow::bail!("no three hosts");
    };
    for (from, to) in [(few, b), (few, c), (b, few), (c, few)] {
        reaches(from, to)?;
        ensure!(connections(few)? <= 1, "{}", story(few));
        // Datagrams pass in any case.
        for peer in [b, c] {
            few.ok(&format!(
                "ping -q -c 3 -i 0.05 -W 5 {} | grep -q ' 0% packet loss'",
                peer.ip4()
            ))?;
        }
    }
    ensure!(counter(few, "rc_evicted")? >= 3, "{}", story(few));
    Ok(())
}

scenario! {
    /// A device has a queue pair for one connection. The one that was not used for the longest time makes room for the next:
    /// each peer gets one in turn, and datagrams pass meanwhile.
    #[on(uml, both)]
    fn an_old_connection_makes_room_on_the_device(bed) {
        let bed = bed.one_machine().hosts(3).append(EXCLUSIVE).up()?;
        let manager = up_made(&bed, "", &[(Driver::Ours, "connected"); 3], |outside| {
            make(outside, "star 3")?;
            // One is for datagrams.
            outside.ok(&format!("cd {CONFIGFS}/star && echo 0 >live && echo 2 >hcas/h1/max_qp && echo 1 >live"))?;
            Ok(())
        })?;
        take_turns(&bed)?;
        manager.end()?;
        bed.finish()
    }
}
