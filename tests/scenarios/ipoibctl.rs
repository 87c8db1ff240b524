// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl`: no alarm where all is well, the right causes where something is wrong, and rates that are those of the
//! traffic.

mod causes;
mod shapes;

use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::layout::Layout;
use lab::scenario;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Time for what the kernel does by itself, such as waiting for an answer.
const LIMIT: Duration = Duration::from_secs(15);
/// Time for doctor's answer.
const DOCTOR: Duration = Duration::from_secs(2);

/// Runs the tool; what it says in JSON.
pub(crate) fn ask(host: &Host, arguments: &str) -> Result<(Value, i32)> {
    ask_by(host, "", arguments)
}

/// Does the same by a command that runs another one.
fn ask_by(host: &Host, by: &str, arguments: &str) -> Result<(Value, i32)> {
    let tool = Layout::from_env()?.ipoibctl();
    let output = host.run(&format!("{by} {} {arguments} --json", tool.display()))?;
    let code = output.code.context("no exit status")?;
    ensure!(code <= 2, "{}{}", output.stdout, output.stderr);
    let value: Value = serde_json::from_str(&output.stdout)?;
    ensure!(value["status"] == code, "{code} for {value}");
    ensure!(
        value["unread"].as_array().is_none_or(Vec::is_empty),
        "{value}"
    );
    Ok((value, code))
}

/// Findings of doctor, worst first, which come in time.
fn findings(host: &Host) -> Result<Vec<Value>> {
    let begin = Instant::now();
    let found = findings_by(host, "")?;
    let took = begin.elapsed();
    ensure!(took < host.scaled(DOCTOR), "doctor took {took:?}");
    Ok(found)
}

/// Findings of doctor that is run by a command.
fn findings_by(host: &Host, by: &str) -> Result<Vec<Value>> {
    let (value, code) = ask_by(host, by, "doctor")?;
    let found = value["findings"].as_array().context("no findings")?;
    ensure!(!found.is_empty() || code == 0, "{value}");
    Ok(found.to_owned())
}

/// Waits until doctor's findings are as they should be; those.
fn until(host: &Host, what: &str, as_should_be: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
    let end = Instant::now() + host.scaled(LIMIT);
    loop {
        let found = findings(host)?;
        if as_should_be(&found) {
            return Ok(found);
        }
        ensure!(Instant::now() < end, "{what}: {found:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until nothing is wrong: a host may have to find its peer again.
fn well(host: &Host) -> Result<()> {
    until(host, "a false alarm", <[Value]>::is_empty).map(|_| ())
}

/// Fails unless a rate is about that of a ping which sends 50 a second; on a slow machine answers come in bursts.
fn about_fifty(rates: &Value, what: &str) -> Result<()> {
    let rate = rates[what].as_f64();
    let is_about = rate.is_some_and(|rate| (20.0..=110.0).contains(&rate));
    ensure!(is_about, "{what} of 50 a second: {rates}");
    Ok(())
}

/// The rates of an interface and of a peer, as JSON.
fn rates_are_right(a: &Host, b: &Host, mode: &str) -> Result<()> {
    let (report, _) = ask(a, "top -d 2")?;
    let interfaces = report["interfaces"].as_array().context("no interfaces")?;
    let ib0 = interfaces.iter().find(|i| i["name"] == "ib0");
    let ib0 = ib0.context("no ib0")?;
    ensure!(ib0["mode"] == mode, "{report}");
    for what in ["rx_frames", "tx_frames"] {
        about_fifty(&ib0["rates"], what)?;
    }
    ensure!(ib0["rates"]["drops"] == 0.0, "{report}");
    let peers = report["peers"].as_array().context("no peers")?;
    let is_b = |peer: &&Value| {
        peer["ips"]
            .as_array()
            .is_some_and(|ips| ips.contains(&b.ip4().into()))
    };
    let peer = peers.iter().find(is_b).context("no peer")?;
    let rates = &peer["rates"];
    if mode == "connected" {
        for what in ["rx_frames", "tx_frames"] {
            about_fifty(rates, what)?;
        }
        let bits = rates["rx_bits"].as_f64().context("no bits")?;
        // An echo has 28 bytes in front of the data.
        ensure!((20_000.0..=60_000.0).contains(&bits), "{rates}");
    } else if a.is_infiniband() {
        ensure!(rates["rx_frames"].is_null(), "{rates}");
    } else {
        about_fifty(rates, "rx_frames")?;
        ensure!(rates["tx_frames"].is_null(), "{rates}");
    }
    Ok(())
}

/// The screens of a terminal, one behind the other. Blanks are passed over with movements of the cursor.
fn shown(output: &str) -> String {
    let mut text = String::new();
    for (n, part) in output.split('\x1b').enumerate() {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        let end = if n == 0 {
            0
        } else {
            end.map_or(0, |end| end + 1)
        };
        let (sequence, rest) = part.split_at(end);
        if sequence.ends_with('H') {
            text.push(' ');
        }
        text += rest;
    }
    text
}

scenario! {
    /// In both modes, the rates that `top` shows are those of a ping, as JSON and on a terminal, which is as before then.
    #[on(infiniband)]
    fn top_shows_what_travels(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let tool = Layout::from_env()?.ipoibctl();
        for mode in ["connected", "datagram"] {
            for host in [a, b] {
                host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
            }
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
            let ping = a.spawn(&format!("ping -q -i 0.02 -s 72 {}", b.ip4()))?;
            // A connection takes a moment.
            std::thread::sleep(a.scaled(Duration::from_secs(1)));
            rates_are_right(a, b, mode).with_context(|| mode.to_owned())?;
            let screen = a.ok(&format!(
                "(sleep 3; printf q) | TERM=xterm SHELL=/bin/sh script -qec 'stty rows 24 cols 80; m=$(stty -g); {} top -d 1 && [ $m = $(stty -g) ] && echo as before' /dev/null",
                tool.display()
            ))?;
            for part in ["ipoibctl top: 1 interface, 1 peer", "All is well.", &b.ip4(), "as before"] {
                ensure!(shown(&screen).contains(part), "no {part:?} in {screen:?}");
            }
            ping.stop()?;
        }
        bed.finish()
    }
}

scenario! {
    /// `ip netns exec` mounts a /sys of its own, without the debugfs of the other one; the tables are read all the same.
    #[on(uml, timed)]
    fn tables_are_read_under_ip_netns_exec(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let outside = a.outside();
        let netns = a.netns().context("no namespace")?;
        outside.ok("mount -t debugfs none /sys/kernel/debug && umount /run/debug")?;
        // Nothing may be unread.
        let (status, _) = ask_by(&outside, &format!("ip netns exec {netns}"), "status")?;
        ensure!(status["interfaces"][0]["broadcast"] == "joined", "{status}");
        outside.ok("mount -t debugfs none /run/debug")?;
        bed.finish()
    }
}
