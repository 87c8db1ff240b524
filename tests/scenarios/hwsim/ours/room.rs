// SPDX-License-Identifier: GPL-2.0

//! Devices without queue pairs for all connections.

use super::super::{EXCLUSIVE, make};
use super::{CONFIGFS, Driver, up_made};
use crate::connected::story;
use crate::inspect::{directory, identity, table};
use crate::order::counter;
use anyhow::{Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::{Duration, Instant};

/// Returns true if a host has a connection to another one.
fn has_connection(host: &Host, to: &Host) -> Result<bool> {
    let (gid, _) = identity(to)?;
    let rows = table(host, &format!("{}/connections", directory(host, "ib0")?))?;
    Ok(rows
        .iter()
        .any(|row| row["gid"] == gid && row["state"] == "up"))
}

/// Sends from one host to another until `host`, which is one of them, has a connection to `peer`, the other.
fn send_until_connected(from: &Host, to: &Host, host: &Host, peer: &Host) -> Result<()> {
    let deadline = Instant::now() + from.scaled(Duration::from_secs(20));
    while !has_connection(host, peer)? {
        ensure!(Instant::now() < deadline, "{}{}", story(from), story(to));
        from.ok(&format!("ping -q -c 1 -W 5 {}", to.ip4()))?;
    }
    Ok(())
}

/// Each of two peers of a host whose device has room for one connection can replace the other's, whichever end asks.
fn take_turns(bed: &Bed) -> Result<()> {
    let [few, b, c] = bed.hosts.as_slice() else {
        anyhow::bail!("no three hosts");
    };
    for (from, to, peer) in [(few, b, b), (few, c, c), (b, few, b), (c, few, c)] {
        send_until_connected(from, to, few, peer)?;
    }
    ensure!(counter(few, "rc_evicted")? >= 3, "{}", story(few));
    Ok(())
}

scenario! {
    /// A device has a queue pair for one connection. The least recently used connection is evicted for the next, and datagrams
    /// pass throughout.
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
