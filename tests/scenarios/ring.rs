// SPDX-License-Identifier: GPL-2.0

//! The rings' sizes, changed while they are in use.

use crate::order::counter;
use anyhow::ensure;
use lab::scenario;
use std::time::Duration;

scenario! {
    /// `ethtool -G` under traffic: the link stays up with its address, its groups and its neighbours,
    /// and next to nothing is lost. What cannot be is refused in words, and changes nothing.
    #[on(infiniband)]
    fn sizes_change_under_traffic(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let changes = "cat /sys/class/net/ib0/carrier_changes";
        let (address, carrier) = (b.ok("cat /sys/class/net/ib0/address")?, b.ok(changes)?);
        let stream = a.spawn(&format!("ping -q -i 0.01 -c 500 {}", b.ip4()))?;
        for (rx, tx) in [(1024, 512), (64, 64), (64, 2048), (2048, 2048), (256, 128), (512, 512)] {
            b.ok(&format!("ethtool -G ib0 rx {rx} tx {tx}"))?;
            let shown = b.ok("ethtool -g ib0")?;
            let (_, current) = shown.split_once("Current").unwrap_or_default();
            for size in [format!("RX:\t\t\t{rx}"), format!("TX:\t\t\t{tx}")] {
                ensure!(current.contains(&size), "{size} is not in {current}");
            }
        }
        let report = stream.wait(b.scaled(Duration::from_secs(30)))?.ok()?;
        let received = report
            .split(" received")
            .next()
            .and_then(|text| text.rsplit(' ').next())
            .and_then(|n| n.parse::<u32>().ok());
        // A change takes some milliseconds, in which a request or two are lost.
        ensure!(received.is_some_and(|n| n >= 470), "{report}");
        ensure!(b.ok("cat /sys/class/net/ib0/address")? == address && b.ok(changes)? == carrier);
        ensure!(counter(b, "restarts")? == 0);

        for (wrong, why) in [("rx 100", "powers of two"), ("tx 32", "powers of two"), ("rx 4096", "")] {
            let refused = b.run(&format!("ethtool -G ib0 {wrong}"))?.refused()?;
            ensure!(refused.contains(why), "{wrong}: {refused}");
        }
        ensure!(b.ok("ethtool -g ib0")?.matches("512").count() == 2);

        // Also while it is down, for when it goes up.
        b.ok("ip link set ib0 down && ethtool -G ib0 rx 128 tx 256 && ip link set ib0 up")?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(10))?;
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
    /// Small frames copied, large ones not; all arrive unharmed.
    #[on(infiniband)]
    fn small_frames_are_copied(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("sysctl -qw net.ipoib.ib0.rx_copybreak=1000")?;
        }
        for size in [0, 56, 971, 972, 973, 4000, 65000] {
            a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 -s {size} -p a5 {}", b.ip4()))?;
            a.ok(&format!("ping -6 -q -c 3 -i 0.05 -W 5 -s {size} {}", b.ip6()))?;
        }
        bed.finish()
    }
}

scenario! {
    /// Soft-RoCE does not moderate completions, and `ethtool -C` says so. A poll of one frame at a time
    /// is slow, but loses nothing.
    fn moderation_and_budget(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        ensure!(b.ok("ethtool -c ib0")?.contains("rx-usecs:\t0"));
        let refused = b.run("ethtool -C ib0 rx-usecs 50")?.refused()?;
        ensure!(refused.contains("does not moderate"), "{refused}");
        b.run("ethtool -C ib0 rx-usecs 70000")?.refused()?;
        b.run("ethtool -C ib0 tx-usecs 5")?.refused()?;
        b.ok("sysctl -qw net.ipoib.ib0.napi_budget=1")?;
        a.ok(&format!("ping -q -f -c 500 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}
