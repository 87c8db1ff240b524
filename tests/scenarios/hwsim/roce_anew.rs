// SPDX-License-Identifier: GPL-2.0

//! Rings that are made anew, while what they were before is still on its way to be destroyed.

use super::roce::{up, write};
use super::roce_devices::find;
use crate::connected::{connect, set_mode, story};
use crate::order::counter;
use anyhow::ensure;
use lab::scenario;

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
