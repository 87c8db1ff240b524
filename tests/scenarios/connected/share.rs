// SPDX-License-Identifier: GPL-2.0

//! The connections that all interfaces on an RDMA device have together.

use super::{LARGE, connect, connected, story, up};
use crate::inspect::{directory, table};
use crate::order::counter;
use crate::ping::lossless;
use crate::transfer::Transfer;
use anyhow::{Context, Result, bail, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use lab::task::Task;
use std::collections::BTreeSet;
use std::time::Duration;

/// Where the limit is.
const LIMIT: &str = "/sys/module/ipoib_rs/parameters/rc_max_device_connections";

/// Makes an `ib1` in connected mode beside `ib0`.
fn second(host: &Host) -> Result<()> {
    host.ok(&format!(
        "set -e
         ip link add name ib1 {}
         ip link set ib1 mtu {LARGE}
         ip addr add 10.2.0.{}/24 dev ib1
         ip link set ib1 up",
        host.link("mode connected"),
        host.number()
    ))?;
    host.wait_until(
        "ip -o link show ib1 | grep -q LOWER_UP",
        Duration::from_secs(10),
    )
}

fn address(host: &Host, interface: &str) -> String {
    match interface {
        "ib0" => host.ip4(),
        _ => format!("10.2.0.{}", host.number()),
    }
}

/// A command that succeeds if an interface has a connection.
fn has(interface: &str) -> String {
    format!("ethtool -S {interface} | grep -q ' rc_current: [1-9]'")
}

fn tell(host: &Host) -> String {
    let other = host.run("ethtool -S ib1 | grep -v ': 0$'; cat /run/debug/ipoib_rs/ib1*/*s");
    let other = other.map_or_else(|e| format!("{e:#}"), |output| output.describe());
    format!("{}{other}", story(host))
}

/// Sends until an interface has a connection to its peer, or has had another one: where all is slow, it is
/// gone again before anybody looks.
fn wait_for(from: &Host, to: &Host, interface: &str, seconds: u64) -> Result<()> {
    let target = address(to, interface);
    let connected = format!("$(ethtool -S {interface} | sed -n 's/ *rc_connected: //p')");
    let before = from.ok(&format!("echo {connected}"))?;
    from.wait_until(
        &format!(
            "ping -q -c 1 -W 1 {target}; [ {connected} -gt {} ] || {}",
            before.trim(),
            has(interface)
        ),
        Duration::from_secs(seconds),
    )
    .with_context(|| format!("{interface} is left out: {}{}", tell(from), tell(to)))
}

/// Counts the device's queue pairs for connections again and again, and prints where there were more than
/// `limit`. What is listed while it changes may be listed twice, so that it is looked once more.
fn watch(host: &Host, limit: u32) -> Result<Task> {
    host.repeat(&format!(
        "count() {{ rdma resource show qp link {}/1 | grep -c 'type RC'; }}
         n=$(count)
         [ $n -le {limit} ] || n=$(count)
         [ $n -le {limit} ] || echo $n queue pairs
         sleep 0.01",
        host.rdma_device()
    ))
}

fn never_more(watch: Task) -> Result<()> {
    let seen = watch.stop()?.stdout;
    ensure!(!seen.contains("queue pairs"), "more than allowed: {seen}");
    Ok(())
}

/// Two interfaces on a device of each host, in connected mode.
fn shared(bed: &Bed) -> Result<(&Host, &Host)> {
    let (a, b) = connected(bed)?;
    for host in [a, b] {
        second(host)?;
    }
    Ok((a, b))
}

/// Leaves hosts room for one connection: there never is another queue pair, both interfaces of the first host get on, and
/// neither is left out for long though the other one is busy.
fn get_on(a: &Host, b: &Host, short: &[&Host]) -> Result<()> {
    for host in short {
        host.ok(&format!("echo 1 >{LIMIT}"))?;
    }
    // That there are more ends nothing by itself; who wants one brings it about.
    for interface in ["ib1", "ib0"] {
        wait_for(a, b, interface, 60)?;
    }
    for host in short {
        let device = host.rdma_device();
        let one = format!("[ $(rdma resource show qp link {device}/1 | grep -c 'type RC') -le 1 ]");
        host.wait_until(&one, Duration::from_secs(20))?;
    }
    let watches = short
        .iter()
        .map(|host| watch(host, 1))
        .collect::<Result<Vec<_>>>()?;
    for interface in ["ib1", "ib0", "ib1"] {
        wait_for(a, b, interface, 60)?;
    }
    let flows = [
        Transfer::start(a, b, &address(b, "ib0"), 1, 3)?,
        Transfer::start(b, a, &address(a, "ib1"), 1, 3)?,
    ];
    for flow in flows {
        flow.finish()?;
    }
    // One that is always busy.
    let busy = a.spawn(&format!("ping -q -i 0.01 {}", address(b, "ib0")))?;
    wait_for(a, b, "ib0", 60)?;
    wait_for(a, b, "ib1", 90)?;
    busy.stop()?;
    watches.into_iter().try_for_each(never_more)
}

scenario! {
    /// Two interfaces on a device with room for one connection share that. With room for two, both have theirs.
    #[on(timed, races)]
    fn interfaces_share_a_device(bed) {
        let bed = bed.lifetime(Duration::from_secs(480)).up()?;
        let (a, b) = shared(&bed)?;
        for host in [a, b] {
            let text = host.ok(&format!("cat {LIMIT}"))?;
            ensure!(text == "1024\n", "{text}");
            for value in ["0", "65537", "-1", "many"] {
                host.run(&format!("echo {value} >{LIMIT}"))?.refused()?;
            }
        }
        get_on(a, b, &[a])?;
        let shown = table(a, &format!("{}/device", directory(a, "ib1")?))?;
        let row = shown.first().context("no row")?;
        ensure!(row["device"] == a.rdma_device() && row["limit"] == "1", "{row:?}");

        for host in [a, b] {
            host.ok(&format!("echo 2 >{LIMIT}"))?;
        }
        let watches = [watch(a, 2)?, watch(b, 2)?];
        connect(a, b)?;
        a.wait_until(
            &format!(
                "ping -q -c 1 -W 1 {}; ping -q -c 1 -W 1 {}; {} && {}",
                address(b, "ib0"),
                address(b, "ib1"),
                has("ib0"),
                has("ib1")
            ),
            Duration::from_secs(90),
        )
        .with_context(|| format!("not both: {}{}", tell(a), tell(b)))?;
        for watch in watches {
            never_more(watch)?;
        }
        bed.finish()
    }
}

scenario! {
    /// The devices at both ends have room for one connection. They agree on an interface by chance, which takes too long
    /// where all is slow.
    #[on(base)]
    fn interfaces_share_devices_at_both_ends(bed) {
        let bed = bed.lifetime(Duration::from_secs(480)).up()?;
        let (a, b) = shared(&bed)?;
        get_on(a, b, &[a, b])?;
        bed.finish()
    }
}

/// The numbers of the queue pairs that a host's device has for connections.
fn numbers(host: &Host) -> Result<BTreeSet<String>> {
    let text = host.ok(&format!(
        "rdma resource show qp link {}/1 type RC | sed -n 's/.* lqpn \\([0-9]*\\) .*/\\1/p'",
        host.rdma_device()
    ))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Sends large packets for a second, all of which pass by a connection.
fn passes(from: &Host, to: &Host) -> Result<()> {
    let frames =
        || Ok::<_, anyhow::Error>([counter(from, "rc_tx_frames")?, counter(to, "rc_rx_frames")?]);
    let before = frames()?;
    lossless(from, &format!("-c 20 -i 0.05 -W 5 -s 20000 {}", to.ip4()))?;
    for (before, after) in before.into_iter().zip(frames()?) {
        ensure!(after >= before + 20, "{}{}", story(from), story(to));
    }
    Ok(())
}

scenario! {
    /// A limit that is lower than the number of connections closes none: they stay and carry frames. A new peer gets none.
    #[on(timed)]
    fn a_lower_limit_closes_nothing(bed) {
        let bed = bed.hosts(4).up()?;
        up(&bed)?;
        let [a, b, c, d] = bed.hosts.as_slice() else {
            bail!("no four hosts");
        };
        for peer in [b, c] {
            connect(a, peer)?;
        }
        // Requests that crossed have come to an end.
        let device = a.rdma_device();
        let two = format!(
            "ethtool -S ib0 | grep -q ' rc_current: 2$' && [ $(rdma resource show qp link {device}/1 | grep -c 'type RC') = 2 ]"
        );
        a.wait_until(&two, Duration::from_secs(20)).with_context(|| story(a))?;
        let before = numbers(a)?;
        a.ok(&format!("echo 1 >{LIMIT}"))?;
        // The driver looks at a connection twice a second, so that it does while the other one carries these.
        for peer in [b, c] {
            passes(a, peer)?;
        }
        let after = numbers(a)?;
        ensure!(after == before, "{before:?} {after:?} {}", story(a));

        // An answer would have the first host ask the new peer ten times a second.
        a.ok("echo 1 >/proc/sys/net/ipv4/icmp_echo_ignore_all")?;
        let busy = [b, c].map(|peer| a.spawn(&format!("ping -q -i 0.01 {}", peer.ip4())));
        let asks = d.spawn(&format!("ping -q -i 0.05 {}", a.ip4()))?;
        let refused = "[ $(ethtool -S ib0 | sed -n 's/^ *rc_refused_full: //p') -ge 2 ]";
        a.wait_until(refused, Duration::from_secs(10)).with_context(|| format!("{}{}", story(a), story(d)))?;
        asks.stop()?;
        for task in busy {
            task?.stop()?;
        }
        // One that a busy machine leaves unused for 100 ms makes room, as it should.
        let after = numbers(a)?;
        let is_new = !after.is_subset(&before);
        ensure!(!is_new && counter(d, "rc_connected")? == 0, "{before:?} {after:?} {}{}", story(a), story(d));
        bed.finish()
    }
}
