// SPDX-License-Identifier: GPL-2.0

//! Two hosts in one kernel, joined three times over: by Ethernet, and on it by either driver.

use super::peer;
use crate::bed::{Bed, Builder, Host};
use crate::forge;
use crate::machine::{Lane, Output};
use crate::task::Task;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fmt;
use std::time::{Duration, Instant};

/// A connection that is not there after this will not come.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

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

/// How an interface sends to its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Datagrams, at the port's MTU.
    Datagram,
    /// Connections, at this MTU.
    Connected(u32),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Datagram => f.write_str("datagram"),
            Mode::Connected(mtu) => write!(f, "connected, MTU {mtu}"),
        }
    }
}

/// A bed with all three ways up, and servers that wait on the second host.
pub(super) struct Rig {
    bed: Bed,
    itself: bool,
    // The largest MTU without connections.
    mtu: u32,
    // Killed with the machine.
    _servers: [Task; 2],
}

impl Rig {
    /// Boots a bed like this one, with an Ethernet of this MTU. With `itself`, the C driver stands in for ours.
    pub(super) fn up(bed: &Builder, itself: bool, ethernet: u32) -> Result<Rig> {
        let bed = bed.clone().mtu(ethernet).up()?;
        for host in &bed.hosts {
            settle_neighbours(host, "eth0")?;
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
                up(host, "ib0", &host.ip4())?;
            }
        }
        let (a, b) = bed.pair()?;
        a.ok(&format!("modprobe {}", peer::MODULE))?;
        for host in &bed.hosts {
            up(host, peer::INTERFACE, &peer_address(host))?;
        }
        let servers = [b.spawn("iperf3 -s")?, b.spawn("netserver -D")?];
        let mut rig = Rig {
            bed,
            itself,
            mtu: 0,
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
        rig.warm_up()?;
        rig.check(Side::Ours)?;
        rig.check(Side::Peer)?;
        rig.mtu = rig.same_mtu()?;
        Ok(rig)
    }

    /// Does what happens once only: the first TCP connection whose port the kernel chooses fills a table with 256 KiB of
    /// random numbers, in 0.6 % of the instructions of a measurement. netperf chooses the ports of its control connections
    /// itself, so that this would be in the first measurement of TCP_RR.
    fn warm_up(&self) -> Result<()> {
        let (a, b) = self.bed.pair()?;
        a.ok(&format!("netperf -P 0 -H {} -t TCP_RR -l -1", b.eth4()))
            .map(drop)
    }

    /// Frames that are sent through a driver must arrive at the same driver.
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
    fn same_mtu(&self) -> Result<u32> {
        let (a, _) = self.bed.pair()?;
        let mtu = |side| a.ok(&format!("cat /sys/class/net/{}/mtu", self.interface(side)));
        let (ours, peer) = (mtu(Side::Ours)?, mtu(Side::Peer)?);
        ensure!(
            ours == peer,
            "ours has MTU {}, the C driver {}",
            ours.trim(),
            peer.trim()
        );
        ours.trim().parse().context("an MTU")
    }

    /// Has a way send as `mode` says, on both hosts; returns when it does.
    pub(super) fn mode(&self, side: Side, mode: Mode) -> Result<()> {
        let interface = self.interface(side);
        let (word, mtu) = match mode {
            Mode::Datagram => ("datagram", self.mtu),
            Mode::Connected(mtu) => ("connected", mtu),
        };
        for host in &self.bed.hosts {
            host.ok(&format!(
                "set -e
                 echo {word} >/sys/class/net/{interface}/mode
                 ip link set {interface} mtu {mtu}
                 [ $(cat /sys/class/net/{interface}/mode) = {word} ]"
            ))
            .with_context(|| format!("{side}: {mode}"))?;
        }
        let (a, _) = self.bed.pair()?;
        let to = self.address(side)?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {to}"), Duration::from_secs(10))
            .with_context(|| format!("{side}: {mode}"))?;
        if mode != Mode::Datagram {
            self.wait_connected(side)?;
        }
        Ok(())
    }

    /// Waits until both hosts have a connection to each other that frames are sent through. It is what
    /// a frame asks for, so that there must be some.
    fn wait_connected(&self, side: Side) -> Result<()> {
        let (a, _) = self.bed.pair()?;
        let to = self.address(side)?;
        let deadline = Instant::now() + a.scaled(CONNECTED_WITHIN);
        loop {
            let mut missing = Vec::new();
            for host in &self.bed.hosts {
                if !self.is_connected(side, host)? {
                    missing.push(host.number());
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{side}: no connection within {CONNECTED_WITHIN:?} on hosts {missing:?}:\n{}{}",
                a.ok("rdma resource show qp")?,
                self.client(&format!("ethtool -S {}", self.interface(side)))?
            );
            a.ok(&format!("ping -q -c 1 -W 5 {to}"))?;
        }
    }

    fn is_connected(&self, side: Side, host: &Host) -> Result<bool> {
        if self.counts(side) {
            return Ok(counter(host, "rc_current")? > 0);
        }
        // One for each direction.
        Ok(self.connections(side, host)? >= 2)
    }

    /// Returns true if a way has counters of its connections.
    pub(super) fn counts(&self, side: Side) -> bool {
        side == Side::Ours && !self.itself
    }

    /// A host's RC queue pairs that can send, of a way's driver.
    fn connections(&self, side: Side, host: &Host) -> Result<usize> {
        let text = host.ok(&format!(
            "rdma -j resource show qp link {}/1 type RC",
            host.rxe()
        ))?;
        rc_pairs(&text, self.module(side)).with_context(|| text.clone())
    }

    /// The first host's RC queue pairs that can send.
    pub(super) fn senders_connections(&self, side: Side) -> Result<usize> {
        let (a, _) = self.bed.pair()?;
        self.connections(side, a)
    }

    /// Brings a way's connections down on both hosts and lets it make new ones, without having it do
    /// so; nothing is known of neighbours then.
    pub(super) fn forget(&self, side: Side, mtu: u32) -> Result<()> {
        self.mode(side, Mode::Datagram)?;
        let interface = self.interface(side);
        for host in &self.bed.hosts {
            host.ok(&format!(
                "echo connected >/sys/class/net/{interface}/mode && ip link set {interface} mtu {mtu}"
            ))?;
        }
        // The announcement to the neighbours is in flight.
        std::thread::sleep(Duration::from_secs(1));
        for host in &self.bed.hosts {
            host.ok(&format!("ip neigh flush dev {interface}"))?;
        }
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
    pub(super) fn interface(&self, side: Side) -> &'static str {
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
        a.run_for(script, Duration::from_secs(300))
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
        let (_, b) = self.bed.pair()?;
        counter(b, name)
    }

    /// One of the first host's.
    pub(super) fn senders_counter(&self, name: &str) -> Result<u64> {
        let (a, _) = self.bed.pair()?;
        counter(a, name)
    }

    /// Impairments of the frames that the first host sends; none if empty.
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

    /// Sets whether our hosts send several segments as one frame, 1 or 0. The C driver never does.
    pub(super) fn large_frames(&self, setting: u32) -> Result<()> {
        if self.itself {
            return Ok(());
        }
        for host in &self.bed.hosts {
            host.ok(&format!("sysctl -qw net.ipoib.ib0.large_frames={setting}"))?;
        }
        Ok(())
    }

    /// How long a measurement takes, by the guest's clock: on icount 10^9 instructions each.
    pub(super) fn seconds(&self) -> u32 {
        match self.bed.builder().lane() {
            Lane::Qemu => 1,
            Lane::Uml => 2,
        }
    }

    /// The lane as results name it.
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

/// Brings an interface up with its address, and waits for its carrier.
pub(super) fn up(host: &Host, interface: &str, address: &str) -> Result<()> {
    settle_neighbours(host, interface)?;
    host.ok(&format!(
        "set -e
         ip addr add {address}/24 dev {interface} && ip link set {interface} up"
    ))?;
    host.wait_until(
        &format!("ip -o link show {interface} | grep -q LOWER_UP"),
        Duration::from_secs(20),
    )
}

/// Has the neighbours of an interface stay known: one that is to be confirmed costs more, about 90 instructions for each
/// packet of soft-RoCE, for five seconds of each half minute. An interface with a small MTU has no IPv6.
fn settle_neighbours(host: &Host, interface: &str) -> Result<()> {
    host.ok(&format!(
        "set -e
         for dir in /proc/sys/net/ipv[46]/neigh/{interface}; do
             echo 86400000 >$dir/base_reachable_time_ms
             echo 0 >$dir/delay_first_probe_time
         done"
    ))
    .map(drop)
}

/// A counter of a host's `ib0`.
fn counter(host: &Host, name: &str) -> Result<u64> {
    let text = host.ok("ethtool -S ib0")?;
    let value = text
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .find(|(key, _)| *key == name)
        .with_context(|| format!("no {name} in {text}"))?;
    value.1.parse().context("a counter")
}

/// How many of the queue pairs that `rdma -j resource show qp` tells of are a module's, reliable
/// connections, and ready to send.
fn rc_pairs(text: &str, module: &str) -> Result<usize> {
    let pairs: Vec<Value> = serde_json::from_str(text).context("rdma's report")?;
    let is = |pair: &Value, key: &str, value: &str| pair[key].as_str() == Some(value);
    let counted = pairs.iter().filter(|pair| {
        is(pair, "comm", module) && is(pair, "type", "RC") && is(pair, "state", "RTS")
    });
    Ok(counted.count())
}

/// A host's address on the C driver's interface.
fn peer_address(host: &Host) -> String {
    format!("10.2.0.{}", host.number())
}

#[cfg(test)]
mod tests {
    use super::rc_pairs;

    #[test]
    fn queue_pairs_are_told_apart() {
        let text = r#"[
            {"ifindex":0,"ifname":"rxe0","port":1,"lqpn":1,"type":"GSI","state":"RTS","comm":"ib_core"},
            {"ifindex":0,"ifname":"rxe0","port":1,"lqpn":17,"type":"UD","state":"RTS","comm":"ipoib_rs"},
            {"ifindex":0,"ifname":"rxe0","port":1,"lqpn":18,"type":"RC","state":"RTS","comm":"ipoib_rs"},
            {"ifindex":0,"ifname":"rxe0","port":1,"lqpn":19,"type":"RC","state":"RESET","comm":"ipoib_rs"},
            {"ifindex":0,"ifname":"rxe0","port":1,"lqpn":20,"type":"RC","state":"RTS","comm":"ib_ipoib_peer"}
        ]"#;
        assert_eq!(rc_pairs(text, "ipoib_rs").expect("is a report"), 1);
        assert_eq!(rc_pairs("[]", "ipoib_rs").expect("is one, too"), 0);
        rc_pairs("Wrong option", "ipoib_rs").expect_err("is none");
    }
}
