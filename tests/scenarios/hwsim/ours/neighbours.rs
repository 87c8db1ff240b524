// SPDX-License-Identifier: GPL-2.0

//! Many neighbours, and what they cost.

use super::super::EXCLUSIVE;
use super::{Driver, up};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::fmt::Write;
use std::time::Duration;

const PEERS: usize = 2000;
/// The most memory of the kernel that a peer may take that nothing is sent to.
const IDLE_BYTES: usize = 1024;

const ONE_EACH: &str = include_str!("../../../guest/hwsim/neighbours/one_each.py");

/// Bytes of the kernel's memory in use.
fn used(host: &Host) -> Result<usize> {
    let text = host.ok("grep -E '^(Slab|VmallocUsed|Percpu|PageTables):' /proc/meminfo")?;
    let fields = text.split_whitespace();
    let kib: usize = fields.filter_map(|field| field.parse::<usize>().ok()).sum();
    Ok(kib * 1024)
}

scenario! {
    /// Thousands of peers that were sent to once cost 1 KiB each at most, path, address handle and all.
    #[on(uml, base)]
    fn idle_peers_take_little(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 10 {}", b.ip4()))?;
        let address = b.ok("cat /sys/class/net/ib0/address")?;
        let gid = address.trim().get(11..).context("a short address")?;
        // To the driver, each queue pair is a peer.
        let mut batch = String::new();
        for n in 0..PEERS {
            let qpn = 0x1000 + n;
            writeln!(
                batch,
                "neigh replace 10.9.{}.{} lladdr 00:00:{:02x}:{:02x}{gid} dev ib0 nud permanent",
                4 + n / 256, n % 256, qpn / 256, qpn % 256
            )?;
        }
        a.ok("ip addr add 10.9.0.1/16 dev ib0")?;
        bed.machines()[0].write("/tmp/neighbours", &batch)?;
        a.ok("ip -batch /tmp/neighbours")?;
        let outside = a.outside();
        let before = used(&outside)?;
        a.python(ONE_EACH, &[&PEERS.to_string()])?.ok()?;
        outside.wait_until(
            &format!("test $(cat /sys/kernel/debug/ipoib_rs/*/path | grep -c 'complete: *yes') -ge {PEERS}"),
            Duration::from_secs(30),
        )?;
        let each = used(&outside)?.saturating_sub(before) / PEERS;
        println!("{each} bytes for each of {PEERS} idle peers");
        ensure!(each <= IDLE_BYTES, "{each} bytes for an idle peer");
        // Where all is slow, opensm answers questions that were repeated, and umad refuses the second answer.
        manager.kill()?;
        bed.finish()
    }
}
