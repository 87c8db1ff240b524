// SPDX-License-Identifier: GPL-2.0

//! Two hosts in one kernel, joined three times over: by Ethernet, and on it by either driver.

use super::peer;
use crate::bed::{Bed, Builder, Host};
use crate::forge;
use crate::machine::{Kernel, Lane, Output, Task};
use anyhow::{Context, Result, ensure};
use std::fmt;
use std::time::Duration;

/// Over which way two hosts talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Plain Ethernet: what IP over anything on it could at best be.
    Ceiling,
    /// This project's driver.
    Ours,
    /// The C driver.
    Peer,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Ceiling => "Ethernet",
            Side::Ours => "ours",
            Side::Peer => "peer",
        })
    }
}

/// A bed with all three ways up, and servers that wait on the second host.
pub(super) struct Rig {
    bed: Bed,
    itself: bool,
    // Killed with the machine.
    _servers: [Task; 2],
}

impl Rig {
    /// Boots it. With `itself`, the C driver stands in for ours.
    pub(super) fn up(lane: Lane, itself: bool) -> Result<Rig> {
        let mut builder =
            Builder::new("bench", lane, Kernel::Base).lifetime(Duration::from_secs(1200));
        if lane == Lane::Qemu {
            builder = builder.icount();
        }
        let bed = builder.up()?;
        for host in &bed.hosts {
            // Both drivers are in one broadcast group: without this, each answers for the other.
            host.ok("echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore")?;
            // A send from an address that is not there yet ends an rxe QP.
            host.wait_until(
                "ip -6 route show table local dev eth0 | grep -q ^local",
                Duration::from_secs(10),
            )?;
            host.rxe_up()?;
        }
        if !itself {
            for host in &bed.hosts {
                host.ib_add("")?;
                host.ib_up()?;
            }
        }
        let (a, b) = bed.pair()?;
        a.ok(&format!("modprobe {}", peer::MODULE))?;
        for host in &bed.hosts {
            let interface = peer::INTERFACE;
            host.ok(&format!(
                "ip addr add {}/24 dev {interface} && ip link set {interface} up",
                peer_address(host)
            ))?;
            host.wait_until(
                &format!("ip -o link show {interface} | grep -q LOWER_UP"),
                Duration::from_secs(10),
            )?;
        }
        let servers = [b.spawn("iperf3 -s")?, b.spawn("netserver -D")?];
        let rig = Rig {
            bed,
            itself,
            _servers: servers,
        };
        let (a, b) = rig.bed.pair()?;
        b.wait_until(
            "ss -Hltn | grep -q :5201 && ss -Hltn | grep -q :12865",
            Duration::from_secs(10),
        )?;
        for side in [Side::Ceiling, Side::Ours, Side::Peer] {
            a.ok(&format!("ping -c 2 -i 0.2 -W 5 {}", rig.address(side)?))
                .with_context(|| format!("the hosts do not talk: {side}"))?;
        }
        rig.check(Side::Ours)?;
        rig.check(Side::Peer)?;
        rig.same_mtu()?;
        Ok(rig)
    }

    /// What is sent through a driver must arrive at the same driver.
    fn check(&self, side: Side) -> Result<()> {
        let (a, b) = self.bed.pair()?;
        let interface = self.interface(side);
        let theirs = b.ok(&format!("cat /sys/class/net/{interface}/address"))?;
        let known = a.ok(&format!(
            "ip neigh show to {} dev {interface}",
            self.address(side)?
        ))?;
        ensure!(
            known.contains(theirs.trim()),
            "{side}: {known} is not {theirs}"
        );
        Ok(())
    }

    /// Packets of different sizes could not be compared.
    fn same_mtu(&self) -> Result<()> {
        let (a, _) = self.bed.pair()?;
        let mtu = |side| a.ok(&format!("cat /sys/class/net/{}/mtu", self.interface(side)));
        let (ours, peer) = (mtu(Side::Ours)?, mtu(Side::Peer)?);
        ensure!(
            ours == peer,
            "ours has MTU {}, the C driver {}",
            ours.trim(),
            peer.trim()
        );
        Ok(())
    }

    /// The second host's address on a way.
    pub(super) fn address(&self, side: Side) -> Result<String> {
        let (_, b) = self.bed.pair()?;
        Ok(match side {
            Side::Ceiling => b.eth4(),
            Side::Ours if !self.itself => b.ip4(),
            Side::Ours | Side::Peer => peer_address(b),
        })
    }

    /// The interface of a way, of the same name on either host.
    fn interface(&self, side: Side) -> &'static str {
        match side {
            Side::Ceiling => "eth0",
            Side::Ours if !self.itself => "ib0",
            Side::Ours | Side::Peer => peer::INTERFACE,
        }
    }

    /// The module that a way goes through.
    pub(super) fn module(&self, side: Side) -> &'static str {
        match side {
            Side::Ceiling => "veth",
            Side::Ours if !self.itself => "ipoib_rs",
            Side::Ours | Side::Peer => peer::MODULE,
        }
    }

    /// Runs a client on the first host. The limit is for a machine that counts instructions, too.
    pub(super) fn client(&self, script: &str) -> Result<String> {
        let (a, _) = self.bed.pair()?;
        a.run_for(script, Duration::from_secs(120))
            .and_then(Output::ok)
    }

    /// Runs a command on the second host.
    pub(super) fn receiver(&self, script: &str) -> Result<String> {
        let (_, b) = self.bed.pair()?;
        b.ok(script)
    }

    /// Runs a Python program on the first host.
    pub(super) fn python(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let (a, _) = self.bed.pair()?;
        a.python(program, arguments)?.ok()
    }

    /// Starts a Python program on the second host, which listens when this returns.
    pub(super) fn serve_python(&self, program: &str, port: u16) -> Result<Task> {
        let (_, b) = self.bed.pair()?;
        let task = b.spawn_python(program, &[])?;
        b.wait_until(
            &format!("ss -Hltn | grep -q :{port}"),
            Duration::from_secs(10),
        )?;
        Ok(task)
    }

    /// The first host sends frames from `count` forged sources to the second, `rate` a second.
    pub(super) fn flood(&self, count: u32, rate: u32) -> Result<Task> {
        let (a, b) = self.bed.pair()?;
        let program = forge::program(a, b, forge::SOURCES)?;
        let task = a.spawn_python(&program, &[&count.to_string(), &rate.to_string()])?;
        // On a machine that counts instructions, making them takes its time.
        task.wait_for("ready", Duration::from_secs(120))?;
        Ok(task)
    }

    /// One of the second host's counters (`ethtool -S`).
    pub(super) fn counter(&self, name: &str) -> Result<u64> {
        let text = self.receiver("ethtool -S ib0")?;
        let value = text
            .lines()
            .filter_map(|line| line.trim().split_once(": "))
            .find(|(key, _)| *key == name)
            .with_context(|| format!("no {name} in {text}"))?;
        value.1.parse().context("a counter")
    }

    /// What the Ethernet does to what the first host sends; nothing, if that is empty.
    pub(super) fn netem(&self, netem: &str) -> Result<()> {
        let (a, _) = self.bed.pair()?;
        if netem.is_empty() {
            a.run("tc qdisc del dev eth0 root")?;
        } else {
            a.ok(&format!(
                "tc qdisc replace dev eth0 root netem limit 10000 {netem}"
            ))?;
        }
        Ok(())
    }

    /// Sets the width of the receiver's reorder window.
    pub(super) fn window(&self, width: u32) -> Result<()> {
        self.receiver(&format!("sysctl -qw net.ipoib.ib0.reorder_window={width}"))?;
        Ok(())
    }

    /// How long a measurement takes, by the guest's clock: on icount 10^9 instructions each.
    pub(super) fn seconds(&self) -> u32 {
        match self.bed.builder().lane() {
            Lane::Qemu => 1,
            Lane::Uml => 2,
        }
    }

    /// The lane as bench.json names it.
    pub(super) fn lane_name(&self) -> &'static str {
        match self.bed.builder().lane() {
            Lane::Qemu => "icount",
            Lane::Uml => "uml",
        }
    }

    /// A rate's denominator on this lane.
    pub(super) fn per(&self) -> &'static str {
        match self.bed.builder().lane() {
            Lane::Qemu => " per 10^9 instructions",
            Lane::Uml => "/s",
        }
    }

    /// The kernel's release.
    pub(super) fn release(&self) -> Result<String> {
        Ok(self.client("uname -r")?.trim().to_owned())
    }

    /// Ends it; fails if the kernel had something to report.
    pub(super) fn finish(self) -> Result<()> {
        self.bed.finish()
    }
}

/// A host's address on the C driver's interface.
fn peer_address(host: &Host) -> String {
    format!("10.2.0.{}", host.number())
}
