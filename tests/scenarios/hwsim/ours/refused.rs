// SPDX-License-Identifier: GPL-2.0

//! Requests that an HCA refuses, and takes later.

use super::super::EXCLUSIVE;
use super::super::device_failures::struck_in;
use super::super::fabric::CONFIGFS;
use super::{Driver, LIMIT, set_mode, up};
use crate::order::counter;
use anyhow::{Result, ensure};
use lab::scenario;
use std::time::Duration;

scenario! {
    /// An HCA refuses receives until the ring is empty, so that no completion brings the poll that posts them: they are
    /// posted soon after the HCA takes some again.
    #[on(lockdep)]
    fn an_empty_ring_is_filled(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        let outside = b.outside();
        let faults = format!("{CONFIGFS}/pair/hcas/h2/faults");
        b.ok("ethtool -G ib0 rx 64")?;
        a.ok(&format!("ping -q -c 2 -i 0.2 -W 5 {}", b.ip4()))?;
        outside.ok(&format!("echo 'post_recv EIO from 1' >{faults}"))?;
        a.run(&format!("ping -q -c 100 -i 0.01 -W 1 {}", b.ip4()))?;
        a.run(&format!("ping -q -c 2 -i 0.2 -W 1 {}", b.ip4()))?.refused()?;
        // The attempts go on, and do not keep a CPU busy.
        let before = struck_in(&outside.ok(&format!("cat {faults}"))?, "post_recv")?;
        std::thread::sleep(Duration::from_secs(1));
        let tries = struck_in(&outside.ok(&format!("cat {faults}"))?, "post_recv")? - before;
        ensure!((1..100).contains(&tries), "{tries} attempts in a second");
        outside.ok(&format!("echo clear >{faults}"))?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        ensure!(counter(b, "restarts")? == 0);
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// An HCA has no events, in both modes: all goes on, slower, and keeps no CPU busy.
    #[on(lockdep)]
    fn an_hca_without_events_is_polled(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        let outside = b.outside();
        let faults = format!("{CONFIGFS}/pair/hcas/h2/faults");
        for mode in ["datagram", "connected"] {
            set_mode(b, "ib0", mode)?;
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
            outside.ok(&format!("echo 'req_notify_cq EIO from 1' >{faults}"))?;
            b.ok(&format!("ping -q -c 5 -i 0.2 -W 5 {}", a.ip4()))?;
            let calls = || -> Result<u32> { struck_in(&outside.ok(&format!("cat {faults}"))?, "req_notify_cq") };
            let before = calls()?;
            std::thread::sleep(Duration::from_secs(1));
            let tries = calls()? - before;
            // Of each of up to four queues.
            ensure!((1..200).contains(&tries), "{mode}: {tries} attempts in a second");
            outside.ok(&format!("echo clear >{faults}"))?;
            b.ok(&format!("ping -q -c 5 -i 0.2 -W 5 {}", a.ip4()))?;
        }
        ensure!(counter(b, "restarts")? == 0);
        // While there is a manager, no frame waits for long.
        bed.accounts()?;
        // It may have swept while the HCA was not told of its MADs, and have complained.
        manager.kill()?;
        bed.finish()
    }
}
