// SPDX-License-Identifier: GPL-2.0

//! The commands of Documentation/ib_hwsim.rst.

use super::EXCLUSIVE;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const MANUAL: &str = include_str!("../../../Documentation/ib_hwsim.rst");

/// The commands of a section of the manual.
fn commands(section: &str) -> Vec<&'static str> {
    let text = MANUAL
        .split_once(&format!("\n{section}\n==="))
        .map_or("", |(_, rest)| rest);
    // The next heading's line.
    let end = text.find("\n===").unwrap_or(text.len());
    let mut literal = false;
    let mut commands = Vec::new();
    for line in text[..end].lines() {
        match line.strip_prefix("    ") {
            Some(command) if literal => commands.push(command),
            None if !line.is_empty() => literal = line.ends_with("::"),
            _ => {}
        }
    }
    commands
}

/// The commands to a ping, and those that take all of it away.
fn try_it() -> Result<[Vec<&'static str>; 2]> {
    let mut commands = commands("Try it");
    let ping = commands.iter().position(|line| line.contains(" ping "));
    let end = commands.split_off(ping.context("no ping in the manual")? + 1);
    ensure!(
        commands.len() <= 10,
        "the manual promises ten lines: {commands:?}"
    );
    Ok([commands, end])
}

/// Does what the manual says up to a ping between two hosts, as a user who tries the ping until it works.
pub(crate) fn ten_lines(host: &Host) -> Result<()> {
    let [commands, _] = try_it()?;
    let (ping, before) = commands.split_last().context("no commands")?;
    let limit = Duration::from_secs(60);
    host.run_for(&format!("set -e\n{}", before.join("\n")), limit)?
        .ok()?;
    host.wait_until(&format!("{ping} >/dev/null"), limit)?;
    let state = host.ok("ip netns exec h2 ibstat")?;
    ensure!(state.contains("State: Active"), "{state}");
    Ok(())
}

/// Does what the manual says after that: nothing is left.
pub(crate) fn end(host: &Host) -> Result<()> {
    let [_, commands] = try_it()?;
    let limit = Duration::from_secs(60);
    host.run_for(&format!("set -e\n{}", commands.join("\n")), limit)?
        .ok()?;
    let left = host.ok("ls /sys/class/infiniband; ip netns list")?;
    ensure!(!left.contains("hwsim") && !left.contains("h1"), "{left}");
    host.run("lsmod | grep ib_hwsim")?.refused()?;
    Ok(())
}

scenario! {
    /// Ten lines to a ping between two hosts, and all of it is taken away again.
    #[on(lockdep)]
    fn the_manual_works(bed) {
        let bed = bed.one_machine().hosts(1).append(EXCLUSIVE).up()?;
        let host = bed.hosts[0].outside();
        ten_lines(&host)?;
        end(&host)?;
        bed.finish()
    }
}

scenario! {
    /// A fabric that is made by hand, and its subnet manager.
    #[on(lockdep)]
    fn a_fabric_by_hand(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        host.ok("modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config")?;
        host.ok(&format!("set -e\n{}", commands("Fabrics by hand").join("\n")))?;
        let text = host.ok("ib-hwsim show")?;
        ensure!(text.contains(": live, 2 HCAs, 1 switch, 2 cables"), "{text}");
        let text = host.run_for("ib-hwsim sm", Duration::from_secs(60))?.ok()?;
        ensure!(text.contains("the ports are Active"), "{text}");
        bed.finish()
    }
}

scenario! {
    /// Two HCAs with Ethernet ports, and this checkout's driver on them.
    #[on(lockdep)]
    fn ethernet_ports_by_hand(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        host.ok("modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config && modprobe ipoib_rs")?;
        host.ok(&format!("set -e\n{}", commands("Ethernet ports").join("\n")))?;
        for number in [1, 2] {
            host.ok(&format!(
                "set -e
                 ip -n h{number} link add link eth0 name ib0 type ipoib_rs
                 ip -n h{number} address add 192.0.2.{number}/24 dev ib0
                 ip -n h{number} link set ib0 up"
            ))?;
        }
        host.wait_until("ip netns exec h1 ping -c 1 -W 1 192.0.2.2", Duration::from_secs(30))?;
        bed.finish()
    }
}
