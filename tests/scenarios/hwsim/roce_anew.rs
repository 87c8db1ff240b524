// SPDX-License-Identifier: GPL-2.0

//! Rings that are made anew, while what they were before is still on its way to be destroyed.

use super::roce::{up, write};
use super::roce_devices::{find, objects};
use crate::connected::{connect, set_mode, story};
use crate::order::counter;
use anyhow::ensure;
use lab::scenario;
use std::time::{Duration, Instant};

scenario! {
    /// A device has one shared receive queue, and completion queues for one interface: new rings get those of the old
    /// ones, by a restart, without one, and in the other mode.
    #[on(lockdep, races)]
    fn a_device_with_one_of_each_queue(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "mode connected", |bed| {
            // The fifth completion queue is for management.
            write(bed.pair()?.1, "max_srq", "1")?;
            write(bed.pair()?.1, "max_cq", "5")
        })?;
        let (a, b) = bed.pair()?;
        for class in 1..=8 {
            find(a, b)?;
            connect(a, b)?;
            let flood = a.spawn(&format!("ping -f -q -s 4000 {}", b.ip4()))?;
            b.ok(&format!("sysctl -w net.ipoib.ib0.traffic_class={class}"))?;
            find(a, b)?;
            connect(a, b)?;
            let restarts = counter(b, "restarts")?;
            b.ok(&format!("ethtool -G ib0 rx {}", if class % 2 == 0 { 256 } else { 128 }))?;
            connect(a, b)?;
            ensure!(counter(b, "restarts")? == restarts, "{}", story(b));
            flood.stop()?;
        }
        for mode in ["datagram", "connected", "datagram", "connected"] {
            set_mode(b, mode)?;
            find(a, b)?;
        }
        connect(a, b)?;
        let log = b.outside().ok("dmesg")?;
        ensure!(!log.contains("no shared receive queue"), "{log}");
        bed.finish()
    }
}

scenario! {
    /// A device keeps a message that says goodbye to a peer, and the connection manager waits for that. Nobody else does:
    /// rings that are made anew meanwhile leave nothing behind, and while the interface is deleted, others can be made.
    #[on(lockdep, races)]
    fn a_message_that_is_kept_holds_up_nobody(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        write(b, "faults", "hold")?;
        for size in [128, 256, 128, 256] {
            b.run_for(&format!("ethtool -G ib0 rx {size}"), Duration::from_secs(20))?.ok()?;
            let objects = objects(b)?;
            ensure!(objects.contains(" srq 1 "), "{size}: {objects}");
        }
        let deletion = b.spawn("ip link del ib0")?;
        let gone = "! ip link show ib0";
        b.wait_until(gone, Duration::from_secs(10))?;
        let begun = Instant::now();
        b.run_for("ip link add other type veth peer name another && ip link del other", Duration::from_secs(60))?.ok()?;
        let took = begun.elapsed();
        ensure!(took < b.scaled(Duration::from_secs(3)), "{took:?}");
        write(b, "faults", "clear")?;
        deletion.wait(b.scaled(Duration::from_secs(20)))?.ok()?;
        b.ib_add("mode connected")?;
        b.ib_up()?;
        find(a, b)?;
        connect(a, b)?;
        bed.finish()
    }
}
