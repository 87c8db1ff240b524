// SPDX-License-Identifier: GPL-2.0

//! Settings that mean nothing on InfiniBand.

use super::super::EXCLUSIVE;
use super::{Driver, up};
use crate::order::counter;
use anyhow::ensure;
use lab::scenario;

scenario! {
    /// The subnet's administrator chooses class and service level: to write to their sysctls restarts nothing.
    fn a_class_is_the_administrators(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 2 -i 0.1 -W 5 {}", b.ip4()))?;
        a.ok("sysctl -qw net.ipoib.ib0.traffic_class=104 net.ipoib.ib0.service_level=3")?;
        let restarts = counter(a, "restarts")?;
        ensure!(restarts == 0, "{restarts} restarts");
        // The old handles are there as well.
        a.ok(&format!("ping -q -c 1 -W 1 {}", b.ip4()))?;
        manager.end()?;
        bed.finish()
    }
}
