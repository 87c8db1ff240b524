// SPDX-License-Identifier: GPL-2.0

//! Counters that add up, whatever happens to an interface. [`Bed::finish`] checks that at the end of each scenario.

use crate::connected::{set_mode, story};
use crate::hostile::HOSTILE;
use crate::order::counter;
use crate::quiet::hush;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::machine::Kernel;
use lab::{forge, scenario};
use serde_json::Value;
use std::time::Duration;

/// Frames of a round: more in a long run, fewer where each is checked.
fn frames(kernel: Kernel, long: bool) -> u64 {
    match (kernel.is_checked(), long) {
        (false, true) => 50_000,
        (false, false) => 10_000,
        (true, _) => 5_000,
    }
}

/// Has the wire lose, repeat and delay some of the frames that a host sends, or none.
fn weather(host: &Host, bad: bool, connected: bool) -> Result<()> {
    if !host.is_infiniband() {
        let faults = match (bad, connected) {
            (false, _) => "",
            // Soft-RoCE sends all again behind a gap, a second later.
            (true, true) => "loss 0.01%",
            (true, false) => "delay 1ms reorder 25% loss 1% duplicate 1%",
        };
        host.ok(&format!(
            "tc qdisc replace dev eth0 root netem limit 10000 {faults}"
        ))?;
        return Ok(());
    }
    // A connection waits for a lost acknowledgement as long as the subnet manager's packet lifetime says: seconds.
    let rare = if connected { 100 } else { 10_000 };
    for (name, value) in [("loss", rare), ("duplicate", rare), ("jitter", 2_000)] {
        let value = if bad { value } else { 0 };
        let file = format!(
            "/sys/kernel/config/ib_hwsim/star/cables/c{}/{name}",
            host.number()
        );
        host.outside().ok(&format!("echo {value} >{file}"))?;
    }
    Ok(())
}

/// Frames that a host's stack has handed over.
fn handed(host: &Host) -> Result<u64> {
    counter(host, "tx_handed")
}

/// Small datagrams one way and a stream the other way, until the first host has sent so many frames.
fn flood(bed: &Bed, frames: u64, change: impl Fn() -> Result<()>) -> Result<()> {
    let (a, b) = bed.pair()?;
    let end = handed(a)? + frames;
    let server = a.spawn("iperf3 -s -i 0.1 --forceflush")?;
    server.wait_for("Server listening", a.scaled(Duration::from_secs(10)))?;
    let stream = b.spawn(&format!("iperf3 -t 1000 -c {}", a.ip4()))?;
    // Among lost frames and a flood, a stream may not begin for many seconds.
    server.wait_for("bits/sec", a.scaled(Duration::from_secs(20)))?;
    let flood = a.spawn_python(FLOOD, &[&b.ip4(), &b.ip6()])?;
    let result = change().and_then(|()| {
        a.wait_until(
            &format!("[ $(ethtool -S ib0 | sed -n 's/^ *tx_handed: //p') -gt {end} ]"),
            Duration::from_secs(120),
        )
    });
    for task in [flood, stream, server] {
        task.stop()?;
    }
    result.with_context(|| story(a))
}

/// Datagrams to two addresses of a host, and to groups and addresses that nobody has.
pub(crate) const FLOOD: &str = include_str!("../guest/accounts/flood.py");

/// Disturbs the traffic, in each round in another way.
fn disturb(bed: &Bed, round: u32) -> Result<()> {
    let (a, b) = bed.pair()?;
    match round % 6 {
        0 => {
            for size in [64, 256, 1024] {
                b.ok(&format!("ethtool -G ib0 rx {size} tx {size}"))?;
                a.ok(&format!("ethtool -G ib0 rx {size} tx {size}"))?;
            }
        }
        1 if !a.is_infiniband() => {
            a.python(&forge::program(a, b, HOSTILE)?, &[])?.ok()?;
            a.python(&forge::program(a, b, forge::SOURCES)?, &["3000", "0"])?
                .ok()?;
        }
        1 => {
            for host in [a, b] {
                host.ok("sysctl -qw net.ipoib.ib0.extensions=0 && sysctl -qw net.ipoib.ib0.extensions=1")?;
            }
        }
        2 => {
            for host in [a, b] {
                host.ok("ip link set ib0 down && ip link set ib0 up")?;
            }
        }
        3 => {
            for mode in ["datagram", "connected", "datagram", "connected"] {
                set_mode(a, mode)?;
                set_mode(b, mode)?;
            }
        }
        4 => {
            for width in [0, 4, 128, 32] {
                b.ok(&format!("sysctl -qw net.ipoib.ib0.reorder_window={width}"))?;
            }
            a.ok("sysctl -qw net.ipoib.ib0.rc_max_qps=3; sysctl -qw net.ipoib.ib0.rc_max_qps=1")?;
        }
        _ => {
            for host in [a, b] {
                host.ok(
                    "ip link set ib0 mtu 2044; ip neigh flush dev ib0; ip link set ib0 mtu 4092",
                )?;
            }
        }
    }
    Ok(())
}

scenario! {
    /// Losses, disorder, repeated and hostile frames, other rings, other modes, interfaces that go down and up, and one
    /// that is deleted: the counters add up all the time. With ROUNDS=200, ten million frames.
    #[on(timed, infiniband)]
    fn every_frame_is_accounted_for(bed) {
        let (rounds, longer) = bed.rounds(6)?;
        let frames = frames(bed.kernel(), longer > 1);
        let bed = bed.lifetime(Duration::from_secs(300 * u64::from(longer))).up()?;
        bed.expect_refused_leaves("a lost answer has a port leave a group twice");
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let first = handed(a)?;
        for round in 0..rounds {
            let connected = (round + round / 6) % 2 == 1;
            let mode = if connected { "connected" } else { "datagram" };
            set_mode(a, mode)?;
            set_mode(b, mode)?;
            for host in [a, b] {
                weather(host, round % 3 > 0, connected)?;
            }
            b.ok("sysctl -qw net.ipoib.ib0.large_frames=1")?;
            flood(&bed, frames, || disturb(&bed, round))?;
            bed.accounts().with_context(|| format!("round {round}"))?;
        }
        for host in [a, b] {
            weather(host, false, false)?;
        }
        ensure!(handed(a)? - first >= u64::from(rounds) * frames);
        // What happened is what was meant to happen.
        for name in ["rc_tx_frames", "tx_frames", "rc_closed"] {
            ensure!(counter(a, name)? > 0, "{name}: {}", story(a));
        }
        for name in ["rx_seq_held", "rx_seq_duplicates", "tx_cut"] {
            ensure!(counter(b, name)? > 0, "{name}: {}", story(b));
        }
        let (begin, more) = (handed(a)?, "sed -n 's/^ *tx_handed: //p'");
        let flood = a.spawn_python(FLOOD, &[&b.ip4(), &b.ip6()])?;
        a.wait_until(
            &format!("[ $(ethtool -S ib0 | {more}) -gt {} ]", begin + 1000),
            Duration::from_secs(10),
        )?;
        a.ok("ip link del ib0")?;
        bed.accounts()?;
        a.ib_add("")?;
        a.ib_up()?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        flood.stop()?;
        bed.finish()
    }
}

const GENL: &str = include_str!("../guest/accounts/genl.py");

scenario! {
    /// netdev-genl has the counters of the queues, which are those of the link, and the NAPI of each queue.
    #[on(infiniband)]
    fn netdev_genl_knows_the_queues(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 10 -i 0.02 -W 5 -s 3000 {}", b.ip4()))?;
        // No frame comes between the readings.
        hush(&bed)?;
        let genl: Value = serde_json::from_str(&a.python(GENL, &["ib0"])?.ok()?)?;
        let link: Value = serde_json::from_str(&a.ok("ip -j -s link show ib0")?)?;
        let link = link[0]["stats64"].clone();
        let [device] = genl["device"].as_array().context("no counters")?.as_slice() else {
            anyhow::bail!("{genl}");
        };
        let (rx, tx) = (&link["rx"], &link["tx"]);
        for (name, value) in [
            ("rx_packets", &rx["packets"]),
            ("rx_bytes", &rx["bytes"]),
            ("tx_packets", &tx["packets"]),
            ("tx_bytes", &tx["bytes"]),
        ] {
            ensure!(device[name].as_u64() > Some(0) && device[name] == *value, "{name}: {genl}, {link}");
        }
        let dropped = tx["dropped"].as_u64().unwrap_or(0) + tx["errors"].as_u64().unwrap_or(0);
        ensure!(device["tx_hw_drops"] == dropped && device["tx_stop"].is_u64(), "{genl}, {link}");
        let queues = genl["queues"].as_array().context("no queues")?;
        let of = |kind: u64| queues.iter().find(|queue| queue["type"] == kind && queue["id"] == 0);
        let (receive, transmit) = (of(0).context("no receive queue")?, of(1).context("no transmit queue")?);
        ensure!(queues.len() == 2, "{genl}");
        ensure!(receive["counters"]["rx_packets"] == device["rx_packets"], "{genl}");
        ensure!(transmit["counters"]["tx_packets"] == device["tx_packets"], "{genl}");
        let napi = genl["napi"].as_array().context("no NAPI")?;
        // Who polls the transmit queue is not for busy polling, and has no number.
        ensure!(napi.len() == 2 && napi[0][2].as_u64() > Some(0), "{genl}");
        bed.finish()
    }
}

/// Where tracepoints are.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Lines of a trace that have all these parts.
fn lines<'a>(text: &'a str, parts: &'a [&str]) -> impl Iterator<Item = &'a str> {
    text.lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)))
}

scenario! {
    /// Tracepoints tell the life of a path, a group, a connection and a held frame, and each drop by its reason. The commands
    /// are those of Documentation/using.rst.
    #[on(stock)]
    fn tracepoints_tell_what_happens(bed) {
        let bed = bed.one_machine().up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let host = a.outside();
        host.ok(&format!("[ -e {TRACEFS}/events ] || mount -t tracefs none {TRACEFS}"))?;
        host.ok(&format!(
            "cd {TRACEFS} && echo >trace && echo 1 >events/ipoib_rs/enable && echo 1 >tracing_on
             echo 'hist:keys=interface,reason:vals=frames' >events/ipoib_rs/drop/trigger"
        ))?;
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        a.run("ping -q -c 1 -W 1 -I ib0 239.1.2.3")?;
        // Nobody has this address.
        let nobody = "80:00:ee:ee:fe:80:00:00:00:00:00:00:02:00:5e:ff:fe:00:53:99";
        a.ok(&format!("ip neigh replace 10.1.0.99 lladdr {nobody} dev ib0"))?;
        a.ok("tc qdisc replace dev eth0 root netem limit 10000 delay 5ms reorder 25%")?;
        crate::order::send(&bed, 200, 0.001)?;
        for host in [a, b] {
            set_mode(host, "connected")?;
        }
        crate::connected::connect(a, b)?;
        for host in [a, b] {
            set_mode(host, "datagram")?;
        }
        // To an interface that goes down while frames wait.
        a.run("ping -q -c 3 -i 0.1 -W 1 10.1.0.99")?;
        a.ok("ip link set ib0 down")?;
        let text = host.ok(&format!("cd {TRACEFS} && echo 0 >events/ipoib_rs/enable && cat trace"))?;
        for parts in [
            &["path: interface=ib0", "event=new", "state=idle"][..],
            &["path: interface=ib0", "event=asked", "state=resolving"],
            &["path: interface=ib0", "event=answered", "state=ready"],
            &["group: interface=ib0", "event=asked"],
            &["group: interface=ib0", "event=answered", "state=send-only"],
            &["connection: interface=ib0", "event=asked", "state=requested"],
            &["connection: interface=ib0", "event=accepted", "state=receiving"],
            &["connection: interface=ib0", "event=established", "state=up"],
            &["connection: interface=ib0", "event=closed", "state=ended"],
            &["held: interface=ib0", "event=held", "waited_us=0"],
            &["held: interface=ib0", "event=filled"],
            &["drop: interface=ib0", "reason=", "frames="],
        ] {
            ensure!(lines(&text, parts).next().is_some(), "no {parts:?} in {text}");
        }
        // As many as are counted, by the same names.
        let hist = host.ok(&format!("cd {TRACEFS} && cat events/ipoib_rs/drop/hist"))?;
        let traced = lines(&hist, &["interface: ib0", "frames:"]).count();
        ensure!(traced > 0, "{hist}");
        let data = "/tmp/ipoib.data";
        a.ok("ip link set ib0 up")?;
        let ping = format!("ping -c 3 -W 5 {}", b.ip4());
        a.run_for(&format!("perf record -q -a -e 'ipoib_rs:*' -o {data} {ping}"), Duration::from_secs(60))?.ok()?;
        let script = a.ok(&format!("perf script -i {data}"))?;
        ensure!(lines(&script, &["ipoib_rs:path", "interface=ib0"]).next().is_some(), "{script}");
        bed.finish()
    }
}

scenario! {
    /// Where the RDMA device refuses what a command needs, the refusal has words. Counters add up after rings that could not
    /// be made.
    #[on(uml, debug)]
    fn refusals_of_the_device_have_words(bed) {
        let bed = bed.infiniband().up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let faults = format!("{}/faults", a.hca_files().context("no HCA")?);
        let fault = |rule: &str| a.outside().ok(&format!("echo {rule} >{faults}"));
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        fault("modify_qp:init EIO from 1")?;
        let text = a.run("ethtool -G ib0 rx 256 tx 256")?.refused()?;
        ensure!(text.contains("Cannot make rings of this size"), "{text}");
        fault("clear")?;
        fault("create_qp EIO from 1")?;
        let text = a.run(&format!("ip link add name ib7 {}", a.link("")))?.refused()?;
        ensure!(text.contains("cannot be registered"), "{text}");
        fault("clear")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(30))?;
        bed.finish()
    }
}

scenario! {
    /// Frames wait for a path or for a connection, of which the subnet manager is slow to tell, when the interface goes down:
    /// they are counted, and nothing waits any more.
    #[on(uml)]
    fn what_waits_is_accounted_for(bed) {
        let builder = bed.infiniband();
        for (mode, mtu, size) in [("datagram", 4092, 100), ("connected", 65520, 30_000)] {
            let bed = builder.clone().up()?;
            bed.expect_refused_leaves("a late answer has a port leave a group twice");
            bed.ib()?;
            // The other one has the subnet manager.
            let (b, a) = bed.pair()?;
            set_mode(a, mode)?;
            a.ok(&format!("ip link set ib0 mtu {mtu}"))?;
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
            a.outside().ok("echo 3000000 >/sys/kernel/config/ib_hwsim/star/cables/c2/delay")?;
            a.ok("ip neigh replace 10.1.0.99 dev ib0 \
                  lladdr 80:00:ee:ee:fe:80:00:00:00:00:00:00:02:00:5e:ff:fe:00:53:99")?;
            let ping = a.spawn(&format!("ping -q -i 0.02 -s {size} 10.1.0.99"))?;
            a.wait_until(
                "[ $(ethtool -S ib0 | sed -n 's/^ *tx_waiting: //p') -gt 2 ]",
                Duration::from_secs(10),
            )
            .with_context(|| story(a))?;
            let before = counter(a, "tx_drop_flushed")?;
            a.ok("ip link set ib0 down")?;
            let flushed = counter(a, "tx_drop_flushed")? - before;
            ensure!(counter(a, "tx_waiting")? == 0 && flushed > 0, "{mode}, {flushed}: {}", story(a));
            bed.accounts().context(mode)?;
            ping.stop()?;
            bed.finish()?;
        }
        Ok(())
    }
}

scenario! {
    /// An interface that is deleted leaves its counters in the log of a kernel with debug assertions.
    /// The lab adds them up when the scenario ends.
    #[on(debug, infiniband)]
    fn deleted_interfaces_are_accounted_for(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -f -q -c 100 {}", b.ip4()))?;
        let left = || -> Result<usize> {
            let lines = a.machine().console().lines();
            Ok(lines.iter().filter(|line| line.contains("ib0") && line.contains(": counters at the end, 1 of ")).count())
        };
        ensure!(left()? == 0);
        // The console may be read a moment later.
        a.ok("ip link del ib0")?;
        a.until(Duration::from_secs(5), || Ok(left()? == 1))?;
        b.outside().ok("modprobe -r ipoib_rs")?;
        a.until(Duration::from_secs(5), || Ok(left()? == 2))?;
        bed.finish()
    }
}
