// SPDX-License-Identifier: GPL-2.0

//! Numbers that are known beforehand: bytes that are counted, messages that may be sent, kinds of packets, what frames cost.

use crate::connected::{connected, story};
use crate::drops::{GROUP, send, send_to};
use crate::inspect::{directory, table};
use crate::order::{counter, set};
use crate::quiet::hush;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Bytes of the wire's header.
const HEADER: u64 = 4;

/// Reads some counters.
fn read<const N: usize>(host: &Host, names: [&str; N]) -> Result<[u64; N]> {
    let mut values = [0; N];
    for (value, name) in values.iter_mut().zip(names) {
        *value = counter(host, name)?;
    }
    Ok(values)
}

fn more<const N: usize>(after: [u64; N], before: [u64; N]) -> [u64; N] {
    std::array::from_fn(|i| after[i] - before[i])
}

/// Waits until a counter has a value.
fn reaches(host: &Host, name: &str, value: u64) -> Result<()> {
    host.wait_until(
        &format!("[ $(ethtool -S ib0 | sed -n 's/^ *{name}: //p') = {value} ]"),
        Duration::from_secs(10),
    )
    .with_context(|| story(host))
}

scenario! {
    /// Both ends count the bytes of each packet, the sender of datagrams with the wire's header. `ip -s link` has
    /// all of them with headers in sending, and without in receiving, of connections, too.
    #[on(infiniband)]
    fn bytes_are_counted_exactly(bed) {
        const SIZES: [u32; 4] = [20, 101, 1000, 2000];
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        hush(&bed)?;
        let packets: u64 = 3 * SIZES.len() as u64;
        let bytes = 3 * u64::from(SIZES.iter().sum::<u32>());
        let address = b.ok("cat /sys/class/net/ib0/address")?;
        for by_connection in [false, true] {
            let (sent, received) = match by_connection {
                true => (["rc_tx_frames", "rc_tx_bytes"], ["rc_rx_frames", "rc_rx_bytes"]),
                false => (["tx_frames", "tx_bytes"], ["rx_frames", "rx_bytes"]),
            };
            let link = |host: &Host, name: &str| -> Result<u64> {
                Ok(host.ok(&format!("cat /sys/class/net/ib0/statistics/{name}"))?.trim().parse()?)
            };
            let all = || -> Result<([u64; 2], [u64; 2], u64, u64)> {
                Ok((read(a, sent)?, read(b, received)?, link(a, "tx_bytes")?, link(b, "rx_bytes")?))
            };
            let before = all()?;
            for size in SIZES {
                match by_connection {
                    true => send(a, address.trim(), "0x0800", 3, size)?,
                    false => send_to(a, b, 3, size)?,
                }
            }
            reaches(b, received[0], before.1[0] + packets)?;
            reaches(a, sent[0], before.0[0] + packets)?;
            let after = all()?;
            let headers = HEADER * packets;
            let counted = if by_connection { bytes } else { bytes + headers };
            ensure!(more(after.0, before.0) == [packets, counted], "{before:?} {after:?}");
            ensure!(more(after.1, before.1) == [packets, bytes], "{before:?} {after:?}");
            ensure!([after.2 - before.2, after.3 - before.3] == [bytes + headers, bytes], "{before:?} {after:?}");
        }
        bed.finish()
    }
}

scenario! {
    /// Each message that a peer has received counts against what it allows.
    #[on(infiniband)]
    fn each_message_takes_credit(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let row = |host: &Host, state: &str, name: &str| -> Result<u64> {
            let rows = table(host, &format!("{}/connections", directory(host, "ib0")?))?;
            let row = rows.iter().find(|row| row["state"] == state).with_context(|| story(host))?;
            Ok(row[name].parse()?)
        };
        for (host, peer) in [(a, b), (b, a)] {
            for size in [10, 20_000] {
                host.ok(&format!("ping -q -c 1 -W 5 -s {size} {}", peer.ip4()))?;
            }
            let (may_send, sent) = (row(host, "up", "may_send")?, row(host, "up", "tx_frames")?);
            let window = row(peer, "receiving", "window")?;
            // No credit limit of the peer's yet: it would be half of its window.
            ensure!(counter(peer, "rc_grants")? == 0 && sent >= 2, "{}{}", story(host), story(peer));
            ensure!(may_send + sent == window && sent < window / 2, "{}{}", story(host), story(peer));
        }
        bed.finish()
    }
}

const KINDS: &str = include_str!("../guest/exact/kinds.py");

/// Address of the broadcast group.
const BROADCAST: &str = "00ffffffff12401bffff000000000000ffffffff";

scenario! {
    /// The stack is told of each packet whether it is for this host, for a group, or for all.
    #[on(infiniband)]
    fn packets_are_for_whom_they_are_sent_to(bed) {
        const SIZE: u32 = 333;
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        hush(&bed)?;
        b.ok("ip addr add 239.9.9.9/32 dev ib0 autojoin")?;
        let multicast = counter(b, "rx_multicast")?;
        // PACKET_HOST, PACKET_BROADCAST and PACKET_MULTICAST.
        for (kind, address) in [("0", None), ("1", Some(BROADCAST)), ("2", Some(GROUP))] {
            let kinds = b.spawn_python(KINDS, &[&SIZE.to_string(), "1"])?;
            kinds.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
            let sent = || match address {
                None => send_to(a, b, 1, SIZE),
                Some(address) => send(a, address, "0x0800", 1, SIZE),
            };
            sent()?;
            // Until the group is joined, and switches know of that, nothing comes.
            if kind == "2" {
                b.until(Duration::from_secs(10), || {
                    let came = counter(b, "rx_multicast")? > multicast;
                    Ok(came || sent().map(|()| false)?)
                })
                .with_context(|| story(b))?;
            }
            let told = kinds.wait(b.scaled(Duration::from_secs(20)))?.ok()?;
            ensure!(told.lines().last() == Some(kind), "{told} for {address:?}");
        }
        ensure!(counter(b, "rx_multicast")? > multicast);
        bed.finish()
    }
}

const COST: &str = include_str!("../guest/exact/cost.py");

/// Sends a datagram of so many bytes, which count on from 0.
const DATAGRAM: &str = "
import socket, sys
data = bytes(n & 255 for n in range(int(sys.argv[2])))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(data, (sys.argv[1], 5004))
";

scenario! {
    /// A short packet costs its socket the buffer of a long one, unless it is copied (`rx_copybreak`). Either has the
    /// bytes that were sent.
    #[on(infiniband)]
    fn copies_cost_less_than_buffers(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        let mtu: u64 = b.ok("cat /sys/class/net/ib0/mtu")?.trim().parse()?;
        const HEADERS: u64 = 28;
        for (payload, copybreak, is_copied) in [(100, 0, false), (100, 1000, true), (1000 - HEADERS, 1000, true), (1001 - HEADERS, 1000, false)] {
            set(b, "rx_copybreak", copybreak)?;
            let task = b.spawn_python(COST, &[])?;
            task.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
            a.python(DATAGRAM, &[&b.ip4(), &payload.to_string()])?.ok()?;
            let text = task.wait(b.scaled(Duration::from_secs(30)))?.ok()?;
            let cost: u64 = text.lines().last().context("no cost")?.parse()?;
            let right = if is_copied { cost < mtu / 2 } else { cost > mtu };
            ensure!(right && cost > payload, "{payload} bytes cost {cost} with {copybreak}");
        }
        bed.finish()
    }
}
