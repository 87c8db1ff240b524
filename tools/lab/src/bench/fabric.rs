// SPDX-License-Identifier: GPL-2.0

//! Page `fabric`: the kernel's own IPoIB driver on `ib_hwsim`, beside the bench's copy of it on soft-RoCE; and
//! datagrams through verbs on either.

use super::case::iperf3_received;
use super::count::{Counter, Symbols};
use super::report::{Record, Report};
use super::statistics::Pairs;
use super::{Options, builder, peer, verbs};
use crate::bed::{Bed, Builder, Host};
use crate::machine::{Lane, Output};
use crate::step::say;
use crate::task::Task;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// The largest MTU of a connection.
const LARGE: u32 = 65520;
/// The largest MTU of datagrams, on an IB MTU of 4096.
const DATAGRAM: u32 = 4092;
/// Messages through verbs.
const MESSAGES: u32 = 20_000;
/// Measurements of a message's cost in a fabric, of which the least counts.
const TRIES: u32 = 20;
/// HCAs of the large fabric, and ports of its switches.
const MANY: (u32, u32) = (648, 36);
/// Has opensm make the broadcast group, which all others follow, for the largest MTU.
const PARTITIONS: &str = "Default=0x7fff, ipoib, mtu=5, rate=7 : ALL=full;";

/// A medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Hwsim,
    Rxe,
}

impl Medium {
    const BOTH: [Medium; 2] = [Medium::Hwsim, Medium::Rxe];

    fn module(self) -> &'static str {
        match self {
            Medium::Hwsim => "ib_hwsim",
            Medium::Rxe => "rdma_rxe",
        }
    }

    fn interface(self) -> &'static str {
        match self {
            Medium::Hwsim => "ib0",
            Medium::Rxe => peer::INTERFACE,
        }
    }

    fn device(self, host: &Host) -> String {
        match self {
            Medium::Hwsim => host.hca(),
            Medium::Rxe => host.rxe(),
        }
    }

    fn address(self, host: &Host) -> String {
        match self {
            Medium::Hwsim => host.ip4(),
            Medium::Rxe => format!("10.2.0.{}", host.number()),
        }
    }
}

/// Measures the page.
pub(super) fn page(
    bed: &Builder,
    options: &Options,
    counter: Option<&Counter>,
    report: &mut Report,
) -> Result<()> {
    let pair = [
        "tcp_ud",
        "tcp_rc",
        "device_share_ud",
        "device_share_rc",
        "ud_64",
    ];
    if pair.iter().any(|case| options.includes(case)) {
        let rig = Rig::up(bed)?;
        report.kernel = rig.bed.pair()?.0.ok("uname -r")?.trim().to_owned();
        rig.measure(options, counter, report)?;
        rig.bed.finish()?;
    }
    if options.includes("ud_64_flat") {
        flat(bed.lane(), options, report)?;
    }
    Ok(())
}

/// Two hosts in one kernel, with a cable between their simulated HCAs and an Ethernet between their RoCE devices.
struct Rig {
    bed: Bed,
    lane: Lane,
    // Killed with the machine.
    _servers: [Task; 2],
}

impl Rig {
    fn up(bed: &Builder) -> Result<Rig> {
        let lane = bed.lane();
        let bed = bed
            .clone()
            // Each host has an HCA of its own.
            .append("ib_core.netns_mode=0")
            .up()?;
        let (a, b) = bed.pair()?;
        for host in &bed.hosts {
            host.wait_until(
                "ip -6 route show table local dev eth0 | grep -q ^local",
                Duration::from_secs(10),
            )?;
            host.rxe_up()?;
        }
        let outside = a.outside();
        outside.ok("modprobe ib_ipoib && ib-hwsim pair")?;
        for host in &bed.hosts {
            let netns = host.netns().context("a host without a namespace")?;
            let device = Medium::Hwsim.device(host);
            outside.ok(&format!("rdma dev set {device} netns {netns}"))?;
        }
        let manager = opensm(a, &Medium::Hwsim.device(a), "")?;
        a.ok(&format!("modprobe {}", peer::MODULE))?;
        for host in &bed.hosts {
            active(host, &Medium::Hwsim.device(host))?;
            for medium in Medium::BOTH {
                let (interface, address) = (medium.interface(), medium.address(host));
                host.ok(&format!(
                    "ip addr add {address}/24 dev {interface} && ip link set {interface} up"
                ))?;
                host.wait_until(
                    &format!("ip -o link show {interface} | grep -q LOWER_UP"),
                    Duration::from_secs(20),
                )?;
            }
        }
        let server = b.spawn("iperf3 -s")?;
        b.wait_until("ss -Hltn | grep -q :5201", Duration::from_secs(10))?;
        let servers = [manager, server];
        Ok(Rig {
            bed,
            lane,
            _servers: servers,
        })
    }

    /// Has both drivers send as the mode says, and checks that they do.
    fn mode(&self, medium: Medium, mode: &str, mtu: u32) -> Result<()> {
        let interface = medium.interface();
        for host in &self.bed.hosts {
            host.ok(&format!(
                "set -e
                 echo {mode} >/sys/class/net/{interface}/mode
                 ip link set {interface} mtu {mtu}
                 [ $(cat /sys/class/net/{interface}/mode) = {mode} ]
                 [ $(cat /sys/class/net/{interface}/mtu) = {mtu} ]"
            ))
            .with_context(|| format!("{}: {mode}, MTU {mtu}", medium.module()))?;
        }
        let (a, b) = self.bed.pair()?;
        let to = medium.address(b);
        a.wait_until(&format!("ping -q -c 1 -W 1 {to}"), Duration::from_secs(20))?;
        if mode == "connected" {
            let device = medium.device(a);
            // Soft-RoCE's devices stay where all begin, whatever the namespace of their Ethernet.
            let at = match medium {
                Medium::Hwsim => a.clone(),
                Medium::Rxe => a.outside(),
            };
            let shown =
                format!("rdma resource show qp link {device}/1 type RC | grep -q 'state RTS'");
            at.wait_until(&shown, Duration::from_secs(20))
                .with_context(|| format!("{}: no connection", medium.module()))?;
        }
        Ok(())
    }

    /// The rate of one TCP stream.
    fn tcp(&self, medium: Medium, mode: &str, mtu: u32) -> Result<f64> {
        self.mode(medium, mode, mtu)?;
        let (a, b) = self.bed.pair()?;
        let script = format!(
            "iperf3 -c {} -t {} -J",
            medium.address(b),
            seconds(self.lane)
        );
        let text = a
            .run_for(&script, Duration::from_secs(300))
            .and_then(Output::ok)?;
        iperf3_received(&text).with_context(|| format!("{}: {text}", medium.module()))
    }

    fn measure(
        &self,
        options: &Options,
        counter: Option<&Counter>,
        report: &mut Report,
    ) -> Result<()> {
        let (a, b) = self.bed.pair()?;
        for (case, mode, mtu) in [
            ("tcp_ud", "datagram", DATAGRAM),
            ("tcp_rc", "connected", LARGE),
        ] {
            let unit = format!("Mbit{}", per(self.lane));
            pairs(self.lane, options, report, case, &unit, &|| {
                let ours = self.tcp(Medium::Hwsim, mode, mtu)?;
                let peer = self.tcp(Medium::Rxe, mode, mtu)?;
                Ok((ours, peer, ours / peer))
            })?;
        }
        pairs(
            self.lane,
            options,
            report,
            "ud_64",
            &message(self.lane),
            &|| {
                let [ours, peer] = Medium::BOTH.map(|medium| {
                    verbs::cost(&a.outside(), &medium.device(a), &medium.device(b), MESSAGES)
                });
                let (ours, peer) = (ours?, peer?);
                Ok((ours, peer, peer / ours))
            },
        )?;
        let Some(counter) = counter else {
            return Ok(());
        };
        for (case, mode, mtu) in [
            ("device_share_ud", "datagram", DATAGRAM),
            ("device_share_rc", "connected", LARGE),
        ] {
            let unit = "% of instructions";
            pairs(self.lane, options, report, case, unit, &|| {
                let [ours, peer] =
                    Medium::BOTH.map(|medium| self.share(counter, medium, mode, mtu));
                let (ours, peer) = (ours?, peer?);
                Ok((ours, peer, peer / ours))
            })?;
        }
        Ok(())
    }

    /// The share of a device's text in all instructions of a TCP stream. What it calls does not count, such as memcpy.
    fn share(&self, counter: &Counter, medium: Medium, mode: &str, mtu: u32) -> Result<f64> {
        self.mode(medium, mode, mtu)?;
        let (a, b) = self.bed.pair()?;
        let symbols = Symbols::new(&a.ok("grep -i ' [tw] ' /proc/kallsyms")?)?;
        let stream = format!(
            "iperf3 -c {} -t {} >/dev/null",
            medium.address(b),
            seconds(self.lane)
        );
        counter.clear()?;
        a.run_for(&counter.between_marks(&stream), Duration::from_secs(300))
            .and_then(Output::ok)?;
        let (mut device, mut total) = (0, 0);
        for ((module, _), count) in counter.take()?.by_symbol(&symbols) {
            total += count;
            if module == medium.module() {
                device += count;
            }
        }
        ensure!(device > 0, "nothing of {} was executed", medium.module());
        Ok(100.0 * device as f64 / total as f64)
    }
}

/// A fabric that is alone in its kernel, with a subnet manager. The first two HCAs are on one switch.
struct Alone {
    bed: Bed,
    host: Host,
    manager: Task,
}

impl Alone {
    /// Makes a fabric of so many HCAs, and waits until the last port is Active.
    fn up(lane: Lane, topology: &str, hcas: u32) -> Result<Alone> {
        let bed = builder(&format!("bench-{hcas}"), lane, None)
            .hosts(1)
            .one_machine()
            .memory(2048)
            .up()?;
        let host = bed.hosts.first().context("no host")?.outside();
        let make = format!("modprobe ib_hwsim && ib-hwsim {topology}");
        host.run_for(&make, Duration::from_secs(200))?.ok()?;
        let manager = opensm(&host, "hwsim0", "-s 0")?;
        host.wait_until(
            &format!("ibstat hwsim{} 1 | grep -q '^State: Active'", hcas - 1),
            Duration::from_secs(200),
        )?;
        active(&host, "hwsim1")?;
        Ok(Alone { bed, host, manager })
    }

    /// Cost of a message between neighbours.
    fn cost(&self) -> Result<f64> {
        verbs::cost(&self.host, "hwsim0", "hwsim1", MESSAGES)
    }

    fn down(self) -> Result<()> {
        let host = &self.host;
        host.ok("pkill -x opensm")?;
        self.manager.wait(host.scaled(Duration::from_secs(20)))?;
        host.run_for("ib-hwsim down", Duration::from_secs(200))?
            .ok()?;
        self.bed.finish()
    }
}

/// Case `ud_64_flat`: a message between two HCAs on one switch, in a fabric of many and in one of two. Of several
/// measurements in turn, the least of each counts: what else the kernel or the computer does can only add to it.
fn flat(lane: Lane, options: &Options, report: &mut Report) -> Result<()> {
    let (hcas, radix) = MANY;
    let few = Alone::up(lane, "star 2", 2)?;
    let many = Alone::up(lane, &format!("fat-tree {hcas} {radix}"), hcas)?;
    report.kernel = few.host.ok("uname -r")?.trim().to_owned();
    let mut pairs = Pairs::default();
    for n in 1..=options.pairs {
        let (few, many) = least(&few, &many)?;
        say(&format!(
            "{} ud_64_flat {n}/{}: {hcas} HCAs {many:.0}, 2 HCAs {few:.0}: {:.3}",
            name(lane),
            options.pairs,
            few / many
        ));
        pairs.add(many, few, few / many);
    }
    few.down()?;
    many.down()?;
    let unit = format!("{}, {hcas} HCAs and 2", message(lane));
    report.results.push(Record::new(
        "fabric",
        "ud_64_flat",
        name(lane),
        &unit,
        &pairs,
    ));
    Ok(())
}

/// The least costs of a message in two fabrics.
fn least(few: &Alone, many: &Alone) -> Result<(f64, f64)> {
    let mut least = (f64::INFINITY, f64::INFINITY);
    for _ in 0..TRIES {
        least = (least.0.min(few.cost()?), least.1.min(many.cost()?));
    }
    Ok(least)
}

/// Starts opensm on the port of an HCA.
pub(super) fn opensm(host: &Host, hca: &str, options: &str) -> Result<Task> {
    let dir = "/var/cache/opensm";
    let guid = host.ok(&format!("ibstat {hca} 1 | sed -n 's/^Port GUID: //p'"))?;
    let guid = guid.trim();
    host.ok(&format!(
        "mkdir -p {dir} && echo '{PARTITIONS}' >{dir}/partitions.conf"
    ))?;
    host.spawn(&format!(
        "env OSM_CACHE_DIR={dir} OSM_TMP_DIR={dir} opensm -g {guid} -e -P {dir}/partitions.conf -f /var/log/opensm.log {options}"
    ))
}

/// Waits until the port of an HCA is Active.
pub(super) fn active(host: &Host, hca: &str) -> Result<()> {
    host.wait_until(
        &format!("ibstat {hca} 1 | grep -q '^State: Active'"),
        Duration::from_secs(60),
    )
}

pub(super) fn name(lane: Lane) -> &'static str {
    match lane {
        Lane::Qemu => "icount",
        Lane::Uml => "uml",
    }
}

/// How long a rate is measured, by the guest's clock.
pub(super) fn seconds(lane: Lane) -> u32 {
    match lane {
        Lane::Qemu => 1,
        Lane::Uml => 2,
    }
}

fn per(lane: Lane) -> &'static str {
    match lane {
        Lane::Qemu => " per 10^9 instructions",
        Lane::Uml => "/s",
    }
}

/// The unit of a message's cost: less is better.
fn message(lane: Lane) -> String {
    let what = match lane {
        Lane::Qemu => "instructions",
        Lane::Uml => "ns",
    };
    format!("{what} per message")
}

/// Measurements of one case on both media, in turn: ours, the other, and the ratio.
fn pairs(
    lane: Lane,
    options: &Options,
    report: &mut Report,
    case: &str,
    unit: &str,
    measure: &dyn Fn() -> Result<(f64, f64, f64)>,
) -> Result<()> {
    if !options.includes(case) {
        return Ok(());
    }
    let mut pairs = Pairs::default();
    for n in 1..=options.pairs {
        let (ours, other, ratio) = measure().with_context(|| case.to_owned())?;
        say(&format!(
            "{} {case} {n}/{}: ib_hwsim {ours:.1}, rxe {other:.1}: {ratio:.3}",
            name(lane),
            options.pairs
        ));
        pairs.add(ours, other, ratio);
    }
    report
        .results
        .push(Record::new("fabric", case, name(lane), unit, &pairs));
    Ok(())
}
