// SPDX-License-Identifier: GPL-2.0

//! Answers to requests for connections that no honest peer gives, put on the wire by hand.

use super::forged::REQUEST;
use super::{connect, queue_pairs, story, up};
use crate::inspect::{directory, identity};
use crate::order::counters;
use crate::transfer::transfer;
use anyhow::{Context, Result, bail, ensure};
use lab::bed::Host;
use lab::{forge, scenario};
use std::time::Duration;

const ANSWERS: &str = include_str!("../../guest/connected/hostile/answers.py");

const TO_EACH: &str = include_str!("../../guest/connected/life/to_each.py");

/// Names of the stranger, one for each way to answer.
const NAMES: u8 = 33;

/// Last part of the IPv4 address that belongs to the first name.
const FIRST: u8 = 101;

/// Has `target` know where the names are, and that they take connections.
fn introduce(forger: &Host, target: &Host) -> Result<()> {
    let mac = forger.ok("cat /sys/class/net/eth0/address")?;
    let zeros = "00:".repeat(10);
    let lines: Vec<String> = (1..=NAMES)
        .flat_map(|n| {
            [
                format!(
                    "neigh replace fe80::bad:{n:x} lladdr {} dev eth0 nud permanent",
                    mac.trim()
                ),
                format!(
                    "neigh replace 10.1.0.{} lladdr 80:00:07:{n:02x}:fe:80:{zeros}0b:ad:00:{n:02x} dev ib0 nud permanent",
                    FIRST - 1 + n
                ),
            ]
        })
        .collect();
    target.ip(&lines.join("\n"))
}

scenario! {
    /// A stranger that is asked for connections answers with replies whose data make no sense or are another interface's,
    /// whose queue pair cannot be, or that come twice; and with rejections for odd reasons, with odd information, of other
    /// messages, before and behind a reply, and of a connection that is up, from another address. Each is counted as what it
    /// is, frames go by UD, nothing is left, and an honest peer gets its connection.
    #[on(races)]
    fn answers_that_make_no_sense(bed) {
        let bed = bed.hosts(3).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        introduce(c, b)?;
        let (gid, qpn) = identity(c)?;
        let program = forge::program(c, b, &format!("{REQUEST}{ANSWERS}"))?;
        let stranger = c.spawn_python(&program, &[&gid, &qpn, &NAMES.to_string()])?;
        stranger.wait_for("ready", c.scaled(Duration::from_secs(10)))?;

        let (first, end) = (FIRST.to_string(), (FIRST + NAMES).to_string());
        let sender = b.spawn_python(TO_EACH, &[&first, &end, "0.1"])?;
        stranger
            .wait_for("answered", c.scaled(Duration::from_secs(20)))
            .with_context(|| story(b))?;
        sender.stop()?;

        // They are asked once or twice more, for the last frames.
        let connections = format!("{}/connections", directory(b, "ib0")?);
        b.wait_until(&format!("! grep -q '^fe80::bad:' {connections}"), Duration::from_secs(20))
            .with_context(|| story(b))?;
        b.until(Duration::from_secs(10), || Ok(queue_pairs(b)? == 0))
            .with_context(|| story(b))?;
        let text = stranger.stop()?.stdout;
        let numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        let [asked, confirmed, misled, refused] = numbers[..] else {
            bail!("{text}");
        };
        let told = || format!("{text}{}", story(b));
        ensure!(asked >= u64::from(NAMES) && confirmed >= 5, "{}", told());
        ensure!(misled > 0 && refused == misled, "{}", told());
        let names = ["rc_requests_sent", "rc_failed", "rc_connected", "rc_broken"];
        let counts = counters(b, names)?;
        ensure!(counts == [asked, asked, confirmed, confirmed], "{counts:?}: {}", told());

        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}
