// SPDX-License-Identifier: GPL-2.0

//! The simulated fabric `ib_hwsim`: two HCAs and the cable between them, with Debian's opensm and diagnostics
//! and the kernel's own IPoIB driver on top. This checkout's driver is not in these.

mod fields;
mod mads;

use crate::interop::neighbour;
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use fields::Fields;
use lab::bed::{Bed, Host};
use lab::machine::{Kernel, Task};
use lab::scenario;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const HCAS: [&str; 2] = ["hwsim0", "hwsim1"];
/// Gives each RDMA device to one network namespace, as `rdma system set netns exclusive` does. That has to come
/// before the first namespace is made.
const EXCLUSIVE: &str = "ib_core.netns_mode=0";
const OPENSM_LOG: &str = "/var/log/opensm.log";

/// The HCA that a host has in its network namespace.
fn hca(host: &Host) -> &'static str {
    HCAS[usize::from(host.number() - 1)]
}

/// A port as `ibstat` shows it.
#[derive(Debug)]
struct Port {
    node_guid: u64,
    guid: u64,
    lid: u64,
    sm_lid: u64,
    state: String,
    physical_state: String,
}

impl Port {
    fn of(host: &Host, hca: &str) -> Result<Port> {
        let fields = Fields::of(host, &format!("ibstat {hca}"))?;
        ensure!(fields.text("Number of ports")? == "1", "{fields}");
        ensure!(fields.text("Link layer")? == "InfiniBand", "{fields}");
        Ok(Port {
            node_guid: fields.number("Node GUID")?,
            guid: fields.number("Port GUID")?,
            lid: fields.number("Base lid")?,
            sm_lid: fields.number("SM lid")?,
            state: fields.text("State")?.to_owned(),
            physical_state: fields.text("Physical state")?.to_owned(),
        })
    }
}

/// Loads the fabric, and what opensm and the diagnostics reach it by.
fn load(host: &Host) -> Result<()> {
    host.ok("modprobe ib_umad && modprobe ib_hwsim && mkdir -p /var/cache/opensm")?;
    Ok(())
}

/// The command line of opensm on the port of an HCA.
fn opensm(host: &Host, hca: &str) -> Result<String> {
    let port = Port::of(host, hca)?;
    Ok(format!("opensm -g {:#018x} -f {OPENSM_LOG}", port.guid))
}

/// Waits until the port of an HCA is Active.
fn active(host: &Host, hca: &str) -> Result<()> {
    host.wait_until(
        &format!("ibstat {hca} 1 | grep -q '^State: Active'"),
        Duration::from_secs(15),
    )
}

/// Ends opensm, which writes the rest of its log then, and fails if it has logged an error.
fn opensm_ends(host: &Host, task: &Task) -> Result<()> {
    host.ok("pkill -TERM -x opensm")?;
    task.wait(host.scaled(Duration::from_secs(10)))?;
    opensm_is_content(host)
}

/// Fails if opensm, which has ended, has logged an error.
fn opensm_is_content(host: &Host) -> Result<()> {
    let log = host.ok(&format!("cat {OPENSM_LOG}"))?;
    ensure!(log.contains("SUBNET UP"), "{log}");
    let errors: Vec<&str> = log.lines().filter(|l| l.contains(" ERR ")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

/// Loads fabric and `ib_ipoib`, gives each of two hosts an HCA, and brings `ib0` up on both; opensm, which runs
/// on the first.
fn ipoib_up(bed: &Bed) -> Result<Task> {
    let (a, b) = bed.pair()?;
    let outside = a.outside();
    let mode = outside.ok("rdma system show")?;
    ensure!(mode.contains("netns exclusive"), "{mode}");
    // In this order, its interfaces have to go and come again as the HCAs move.
    outside.ok("modprobe ib_ipoib")?;
    load(&outside)?;
    for host in [a, b] {
        let netns = host.netns().context("a host without a namespace")?;
        outside.ok(&format!("rdma dev set {} netns {netns}", hca(host)))?;
    }
    let task = a.spawn(&opensm(a, hca(a))?)?;
    for host in [a, b] {
        active(host, hca(host))?;
        host.ib_up()?;
    }
    Ok(task)
}

scenario! {
    /// The cable is up at once; opensm gives the ports LIDs and brings them to Active, and finds no fault.
    fn opensm_brings_the_ports_up(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        load(&host)?;
        for hca in HCAS {
            let port = Port::of(&host, hca)?;
            ensure!((&*port.state, &*port.physical_state) == ("Initializing", "LinkUp"), "{port:?}");
        }
        host.ok(&format!("{} -o", opensm(&host, HCAS[0])?))?;
        let ports = [Port::of(&host, HCAS[0])?, Port::of(&host, HCAS[1])?];
        let [a, b] = &ports;
        for port in &ports {
            ensure!((&*port.state, &*port.physical_state) == ("Active", "LinkUp"), "{port:?}");
            ensure!((1..0xc000).contains(&port.lid) && port.sm_lid == a.lid, "{port:?}");
        }
        ensure!(a.lid != b.lid && a.guid != b.guid && a.node_guid != b.node_guid, "{ports:?}");
        opensm_is_content(&host)?;
        bed.finish()
    }
}

scenario! {
    /// The diagnostics, by directed route, by LID and by way of the SA, tell of two HCAs and the link between
    /// them, seen from either.
    fn diagnostics_see_the_pair(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        load(&host)?;
        let task = host.spawn(&opensm(&host, HCAS[0])?)?;
        for hca in HCAS {
            active(&host, hca)?;
        }
        let ports = [Port::of(&host, HCAS[0])?, Port::of(&host, HCAS[1])?];
        for (hca, port, peer) in [(HCAS[0], &ports[0], &ports[1]), (HCAS[1], &ports[1], &ports[0])] {
            let from = format!("-C {hca} -P 1");
            discovers(&host.ok(&format!("ibnetdiscover {from}"))?, port, peer)?;
            let text = host.ok(&format!("sminfo {from}"))?;
            let sm = format!("sm lid {} sm guid {:#x},", ports[0].lid, ports[0].guid);
            ensure!(text.contains(&sm) && text.contains("SMINFO_MASTER"), "{text}");
            for (target, node) in [
                ("-D nodeinfo 0".to_owned(), port),
                ("-D nodeinfo 0,1".to_owned(), peer),
                (format!("nodeinfo {}", port.lid), port),
                (format!("nodeinfo {}", peer.lid), peer),
            ] {
                let info = Fields::of(&host, &format!("smpquery {from} {target}"))?;
                ensure!(info.text("NodeType")? == "Channel Adapter", "{info}");
                ensure!(info.number("Guid")? == node.node_guid, "{info}");
                ensure!(info.number("PortGuid")? == node.guid, "{info}");
                ensure!((info.number("NumPorts")?, info.number("LocalPort")?) == (1, 1), "{info}");
            }
            counts(&host, &from, peer.lid)?;

            let nodes = Fields::of(&host, &format!("saquery {from} NodeRecord"))?;
            for (key, expected) in [("lid", [port.lid, peer.lid]), ("port_guid", [port.guid, peer.guid])] {
                ensure!(nodes.numbers(key)? == BTreeSet::from(expected), "{nodes}");
            }
            let path = format!("saquery {from} --src-to-dst {}:{}", port.lid, peer.lid);
            let path = Fields::of(&host, &path)?;
            ensure!((path.number("slid")?, path.number("dlid")?) == (port.lid, peer.lid), "{path}");
        }
        opensm_ends(&host, &task)?;
        bed.finish()
    }
}

/// Checks the output of `ibnetdiscover`: two ports, and each is the other's neighbour.
fn discovers(text: &str, port: &Port, peer: &Port) -> Result<()> {
    let link = Regex::new(
        r#"(?m)^\[1\]\(([0-9a-f]+)\)\s+"H-([0-9a-f]+)"\[1\] \(([0-9a-f]+)\)\s+# lid (\d+) lmc 0 ".*" lid (\d+) "#,
    )?;
    let seen: BTreeSet<[u64; 5]> = link
        .captures_iter(text)
        .map(|c| {
            let (_, [guid, neighbour, neighbours_port, lid, neighbours_lid]) = c.extract();
            Ok([
                u64::from_str_radix(guid, 16)?,
                u64::from_str_radix(neighbour, 16)?,
                u64::from_str_radix(neighbours_port, 16)?,
                lid.parse()?,
                neighbours_lid.parse()?,
            ])
        })
        .collect::<Result<_>>()?;
    let half = |a: &Port, b: &Port| [a.guid, b.node_guid, b.guid, a.lid, b.lid];
    ensure!(
        seen == BTreeSet::from([half(port, peer), half(peer, port)]),
        "{seen:x?} in {text}"
    );
    ensure!(text.matches("caguid=").count() == 2, "{text}");
    Ok(())
}

/// Checks that the counters of the port `lid` count the queries for them, have seen no error, and can be reset.
fn counts(host: &Host, from: &str, lid: u64) -> Result<()> {
    let query = |options: &str| Fields::of(host, &format!("perfquery {from} {options} {lid} 1"));
    for options in ["", "-x"] {
        let first = query(options)?;
        let second = query(options)?;
        for key in ["PortXmitPkts", "PortRcvPkts", "PortXmitData", "PortRcvData"] {
            ensure!(
                second.number(key)? > first.number(key)?,
                "{key}: {first}{second}"
            );
        }
    }
    let before = query("")?;
    for key in [
        "SymbolErrorCounter",
        "LinkDownedCounter",
        "PortRcvErrors",
        "PortXmitDiscards",
        "VL15Dropped",
    ] {
        ensure!(before.number(key)? == 0, "{before}");
    }
    host.ok(&format!("perfquery {from} -R {lid} 1"))?;
    let after = query("")?;
    ensure!(
        after.number("PortXmitPkts")? < before.number("PortXmitPkts")?,
        "{before}{after}"
    );
    Ok(())
}

scenario! {
    /// `ib_ipoib` between two namespaces: ARP, neighbour discovery, multicast, all sizes of packets, and
    /// streams both ways that arrive as they were sent.
    fn ib_ipoib_passes_packets(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let task = ipoib_up(&bed)?;
        let (a, b) = bed.pair()?;
        let own_counters = format!("perfquery -C {} -P 1", hca(a));
        let sent = Fields::of(a, &own_counters)?.number("PortXmitPkts")?;
        for (from, to) in [(a, b), (b, a)] {
            ensure!(from.ok("cat /sys/class/net/ib0/mtu")?.trim() == "2044");
            for size in [0, 56, 2016, 2017, 65507] {
                from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()))?;
                from.ok(&format!("ping -6 -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip6()))?;
            }
            from.ok(&format!("ping -q -c 1 -W 5 -M do -s 2016 {}", to.ip4()))?;
            from.run(&format!("ping -q -c 1 -W 1 -M do -s 2017 {}", to.ip4()))?.refused()?;
            let guid = Port::of(to, hca(to))?.guid.to_be_bytes().map(|b| format!("{b:02x}")).join(":");
            let address = to.ok("cat /sys/class/net/ib0/address")?;
            ensure!(address.trim().ends_with(&guid), "{address} without {guid}");
            for target in [to.ip4(), to.ip6()] {
                ensure!(neighbour(from, &target, "ib0")? == address.trim());
            }
        }
        let flood = a.ok(&format!("ping -q -c 200 -i 0.005 -W 5 {}", b.ip4()))?;
        ensure!(flood.contains(" 0% packet loss"), "{flood}");
        let more = Fields::of(a, &own_counters)?.number("PortXmitPkts")? - sent;
        ensure!(more >= 200, "{more} packets counted");
        multicast(a, b)?;

        for options in ["", "-R"] {
            let end: Value = iperf3(&bed, &b.ip4(), options)?;
            let bytes = end.pointer("/sum_received/bytes").and_then(Value::as_f64);
            ensure!(bytes.is_some_and(|bytes| bytes > 1e5), "{options}: {end}");
        }
        transfer(a, b, &b.ip4(), 8)?;
        transfer(b, a, &a.ip6(), 8)?;
        opensm_ends(a, &task)?;
        bed.finish()
    }
}

/// A multicast ping is answered, and the SA knows the groups that IPoIB needs (RFC 4391, section 4).
fn multicast(a: &Host, b: &Host) -> Result<()> {
    let address = b.ok("ip -6 -o addr show dev ib0 scope link")?;
    let address = Regex::new("fe80::[0-9a-f:]+")?
        .find(&address)
        .with_context(|| format!("no link-local address: {address}"))?
        .as_str()
        .to_owned();
    a.wait_until(
        &format!("ping -6 -c 2 -i 0.2 -W 2 ff02::1%ib0 | grep -q 'from {address}'"),
        Duration::from_secs(10),
    )?;
    let groups = Fields::of(a, &format!("saquery -C {} -P 1 -g", hca(a)))?;
    for mgid in [
        "ff12:401b:ffff::ffff:ffff",
        "ff12:401b:ffff::1",
        "ff12:601b:ffff::1",
    ] {
        ensure!(
            groups.texts("MGID").contains(&mgid),
            "no {mgid} in {groups}"
        );
    }
    Ok(())
}

scenario! {
    /// The fabric is unloaded under all that uses it, and loaded again.
    fn removal_takes_everything_along(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let task = ipoib_up(&bed)?;
        let pings = [
            a.spawn(&format!("ping -f -q {}", b.ip4()))?,
            b.spawn(&format!("ping -f -q {}", a.ip6()))?,
        ];
        std::thread::sleep(a.scaled(Duration::from_millis(500)));
        // Where opensm's HCA goes first, the other's requests to leave its multicast groups time out.
        outside.run_for("modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        for host in [a, b] {
            host.run("ip link show ib0")?.refused()?;
            host.run("rdma dev | grep hwsim")?.refused()?;
        }
        outside.run("ls /dev/infiniband | grep -E 'umad|issm'")?.refused()?;
        for ping in pings {
            ping.stop()?;
        }
        // Without its port it knows no end.
        outside.ok("pkill -KILL -x opensm")?;
        task.wait(a.scaled(Duration::from_secs(5)))?;

        let task = ipoib_up(&bed)?;
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        transfer(b, a, &a.ip4(), 1)?;
        task.stop()?;
        outside.run_for("modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}

scenario! {
    /// modprobe and rmmod again and again, with `ib_ipoib` there and without; then the fabric works.
    fn the_module_comes_and_goes(bed) {
        let rounds = if bed.kernel() == Kernel::Debug { 5 } else { 20 };
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        for ipoib in ["true", "modprobe ib_ipoib"] {
            host.run_for(
                &format!(
                    "set -e
                     {ipoib}
                     for i in $(seq {rounds}); do
                         modprobe ib_hwsim
                         modprobe -r ib_hwsim
                     done
                     ! rdma dev | grep hwsim"
                ),
                Duration::from_secs(60),
            )?
            .ok()?;
        }
        load(&host)?;
        host.ok(&format!("{} -o", opensm(&host, HCAS[0])?))?;
        for hca in HCAS {
            active(&host, hca)?;
        }
        bed.finish()
    }
}

const MANUAL: &str = include_str!("../../Documentation/ib_hwsim.rst");

scenario! {
    /// The manual's commands, one after the other.
    fn the_manual_works(bed) {
        let bed = bed.one_machine().hosts(1).append(EXCLUSIVE).up()?;
        let host = bed.hosts[0].outside();
        let commands: Vec<&str> = MANUAL.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        let commands: Vec<&str> = commands.into_iter().filter(|line| !line.starts_with(' ')).collect();
        let ping = commands.iter().position(|line| line.starts_with("ping ")).context("no ping in the manual")?;
        host.ok(&format!("set -e\n{}", commands[..ping].join("\n")))?;
        host.wait_until(&format!("{} >/dev/null", commands[ping]), Duration::from_secs(30))?;
        host.ok("pkill -TERM -x opensm; ip netns del b")?;
        bed.finish()
    }
}
