// SPDX-License-Identifier: GPL-2.0

//! `net.ipoib.<interface>.*`.

use crate::inspect::directory;
use anyhow::{Context, Result, ensure};
use lab::requests;
use lab::scenario;
use std::time::Duration;

scenario! {
    /// The variables are there while the interface is, under its name and in its namespace; what is
    /// out of range is refused and changes nothing.
    #[on(infiniband)]
    fn variables_follow_the_interface(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        for (name, default, good, bad) in [
            ("reorder_window", "32", "128", "129"),
            ("reorder_timeout_us", "5000", "0", "100001"),
            ("extensions", "1", "0", "2"),
            ("rx_copybreak", "0", "256", "2049"),
            ("napi_budget", "64", "1", "65"),
            ("icrc", "1", "0", "2"),
            ("large_frames", "1", "0", "2"),
            ("rc_max_qps", "1", "8", "9"),
            ("rc_idle_s", "60", "86400", "86401"),
            ("rc_max_connections", "64", "1", "65"),
        ] {
            let path = format!("/proc/sys/net/ipoib/ib0/{name}");
            ensure!(a.ok(&format!("cat {path}"))?.trim() == default, "{name}");
            for bad in [bad, "-1", "nonsense", "4294967296"] {
                let refused = a.run(&format!("sysctl -w net.ipoib.ib0.{name}={bad}"))?;
                ensure!(refused.stderr.contains("Invalid argument"), "{name}={bad}: {}", refused.describe());
                ensure!(a.ok(&format!("cat {path}"))?.trim() == default, "{name} after {bad}");
            }
            a.ok(&format!("sysctl -qw net.ipoib.ib0.{name}={good}"))?;
            ensure!(a.ok(&format!("cat {path}"))?.trim() == good, "{name}");
        }

        a.ok("ip link set ib0 down && ip link set ib0 name ib.7")?;
        ensure!(a.ok("ls /proc/sys/net/ipoib")?.trim() == "ib.7");
        ensure!(a.ok("cat /proc/sys/net/ipoib/ib.7/reorder_window")?.trim() == "128");

        let outside = a.outside();
        let (holder, pid) = a.netns_add("guest")?;
        a.ok(&format!("ip link set ib.7 netns {pid}"))?;
        a.run("ls /proc/sys/net/ipoib/ib.7")?.refused()?;
        let guest = "ip netns exec guest";
        outside.ok(&format!("{guest} sh -c 'echo 16 >/proc/sys/net/ipoib/ib.7/reorder_window'"))?;
        let value = outside.ok(&format!("{guest} cat /proc/sys/net/ipoib/ib.7/reorder_window"))?;
        ensure!(value.trim() == "16", "{value}");

        outside.ok("ip -n guest link del ib.7")?;
        outside.run(&format!("{guest} ls /proc/sys/net/ipoib/ib.7"))?.refused()?;
        holder.stop()?;
        bed.finish()
    }
}

const ODD_NAME: &str = include_str!("../guest/sysctl/odd_name.sh");

scenario! {
    /// A name is any bytes but a few: one that is no UTF-8 has its variables and files, and takes them along when it is
    /// changed.
    #[on(infiniband)]
    fn names_need_not_be_utf_8(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let debugfs = directory(a, "ib0")?;
        a.sh(ODD_NAME, &[&debugfs])?;
        b.wait_until(&format!("ping -q -c 1 -W 1 {}", a.ip4()), Duration::from_secs(20))?;
        bed.finish()
    }
}

scenario! {
    /// Writing while the interface comes and goes ends neither in a deadlock nor in a crash.
    #[on(infiniband)]
    fn writing_while_it_comes_and_goes(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let writer = a.repeat(
            "for v in 0 1; do echo $v >/proc/sys/net/ipoib/ib0/extensions; done 2>/dev/null",
        )?;
        let mode = "/sys/class/net/ib0/mode";
        let other = a.repeat(&format!(
            "for v in datagram connected; do cat {mode} && echo $v >{mode}; done >/dev/null 2>&1",
        ))?;
        for _ in 0..20 {
            a.ok("ip link del ib0")?;
            a.ib_add("")?;
            a.ok("ip link set ib0 up")?;
        }
        writer.stop()?;
        other.stop()?;
        ensure!(a.ok("ls /proc/sys/net/ipoib")?.trim() == "ib0");
        bed.finish()
    }
}

scenario! {
    /// The kernel's own, which our patch adds: per network namespace, with bounds, and with effect on
    /// connections that exist.
    #[on(patched)]
    fn delayed_acks_are_tuned(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for (name, default) in [("min", "40000"), ("max", "200000")] {
            let path = format!("/proc/sys/net/ipv4/tcp_delack_{name}_us");
            for host in [a, b] {
                ensure!(host.ok(&format!("cat {path}"))?.trim() == default, "{name}");
            }
            for bad in ["0", "-1", "200001"] {
                a.run(&format!("sysctl -w net.ipv4.tcp_delack_{name}_us={bad}"))?.refused()?;
            }
            ensure!(a.ok(&format!("cat {path}"))?.trim() == default, "{name}");
        }
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let _answers = b.spawn_python(requests::ANSWERS, &[])?;
        b.wait_until(&format!("ss -Hltn | grep -q :{}", requests::PORT), Duration::from_secs(10))?;
        let rate = || -> Result<f64> {
            let text = a.python(requests::REQUESTS, &[&b.ip4(), "3"])?.ok()?;
            text.trim().parse().context("a rate")
        };
        // A tick of User Mode Linux is 10 ms, and two of them are the least.
        b.ok("sysctl -qw net.ipv4.tcp_delack_min_us=200000")?;
        let slow = rate()?;
        b.ok("sysctl -qw net.ipv4.tcp_delack_min_us=20000")?;
        let quick = rate()?;
        b.ok("sysctl -qw net.ipv4.tcp_delack_min_us=200000 net.ipv4.tcp_delack_max_us=20000")?;
        let bounded = rate()?;
        ensure!(slow < 10.0, "{slow} requests/s at 200 ms");
        ensure!(quick > 2.0 * slow && bounded > 2.0 * slow, "{slow}, {quick}, {bounded} requests/s");
        bed.finish()
    }
}

scenario! {
    /// On a kernel without that, a route of the host which receives makes ACKs come sooner, or at once.
    #[on(timed)]
    fn routes_hasten_acks(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let _answers = b.spawn_python(requests::ANSWERS, &[])?;
        b.wait_until(&format!("ss -Hltn | grep -q :{}", requests::PORT), Duration::from_secs(10))?;
        let rate = |attributes: &str| -> Result<f64> {
            let address = b.ip4();
            b.ok(&format!("ip route replace 10.1.0.0/24 dev ib0 proto kernel scope link src {address} {attributes}"))?;
            let text = a.python(requests::REQUESTS, &[&address, "3"])?.ok()?;
            text.trim().parse().context("a rate")
        };
        let by_default = rate("")?;
        // Two ticks of User Mode Linux.
        let sooner = rate("rto_min 20ms")?;
        let at_once = rate("quickack 1")?;
        println!("{by_default:.0} requests/s, {sooner:.0} with rto_min 20ms, {at_once:.0} with quickack 1");
        ensure!(sooner > 1.5 * by_default && at_once > 4.0 * by_default, "{by_default} {sooner} {at_once}");
        bed.finish()
    }
}

/// The settings that we recommend.
const SAMPLE: &str = include_str!("../../samples/sysctl/90-ipoib_rs.conf");

scenario! {
    /// Every line of the sample is accepted and takes effect.
    #[on(patched)]
    fn the_sample_is_accepted(bed) {
        let bed = bed.up()?;
        let (a, _) = bed.pair()?;
        // net.core's are the machine's.
        let machine = a.outside();
        machine.ok(&format!("cat >/tmp/sample.conf <<'EOF'\n{SAMPLE}\nEOF\nsysctl -qp /tmp/sample.conf"))?;
        let mut settings = 0;
        for line in SAMPLE.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.trim_start_matches('-').split_once(" = ") else {
                continue;
            };
            let text = machine.ok(&format!("sysctl -n {name}"))?;
            ensure!(text.split_whitespace().eq(value.split_whitespace()), "{name}: {text}");
            settings += 1;
        }
        ensure!(settings == 5, "{settings}");
        bed.finish()
    }
}
