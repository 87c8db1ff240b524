// SPDX-License-Identifier: GPL-2.0

//! Page `ib`: this driver over the kernel's own `ib_ipoib`, both untouched and on the same HCAs of `ib_hwsim`, which do
//! checksums and LSO.
//!
//! On `icount`, what counts is instructions outside the simulated device: a real one has none. The device's are its own
//! text, and the kernel's functions with which it copies packets and sums them; the text of either driver and of the
//! stack calls these for headers only.

mod adaptive;

use super::Options;
use super::case::netperf;
use super::count::{Counter, Counts, Symbols};
use super::fabric::{active, name, opensm, seconds};
use super::report::{Costs, Record, Report};
use super::rig;
use super::statistics::Pairs;
use crate::bed::{Bed, Builder, Host};
use crate::machine::Lane;
use crate::step::say;
use crate::task::Task;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// The simulated device's module.
const DEVICE: &str = "ib_hwsim";
/// The MTU of datagrams that opensm's partition has, on an IB MTU of 4096.
pub(super) const DATAGRAM: u32 = 4092;
/// The largest MTU of a connection.
pub(super) const LARGE: u32 = 65520;
/// The page's name in reports.
const PAGE: &str = "ib";
/// Two HCAs and a cable.
pub(super) const PAIR: &str = "ib-hwsim pair";

/// A driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Peer,
    /// A landmark, which knows no modes.
    Ethernet,
}

impl Side {
    fn module(self) -> &'static str {
        match self {
            Side::Ours => "ipoib_rs",
            Side::Peer => "ib_ipoib",
            Side::Ethernet => "veth",
        }
    }

    fn interface(self) -> &'static str {
        match self {
            Side::Ours => "ib0",
            Side::Peer => "ibc0",
            Side::Ethernet => "eth0",
        }
    }

    fn address(self, host: &Host) -> String {
        match self {
            Side::Ours => host.ip4(),
            Side::Peer => format!("10.2.0.{}", host.number()),
            Side::Ethernet => host.eth4(),
        }
    }
}

/// A workload between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// So many TCP streams at once, in Mbit.
    Tcp(u32),
    /// Datagrams of 64 bytes that arrive.
    Udp64,
    /// One byte there, one back, over TCP.
    Rr,
}

impl Load {
    fn unit(self) -> &'static str {
        match self {
            Load::Tcp(_) => "Mbit",
            Load::Udp64 => "packets",
            Load::Rr => "transactions",
        }
    }

    fn command(self, to: &str, seconds: u32) -> String {
        let netperf = format!("netperf -P 0 -H {to} -l {seconds}");
        match self {
            Load::Tcp(streams) => format!("iperf3 -c {to} -t {seconds} -P {streams} -J"),
            Load::Udp64 => {
                format!("{netperf} -t UDP_STREAM -- -m 64 -R 1 -k REMOTE_RECV_CALLS,ELAPSED_TIME")
            }
            Load::Rr => {
                format!("{netperf} -t TCP_RR -- -r 1,1 -k TRANSACTION_RATE,ELAPSED_TIME")
            }
        }
    }

    /// How much was done, and in how many seconds.
    fn done(self, text: &str) -> Result<(f64, f64)> {
        match self {
            Load::Tcp(_) => {
                let report: Value = serde_json::from_str(text).context("iperf3's report")?;
                let sum = &report["end"]["sum_received"];
                let bytes = sum["bytes"].as_f64().context("no sum_received")?;
                let seconds = sum["seconds"].as_f64().context("no duration")?;
                Ok((bytes * 8.0 / 1e6, seconds))
            }
            Load::Udp64 => Ok((
                netperf(text, "REMOTE_RECV_CALLS")?,
                netperf(text, "ELAPSED_TIME")?,
            )),
            Load::Rr => {
                let seconds = netperf(text, "ELAPSED_TIME")?;
                Ok((netperf(text, "TRANSACTION_RATE")? * seconds, seconds))
            }
        }
    }
}

/// A mode and an MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode(pub(super) &'static str, pub(super) u32);

impl Mode {
    /// In datagram mode the device makes checksums, connected it makes none.
    fn is_datagram(self) -> bool {
        self.0 == "datagram"
    }
}

/// The cases, of both modes.
const CASES: [(&str, Mode, Load); 7] = [
    ("tcp_1", Mode("datagram", DATAGRAM), Load::Tcp(1)),
    ("tcp_4", Mode("datagram", DATAGRAM), Load::Tcp(4)),
    ("udp_64", Mode("datagram", DATAGRAM), Load::Udp64),
    ("tcp_rr", Mode("datagram", DATAGRAM), Load::Rr),
    ("tcp_65520", Mode("connected", LARGE), Load::Tcp(1)),
    ("tcp_port_mtu", Mode("connected", DATAGRAM), Load::Tcp(1)),
    ("rr", Mode("connected", LARGE), Load::Rr),
];

/// Measures the page.
pub(super) fn page(
    bed: &Builder,
    options: &Options,
    counter: Option<&Counter>,
    report: &mut Report,
) -> Result<()> {
    let both = ["text_share"].into_iter().chain(CASES.map(|case| case.0));
    if both.into_iter().any(|case| options.includes(case)) {
        let rig = Rig::up(bed, PAIR, true)?;
        report.kernel = rig.release()?;
        rig.cases(options, counter, report)?;
        rig.finish()?;
    }
    if options.includes("adaptive") {
        let rig = Rig::up(bed, adaptive::PARALLEL, false)?;
        report.kernel = rig.release()?;
        adaptive::cases(&rig, options, counter, report)?;
        rig.finish()?;
    }
    Ok(())
}

/// Has both HCAs of a pair do checksums and LSO.
const OFFLOADS: &str = "cd /sys/kernel/config/ib_hwsim/pair && echo 0 >live
    for node in hcas/*; do echo 1 >$node/checksum && echo 65536 >$node/lso; done
    echo 1 >live";

/// Two hosts in one kernel, each with one HCA, on whose port both drivers have an interface.
pub(super) struct Rig {
    bed: Bed,
    lane: Lane,
    // Killed with the machine.
    _servers: [Task; 3],
}

/// The kernel's functions that the device copies packets with.
const DEVICE_COPIES: [&str; 2] = ["memcpy", "memmove"];
/// The kernel's function that the device sums packets with. It is the stack's where the device has no checksums.
const DEVICE_SUMS: &str = "csum_partial";

/// So many of a driver's functions are told.
const FUNCTIONS: usize = 8;

/// Instructions of a workload.
#[derive(Debug, Clone)]
struct Cost {
    /// The driver's own text.
    driver: u64,
    /// The simulated device's text, and what it calls to copy and to sum.
    device: u64,
    /// Copies between the kernel and user space.
    copies: u64,
    /// User space.
    user: u64,
    /// All the rest: the stack.
    stack: u64,
    /// The driver's functions, the largest first.
    functions: Vec<(String, u64)>,
}

impl Cost {
    /// The costs of a driver's workload, whose checksums the device makes if `offloaded`.
    fn of(counts: &Counts, symbols: &Symbols, module: &str, offloaded: bool) -> Result<Cost> {
        let mut cost = Cost {
            driver: 0,
            device: 0,
            copies: 0,
            user: 0,
            stack: 0,
            functions: Vec::new(),
        };
        for ((of, symbol), count) in counts.by_symbol(symbols) {
            *cost.place(of, symbol, module, offloaded) += count;
            if of == module {
                cost.functions.push((symbol.to_owned(), count));
            }
        }
        cost.functions
            .sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        ensure!(
            cost.driver > 0 && cost.device > 0,
            "nothing of {module} was executed"
        );
        Ok(cost)
    }

    fn place(&mut self, of: &str, symbol: &str, module: &str, offloaded: bool) -> &mut u64 {
        let copies = ["copy_user", "copy_to_iter", "copy_from_iter"];
        let of_device = of == DEVICE
            || DEVICE_COPIES.iter().any(|name| symbol.contains(name))
            || (offloaded && symbol.contains(DEVICE_SUMS));
        if of == module {
            &mut self.driver
        } else if of_device {
            &mut self.device
        } else if of == "user" {
            &mut self.user
        } else if copies.iter().any(|name| symbol.contains(name)) || symbol.starts_with("rep_movs")
        {
            &mut self.copies
        } else {
            &mut self.stack
        }
    }

    /// Instructions outside the device.
    fn outside(&self) -> u64 {
        self.driver + self.copies + self.user + self.stack
    }

    /// The costs of each unit of work, of which 10^9 instructions outside the device did `rate`.
    fn per_unit(&self, rate: f64) -> Costs {
        let unit = |part: u64| part as f64 / self.outside() as f64 * 1e9 / rate;
        Costs {
            driver: unit(self.driver),
            stack: unit(self.stack),
            copies: unit(self.copies),
            user: unit(self.user),
            device: unit(self.device),
        }
    }
}

/// Costs for each unit of work: where a case's room is.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64| 100.0 * part as f64 / self.outside() as f64;
        write!(
            f,
            "driver {:.2}%, stack {:.1}%, copies {:.1}%, user space {:.1}% of what is outside the device; device {:.0}%",
            share(self.driver),
            share(self.stack),
            share(self.copies),
            share(self.user),
            share(self.device)
        )?;
        let mut functions = self.functions.iter().take(FUNCTIONS);
        functions
            .try_for_each(|(function, count)| write!(f, "\n     {:.3}% {function}", share(*count)))
    }
}

impl Rig {
    /// Boots a bed like this one, with the fabric that `make` makes.
    pub(super) fn up(bed: &Builder, make: &str, offloads: bool) -> Result<Rig> {
        let lane = bed.lane();
        let bed = bed
            .clone()
            // Each host has an HCA of its own.
            .append("ib_core.netns_mode=0")
            .up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        outside.ok(&format!(
            "set -e\nmodprobe ib_ipoib && modprobe ipoib_rs\n{make}"
        ))?;
        if offloads {
            outside.ok(&format!("set -e\n{OFFLOADS}"))?;
        }
        for host in &bed.hosts {
            let netns = host.netns().context("a host without a namespace")?;
            outside.ok(&format!("rdma dev set {} netns {netns}", host.hca()))?;
        }
        let manager = opensm(a, &a.hca(), "")?;
        for host in &bed.hosts {
            active(host, &host.hca())?;
            host.ok(
                "set -e
                 ip link set ib0 name ibc0
                 ip link add link ibc0 name ib0 type ipoib_rs
                 # Both drivers are in one broadcast group: without this, each answers for the other.
                 echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
                 sysctl -qw net.ipv4.tcp_no_metrics_save=1",
            )?;
            for side in [Side::Ours, Side::Peer] {
                let (interface, address) = (side.interface(), side.address(host));
                rig::up(host, interface, &address)?;
            }
        }
        let servers = [manager, b.spawn("iperf3 -s")?, b.spawn("netserver -D")?];
        b.wait_until(
            "ss -Hltn | grep -q :5201 && ss -Hltn | grep -q :12865",
            Duration::from_secs(10),
        )?;
        let rig = Rig {
            bed,
            lane,
            _servers: servers,
        };
        let (_, b) = rig.bed.pair()?;
        for side in [Side::Ours, Side::Peer] {
            rig.mode(side, Mode("datagram", DATAGRAM))?;
            rig.check(side, offloads)?;
            // The first connection of a kernel fills a table of 256 KiB with random numbers.
            rig.run(&Load::Rr.command(&side.address(b), 1))?;
        }
        Ok(rig)
    }

    /// The kernel's release.
    pub(super) fn release(&self) -> Result<String> {
        Ok(self.bed.pair()?.0.ok("uname -r")?.trim().to_owned())
    }

    /// Frames that are sent by a driver have to arrive at the same driver, with the offloads that the device has.
    fn check(&self, side: Side, offloads: bool) -> Result<()> {
        let (a, b) = self.bed.pair()?;
        let interface = side.interface();
        let theirs = b.ok(&format!("cat /sys/class/net/{interface}/address"))?;
        let known = a.ok(&format!(
            "ip neigh show to {} dev {interface}",
            side.address(b)
        ))?;
        ensure!(known.contains(theirs.trim()), "{known} is not {theirs}");
        let features = a.ok(&format!("ethtool -k {interface}"))?;
        let has = |name: &str| features.contains(&format!("{name}: on"));
        for feature in ["tx-checksum-ipv4", "tx-tcp-segmentation", "rx-checksumming"] {
            ensure!(has(feature) == offloads, "{interface}: {features}");
        }
        Ok(())
    }

    /// Has a driver send as a mode says, on both hosts; returns when it does.
    pub(super) fn mode(&self, side: Side, Mode(mode, mtu): Mode) -> Result<()> {
        let interface = side.interface();
        for host in &self.bed.hosts {
            host.ok(&format!(
                "set -e
                 echo {mode} >/sys/class/net/{interface}/mode
                 ip link set {interface} mtu {mtu}
                 [ $(cat /sys/class/net/{interface}/mode) = {mode} ]
                 [ $(cat /sys/class/net/{interface}/mtu) = {mtu} ]"
            ))
            .with_context(|| format!("{side:?}: {mode}, MTU {mtu}"))?;
        }
        let (a, b) = self.bed.pair()?;
        let to = side.address(b);
        // The first one asks for a connection.
        for _ in 0..2 {
            a.wait_until(
                &format!("ping -q -c 3 -i 0.2 -W 1 {to}"),
                Duration::from_secs(20),
            )?;
        }
        if mode == "connected" {
            let pairs = format!(
                "rdma resource show qp link {}/1 type RC | grep {} | grep -q 'state RTS'",
                a.hca(),
                side.module()
            );
            a.wait_until(&pairs, Duration::from_secs(20))?;
        }
        Ok(())
    }

    /// Runs a client on the first host.
    pub(super) fn run(&self, script: &str) -> Result<String> {
        let (a, _) = self.bed.pair()?;
        a.run_for(script, Duration::from_secs(300))?.ok()
    }

    /// Runs a script and then starts a server on the second host, which listens when this returns.
    pub(super) fn serve(&self, script: &str, server: &str, port: u16) -> Result<Task> {
        let (_, b) = self.bed.pair()?;
        b.ok(script)?;
        let task = b.spawn(server)?;
        b.wait_until(
            &format!("ss -Hltn | grep -q ':{port} '"),
            Duration::from_secs(10),
        )?;
        Ok(task)
    }

    /// The second host's address on a way.
    pub(super) fn address(&self, side: Side) -> Result<String> {
        Ok(side.address(self.bed.pair()?.1))
    }

    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    /// Ends it; fails if the kernel had something to report.
    pub(super) fn finish(self) -> Result<()> {
        self.bed.finish()
    }

    /// Measures one case once: work for each second, or, if they are counted, for 10^9 instructions outside the device.
    fn measure(
        &self,
        counter: Option<&Counter>,
        side: Side,
        mode: Mode,
        load: Load,
    ) -> Result<(f64, Option<Cost>)> {
        self.mode(side, mode)?;
        let command = load.command(&side.address(self.bed.pair()?.1), seconds(self.lane));
        let Some(counter) = counter else {
            let (done, seconds) = load.done(&self.run(&command)?)?;
            return Ok((done / seconds, None));
        };
        let (text, cost) = self.count(counter, side, &command, mode.is_datagram())?;
        let (done, _) = load.done(&text)?;
        Ok((1e9 * done / cost.outside() as f64, Some(cost)))
    }

    /// Counts the instructions of a client's command, whose checksums the device makes if `offloaded`. Returns what it
    /// prints, too.
    fn count(
        &self,
        counter: &Counter,
        side: Side,
        command: &str,
        offloaded: bool,
    ) -> Result<(String, Cost)> {
        let symbols = Symbols::new(&self.run("grep -i ' [tw] ' /proc/kallsyms")?)?;
        counter.clear()?;
        let text = self.run(&counter.between_marks(command))?;
        let cost = Cost::of(&counter.take()?, &symbols, side.module(), offloaded)?;
        Ok((text, cost))
    }

    fn cases(
        &self,
        options: &Options,
        counter: Option<&Counter>,
        report: &mut Report,
    ) -> Result<()> {
        let lane = name(self.lane);
        let mut text = Pairs::default();
        let wants_text = counter.is_some() && options.includes("text_share");
        for (case, mode, load) in CASES {
            let share = case == "tcp_1" && wants_text;
            if !options.includes(case) && !share {
                continue;
            }
            let (mut pairs, mut costs) = (Pairs::default(), [Vec::new(), Vec::new()]);
            for n in 1..=options.pairs {
                let measure = |side| {
                    self.measure(counter, side, mode, load)
                        .with_context(|| format!("{case}, {side:?}"))
                };
                let (ours, peer) = (measure(Side::Ours)?, measure(Side::Peer)?);
                pairs.add(ours.0, peer.0, ours.0 / peer.0);
                say(&format!(
                    "{lane} {case} {n}/{}: ours {:.0}, ib_ipoib {:.0}: {:.3}",
                    options.pairs,
                    ours.0,
                    peer.0,
                    ours.0 / peer.0
                ));
                let (Some(our_cost), Some(peer_cost)) = (ours.1, peer.1) else {
                    continue;
                };
                say(&format!("ours: {our_cost}"));
                say(&format!("ib_ipoib: {peer_cost}"));
                pairs.set_share(our_cost.driver as f64 / our_cost.outside() as f64);
                costs[0].push(our_cost.per_unit(ours.0));
                costs[1].push(peer_cost.per_unit(peer.0));
                if share {
                    // For the same work, not of one's own total.
                    let own = our_cost.per_unit(ours.0).driver;
                    let peers = peer_cost.per_unit(peer.0).driver;
                    text.add(own, peers, peers / own);
                }
            }
            let unit = match counter {
                Some(_) => format!("{} per 10^9 instructions outside the device", load.unit()),
                None => format!("{}/s", load.unit()),
            };
            if options.includes(case) {
                let mut record = Record::new(PAGE, case, lane, &unit, &pairs);
                let [ours, peer] = costs.map(|costs| Costs::mean(&costs));
                record.costs = ours.zip(peer).map(|(ours, peer)| [ours, peer]);
                report.results.push(record);
            }
        }
        if wants_text {
            let unit = "own instructions per Mbit of tcp_1";
            report
                .results
                .push(Record::new(PAGE, "text_share", lane, unit, &text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, Load};
    use crate::bench::count::{Counts, Symbols};

    #[test]
    fn what_is_outside_the_device() {
        let symbols = Symbols::new(
            "ffffffff81000000 t memcpy_orig\n\
             ffffffff81100000 t memmove\n\
             ffffffff81200000 t csum_partial\n\
             ffffffff82000000 t tcp_sendmsg\n\
             ffffffff83000000 t _copy_to_iter\n\
             ffffffffc0001000 t copy\t[ib_hwsim]\n\
             ffffffffc0002000 t xmit\t[ipoib_rs]\n",
        )
        .expect("they are there");
        let counts = Counts::difference(
            "",
            "0 80\nffffffff81000000 500\nffffffff81100000 400\nffffffff81200000 200\n\
             ffffffff82000000 100\nffffffff83000000 20\n\
             ffffffffc0001000 300\nffffffffc0002000 10\n",
        )
        .expect("they are right");
        for (offloaded, device, outside) in [(true, 1400, 210), (false, 1200, 410)] {
            let cost = Cost::of(&counts, &symbols, "ipoib_rs", offloaded).expect("is complete");
            assert_eq!(
                (cost.driver, cost.device, cost.outside()),
                (10, device, outside)
            );
        }
        Cost::of(&counts, &symbols, "ib_ipoib", true).expect_err("it did nothing");
    }

    #[test]
    fn work_that_was_done() {
        let text = r#"{"end": {"sum_received": {"bytes": 1e6, "seconds": 2.0}}}"#;
        let done = Load::Tcp(4).done(text).expect("is there");
        assert_eq!(done, (8.0, 2.0));
        let text = "TRANSACTION_RATE=100\nELAPSED_TIME=1.5\n";
        assert_eq!(Load::Rr.done(text).expect("is there"), (150.0, 1.5));
        Load::Udp64.done(text).expect_err("nothing was received");
    }
}
