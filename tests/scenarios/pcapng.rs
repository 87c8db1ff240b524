// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl capture`: what it writes is what the link carries, and Wireshark shows it with the dissector beside it.

use crate::connected::{connect, set_mode};
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::layout::Layout;
use lab::scenario;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const FILE: &str = "/tmp/ipoibctl.pcapng";
const PINGS: usize = 10;
/// Types of ICMP.
const ECHO: u16 = 8;
const ECHO_REPLY: u16 = 0;

/// A packet as tshark shows it.
#[derive(Debug)]
struct Shown {
    /// The report of ipoibctl about it.
    comment: String,
    number: Option<u16>,
    ether_type: Option<u16>,
    credit: Option<u16>,
    gso_size: Option<u16>,
    /// Protocols, the outermost first.
    protocols: String,
    icmp_type: Option<u16>,
}

/// Packets of a capture as tshark shows them, to a user: root gets no dissectors in Lua.
fn tshark(host: &Host) -> Result<Vec<Shown>> {
    let lua = Layout::from_env()?
        .checkout
        .join("tools/ipoibctl/wireshark/ipoib_rs.lua");
    let output = host.run(&format!(
        "setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp tshark -X lua_script:{} -r - -T fields -E separator=/t -E occurrence=f \
         -e frame.comment -e ipoib_rs.number -e ipoib_rs.type -e ipoib_rs.credit -e ipoib_rs.gso.size -e frame.protocols \
         -e icmp.type <{FILE}",
        lua.display()
    ))?;
    ensure!(
        output.code == Some(0) && !output.stderr.contains("Lua"),
        "{}",
        output.describe()
    );
    let shown = output.stdout.lines().map(|line| -> Result<Shown> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [
            comment,
            number,
            ether_type,
            credit,
            gso_size,
            protocols,
            icmp_type,
        ] = columns[..]
        else {
            anyhow::bail!("{line:?}");
        };
        let number_of = |text: &str| -> Result<Option<u16>> {
            Ok(match (text, text.strip_prefix("0x")) {
                ("", _) => None,
                (_, Some(hex)) => Some(u16::from_str_radix(hex, 16)?),
                (decimal, None) => Some(decimal.parse()?),
            })
        };
        Ok(Shown {
            comment: comment.to_owned(),
            number: number_of(number)?,
            ether_type: number_of(ether_type)?,
            credit: number_of(credit)?,
            gso_size: number_of(gso_size)?,
            protocols: protocols.to_owned(),
            icmp_type: number_of(icmp_type)?,
        })
    });
    shown.collect()
}

/// The number behind some words of a comment.
fn behind(comment: &str, words: &str) -> Option<u16> {
    let rest = comment.split_once(words)?.1;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Both decoders, ours in Rust and the dissector in Lua, say the same about a packet.
fn agree(packet: &Shown) -> Result<()> {
    let comment = &packet.comment;
    let is_frame = ["datagram from", "connection to"]
        .iter()
        .any(|words| comment.starts_with(words) && comment.contains(": "));
    ensure!(packet.ether_type.is_some() == is_frame, "{packet:?}");
    if is_frame {
        let number = behind(comment, ", number ").unwrap_or(0);
        ensure!(packet.number == Some(number), "{packet:?}");
        ensure!(
            packet.credit == behind(comment, "credit limit "),
            "{packet:?}"
        );
        let size = behind(comment, "segmented into ");
        ensure!(
            packet.gso_size.unwrap_or(0) == size.unwrap_or(0),
            "{packet:?}"
        );
    }
    Ok(())
}

/// The tool. The view of /sys of a network namespace of its own has no configfs, where simulated adapters are.
fn tool(host: &Host) -> Result<String> {
    let tool = Layout::from_env()?.ipoibctl();
    Ok(if host.is_infiniband() {
        format!(
            "sh -c 'mount -t configfs configfs /sys/kernel/config && exec \"$0\" \"$@\"' {}",
            tool.display()
        )
    } else {
        tool.display().to_string()
    })
}

/// Captures while `traffic` runs. Returns the report.
fn captured(host: &Host, options: &str, traffic: impl FnOnce() -> Result<()>) -> Result<Value> {
    host.ok(&format!("rm -f {FILE}"))?;
    let tool = tool(host)?;
    let task = host.spawn(&format!("exec {tool} capture {options} {FILE} --json"))?;
    host.wait_until(&format!("[ -s {FILE} ]"), Duration::from_secs(10))?;
    traffic()?;
    // What is on its way still.
    std::thread::sleep(host.scaled(Duration::from_millis(300)));
    let output = task.stop()?;
    ensure!(output.code == Some(0), "{}", output.describe());
    let report: Value = serde_json::from_str(&output.stdout)?;
    ensure!(report["lost"] == 0 && report["status"] == 0, "{report}");
    Ok(report)
}

fn kind(report: &Value, kind: &str) -> usize {
    let count = report["kinds"][kind].as_u64().unwrap_or(0);
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Pings in datagram mode: each is there, with the next number.
fn datagrams(a: &Host, b: &Host) -> Result<()> {
    let ping = format!("ping -q -c {PINGS} -i 0.05 -W 5 {}", b.ip4());
    let report = captured(a, "--interface ib0", || a.ok(&ping).map(|_| ()))?;
    ensure!(kind(&report, "datagram") >= 2 * PINGS, "{report}");
    let packets = tshark(a)?;
    ensure!(
        report["packets"] == packets.len(),
        "{report}, {} shown",
        packets.len()
    );
    packets.iter().try_for_each(agree)?;
    for what in [ECHO, ECHO_REPLY] {
        let mut numbers: Vec<u16> = packets
            .iter()
            .filter(|p| p.protocols.contains(":ipoib_rs:ip:icmp") && p.icmp_type == Some(what))
            .filter_map(|packet| packet.number)
            .collect();
        let seen = numbers.clone();
        numbers.dedup();
        let is_next =
            |pair: &[u16]| pair[1] == pair[0] % u16::MAX + 1 || pair[1] == pair[0].wrapping_add(2);
        ensure!(
            numbers.len() == PINGS && numbers.windows(2).all(is_next),
            "{what}: {seen:?} of {packets:#?}"
        );
    }
    if !a.is_infiniband() {
        let lines = a.ok(&format!(
            "tcpdump -nr {FILE} 2>/dev/null | grep -c '4791: UDP'"
        ))?;
        ensure!(report["packets"] == lines.trim().parse::<u64>()?, "{lines}");
    }
    Ok(())
}

/// A stream on a connection: frames that are whole, and segments with an EtherType of their own.
fn connection(a: &Host, b: &Host) -> Result<()> {
    for host in [a, b] {
        set_mode(host, "connected")?;
    }
    connect(a, b)?;
    let mut compact = 0;
    for large in [1, 0] {
        for host in [a, b] {
            host.ok(&format!("sysctl -qw net.ipoib.ib0.large_frames={large}"))?;
        }
        connect(a, b)?;
        let report = captured(a, "", || transfer(a, b, &b.ip4(), 1))?;
        ensure!(
            kind(&report, "connection") > 10 && report["extended"].as_u64() > Some(10),
            "{report}"
        );
        let packets = tshark(a)?;
        packets.iter().try_for_each(agree)?;
        let mut types = BTreeMap::<u16, usize>::new();
        for packet in &packets {
            if let Some(ether_type) = packet.ether_type {
                *types.entry(ether_type).or_default() += 1;
            }
        }
        let sizes = packets
            .iter()
            .filter(|p| p.gso_size.is_some_and(|size| size > 0))
            .count();
        ensure!(
            (sizes > 0) == (large == 1),
            "large_frames={large}: {sizes} large, {types:?}"
        );
        compact += types.get(&0x0102).copied().unwrap_or(0);
        let streams = packets
            .iter()
            .filter(|p| p.protocols.contains(":ipoib_rs:ip:tcp"));
        ensure!(streams.count() > 10, "{types:?}");
    }
    ensure!(compact > 0, "no frame without a header of its own");
    Ok(())
}

/// Limits and refusals.
fn ends(a: &Host, b: &Host) -> Result<()> {
    let tool = tool(a)?;
    let ping = a.spawn(&format!("ping -q -i 0.02 {}", b.ip4()))?;
    let report = a.ok(&format!("{tool} capture --packets 5 --json {FILE}"))?;
    let report: Value = serde_json::from_str(&report)?;
    ensure!(report["packets"] == 5 && tshark(a)?.len() == 5, "{report}");
    let piped = a.ok(&format!(
        "{tool} capture --seconds 1 - 2>/dev/null | head -c 4 | od -An -tx1"
    ))?;
    ensure!(piped.trim() == "0a 0d 0d 0a", "{piped}");
    ping.stop()?;
    for (arguments, words) in [
        ("--interface eth7 /tmp/x", "no IPoIB interface"),
        ("/nonexistent/x", "No such file"),
        ("--json -", "cannot be used"),
    ] {
        let output = a.run(&format!("{tool} capture {arguments}"))?;
        ensure!(
            output.code == Some(70) && output.stderr.contains(words),
            "{}",
            output.describe()
        );
    }
    if let Some(hca) = a.hca_files() {
        let size = a.outside().ok(&format!("cat {hca}/capture"))?;
        ensure!(size.trim() == "0", "a capture is left: {size}");
    }
    Ok(())
}

scenario! {
    /// Datagrams and connections, on RoCE and on InfiniBand.
    #[on(timed, infiniband)]
    fn a_capture_opens_in_wireshark(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(15)).context("first")?;
        datagrams(a, b)?;
        ends(a, b)?;
        connection(a, b)?;
        bed.finish()
    }
}
