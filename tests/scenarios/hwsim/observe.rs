// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs and tracepoints: where packets go, and why they are dropped.

use super::mads::UMAD;
use super::{EXCLUSIVE, Port, hca, ipoib_up, make};
use crate::streams::iperf3;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A directory for each fabric.
const DEBUGFS: &str = "/sys/kernel/debug/ib_hwsim";

/// Where tracepoints are.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Counters by their names.
type Counters = BTreeMap<String, u64>;

/// The counters of all ports of a fabric, as `h1/port1`.
pub(super) struct Tallies(BTreeMap<String, Counters>);

impl Tallies {
    /// Reads them, when no packet is under way: they are the same twice.
    pub(super) fn settled(host: &Host, fabric: &str) -> Result<Tallies> {
        let limit = Instant::now() + host.scaled(Duration::from_secs(60));
        let read = || host.ok(&format!("cd {DEBUGFS}/{fabric} && grep -H '' */port*"));
        let mut before = read()?;
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let now = read()?;
            if now == before {
                return Tallies::parse(&now);
            }
            ensure!(Instant::now() < limit, "packets all the time");
            before = now;
        }
    }

    fn parse(text: &str) -> Result<Tallies> {
        let mut ports: BTreeMap<String, Counters> = BTreeMap::new();
        for line in text.lines() {
            let (port, counter) = line.split_once(':').with_context(|| line.to_owned())?;
            let (name, value) = counter.split_once(": ").with_context(|| line.to_owned())?;
            if let Ok(n) = value.parse() {
                let counters = ports.entry(port.to_owned()).or_default();
                counters.insert(name.to_owned(), n);
            }
        }
        Ok(Tallies(ports))
    }

    pub(super) fn get(&self, port: &str, name: &str) -> Result<u64> {
        let counters = self.0.get(port).with_context(|| port.to_owned())?;
        let value = counters.get(name).copied();
        value.with_context(|| format!("no {name} in {counters:?}"))
    }

    /// The sum of counters of all ports of a node.
    fn sum(&self, node: &str, names: &[&str]) -> Result<u64> {
        let prefix = format!("{node}/");
        let mut sum = 0;
        for port in self.0.keys().filter(|port| port.starts_with(&prefix)) {
            for name in names {
                sum += self.get(port, name)?;
            }
        }
        Ok(sum)
    }

    /// Checks that all packets that came to a node went somewhere. Those of an HCA do not leave it.
    fn add_up(&self, node: &str, is_switch: bool) -> Result<()> {
        let came = self.sum(node, &["received_packets", "own", "copies"])?;
        let mut went = self.sum(node, &["delivered", "ignored", "dropped"])?;
        if is_switch {
            went += self.sum(node, &["sent_packets"])?;
        }
        ensure!(
            came == went && came > 0,
            "{node}: {came} came, {went} went: {:#?}",
            self.0
        );
        for (port, counters) in &self.0 {
            let drops = |name: &&String| name.starts_with("dropped_");
            let reasons: u64 = counters
                .keys()
                .filter(drops)
                .map(|name| counters[name])
                .sum();
            ensure!(
                reasons == self.get(port, "dropped")?,
                "{port}: {counters:#?}"
            );
        }
        Ok(())
    }

    /// Checks that what one port has sent has come to another one, and the other way round.
    fn match_over_cable(&self, one: &str, other: &str) -> Result<()> {
        for (from, to) in [(one, other), (other, one)] {
            ensure!(self.get(from, "lost")? == 0, "{from}: {:#?}", self.0);
            for what in ["packets", "bytes"] {
                let sent = self.get(from, &format!("sent_{what}"))?;
                let received = self.get(to, &format!("received_{what}"))?;
                ensure!(
                    sent == received && sent > 0,
                    "{what} from {from} to {to}: {sent}, {received}"
                );
            }
        }
        Ok(())
    }
}

/// The queue pairs of an HCA: a line of the table each, by the names of the columns.
fn queue_pairs(host: &Host, node: &str) -> Result<Vec<BTreeMap<String, String>>> {
    let text = host.ok(&format!("cat {DEBUGFS}/{node}/qps"))?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            ensure!(words.len() == names.len(), "{text}");
            let pairs = names.iter().zip(words);
            Ok(pairs
                .map(|(name, word)| ((*name).to_owned(), word.to_owned()))
                .collect())
        })
        .collect()
}

/// The queue pairs of a kind, by an HCA's table.
fn of_kind(host: &Host, node: &str, kind: &str) -> Result<Vec<BTreeMap<String, String>>> {
    let mut all = queue_pairs(host, node)?;
    all.retain(|qp| qp["kind"] == kind);
    Ok(all)
}

fn number(qp: &BTreeMap<String, String>, name: &str) -> Result<u64> {
    qp.get(name)
        .and_then(|word| word.parse().ok())
        .with_context(|| format!("no {name} in {qp:?}"))
}

const SEND: &str = include_str!("../../guest/hwsim/observe/send.py");

scenario! {
    /// With a switch between two hosts, the counters of all ports add up, over a switch and both cables, in both modes
    /// of `ib_ipoib`; and packets that cannot arrive are dropped where that is found out, for that reason.
    #[on(lockdep)]
    fn the_counters_add_up(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "star 2")?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let add_up = || -> Result<Tallies> {
            let tallies = Tallies::settled(&outside, "star")?;
            for (node, is_switch) in [("h1", false), ("h2", false), ("s1", true)] {
                tallies.add_up(node, is_switch)?;
            }
            for (hca, port) in [("h1/port1", "s1/port1"), ("h2/port1", "s1/port2")] {
                tallies.match_over_cable(hca, port)?;
            }
            Ok(tallies)
        };
        a.ok(&format!("ping -q -c 20 -i 0.05 -W 5 {}", b.ip4()))?;
        a.ok(&format!("ping -6 -q -c 3 -i 0.05 -W 5 -s 4000 {}", b.ip6()))?;
        let _: Value = iperf3(&bed, &b.ip4(), "--bidir")?;
        add_up()?;
        let [qp] = &of_kind(&outside, "star/h1", "UD")?[..] else {
            anyhow::bail!("not one UD queue pair");
        };
        ensure!(qp["state"] == "RTS", "{qp:?}");
        let at_least = |name, least| -> Result<()> {
            ensure!(number(qp, name)? >= least, "{name}: {qp:?}");
            Ok(())
        };
        at_least("sends_completed", 20)?;
        at_least("receives_completed", 20)?;
        at_least("bytes_sent", 20 * 84)?;
        ensure!(number(qp, "sends_posted")? == number(qp, "sends_completed")?, "{qp:?}");
        ensure!(number(qp, "receives_posted")? > number(qp, "receives_completed")?, "{qp:?}");
        ensure!(number(qp, "sends_flushed")? == 0, "{qp:?}");

        for host in &bed.hosts {
            host.ok("echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu 65520")?;
        }
        a.ok(&format!("ping -q -c 3 -i 0.05 -W 10 -s 60000 {}", b.ip4()))?;
        let _: Value = iperf3(&bed, &b.ip4(), "-R")?;
        let before = add_up()?;
        let (sent, received) = (connected(&outside, "h1")?, connected(&outside, "h2")?);
        ensure!(sent.0 == received.1 && sent.1 == received.0 && sent.0 > 180_000, "{sent:?} {received:?}");

        // To a queue pair that there is not, to one that has another Q_Key, and to a LID that there is not.
        let [other] = &of_kind(&outside, "star/h2", "UD")?[..] else {
            anyhow::bail!("not one UD queue pair");
        };
        let lid = Port::of(b, &hca(b))?.lid;
        let ways = [
            format!("{lid},0xabcdef,5"),
            format!("{lid},{},3", other["qpn"]),
            "0x4321,1,2".to_owned(),
        ];
        let mut arguments = vec![hca(a)];
        arguments.extend(ways);
        let arguments: Vec<&str> = arguments.iter().map(|word| &**word).collect();
        a.python(&format!("{UMAD}{SEND}"), &arguments)?.ok()?;
        let after = add_up()?;
        for (port, reason, n) in [
            ("h2/port1", "no_qp", 5),
            ("h2/port1", "qkey", 3),
            ("s1/port1", "no_route", 2),
        ] {
            let name = format!("dropped_{reason}");
            let more = after.get(port, &name)? - before.get(port, &name)?;
            ensure!(more == n, "{port}: {more} dropped for {reason}");
        }
        // The wrong Q_Key is worth a trap.
        ensure!(after.get("h2/port1", "traps_sent")? > before.get("h2/port1", "traps_sent")?);
        let downs = after.get("h2/port1", "link_downs")?;
        outside.ok("cd /sys/kernel/config/ib_hwsim/star/cables/c2 && echo 0 >plugged && echo 1 >plugged")?;
        let now = Tallies::settled(&outside, "star")?.get("h2/port1", "link_downs")?;
        ensure!(now == downs + 1, "{downs} and {now} times down");
        manager.kill()?;
        bed.finish()
    }
}

/// Bytes that the connections of an HCA have sent and received.
fn connected(host: &Host, node: &str) -> Result<(u64, u64)> {
    let mut bytes = (0, 0);
    for qp in of_kind(host, &format!("star/{node}"), "RC")? {
        bytes.0 += number(&qp, "bytes_sent")?;
        bytes.1 += number(&qp, "bytes_received")?;
    }
    Ok(bytes)
}

const HELD: &str = include_str!("../../guest/hwsim/observe/held.sh");

scenario! {
    /// Files in debugfs are there as long as the node is on; whoever has one open loses nothing but the text, and keeps
    /// the module.
    #[on(lockdep)]
    fn open_files_outlive_their_fabric(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let host = a.outside();
        host.ok(&format!("ls -d {DEBUGFS} 2>/dev/null && exit 1; modprobe ib_hwsim && [ -z \"$(ls {DEBUGFS})\" ]"))?;
        for round in 0..3 {
            let manager = ipoib_up(&bed, "pair")?;
            a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 {}", b.ip4()))?;
            let files = host.ok(&format!("cd {DEBUGFS} && find * -type f | sort"))?;
            let files: Vec<&str> = files.split_whitespace().collect();
            ensure!(files == ["pair/h1/port1", "pair/h1/qps", "pair/h2/port1", "pair/h2/qps"], "{files:?}");
            // A name that changes, and a namespace that does, are not those here.
            a.ok(&format!("rdma dev set {} name other && rdma dev set other name {}", hca(a), hca(a)))?;
            host.ok(&format!("grep -q '^state: Active$' {DEBUGFS}/pair/h1/port1"))?;
            // Nobody would hear them leave their groups afterwards, which they wait for.
            for host in [a, b] {
                host.ok("ip link set ib0 down")?;
            }
            manager.kill()?;
            let unloads = if round == 1 { "0" } else { "1" };
            let text = host.sh_for(HELD, &[DEBUGFS, unloads], Duration::from_secs(90))?.ok()?;
            ensure!(text.trim() == "fine", "{text}");
        }
        make(&host, "pair")?;
        host.ok(&format!("ib-hwsim down; ! ls {DEBUGFS}/pair 2>/dev/null"))?;
        bed.finish()
    }
}

/// A line of a trace.
#[derive(Debug, PartialEq, Eq)]
struct Traced {
    event: String,
    node: String,
    port: u64,
    fields: BTreeMap<String, String>,
}

/// The packets in a trace of a kind, in their order.
fn traced(text: &str, kind: &str) -> Result<Vec<Traced>> {
    let line = Regex::new(r"(?m)packet_(tx|rx|drop): node=(\S+) port=(\d+) (.*)$")?;
    let mut all = Vec::new();
    for found in line.captures_iter(text) {
        let (_, [event, node, port, rest]) = found.extract();
        let fields: BTreeMap<String, String> = rest
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        if fields.get("kind").is_some_and(|k| k == kind) {
            all.push(Traced {
                event: event.to_owned(),
                node: node.to_owned(),
                port: port.parse()?,
                fields,
            });
        }
    }
    Ok(all)
}

scenario! {
    /// A ping as the tracepoints show it: out of one HCA, in and out of the switch, into the
    /// other, and back; with LIDs, queue pairs and lengths. A packet that is dropped has the reason.
    #[on(stock)]
    fn tracepoints_show_a_ping(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "star 2")?;
        let (a, b) = bed.pair()?;
        let host = a.outside();
        host.ok(&format!("[ -e {TRACEFS}/events ] || mount -t tracefs none {TRACEFS}"))?;
        a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 {}", b.ip4()))?;
        let qpn = |node: &str| -> Result<String> {
            let pairs = of_kind(&host, &format!("star/{node}"), "UD")?;
            let qp = pairs.first().context("no UD queue pair")?;
            Ok(format!("{:#x}", u64::from_str_radix(qp["qpn"].trim_start_matches("0x"), 16)?))
        };
        let ends = [(Port::of(a, &hca(a))?.lid, qpn("h1")?), (Port::of(b, &hca(b))?.lid, qpn("h2")?)];
        host.ok(&format!("cd {TRACEFS} && echo >trace && echo 1 >events/ib_hwsim/enable && echo 1 >tracing_on"))?;
        a.ok(&format!("ping -q -c 1 -W 5 -s 1000 {}", b.ip4()))?;
        let words = format!("{},0xabcdef,1", ends[1].0);
        a.python(&format!("{UMAD}{SEND}"), &[&hca(a), &words])?.ok()?;
        std::thread::sleep(host.scaled(Duration::from_millis(500)));
        let text = host.ok(&format!("cd {TRACEFS} && echo 0 >events/ib_hwsim/enable && cat trace"))?;
        // 20 bytes of IP, 8 of ICMP, 4 of IPoIB, LRH, BTH, DETH and ICRC.
        let length = (1000 + 28 + 4 + 8 + 12 + 8 + 4).to_string();
        let pings: Vec<Traced> = traced(&text, "ud")?
            .into_iter()
            .filter(|packet| packet.fields["length"] == length)
            .collect();
        let way = [
            ("tx", "star/h1", 1, 0), ("rx", "star/s1", 1, 0), ("tx", "star/s1", 2, 0), ("rx", "star/h2", 1, 0),
            ("tx", "star/h2", 1, 1), ("rx", "star/s1", 2, 1), ("tx", "star/s1", 1, 1), ("rx", "star/h1", 1, 1),
        ];
        ensure!(pings.len() == way.len(), "{text}");
        for (packet, (event, node, port, from)) in pings.iter().zip(way) {
            ensure!((&*packet.event, &*packet.node, packet.port) == (event, node, port), "{packet:?}: {text}");
            let (source, target) = (&ends[from], &ends[1 - from]);
            for (name, value) in [
                ("slid", format!("{:#x}", source.0)),
                ("dlid", format!("{:#x}", target.0)),
                ("src_qp", source.1.clone()),
                ("dest_qp", target.1.clone()),
                ("opcode", "0x64".to_owned()),
                ("packets", "1".to_owned()),
            ] {
                ensure!(packet.fields[name] == value, "{name}: {packet:?}, not {value}");
            }
        }
        // The stack's own multicast may come before its group has a route.
        let drops: Vec<Traced> = traced(&text, "ud")?
            .into_iter()
            .filter(|packet| packet.event == "drop" && packet.fields["dest_qp"] != "0xffffff")
            .collect();
        ensure!(drops.len() == 1 && drops[0].node == "star/h2", "{drops:?}");
        let fields = &drops[0].fields;
        ensure!(fields["reason"] == "no_qp" && fields["dest_qp"] == "0xabcdef", "{drops:?}");
        manager.kill()?;
        bed.finish()
    }
}
