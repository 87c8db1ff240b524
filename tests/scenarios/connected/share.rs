// SPDX-License-Identifier: GPL-2.0

//! The connections that all interfaces on an RDMA device have together.

use super::{LARGE, connect, connected, story};
use crate::inspect::{directory, table};
use crate::transfer::Transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::machine::Task;
use lab::scenario;
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
    host.spawn(&format!(
        "count() {{ rdma resource show qp link {}/1 | grep -c 'type RC'; }}
         while :; do
             n=$(count)
             [ $n -le {limit} ] || n=$(count)
             [ $n -le {limit} ] || echo $n queue pairs
             sleep 0.01
         done",
        host.rdma_device()
    ))
}

fn never_more(watch: Task) -> Result<()> {
    let seen = watch.stop()?.stdout;
    ensure!(seen.is_empty(), "more than allowed: {seen}");
    Ok(())
}

scenario! {
    /// Two interfaces on a device with room for one connection: there never is another queue pair, both
    /// get on, and neither is left out for long though the other one is busy. With room for two, both have
    /// theirs.
    #[on(timed, races, infiniband)]
    fn interfaces_share_a_device(bed) {
        // Both ends agree on an interface by chance, which takes too long where all is slow.
        let slow = bed.kernel().is_checked();
        let bed = bed.lifetime(Duration::from_secs(480)).up()?;
        let (a, b) = connected(&bed)?;
        let both: &[_] = if slow { &[] } else { &[a, b] };
        for host in [a, b] {
            second(host)?;
            let text = host.ok(&format!("cat {LIMIT}"))?;
            ensure!(text == "1024\n", "{text}");
            for value in ["0", "65537", "-1", "many"] {
                host.run(&format!("echo {value} >{LIMIT}"))?.refused()?;
            }
        }
        // At first only one end is short of room, then both are.
        for short in [&[a][..], both].into_iter().filter(|hosts| !hosts.is_empty()) {
            for host in short {
                host.ok(&format!("echo 1 >{LIMIT}"))?;
            }
            // That there are more ends nothing by itself; who wants one brings it about.
            for interface in ["ib1", "ib0"] {
                wait_for(a, b, interface, 60)?;
            }
            for host in short {
                host.wait_until(
                    &format!("[ $(rdma resource show qp link {}/1 | grep -c 'type RC') -le 1 ]", host.rdma_device()),
                    Duration::from_secs(20),
                )?;
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
            for watch in watches {
                never_more(watch)?;
            }
        }
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
