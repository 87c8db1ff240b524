// SPDX-License-Identifier: GPL-2.0

//! Each reason to drop a frame, by the frame that it is for: the counter of that reason counts, and no other.

use crate::hwsim::roce;
use crate::order::counter;
use crate::quiet::hush;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::{forge, scenario};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Cause of drops.
enum Cause {
    /// A frame that the first host forges.
    Forged(&'static str),
    /// Hosts do this, on soft-RoCE.
    Done(fn(&Bed) -> Result<()>),
    /// Hosts and their HCAs do this.
    ByHca(fn(&Bed) -> Result<()>),
    /// No frame from outside, or memory that runs out: another test brings it about, by its file and its name.
    Tested(&'static str, &'static str),
}

use Cause::{ByHca, Done, Forged, Tested};

/// Counters with how much they count, in the order of their names, and the cause.
struct Row {
    drops: &'static [(&'static str, u64)],
    cause: Cause,
}

const fn row(drops: &'static [(&'static str, u64)], cause: Cause) -> Row {
    Row { drops, cause }
}

const RING: &str = include_str!("../../rust/rdma/recv/tests.rs");
const COUNTERS: &str = include_str!("../../drivers/infiniband/ulp/ipoib_rs/base/counters.rs");
const RX: &str = include_str!("../../drivers/infiniband/ulp/ipoib_rs/proto/wire/rx.rs");
const TX: &str = include_str!("../../drivers/infiniband/ulp/ipoib_rs/data/tx.rs");
const UD_RING: &str = include_str!("../../drivers/infiniband/ulp/ipoib_rs/ud/ring.rs");
const SEND: &str = include_str!("../../rust/rdma/send/tests.rs");
const FAULTS: &str = include_str!("faults.rs");
const HOSTILE: &str = include_str!("hostile.rs");
const CONNECTED: &str = include_str!("connected/hostile.rs");

/// All reasons, each at least once.
const ROWS: &[Row] = &[
    row(
        &[("rx_drop_short", 1)],
        Forged(r#"send(struct.pack("!HH", 0x0800, 0))"#),
    ),
    row(
        &[("rx_drop_ether_type", 1)],
        Forged(r#"send(struct.pack("!HH", 0x0101, 0) + bytes(20))"#),
    ),
    row(
        &[("rx_drop_bad_source", 1)],
        Forged(r#"send(struct.pack("!HH", 0x0800, 0) + bytes(20), source_qpn=0xffffff)"#),
    ),
    row(&[("rx_drop_own_multicast", 3)], ByHca(own_multicast)),
    row(&[("rx_drop_bad_status", 1)], ByHca(receive_in_error)),
    row(&[("rx_drop_stopped", 5)], Done(unpolled)),
    row(
        &[("rx_drop_oversized", 1)],
        Tested(RING, "failed_receives_keep_their_buffers"),
    ),
    row(
        &[("rx_drop_oversized", 1)],
        Tested(COUNTERS, "each_failure_has_its_reason"),
    ),
    row(
        &[("rx_drop_bad_completion", 1)],
        Tested(RING, "completions_of_nobody_are_told_of"),
    ),
    row(
        &[("rx_drop_truncated_grh", 1)],
        Tested(RX, "short_packets_are_refused"),
    ),
    row(
        &[("rx_drop_bad_grh", 1)],
        Tested(RX, "a_grh_area_that_is_neither"),
    ),
    row(
        &[("rx_drop_no_buffer", 1)],
        Tested(FAULTS, "messages_that_cannot_be_held"),
    ),
    row(
        &[("rx_drop_bad_extended", 1)],
        Tested(CONNECTED, "a_peer_that_keeps_to_nothing"),
    ),
    row(&[("tx_drop_bad_address", 2)], ByHca(no_group_of_ours)),
    row(&[("tx_drop_ether_type", 2)], ByHca(unknown_type)),
    row(&[("tx_drop_too_big", 1)], ByHca(too_big)),
    row(
        &[("tx_drop_no_path", 64), ("tx_drop_queue_full", 6)],
        ByHca(nobody),
    ),
    row(&[("tx_drop_no_group", 1)], ByHca(no_handle)),
    row(&[("tx_drop_post_failed", 1)], ByHca(refused_send)),
    row(&[("tx_drop_send_failed", 1)], ByHca(send_in_error)),
    row(&[("tx_drop_link_down", 2)], ByHca(port_down)),
    row(&[("tx_drop_flushed", 2)], ByHca(interface_down)),
    row(&[("tx_drop_runt", 1)], Tested(TX, "fronts_are_checked")),
    row(
        &[("tx_drop_ring", 1)],
        Tested(SEND, "a_full_ring_maps_nothing"),
    ),
    row(
        &[("tx_drop_ring", 1)],
        Tested(UD_RING, "refusals_have_reasons"),
    ),
    row(
        &[("tx_drop_map_failed", 1)],
        Tested(SEND, "what_cannot_be_mapped_is_undone"),
    ),
    row(
        &[("tx_drop_no_memory", 1)],
        Tested(FAULTS, "fragments_that_cannot_be_made"),
    ),
    row(
        &[("tx_drop_table_full", 1)],
        Tested(HOSTILE, "a_flood_of_strangers_finds_no_room"),
    ),
];

const RAW: &str = include_str!("../guest/drops/raw.py");

/// Hands frames of a type over, for an address.
pub(crate) fn send(host: &Host, address: &str, kind: &str, count: u32, size: u32) -> Result<()> {
    let arguments = [
        &address.replace(':', ""),
        kind,
        &count.to_string(),
        &size.to_string(),
    ];
    host.python(RAW, &arguments)?.ok()?;
    Ok(())
}

/// Hands IPv4 packets over for the other host.
pub(crate) fn send_to(from: &Host, to: &Host, count: u32, size: u32) -> Result<()> {
    let address = to.ok("cat /sys/class/net/ib0/address")?;
    // Without its flags, so that no frame has a number, and none goes by a connection.
    let address = format!("00{}", &address.trim()[2..]);
    send(from, &address, "0x0800", count, size)
}

/// Address of a host that there is not, by a number. The neighbours are asked for it, for a second.
fn stranger(number: u8) -> String {
    format!("00000123fe8000000000000000000000000100{number:02x}")
}

/// Address of a group of IPv4's.
pub(crate) const GROUP: &str = "00ffffffff12401bffff0000000000000f090909";

/// An interface hears what it sends to a group that it is in.
fn own_multicast(bed: &Bed) -> Result<()> {
    let broadcast = "00ffffffff12401bffff000000000000ffffffff";
    send(bed.pair()?.1, broadcast, "0x0800", 3, 100)
}

/// The HCA has a receive end in error.
fn receive_in_error(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    roce::write(b, "faults", "receive LOC_LEN_ERR at 1")?;
    send_to(a, b, 1, 100)?;
    b.wait_until(
        "ethtool -S ib0 | grep -q 'restarts: [1-9]'",
        Duration::from_secs(10),
    )?;
    roce::write(b, "faults", "clear")?;
    roce::carrier(b, true)
}

/// Frames have come, and nobody has polled for them, when the interface goes down. Soft-RoCE keeps them, other devices forget
/// them with the queue pair.
fn unpolled(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    let defer = |times: u32, ns: u64| {
        b.ok(&format!(
            "cd /sys/class/net/ib0 && echo {times} >napi_defer_hard_irqs && echo {ns} >gro_flush_timeout"
        ))
    };
    defer(1000, 60_000_000_000)?;
    let frames = counter(b, "rx_frames")?;
    // Behind the poll for this one there is none for a minute.
    send_to(a, b, 1, 100)?;
    let came = format!(
        "[ $(ethtool -S ib0 | sed -n 's/^ *rx_frames: //p') = {} ]",
        frames + 1
    );
    b.wait_until(&came, Duration::from_secs(10))?;
    send_to(a, b, 5, 100)?;
    b.ok("ip link set ib0 down")?;
    defer(0, 0)?;
    b.ok("ip link set ib0 up")?;
    roce::carrier(b, true)
}

/// Groups with another signature than IP's, and addresses of no port.
fn no_group_of_ours(bed: &Bed) -> Result<()> {
    let a = bed.pair()?.0;
    send(a, &GROUP.replace("401b", "401c"), "0x0800", 1, 100)?;
    send(
        a,
        &format!("000001230000{}", "0".repeat(28)),
        "0x0800",
        1,
        100,
    )
}

fn unknown_type(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    let address = b.ok("cat /sys/class/net/ib0/address")?;
    send(a, address.trim(), "0x0101", 1, 100)?;
    send(a, GROUP, "0xffff", 1, 100)
}

/// The MTU of connected mode is larger than what a peer takes that has no connections.
fn too_big(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    a.ok("ip link set ib0 type ipoib_rs mode connected && ip link set ib0 mtu 65520")?;
    roce::carrier(a, true)?;
    send_to(a, b, 1, 10_000)?;
    a.wait_until(
        "ethtool -S ib0 | grep -q 'tx_waiting: 0'",
        Duration::from_secs(10),
    )?;
    a.ok("ip link set ib0 type ipoib_rs mode datagram")?;
    roce::carrier(a, true)
}

/// Nobody has an address: there is room for some frames until that is known.
fn nobody(bed: &Bed) -> Result<()> {
    send(bed.pair()?.0, &stranger(1), "0x0800", 70, 100)
}

/// The HCA makes no handle for a group.
fn no_handle(bed: &Bed) -> Result<()> {
    let a = bed.pair()?.0;
    roce::write(a, "faults", "create_ah EIO from 1")?;
    send(a, GROUP, "0x0800", 1, 100)?;
    a.wait_until(
        "ethtool -S ib0 | grep -q 'groups_failed: [1-9]'",
        Duration::from_secs(10),
    )?;
    roce::write(a, "faults", "clear")
}

/// The HCA refuses a send.
fn refused_send(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    roce::write(a, "faults", "post_send EIO at 1")?;
    send_to(a, b, 1, 100)?;
    roce::write(a, "faults", "clear")
}

/// The HCA has a send end in error.
fn send_in_error(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    roce::write(a, "faults", "send LOC_QP_OP_ERR at 1")?;
    send_to(a, b, 1, 100)?;
    a.wait_until(
        "ethtool -S ib0 | grep -q 'qp_recoveries: [1-9]'",
        Duration::from_secs(10),
    )?;
    roce::write(a, "faults", "clear")
}

/// Frames wait for a path, for a second at most, when the port goes down.
fn port_down(bed: &Bed) -> Result<()> {
    let a = bed.pair()?.0;
    send(a, &stranger(2), "0x0800", 2, 100)?;
    roce::plug(bed, false)?;
    roce::carrier(a, false)?;
    roce::plug(bed, true)?;
    roce::carrier(a, true)
}

/// Frames wait for a path when the interface goes down, at once behind them.
fn interface_down(bed: &Bed) -> Result<()> {
    let a = bed.pair()?.0;
    let stranger = stranger(3);
    let frames = [&*stranger, "0x0800", "2", "100"];
    let down = ["ip", "link", "set", "ib0", "down"];
    a.python(RAW, &[&frames[..], &down].concat())?.ok()?;
    a.ok("ip link set ib0 up")?;
    roce::carrier(a, true)
}

/// Counters of drops.
fn drops(host: &Host) -> Result<BTreeMap<String, u64>> {
    let text = host.ok("ethtool -S ib0")?;
    let lines = text
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(name, _)| name.contains("_drop_"));
    lines
        .map(|(name, value)| Ok((name.to_owned(), value.parse()?)))
        .collect()
}

/// Does what a row says, and looks at what was counted: in receiving by the second host, and in sending by the first one.
fn check(bed: &Bed, row: &Row, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let (a, b) = bed.pair()?;
    let (last, _) = row.drops.last().context("no counter")?;
    let host = if last.starts_with("rx_") { b } else { a };
    let before = drops(host)?;
    act()?;
    for (name, count) in row.drops {
        let least = before.get(*name).context("no such counter")? + count;
        host.wait_until(
            &format!("[ $(ethtool -S ib0 | sed -n 's/^ *{name}: //p') -ge {least} ]"),
            Duration::from_secs(15),
        )
        .with_context(|| {
            host.ok("ethtool -S ib0 | grep -v ': 0$'")
                .unwrap_or_default()
        })?;
    }
    let after = drops(host)?;
    let more = after
        .iter()
        .map(|(name, value)| (&**name, value - before[name]));
    let counted: Vec<_> = more.filter(|(_, more)| *more > 0).collect();
    ensure!(counted == row.drops, "{counted:?} were counted");
    Ok(())
}

scenario! {
    /// Frames of no honest peer are dropped, each for its own reason. No reason is left out of the table.
    fn strangers_frames_are_dropped_for_their_reasons(bed) {
        let bed = bed.up()?;
        bed.rxe()?;
        for host in &bed.hosts {
            host.ib_add("mode connected")?;
            host.ib_up()?;
        }
        let (a, b) = bed.pair()?;
        let known: BTreeSet<_> = drops(b)?.into_keys().collect();
        let named = ROWS.iter().flat_map(|row| row.drops).map(|(name, _)| (*name).to_owned());
        ensure!(named.collect::<BTreeSet<_>>() == known, "all of {known:?}");
        for row in ROWS {
            if let Tested(file, name) = row.cause {
                ensure!(file.contains(&format!("fn {name}(")), "{name} is gone, which has tested {:?}", row.drops);
            }
        }
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        hush(&bed)?;
        for row in ROWS {
            let act = || match row.cause {
                Forged(program) => a.python(&forge::program(a, b, program)?, &[])?.ok().map(drop),
                Done(act) => act(&bed),
                ByHca(_) | Tested(..) => Ok(()),
            };
            if let Forged(_) | Done(_) = row.cause {
                check(&bed, row, act).with_context(|| format!("{:?}", row.drops))?;
            }
        }
        bed.finish()
    }
}

scenario! {
    /// Frames that a host cannot send, and those that an HCA spoils, are dropped, each for its own reason.
    #[on(lockdep)]
    fn spoilt_frames_are_dropped_for_their_reasons(bed) {
        let bed = bed.one_machine().up()?;
        roce::up(&bed, "", |bed| roce::write(bed.pair()?.1, "block_loopback", "0"))?;
        let (a, b) = bed.pair()?;
        roce::ping(a, b)?;
        bed.heals(&["tx_drop_post_failed", "qp_recoveries", "self_restarts"]);
        hush(&bed)?;
        for row in ROWS {
            if let ByHca(act) = row.cause {
                // So that there is a path, and the interface sends.
                send_to(a, b, 1, 100)?;
                check(&bed, row, || act(&bed)).with_context(|| format!("{:?}", row.drops))?;
            }
        }
        bed.finish()
    }
}
