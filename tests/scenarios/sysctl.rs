// SPDX-License-Identifier: GPL-2.0

//! `net.ipoib.<interface>.*`.

use anyhow::ensure;
use lab::scenario;

scenario! {
    /// The variables are there while the interface is, under its name and in its namespace; what is
    /// out of range is refused and changes nothing.
    fn variables_follow_the_interface(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        for (name, default, good, bad) in [
            ("reorder_window", "32", "128", "129"),
            ("reorder_timeout_us", "1000", "0", "100001"),
            ("extensions", "1", "0", "2"),
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
        outside.ok("ip netns add guest")?;
        // By process: a name is only known where it was made.
        let holder = outside.spawn("ip netns exec guest sleep 1000")?;
        let inside = outside.ok("ip netns pids guest")?;
        let pid = inside.split_whitespace().next().unwrap_or_default();
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

scenario! {
    /// Writing while the interface comes and goes ends neither in a deadlock nor in a crash.
    fn writing_while_it_comes_and_goes(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let writer = a.spawn(
            "while :; do for v in 0 1; do echo $v >/proc/sys/net/ipoib/ib0/extensions; done; done 2>/dev/null",
        )?;
        for _ in 0..20 {
            a.ok("ip link del ib0")?;
            a.ib_add("")?;
            a.ok("ip link set ib0 up")?;
        }
        writer.stop()?;
        ensure!(a.ok("ls /proc/sys/net/ipoib")?.trim() == "ib0");
        bed.finish()
    }
}
