// SPDX-License-Identifier: GPL-2.0

//! Paths that change while they are used, of which nobody tells the ports at their ends.

use super::super::manager::Manager;
use super::super::{Port, fields::Fields, hca};
use super::paths::{forget, partition, whole};
use super::{Driver, LIMIT, up_made};
use crate::connected::{connect, story};
use crate::order::counter;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Two HCAs with a switch each, a cable between these, and a longer way by a switch that takes half.
const FABRIC: &str = "set -e
    modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config
    mkdir /sys/kernel/config/ib_hwsim/star && cd /sys/kernel/config/ib_hwsim/star
    mkdir hcas/h1 hcas/h2 switches/s1 switches/s2 switches/s3 cables/c1 cables/c2 cables/short cables/a cables/b
    echo 2048 >switches/s2/mtu
    echo h1/1 s1/1 >cables/c1/ends && echo h2/1 s3/1 >cables/c2/ends
    echo s1/3 s3/3 >cables/short/ends
    echo s1/2 s2/1 >cables/a/ends && echo s3/2 s2/2 >cables/b/ends
    echo 1 >live";

/// The cable of the short way.
const CABLE: &str = "/sys/kernel/config/ib_hwsim/star/cables/short/plugged";

/// Time after the manager's detour until a sender is answered: the age of a few paths, and two pings that are not answered,
/// before frames keep their routes.
const AGE: Duration = Duration::from_secs(8);

/// Time after which a stream goes on at the latest: TCP's retransmissions are due 6 and 13 s after the first one.
const STREAM: Duration = Duration::from_secs(15);

/// Two hosts in a mode on a link of MTU 4092.
fn hosts(bed: &Bed, mode: &'static str) -> Result<Manager> {
    let (a, b) = bed.pair()?;
    partition(a, 5)?;
    let manager = up_made(
        bed,
        "-P /tmp/partitions.conf",
        &[(Driver::Ours, mode); 2],
        |outside| {
            outside.ok(FABRIC)?;
            Ok(())
        },
    )?;
    if mode == "connected" {
        connect(a, b)?;
    }
    for command in whole(4092, b) {
        a.wait_until(&command, LIMIT)?;
    }
    Ok(manager)
}

/// Plugs the cable of the short way or pulls it, and waits until the manager has the path take another MTU, whose code is
/// `code`. Neither port hears of it.
fn plug(bed: &Bed, plugged: bool, code: u64) -> Result<Instant> {
    let (a, b) = bed.pair()?;
    let [from, to] = [Port::of(a, &hca(a))?.lid, Port::of(b, &hca(b))?.lid];
    let query = format!("saquery -C {} -P 1 PR --slid {from} --dlid {to}", hca(a));
    a.outside()
        .ok(&format!("echo {} >{CABLE}", u8::from(plugged)))?;
    a.until(LIMIT, || {
        let mtu = Fields::of(a, &query).and_then(|record| record.number("mtu"));
        Ok(mtu.is_ok_and(|mtu| mtu & 0x3f == code))
    })
    .context("the manager has no other way")?;
    Ok(Instant::now())
}

/// A stream of TCP from the first host to the second, of which the receiver tells what has come in each half a second.
struct Stream {
    server: lab::task::Task,
    client: lab::task::Task,
    limit: Duration,
}

impl Stream {
    fn start(bed: &Bed, target: &str, seconds: u32) -> Result<Stream> {
        let (a, b) = bed.pair()?;
        let server = b.spawn("iperf3 -s -1 -J -i 0.5")?;
        b.wait_until("ss -Hltn 'sport = :5201' | grep -q .", LIMIT)?;
        let client = a.spawn(&format!("iperf3 -b 8M -l 16K -t {seconds} -c {target}"))?;
        let limit = a.scaled(Duration::from_secs(u64::from(seconds)) + STREAM);
        Ok(Stream {
            server,
            client,
            limit,
        })
    }

    /// Waits for its end. The longest time for which nothing has come.
    fn outage(self) -> Result<Duration> {
        self.client.wait(self.limit)?.ok()?;
        let report = self.server.wait(LIMIT)?.ok()?;
        let report: Value = serde_json::from_str(&report).with_context(|| report.clone())?;
        let intervals = report["intervals"].as_array().context("no intervals")?;
        let (mut longest, mut now) = (0.0_f64, 0.0);
        for interval in intervals {
            let sum = &interval["sum"];
            let [bytes, seconds] =
                ["bytes", "seconds"].map(|name| sum[name].as_f64().unwrap_or_default());
            now = if bytes == 0.0 { now + seconds } else { 0.0 };
            longest = longest.max(now);
        }
        println!("nothing has come for {longest:.1} s");
        ensure!(
            now == 0.0 && !intervals.is_empty(),
            "it did not go on: {report}"
        );
        Ok(Duration::from_secs_f64(longest))
    }
}

/// Waits until packets that are too long for the detour are answered, whatever the stream has heard.
fn answered(from: &Host, to: &Host, since: Instant) -> Result<()> {
    for target in [to.ip4(), to.ip6()] {
        // The stream may be answered first; then the stack refuses the ping itself, and need not say why.
        let ping = format!("ping -c 1 -W 1 -M do -s 3000 {target}; ip route get {target}");
        loop {
            forget(from)?;
            let said = from.run(&ping)?.describe();
            if said.contains("mtu 2044") {
                break;
            }
            ensure!(
                since.elapsed() < from.scaled(AGE),
                "{said}: {}",
                story(from)
            );
        }
    }
    println!("answered after {:.1} s", since.elapsed().as_secs_f32());
    Ok(())
}

scenario! {
    /// A cable is pulled, and the detour takes less, of which no port hears. Within seconds, packets that are too long for it
    /// are answered, by IPv4 and IPv6, and streams go on. When the cable is back, long packets pass again.
    #[on(both)]
    fn a_detour_takes_less(bed) {
        let bed = bed.infiniband().up()?;
        let manager = hosts(&bed, "datagram")?;
        let (a, b) = bed.pair()?;
        let stream = Stream::start(&bed, &b.ip4(), 30)?;
        let since = plug(&bed, false, 4)?;
        answered(a, b, since)?;
        answered(b, a, since)?;
        for target in [b.ip4(), b.ip6()] {
            transfer(a, b, &target, 1)?;
        }
        let outage = stream.outage()?;
        ensure!(outage < a.scaled(STREAM), "{outage:?}: {}", story(a));
        let log = a.outside().ok("dmesg | grep -c 'takes packets of 2048'")?;
        // Each host says so once, however often it has asked.
        ensure!(log.trim() == "2", "{log}");

        let since = plug(&bed, true, 5)?;
        for command in whole(4092, b) {
            loop {
                forget(a)?;
                if a.run(&command)?.ok().is_ok() {
                    break;
                }
                ensure!(since.elapsed() < a.scaled(AGE), "{}", story(a));
            }
        }
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// In connected mode, connections are made anew; they take the detour as it is, and carry packets of any size.
    #[on(both)]
    fn connections_take_the_detour(bed) {
        let bed = bed.infiniband().up()?;
        let manager = hosts(&bed, "connected")?;
        let (a, b) = bed.pair()?;
        let stream = Stream::start(&bed, &b.ip4(), 30)?;
        let since = plug(&bed, false, 4)?;
        for (from, to) in [(a, b), (b, a)] {
            for target in [to.ip4(), to.ip6()] {
                loop {
                    forget(from)?;
                    if from.run(&format!("ping -q -c 2 -i 0.2 -W 1 -M do -s 65000 {target}"))?.ok().is_ok() {
                        break;
                    }
                    ensure!(since.elapsed() < from.scaled(STREAM), "nothing gets to {target}: {}{}", story(a), story(b));
                }
                println!("{target} after {:.1} s", since.elapsed().as_secs_f32());
            }
        }
        for target in [b.ip4(), b.ip6()] {
            transfer(a, b, &target, 1)?;
        }
        let outage = stream.outage()?;
        ensure!(outage < a.scaled(STREAM), "{outage:?}: {}", story(a));
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// A path in use is asked for anew as often as its age says, however many frames use it.
    fn paths_in_use_are_asked_for_now_and_then(bed) {
        const SECONDS: u64 = 20;
        let bed = bed.infiniband().up()?;
        let manager = hosts(&bed, "datagram")?;
        let (a, b) = bed.pair()?;
        let asked = || counter(a, "paths_resolved");
        let before = asked()?;
        a.ok(&format!("ping -q -i 0.01 -w {SECONDS} {}", b.ip4()))?;
        let in_use = asked()? - before;
        // An age is 2.5 s at least, and 5 at most.
        ensure!((SECONDS / 5 - 1..=2 * SECONDS / 5 + 1).contains(&in_use), "{in_use} of the path in use");
        manager.kill()?;
        bed.finish()
    }
}
