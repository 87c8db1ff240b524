// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver over devices that change no queue pair any more, and complete nothing, but destroy what they
//! are told to: as bnxt_re does after a fatal error of its firmware.

use super::device_failures::struck_in;
use super::roce::{file, ping, up, write};
use super::roce_devices::{HELD, find, heal, left, resources, switch_off};
use super::roce_rings::nothing_is_under_way;
use crate::connected::{connect, set_mode, story};
use crate::order::counter;
use anyhow::{Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

/// How often a rule of a host's HCA has struck.
fn struck(host: &Host, item: &str) -> Result<u32> {
    let rules = host
        .outside()
        .ok(&format!("cat {}", file(host, "faults")))?;
    struck_in(&rules, item)
}

const TURNS: &str = include_str!("../../guest/hwsim/roce_frozen/turns.py");

/// Freezes the device of the second host, whose rings then get frames to a peer and to a group by turns, so that there are
/// address handles that later frames do not use.
fn freeze(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    // Otherwise BQL would stop the queue after a few. It looks at this when a datagram completes.
    b.ok("echo 1000000 >/sys/class/net/ib0/queues/tx-0/byte_queue_limits/limit_min")?;
    b.ok("ping -q -c 1 -W 1 -I ib0 224.0.0.1 || true")?;
    ping(b, a)?;
    nothing_is_under_way(b)?;
    write(b, "faults", "hold\\nmodify_qp EIO from 1")?;
    b.python(TURNS, &[&b.ip4(), &a.ip4()])?.ok()?;
    let posted = counter(b, "tx_posted")?;
    ensure!(posted >= 30, "{posted} frames: {}", story(b));
    Ok(())
}

/// Ends an interface whose device is frozen, again and again: it is deleted, or its HCA goes under it. Nothing of it is
/// left, and nobody waits for what the device has.
fn ends_without_a_trace(bed: &Bed, mode: &str) -> Result<()> {
    let (a, b) = bed.pair()?;
    set_mode(a, mode)?;
    for is_deleted in [true, false, true] {
        set_mode(b, mode)?;
        find(a, b)?;
        if mode == "connected" {
            connect(a, b)?;
        }
        freeze(bed)?;
        if is_deleted {
            b.expecting(&[HELD], || {
                b.run_for("ip link set ib0 down", Duration::from_secs(10))?
                    .ok()
            })?;
            b.run_for("ip link del ib0", Duration::from_secs(10))?
                .ok()?;
            // A namespace does not end while an interface does, of whatever namespace that is.
            b.outside()
                .run_for(
                    "ip netns add other && ip netns del other && ip netns add other",
                    Duration::from_secs(10),
                )?
                .ok()?;
            b.outside().ok("ip netns del other")?;
            ensure!(!left(b)?, "{}", resources(b)?);
            // The connection manager waits for what it has sent itself, and so does the end of the device.
            write(b, "faults", "clear hold")?;
        }
        match is_deleted {
            true => switch_off(b)?,
            false => b.expecting(&[HELD], || switch_off(b))?,
        }
        // To the state Error and to Reset, at least.
        ensure!(struck(b, "modify_qp")? >= 2);
        heal(bed, b)?;
    }
    find(a, b)?;
    let log = b.outside().ok("dmesg")?;
    ensure!(!log.contains("frames left to queue pairs"), "{log}");
    Ok(())
}

scenario! {
    /// Datagrams that a queue pair has, which can neither be flushed nor reset, are freed when it is destroyed, and so
    /// are their address handles.
    #[on(lockdep, races)]
    fn a_frozen_device_with_datagrams(bed) {
        let bed = bed.leaks().one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "", |_| Ok(()))?;
        ends_without_a_trace(&bed, "datagram")?;
        bed.finish()
    }
}

scenario! {
    /// Requests of connections, and the shared receive queue that they receive by, go with their queue pairs.
    #[on(lockdep, races)]
    fn a_frozen_device_with_connections(bed) {
        let bed = bed.leaks().one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "", |_| Ok(()))?;
        ends_without_a_trace(&bed, "connected")?;
        bed.finish()
    }
}
