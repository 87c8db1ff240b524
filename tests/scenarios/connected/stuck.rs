// SPDX-License-Identifier: GPL-2.0

//! Peers whose queue pairs acknowledge what they are sent, and whose drivers take little of it, or nothing.

use super::credit::few_buffers;
use super::life::FLOOD;
use super::{connect, story, up};
use crate::order::counter;
use anyhow::{Result, bail, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Has the receive poll of a host run once in so many milliseconds, or as ever if there are none.
fn crawl(host: &Host, millis: u64) -> Result<()> {
    let times = if millis > 0 { 1_000_000 } else { 0 };
    host.ok(&format!(
        "cd /sys/class/net/ib0 && echo {} >gro_flush_timeout && echo {times} >napi_defer_hard_irqs",
        millis * 1_000_000
    ))?;
    Ok(())
}

/// Pings in a second: one every 0.2 s.
const RATE: usize = 5;

/// Sends 150 pings, and returns how many of them took more than a second.
fn late(from: &Host, to: &Host) -> Result<usize> {
    let ping = format!("ping -i 0.2 -c 150 -W 20 {}", to.ip4());
    let text = from.run_for(&ping, Duration::from_secs(90))?.ok()?;
    let times = text
        .lines()
        .filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    let times: Vec<f64> = times.collect();
    ensure!(times.len() == 150, "{text}");
    Ok(times.iter().filter(|time| **time > 1000.0).count())
}

scenario! {
    /// A peer that takes a few messages a second holds up nobody else for more than half a second, and keeps its connection.
    fn a_peer_that_crawls_holds_up_nobody_else(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(240)).up()?;
        few_buffers(&bed)?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        connect(a, b)?;
        connect(a, c)?;
        crawl(b, 100)?;
        let flood = a.spawn_python(FLOOD, &[&b.ip4(), "30000"])?;
        flood.wait_for("ready", a.scaled(Duration::from_secs(10)))?;
        let late = late(a, c)?;
        flood.stop()?;
        // A stop is over after half a second, so that none has to be late. A busy machine may have those of a second.
        ensure!(late <= RATE, "{late} of 150 pings were late: {}", story(a));
        ensure!(counter(a, "tx_stops")? > 0 && counter(a, "rc_stuck")? == 0, "{}", story(a));
        crawl(b, 0)?;
        bed.finish()
    }
}

scenario! {
    /// A peer that takes nothing at all for long is given up, though its queue pair acknowledges everything, and holds up
    /// nobody else.
    #[on(timed)]
    fn a_peer_that_takes_nothing_is_given_up(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(240)).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        connect(a, b)?;
        connect(a, c)?;
        crawl(b, 60_000)?;
        let flood = a.spawn_python(FLOOD, &[&b.ip4(), "30000"])?;
        flood.wait_for("ready", a.scaled(Duration::from_secs(10)))?;
        let late = late(a, c)?;
        flood.stop()?;
        // As above.
        ensure!(late <= RATE, "{late} of 150 pings were late: {}", story(a));
        ensure!(counter(a, "rc_stuck")? > 0, "{}", story(a));
        bed.finish()
    }
}
