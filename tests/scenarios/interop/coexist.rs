// SPDX-License-Identifier: GPL-2.0

//! Interfaces of both drivers on the same ports.

use super::{c_driver_up, ethernet_has_addresses};
use anyhow::ensure;
use lab::bench::peer;
use lab::scenario;
use std::time::Duration;

scenario! {
    /// This driver is loaded, used and unloaded while the C driver's interfaces are up: those stay, and
    /// lose no packet.
    #[on(base)]
    fn the_c_driver_loses_no_interface(bed) {
        let bed = bed.up()?;
        let (a, b) = bed.pair()?;
        ethernet_has_addresses(&bed)?;
        bed.rxe()?;
        for host in [a, b] {
            c_driver_up(host, &[format!("10.3.0.{}/24", host.number())])?;
        }
        a.wait_until("ping -q -c 1 -W 1 10.3.0.2", Duration::from_secs(15))?;
        let index = format!("cat /sys/class/net/{}/ifindex", peer::INTERFACE);
        let before = (a.ok(&index)?, b.ok(&index)?);
        let ping = a.spawn("ping -q -c 200 -i 0.03 -W 10 10.3.0.2")?;
        for _ in 0..3 {
            for host in [a, b] {
                host.ib_add("")?;
                host.ib_up()?;
            }
            a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.ip4()))?;
            for host in [a, b] {
                host.ok("modprobe -r ipoib_rs")?;
            }
        }
        let text = ping.wait(a.scaled(Duration::from_secs(30)))?.ok()?;
        ensure!(text.contains(" 0% packet loss"), "{text}");
        ensure!((a.ok(&index)?, b.ok(&index)?) == before, "another interface");
        // Its multicast, too: the neighbour has to be found anew.
        a.ok(&format!("ip neigh flush dev {} && ping -q -c 2 -W 5 10.3.0.2", peer::INTERFACE))?;
        bed.finish()
    }
}
