// SPDX-License-Identifier: GPL-2.0

//! The rings' sizes, changed while they are in use.

use crate::drops::send_to;
use crate::order::{counter, set};
use crate::ping::{lossless, unanswered};
use anyhow::ensure;
use lab::scenario;
use std::time::Duration;

scenario! {
    /// `ethtool -G` under traffic: the link stays up with its address, its groups and its neighbours, and nothing is lost
    /// but while it changes. What cannot be is refused in words, and changes nothing.
    #[on(infiniband)]
    fn sizes_change_under_traffic(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let changes = "cat /sys/class/net/ib0/carrier_changes";
        let (address, carrier) = (b.ok("cat /sys/class/net/ib0/address")?, b.ok(changes)?);
        let stream = a.spawn(&format!("ping -q -i 0.01 {}", b.ip4()))?;
        let mut most = 0;
        for (rx, tx) in [(1024, 512), (64, 64), (64, 2048), (2048, 2048), (256, 128), (512, 512)] {
            let text = b.ok(&format!("date +%s%3N; ethtool -G ib0 rx {rx} tx {tx} && date +%s%3N"))?;
            let times: Vec<u64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
            // One is sent every 10 ms.
            most += (times[1] - times[0]) / 10 + 1;
            let shown = b.ok("ethtool -g ib0")?;
            let (_, current) = shown.split_once("Current").unwrap_or_default();
            for size in [format!("RX:\t\t\t{rx}"), format!("TX:\t\t\t{tx}")] {
                ensure!(current.contains(&size), "{size} is not in {current}");
            }
        }
        let report = stream.stop()?.stdout;
        // The last one may be under way.
        ensure!(unanswered(&report)? <= most + 1, "not more than {most}: {report}");
        ensure!(b.ok("cat /sys/class/net/ib0/address")? == address && b.ok(changes)? == carrier);
        ensure!(counter(b, "restarts")? == 0);

        for (wrong, why) in [("rx 100", "powers of two"), ("tx 32", "powers of two"), ("rx 4096", "")] {
            let refused = b.run(&format!("ethtool -G ib0 {wrong}"))?.refused()?;
            ensure!(refused.contains(why), "{wrong}: {refused}");
        }
        ensure!(b.ok("ethtool -g ib0")?.matches("512").count() == 2);

        // Also while it is down, for when it goes up.
        b.ok("ip link set ib0 down && ethtool -G ib0 rx 128 tx 256 && ip link set ib0 up")?;
        b.wait_until("[ $(cat /sys/class/net/ib0/carrier) = 1 ]", Duration::from_secs(10))?;
        lossless(a, &format!("-c 1 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// The wire takes nothing, and so the device stops after some packets. That is noticed though there is room in
    /// the ring, so that the stack has no reason to look; and all is well when the wire goes on.
    fn a_device_that_does_not_send_is_noticed(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        // Without this, BQL stops the queue.
        let limits = "/sys/class/net/ib0/queues/tx-0/byte_queue_limits";
        a.ok(&format!("echo 1000000 >{limits}/limit_min"))?;
        bed.heals(&["tx_timeouts", "self_restarts"]);
        let timeouts = "ethtool -S ib0 | grep -q ' tx_timeouts: [1-9]'";
        a.ok("tc qdisc add dev eth0 root tbf rate 8bit burst 2k limit 1m")?;
        let stuck = format!("ping -f -q -c 40 -w 1 {}; [ $(cat {limits}/inflight) -gt 0 ]", b.ip4());
        a.wait_until(&stuck, Duration::from_secs(20))?;
        a.wait_until(timeouts, Duration::from_secs(20))?;
        ensure!(counter(a, "tx_stops")? == 0);
        a.ok("tc qdisc del dev eth0 root")?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        bed.finish()
    }
}

scenario! {
    /// Soft-RoCE does not moderate completions, and `ethtool -C` says so.
    fn soft_roce_moderates_nothing(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        ensure!(host.ok("ethtool -c ib0")?.contains("rx-usecs:\t0"));
        let refused = host.run("ethtool -C ib0 rx-usecs 50")?.refused()?;
        ensure!(refused.contains("does not moderate"), "{refused}");
        host.run("ethtool -C ib0 rx-usecs 70000")?.refused()?;
        host.run("ethtool -C ib0 tx-usecs 5")?.refused()?;
        bed.finish()
    }
}

scenario! {
    /// A poll takes as many frames as `napi_budget` says, however many there are.
    #[on(infiniband)]
    fn a_poll_takes_what_its_budget_allows(bed) {
        const FRAMES: u32 = 50;
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        // Behind the poll for the first frame there is none for a second, so that many wait.
        b.ok("cd /sys/class/net/ib0 && echo 1000 >napi_defer_hard_irqs && echo 1000000000 >gro_flush_timeout")?;
        let mut polls = Vec::new();
        for budget in [64, 1] {
            set(b, "napi_budget", budget)?;
            let before = [counter(b, "rx_frames")?, counter(b, "rx_polls")?];
            send_to(a, b, FRAMES, 100)?;
            let all = format!("[ $(ethtool -S ib0 | sed -n 's/^ *rx_frames: //p') -ge {} ]", before[0] + u64::from(FRAMES));
            b.wait_until(&all, Duration::from_secs(10))?;
            polls.push(counter(b, "rx_polls")? - before[1]);
        }
        ensure!(polls[0] < u64::from(FRAMES) && polls[1] >= u64::from(FRAMES), "{polls:?}");
        bed.finish()
    }
}
