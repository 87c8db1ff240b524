// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/ipoib_rs/<interface>/`.

use crate::order::{counter, send};
use crate::quiet::hush;
use crate::wire::hardware_address;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::time::Duration;

/// Where the host's interface is.
pub(crate) fn directory(host: &Host, interface: &str) -> Result<String> {
    let inside = host.ok("stat -Lc %i /proc/self/ns/net")?;
    let first = host.outside().ok("stat -Lc %i /proc/1/ns/net")?;
    Ok(if inside == first {
        format!("/run/debug/ipoib_rs/{interface}")
    } else {
        format!("/run/debug/ipoib_rs/{interface}:{}", inside.trim())
    })
}

pub(crate) type Row = HashMap<String, String>;

/// The rows of a file, by column.
pub(crate) fn table(host: &Host, file: &str) -> Result<Vec<Row>> {
    let text = host.ok(&format!("cat {file}"))?;
    let mut lines = text.lines().map(|line| line.split(' ').map(str::to_owned));
    let names: Vec<String> = lines.next().context("no heading")?.collect();
    lines
        .map(|line| {
            let row: Vec<String> = line.collect();
            ensure!(row.len() == names.len(), "{text}");
            Ok(names.iter().cloned().zip(row).collect())
        })
        .collect()
}

/// Rows of the tables with a host's address.
pub(crate) fn identity(host: &Host) -> Result<(String, String)> {
    let address = hardware_address(host)?;
    let gid: [u8; 16] = address[4..].try_into()?;
    let qpn = u32::from_be_bytes([0, address[1], address[2], address[3]]);
    Ok((Ipv6Addr::from(gid).to_string(), format!("{qpn:#08x}")))
}

fn of<'a>(rows: &'a [Row], (gid, qpn): &(String, String)) -> Result<&'a Row> {
    rows.iter()
        .find(|row| row["gid"] == *gid && row["qpn"] == *qpn)
        .with_context(|| format!("no {gid} {qpn} in {rows:?}"))
}

/// Counters of each source, and of all.
const COUNTED: [&str; 9] = [
    "in_order",
    "reordered",
    "late",
    "held",
    "filled",
    "moved",
    "timed_out",
    "duplicates",
    "resyncs",
];

scenario! {
    /// The counters of a source add up to those of the interface, of which it is the only source; the
    /// path to it and the groups are there, too.
    #[on(infiniband)]
    fn what_is_known_of_others(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        if a.is_infiniband() {
            a.outside().ok("echo 5000 >/sys/kernel/config/ib_hwsim/star/cables/c1/jitter")?;
        } else {
            a.ok("tc qdisc replace dev eth0 root netem limit 10000 delay 5ms reorder 25%")?;
        }
        send(&bed, 500, 0.001)?;

        let peer = identity(a)?;
        let paths = table(b, &format!("{}/paths", directory(b, "ib0")?))?;
        let path = of(&paths, &peer)?;
        ensure!(["ready", "old"].contains(&&*path["state"]) && path["flags"] == "0x20" && path["waiting"] == "0", "{path:?}");

        let groups = table(b, &format!("{}/groups", directory(b, "ib0")?))?;
        let broadcast = groups.iter().find(|row| row["mgid"] == "ff12:401b:ffff::ffff:ffff");
        ensure!(broadcast.is_some_and(|row| row["state"] == "joined"), "{groups:?}");
        let nodes = groups.iter().find(|row| row["mgid"] == "ff12:601b:ffff::1");
        ensure!(nodes.is_some_and(|row| row["state"] == "joined" && row["wanted"] == "1"), "{groups:?}");

        // No frame comes between two readings.
        hush(&bed)?;
        let sources = table(b, &format!("{}/sources", directory(b, "ib0")?))?;
        ensure!(sources.len() == 1, "{sources:?}");
        // A datagram on InfiniBand says which LID it comes from, and no GID.
        let (gid, qpn) = &peer;
        let gid = if a.is_infiniband() { &sources[0]["gid"] } else { gid };
        let source = of(&sources, &(gid.clone(), qpn.clone()))?;
        for name in COUNTED {
            let all = counter(b, &format!("rx_seq_{name}"))?;
            ensure!(source[name].parse() == Ok(all), "{name} of all is {all}, {source:?}");
        }
        ensure!(source["filled"] != "0" && source["established"] == "1" && source["holding"] == "0", "{source:?}");
        ensure!(counter(b, "rx_seq_sources")? == 1);

        b.ok("ip link set ib0 down")?;
        for file in ["sources", "paths", "groups"] {
            let rows = table(b, &format!("{}/{file}", directory(b, "ib0")?))?;
            ensure!(rows.is_empty(), "{file}: {rows:?}");
        }
        bed.finish()
    }
}

scenario! {
    /// The directory is there while the interface is, under its name and with its namespace behind it.
    #[on(infiniband)]
    fn files_follow_the_interface(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let first = directory(a, "ib0")?;
        ensure!(a.ok(&format!("ls {first}"))?.split_whitespace().eq(["connections", "device", "groups", "mcg", "path", "paths", "sources"]));
        a.ok("ip link set ib0 down && ip link set ib0 name ib.7")?;
        a.run(&format!("ls {first}"))?.refused()?;
        let second = directory(a, "ib.7")?;
        a.ok(&format!("ls {second}"))?;

        let outside = a.outside();
        let (holder, pid) = a.netns_add("guest")?;
        a.ok(&format!("ip link set ib.7 netns {pid}"))?;
        a.run(&format!("ls {second}"))?.refused()?;
        let inode = outside.ok(&format!("stat -Lc %i /proc/{pid}/ns/net"))?;
        let third = format!("/run/debug/ipoib_rs/ib.7:{}", inode.trim());
        outside.ok(&format!("cat {third}/sources"))?;
        outside.ok("ip -n guest link del ib.7")?;
        outside.run(&format!("ls {third}"))?.refused()?;
        holder.stop()?;
        bed.finish()
    }
}

scenario! {
    /// Reading while the interface comes and goes, under traffic, ends neither in a deadlock nor in a
    /// crash.
    #[on(infiniband)]
    fn reading_while_it_comes_and_goes(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let reader = a.repeat("cat /run/debug/ipoib_rs/*/* >/dev/null 2>&1")?;
        let pinging = b.spawn(&format!("ping -q -f {}", a.ip4()))?;
        for round in 0..20 {
            if round % 2 == 0 {
                a.ok("ip link set ib0 down && ip link set ib0 up")?;
            } else {
                a.ok("ip link del ib0")?;
                a.ib_add("")?;
                a.ok("ip link set ib0 up")?;
            }
        }
        pinging.stop()?;
        reader.stop()?;
        a.ok(&format!("cat {}/sources", directory(a, "ib0")?))?;
        bed.finish()
    }
}

scenario! {
    /// A file that is open keeps the module; what is read from it after its interface is gone is an
    /// error.
    #[on(infiniband)]
    fn an_open_file_keeps_the_module(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let file = format!("{}/paths", directory(a, "ib0")?);
        let holder = a.spawn(&format!("sh -c 'exec 3<{file}; echo open; exec sleep 1000'"))?;
        holder.wait_for("open", a.scaled(Duration::from_secs(10)))?;
        for host in &bed.hosts {
            host.ok("ip link del ib0")?;
        }
        let refused = a.outside().run("rmmod ipoib_rs")?.refused()?;
        ensure!(refused.contains("in use"), "{refused}");
        holder.stop()?;
        a.outside().wait_until("rmmod ipoib_rs", Duration::from_secs(10))?;
        bed.finish()
    }
}
