// SPDX-License-Identifier: GPL-2.0

//! A peer that has a connection and keeps to nothing else, made by hand.

use super::forged::REQUEST;
use super::{connect, story, up};
use crate::inspect::{directory, identity, table};
use crate::order::{counter, set};
use crate::transfer::{Transfer, transfer};
use anyhow::{Context, Result, bail, ensure};
use lab::bed::Host;
use lab::task::Task;
use lab::{forge, scenario};
use std::time::Duration;

/// Whom it takes itself for: nobody else answers in this name.
const NAME: &str = "fe80::bad";

const CONNECTION: &str = include_str!("../../guest/connected/hostile/connection.py");

const NONSENSE: &str = include_str!("../../guest/connected/hostile/nonsense.py");

const BUSY: &str = include_str!("../../guest/connected/hostile/busy.py");

const FLOOD: &str = include_str!("../../guest/connected/hostile/flood.py");

/// Has `target` know where the name is.
fn introduce(forger: &Host, target: &Host) -> Result<()> {
    let mac = forger.ok("cat /sys/class/net/eth0/address")?;
    let mac = mac.trim();
    target.ok(&format!(
        "ip neigh replace {NAME} lladdr {mac} dev eth0 nud permanent"
    ))?;
    Ok(())
}

/// Connects to `target`, and does something.
fn act(forger: &Host, target: &Host, what: &str) -> Result<Task> {
    let program = forge::program(forger, target, &format!("{REQUEST}{CONNECTION}{what}"))?;
    let (gid, qpn) = identity(forger)?;
    forger.spawn_python(&program, &[&*gid, &*qpn, NAME])
}

scenario! {
    /// A peer sends without end, and never has a buffer for what it may send. Its connection ends, though the transport would
    /// try for ever.
    #[on(races)]
    fn a_peer_that_takes_no_limit_is_given_up(bed) {
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        introduce(a, b)?;
        let forger = act(a, b, BUSY)?;
        forger.wait_for("ready", a.scaled(Duration::from_secs(30)))?;
        b.wait_until("ethtool -S ib0 | grep -q ' rc_stuck: 1'", Duration::from_secs(20))
            .with_context(|| story(b))?;
        ensure!(counter(b, "rc_current")? == 0, "{}", story(b));
        forger.stop()?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

scenario! {
    /// Malformed messages are dropped and counted, one by one, and the connection stays. One that
    /// sends without minding what it may send harms nobody else.
    #[on(races)]
    fn a_peer_that_keeps_to_nothing(bed) {
        let bed = bed.hosts(3).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        // Where all is slow, what the forger does takes longer than a connection may be idle.
        for host in [a, b] {
            set(host, "rc_idle_s", 3600)?;
        }
        connect(a, b)?;
        introduce(c, b)?;
        let act = |what: &str| act(c, b, what);
        let limit = b.scaled(Duration::from_secs(30));
        // Frames that came by its connection.
        let came = || -> Result<u64> {
            let rows = table(b, &format!("{}/connections", directory(b, "ib0")?))?;
            let its = rows.iter().filter(|row| row["gid"] == NAME && row["state"] == "receiving");
            let counts = its.map(|row| row["rx_frames"].parse());
            Ok(counts.collect::<Result<Vec<u64>, _>>()?.into_iter().max().unwrap_or(0))
        };

        let names = ["rx_drop_short", "rx_drop_ether_type", "rx_drop_bad_extended"];
        let before: Vec<u64> = names.iter().map(|name| counter(b, name)).collect::<Result<_>>()?;
        let forger = act(NONSENSE)?;
        forger.wait_for("sent", limit)?;
        b.until(Duration::from_secs(4), || Ok(came()? == 1)).with_context(|| story(b))?;
        let text = forger.wait(limit)?.ok()?;
        let sent = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        for ((name, before), sent) in names.iter().zip(before).zip(sent) {
            let dropped = counter(b, name)? - before;
            ensure!(dropped == sent && sent > 0, "{name}: {dropped} of {sent}: {}", story(b));
        }

        let forger = act(FLOOD)?;
        forger.wait_for("ready", limit)?;
        // While its connection is there: a forger that gets too little of the processor acknowledges too late.
        b.until(Duration::from_secs(4), || Ok(came()? > 200)).with_context(|| story(b))?;
        let flows = [
            Transfer::start(a, b, &b.ip4(), 1, 3)?,
            Transfer::start(b, a, &a.ip4(), 1, 3)?,
        ];
        for flow in flows {
            flow.finish()?;
        }
        forger.wait(limit)?.ok()?;
        ensure!(counter(a, "rc_connected")? == 2 && counter(a, "rc_stuck")? == 0, "{}{}", story(a), story(b));
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}
