// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl tune`: what it says it does is what the system's own tools see, after a reboot as well, and `--undo` leaves
//! no trace.

use crate::ipoibctl::ask;
use crate::streams::iperf3;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::layout::Layout;
use lab::scenario;
use serde_json::Value;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const PARTITIONS: &str =
    "Default=0x7fff, ipoib, mtu=5 : ALL=full;\nBlue=0x0001, ipoib, mtu=5 : ALL=full;";
const INTERFACES: [&str; 2] = ["ib0", "ib0.8001"];
const SYSCTL: &str = "/etc/sysctl.d/90-ipoibctl.conf";
const UDEV: &str = "/etc/udev/rules.d/90-ipoibctl.rules";
/// The time for which received frames wait before.
const MODERATION_MS: f64 = 1.0;

/// Makes `ib0` and a child in the machine's own network namespace, and `ib0` of the second host in its. The files in /etc
/// are about the first.
fn fabric(bed: &Bed) -> Result<Host> {
    let (a, b) = bed.pair()?;
    let first = a.outside();
    first.ok(&format!(
        "set -e
         ib-hwsim star 2
         rdma dev set hwsim1 netns {}
         mkdir -p /var/cache/opensm
         echo '{PARTITIONS}' >/tmp/tune-partitions.conf
         opensm -B -P /tmp/tune-partitions.conf -g $(sed 's/fe80:0000:0000:0000/0x/; s/://g' /sys/class/infiniband/hwsim0/ports/1/gids/0)",
        b.netns().context("no namespace")?
    ))?;
    first.ok("modprobe ipoib_rs")?;
    interfaces(&first)?;
    b.ib_add("")?;
    b.ib_up()?;
    first.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
    Ok(first)
}

fn interfaces(first: &Host) -> Result<()> {
    first.ok("set -e
         ip link add ib0 type ipoib_rs device hwsim0
         ip link add link ib0 name ib0.8001 type ipoib_rs pkey 0x8001
         ip addr add 10.1.0.1/24 dev ib0
         ip link set ib0 up
         ip link set ib0.8001 up")?;
    first.wait_until("ip -o link show ib0 | grep -q LOWER_UP", LIMIT)
}

const SPOIL: &str = include_str!("../guest/tune/spoil.sh");

/// The settings, as the system's own tools show them.
fn settings(first: &Host) -> Result<String> {
    first.ok("for i in ib0 ib0.8001; do
             cat /sys/class/net/$i/mode
             ip -o link show $i | grep -o 'mtu [0-9]*'
             ethtool -k $i | grep generic-segmentation
             ethtool -c $i | grep -E '^rx-(usecs|frames):'
             sysctl -a -r \"^net.ipoib.$(echo $i | tr . /)\\.\"
         done
         sysctl net.ipv4.tcp_delack_min_us net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.core.rmem_max net.core.wmem_max | tr '\t' ' '")
}

/// The settings that a preset makes of the spoiled ones: a line and how often it is there.
fn expected(preset: &str) -> &'static [(&'static str, usize)] {
    match preset {
        "latency" => &[
            ("datagram", 2),
            ("mtu 4092", 2),
            ("rx-usecs:\t0", 2),
            ("rx-frames:\t0", 2),
            ("generic-segmentation-offload: off", 2),
            (".icrc = 0", 2),
            ("tcp_delack_min_us = 2000", 1),
        ],
        _ => &[
            ("connected", 2),
            ("mtu 65520", 1),
            ("rx-usecs:\t1000", 2),
            ("generic-segmentation-offload: on", 2),
            (".icrc = 1", 2),
            (".reorder_window = 32", 2),
            (".reorder_timeout_us = 9000", 2),
            ("tcp_delack_min_us = 2000", 1),
            ("net.ipv4.tcp_wmem = 4096 16384 16777216", 1),
            ("net.ipv4.tcp_rmem = 4096 131072 16777216", 1),
            ("net.core.rmem_max = 16777216", 1),
            ("net.core.wmem_max = 16777216", 1),
        ],
    }
}

fn are_tuned(first: &Host, preset: &str, mtu: bool) -> Result<()> {
    let seen = settings(first)?;
    for (line, count) in expected(preset) {
        let found = seen.matches(line).count();
        let matters = mtu || !line.starts_with("mtu");
        ensure!(
            !matters || found == *count,
            "{preset}: {line:?} {found} times in\n{seen}"
        );
    }
    Ok(())
}

fn outcomes(report: &Value, outcome: &str) -> usize {
    let settings = report["settings"].as_array();
    settings.map_or(0, |all| {
        all.iter().filter(|one| one["outcome"] == outcome).count()
    })
}

/// The mean round trip of pings, in milliseconds.
fn round_trip(first: &Host, b: &Host) -> Result<f64> {
    let text = first.ok(&format!("ping -q -c 20 -i 0.05 -W 5 {}", b.ip4()))?;
    let mean = text.rsplit('/').nth(2).context("no round trip")?;
    Ok(mean.parse()?)
}

/// Plan, apply, once more, undo.
fn there_and_back(first: &Host, preset: &str) -> Result<()> {
    let tune = format!("tune --preset {preset}");
    let before = settings(first)?;
    let (plan, code) = ask(first, &tune)?;
    ensure!(code == 1 && outcomes(&plan, "pending") >= 4, "{plan}");
    ensure!(settings(first)? == before, "a plan changes something");
    let (report, code) = ask(first, &format!("{tune} --apply"))?;
    ensure!(code == 0 && outcomes(&report, "changed") >= 5, "{report}");
    are_tuned(first, preset, true)?;
    let applied = settings(first)?;
    let (report, code) = ask(first, &format!("{tune} --apply"))?;
    ensure!(code == 0 && outcomes(&report, "changed") == 0, "{report}");
    ensure!(settings(first)? == applied);
    let (report, code) = ask(first, "tune --undo")?;
    ensure!(code == 0 && outcomes(&report, "undone") >= 5, "{report}");
    let after = settings(first)?;
    ensure!(after == before, "{preset}: from\n{before}\nto\n{after}");
    first.ok(&format!("[ ! -e {SYSCTL} ] && [ ! -e {UDEV} ]"))?;
    let (report, code) = ask(first, "tune --undo")?;
    ensure!(
        code == 0 && report["settings"].as_array().is_some_and(Vec::is_empty),
        "{report}"
    );
    Ok(())
}

/// The interfaces are made anew; udevd begins, reads its rules and hears of them, and sysctl reads its files: as at a boot.
///
/// A udevd that ran before would be no such thing: it looks for other rules every three seconds at most.
fn reboot(first: &Host, preset: &str) -> Result<()> {
    ask(first, &format!("tune --preset {preset} --apply"))?;
    first.ok(&format!("udevadm verify {UDEV}"))?;
    first.ok("ip link del ib0; sysctl -qw net.ipv4.tcp_delack_min_us=40000")?;
    interfaces(first)?;
    // Defaults are what the preset wants, most of them.
    first.sh(SPOIL, &[])?;
    first.ok("set -e
         mkdir -p /run/udev
         /usr/lib/systemd/systemd-udevd --daemon
         for i in ib0 ib0.8001; do udevadm trigger --action=add /sys/class/net/$i; done
         udevadm settle
         /usr/lib/systemd/systemd-sysctl")?;
    // Asked once, it has been seen to stay.
    let ends = "udevadm control --exit 2>/dev/null; ! pgrep -r D,R,S -x systemd-udevd";
    first.wait_until(ends, LIMIT)?;
    are_tuned(first, preset, false)?;
    first.sh(SPOIL, &[])?;
    // Somebody else has changed all of it since.
    let (report, code) = ask(first, "tune --undo")?;
    ensure!(code <= 1 && report["error"].is_null(), "{report}");
    first.ok(&format!("[ ! -e {SYSCTL} ] && [ ! -e {UDEV} ]"))?;
    Ok(())
}

/// Where it cannot be done, nothing is, and there is a reason.
fn refused(first: &Host) -> Result<()> {
    let tool = Layout::from_env()?.ipoibctl();
    let before = settings(first)?;
    let apply = format!("{} tune --preset throughput --apply", tool.display());
    for (what, command, words) in [
        (
            "a read-only /etc",
            format!(
                "mount --bind /etc /etc && mount -o remount,bind,ro /etc; {apply}; code=$?; umount /etc; exit $code"
            ),
            "Read-only file system",
        ),
        (
            "no rights",
            format!("setpriv --reuid=65534 --clear-groups {apply}"),
            "Permission denied",
        ),
    ] {
        let output = first.run(&command)?;
        ensure!(
            output.code == Some(2)
                && output.stdout.contains(words)
                && output.stdout.contains("Nothing has been changed."),
            "{what}: {}",
            output.describe()
        );
        ensure!(settings(first)? == before, "{what}");
    }
    Ok(())
}

/// The rate of a stream in Mbit/s, for which iperf3 asks for buffers, or leaves them to the kernel.
fn stream(bed: &Bed, asks: &str) -> Result<f64> {
    let (a, b) = bed.pair()?;
    a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
    let end = iperf3(bed, &b.ip4(), &format!("-t 3 -O 2 {asks}"))?;
    let rate = end.pointer("/sum_received/bits_per_second");
    Ok(rate.and_then(Value::as_f64).context("no rate")? / 1e6)
}

/// The rate with these bounds of TCP's buffers in bytes: to receive, and to send.
fn bounded(bed: &Bed, receive: u32, send: u32) -> Result<f64> {
    for host in &bed.hosts {
        host.ok(&format!(
            "sysctl -qw net.ipv4.tcp_rmem='4096 131072 {receive}' net.ipv4.tcp_wmem='4096 16384 {send}'"
        ))?;
    }
    stream(bed, "")
}

scenario! {
    /// On a link that takes 20 ms, a stream carries no more than its buffers: those that TCP sizes itself, and those that a
    /// program asks for.
    #[on(uml, timed)]
    fn buffers_bound_a_stream(bed) {
        let bed = bed.memory(512).up()?;
        let (a, b) = bed.pair()?;
        // It has room for all that is on its way.
        a.ok("tc qdisc add dev eth0 root netem limit 50000")?;
        bed.ib()?;
        a.ok("tc qdisc change dev eth0 root netem delay 20ms limit 50000")?;
        let small = bounded(&bed, 262_144, 262_144)?;
        let medium = bounded(&bed, 1 << 20, 1 << 20)?;
        // Linux's own bounds on a host with enough memory.
        let default = bounded(&bed, 6_291_456, 4_194_304)?;
        for host in [a, b] {
            ask(host, "tune --preset throughput --apply")?;
            // The mode is not what is looked at.
            host.ok("echo datagram >/sys/class/net/ib0/mode")?;
        }
        let tuned = stream(&bed, "")?;
        let machine = a.outside();
        let mut asked = Vec::new();
        // A program may ask for so much by default, and with the preset, which sets that for all network namespaces.
        for (most, asks) in [(212_992, "-w 208K"), (16 << 20, "-w 4M")] {
            machine.ok(&format!("sysctl -qw net.core.rmem_max={most} net.core.wmem_max={most}"))?;
            asked.push(stream(&bed, asks)?);
        }
        println!("Mbit/s: {small:.0} with 256 KiB, {medium:.0} with 1 MiB, {default:.0} by default, {tuned:.0} tuned; asked for: {asked:.0?}");
        ensure!(tuned > 2.0 * small && asked[1] > 1.5 * asked[0], "{small} {tuned} {asked:?}");
        bed.finish()
    }
}

scenario! {
    /// Both presets, there and back, on an interface and its child; a reboot in between.
    #[on(uml, timed)]
    fn presets_there_and_back(bed) {
        let bed = bed.infiniband().up()?;
        let first = fabric(&bed)?;
        let (_, b) = bed.pair()?;
        first.sh(SPOIL, &[])?;
        refused(&first)?;
        for preset in ["latency", "throughput"] {
            there_and_back(&first, preset)?;
        }

        let slow = round_trip(&first, b)?;
        ask(&first, "tune --preset latency --apply")?;
        first.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        let fast = round_trip(&first, b)?;
        println!("round trip: {slow} ms with moderation, {fast} ms with --preset latency");
        ensure!(slow > fast + MODERATION_MS / 2.0, "{slow} ms before, {fast} ms after");
        ask(&first, "tune --undo")?;

        // Another network namespace is not what the files are about.
        let (report, code) = ask(b, "tune --preset throughput --apply")?;
        ensure!(code == 1 && report["files"].as_array().is_some_and(Vec::is_empty), "{report}");
        ensure!(b.ok("cat /sys/class/net/ib0/mode")?.trim() == "connected");
        first.ok(&format!("[ ! -e {SYSCTL} ] && [ ! -e {UDEV} ]"))?;
        let (_, code) = ask(b, "tune --undo")?;
        ensure!(code == 0 && b.ok("cat /sys/class/net/ib0/mode")?.trim() == "datagram");

        for preset in ["latency", "throughput"] {
            reboot(&first, preset)?;
        }
        ask(&first, "tune --preset latency --apply")?;
        first.ok("ip link del ib0")?;
        let (report, code) = ask(&first, "tune --undo")?;
        ensure!(code == 0 && outcomes(&report, "gone") >= 2, "{report}");
        for interface in INTERFACES {
            ensure!(report.to_string().contains(interface), "{report}");
        }
        bed.finish()
    }
}
