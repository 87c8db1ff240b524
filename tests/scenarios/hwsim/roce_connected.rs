// SPDX-License-Identifier: GPL-2.0

//! Connected mode over HCAs that lack what it is usually made of: shared receive queues, events of queue pairs,
//! queue pairs at all.

use super::hca;
use super::mads::UMAD;
use super::roce::{ping, up, write};
use super::roce_devices::heal;
use crate::connected::{connect, sends_by, set_mode, story};
use crate::inspect::{directory, identity, table};
use crate::order::{counter, set};
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use serde_json::Value;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

const NAMES: &str = include_str!("../../guest/hwsim/mads/names.py");

/// The largest MTU in connected mode.
const LARGE: u32 = 65520;

/// RC queue pairs of the driver on a host's HCA.
fn queue_pairs(host: &Host) -> Result<Vec<String>> {
    let text = host.ok(&format!("rdma resource show qp link {}/1", hca(host)))?;
    let ours = text
        .lines()
        .filter(|line| line.contains("type RC") && line.contains("comm [ipoib_rs]"));
    Ok(ours.map(str::to_owned).collect())
}

/// Two hosts in connected mode, of which those have no shared receive queues whose number is in `without`.
fn connected<'a>(bed: &'a Bed, without: &[u8]) -> Result<(&'a Host, &'a Host)> {
    up(bed, "mode connected", |bed| {
        for host in bed
            .hosts
            .iter()
            .filter(|host| without.contains(&host.number()))
        {
            write(host, "max_srq", "0")?;
        }
        Ok(())
    })?;
    let (a, b) = bed.pair()?;
    for host in [a, b] {
        host.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
    }
    connect(a, b)?;
    Ok((a, b))
}

/// Everything passes by connections, both ways: packets of all sizes, many flows, and streams whose content is
/// compared.
fn everything_passes(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    for (from, to) in [(a, b), (b, a)] {
        for size in [0, 1, 4092, 4093, 9000, 65492] {
            from.ok(&format!(
                "ping -q -c 2 -i 0.05 -W 5 -M do -s {size} {}",
                to.ip4()
            ))?;
        }
        transfer(from, to, &to.ip4(), 4)?;
        transfer(from, to, &to.ip6(), 4)?;
    }
    for options in ["-P 8", "--bidir"] {
        let end: Value = iperf3(bed, &b.ip4(), options)?;
        let bytes = end.pointer("/sum_received/bytes").and_then(Value::as_f64);
        ensure!(bytes.is_some_and(|bytes| bytes > 1e6), "{options}: {end}");
    }
    for host in [a, b] {
        ensure!(
            !queue_pairs(host)?.is_empty(),
            "no connection: {}",
            story(host)
        );
        ensure!(counter(host, "rc_rx_frames")? > 100, "{}", story(host));
        ensure!(counter(host, "restarts")? == 0, "{}", story(host));
    }
    Ok(())
}

scenario! {
    /// Without shared receive queues at either end, each connection has buffers of its own.
    #[on(lockdep, races)]
    fn connections_have_buffers_of_their_own(bed) {
        let bed = bed.one_machine().up()?;
        let (a, b) = connected(&bed, &[1, 2])?;
        for host in [a, b] {
            let objects = host.ok(&format!("rdma resource show {}", hca(host)))?;
            ensure!(objects.contains(" srq 0"), "{objects}");
        }
        everything_passes(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// One end has a shared receive queue, the other has none.
    #[on(lockdep, races)]
    fn a_shared_receive_queue_at_one_end(bed) {
        let bed = bed.one_machine().up()?;
        connected(&bed, &[2])?;
        everything_passes(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// Connections that end give their buffers back, again and again, under traffic: 64 buffers do for all of them.
    #[on(lockdep, races)]
    fn buffers_come_back(bed) {
        let bed = bed.one_machine().up()?;
        let (a, b) = bed.pair()?;
        a.outside().ok("modprobe -r ipoib_rs; modprobe ipoib_rs rc_recv_queue_size=64")?;
        connected(&bed, &[1, 2])?;
        let flood = a.spawn(&format!("ping -q -i 0.005 -s 20000 {}", b.ip4()))?;
        for round in 0..24 {
            connect_again(if round % 2 == 0 { a } else { b }, round)?;
        }
        flood.stop()?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 8)?;
        bed.finish()
    }
}

scenario! {
    /// Buffers that the device does not flush come back when their queue pair was destroyed: 64 would be used up
    /// by thirteen connections.
    #[on(lockdep, timed)]
    fn buffers_come_back_without_a_flush(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(300)).up()?;
        let (a, b) = bed.pair()?;
        a.outside().ok("modprobe -r ipoib_rs; modprobe ipoib_rs rc_recv_queue_size=64")?;
        connected(&bed, &[1, 2])?;
        for round in 0..14 {
            write(b, "faults", "hold")?;
            end_connections(b, round)?;
            std::thread::sleep(b.scaled(Duration::from_millis(2500)));
            write(b, "faults", "clear")?;
            connect(a, b).with_context(|| format!("round {round}"))?;
        }
        transfer(a, b, &b.ip4(), 4)?;
        ensure!(counter(b, "restarts")? == 0, "{}", story(b));
        bed.finish()
    }
}

scenario! {
    /// There are no more connections to send by than the interface may have; whatever has none goes by UD.
    #[on(lockdep, races)]
    fn connections_with_buffers_of_their_own_are_limited(bed) {
        let bed = bed.one_machine().up()?;
        let (a, b) = connected(&bed, &[1, 2])?;
        set(b, "rc_max_connections", 3)?;
        for host in [a, b] {
            set(host, "rc_max_qps", 8)?;
        }
        connect(a, b)?;
        let end: Value = iperf3(&bed, &b.ip4(), "-P 32")?;
        let bytes = end.pointer("/sum_received/bytes").and_then(Value::as_f64);
        ensure!(bytes.is_some_and(|bytes| bytes > 1e6), "{end}");
        b.ok(&sends_by(b, "-le 3")?).with_context(|| story(b))?;
        // More are wanted: eight bear the streams.
        a.ok(&sends_by(a, "-gt 3")?).with_context(|| story(a))?;
        ensure!(counter(b, "rc_no_room")? > 0, "{}", story(b));
        bed.finish()
    }
}

scenario! {
    /// Connected mode that cannot be had is refused with a sentence, and the interface goes on in the mode that it
    /// was in: whether that shows before its rings are taken down, or after.
    #[on(lockdep, races)]
    fn connected_mode_that_cannot_be_had_changes_nothing(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        let address = a.ok("cat /sys/class/net/ib0/address")?;
        // Finding out takes two completion queues. Without new rings there is a restart, in either mode.
        for (fault, restarts) in [("create_qp ENOMEM from 1", 0), ("create_cq ENOMEM from 3", 2)] {
            write(a, "faults", fault)?;
            let before = counter(a, "restarts")?;
            let text = a.run("ip link set ib0 type ipoib_rs mode connected")?.refused()?;
            ensure!(text.contains("The mode is unchanged"), "{fault}: {text}");
            ensure!(counter(a, "restarts")? == before + restarts, "{fault}");
            ensure!(a.ok("cat /sys/class/net/ib0/mode")?.trim() == "datagram", "{fault}");
            ensure!(a.ok("cat /sys/class/net/ib0/address")? == address, "{fault}");
            a.run(&format!("ip link set ib0 mtu {LARGE}"))?.refused()?;
            ping(a, b)?;
            transfer(b, a, &a.ip4(), 1)?;
            write(a, "faults", "clear")?;
        }
        write(a, "faults", "create_qp ENOMEM from 1")?;
        a.run("echo connected >/sys/class/net/ib0/mode")?.refused()?;
        a.run("ip link add link eth0 name ib1 type ipoib_rs mode connected")?.refused()?;
        write(a, "faults", "clear")?;
        for host in [a, b] {
            set_mode(host, "connected")?;
        }
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

/// Ends all connections of a host, for the `round`-th time.
fn end_connections(host: &Host, round: u32) -> Result<()> {
    // The value that it has already, 60 at first, would change nothing.
    set(host, "rc_idle_s", 61 + round)
}

/// Ends all connections of a host, and waits until there is one again.
fn connect_again(host: &Host, round: u32) -> Result<()> {
    let before = counter(host, "rc_connected")?;
    end_connections(host, round)?;
    let again = format!("[ $(ethtool -S ib0 | sed -n 's/^ *rc_connected: //p') -gt {before} ]");
    host.wait_until(&again, Duration::from_secs(30))
        .with_context(|| format!("round {round}: {}", story(host)))
}

/// Ends the connections of a host, and waits until their queue pairs are gone. How long that took.
fn ended(host: &Host, round: u32) -> Result<Duration> {
    let number = |line: &String| {
        let (_, rest) = line.split_once(" lqpn ")?;
        Some(format!("-e ' lqpn {} '", rest.split(' ').next()?))
    };
    let pairs = queue_pairs(host)?;
    let numbers: Vec<String> = pairs.iter().filter_map(number).collect();
    ensure!(
        !numbers.is_empty() && numbers.len() == pairs.len(),
        "{pairs:?}"
    );
    let gone = format!(
        "! rdma resource show qp link {}/1 | grep 'type RC' | grep -q {}",
        hca(host),
        numbers.join(" ")
    );
    let begin = Instant::now();
    end_connections(host, round)?;
    host.wait_until(&gone, Duration::from_secs(20))?;
    Ok(begin.elapsed())
}

/// Time for which the driver waits for the last receive, which may never come.
const PATIENCE: Duration = Duration::from_secs(2);

scenario! {
    /// A queue pair is destroyed when its device has said that it takes no more from the shared receive queue, and
    /// that may be late.
    #[on(lockdep, races)]
    fn the_last_receive_is_awaited(bed) {
        let bed = bed.one_machine().up()?;
        let (a, b) = connected(&bed, &[])?;
        write(b, "faults", "last_wqe_delay 1500")?;
        let took = ended(b, 1)?;
        ensure!(took >= Duration::from_millis(1500), "{took:?}");
        connect(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Where the device never says so, connections come and go all the same, all but the first without waiting for that,
    /// and no receive is lost for good: 64 would soon be used up.
    #[on(timed, lockdep, races)]
    fn a_last_receive_that_never_comes_costs_nothing(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(300)).up()?;
        let (a, b) = bed.pair()?;
        a.outside().ok("modprobe -r ipoib_rs; modprobe ipoib_rs rc_recv_queue_size=64")?;
        connected(&bed, &[])?;
        write(b, "faults", "no_last_wqe")?;
        let flood = a.spawn(&format!("ping -q -i 0.002 -s 20000 {}", b.ip4()))?;
        for round in 0..24 {
            connect_again(b, round)?;
        }
        flood.stop()?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 8)?;
        ensure!(counter(b, "restarts")? == 0, "{}", story(b));
        let took = ended(b, 80)?;
        ensure!(took < PATIENCE, "{took:?}");
        connect(a, b)?;
        // The interface goes down at once, whatever is still to end.
        end_connections(b, 90)?;
        let begin = Instant::now();
        b.ok("ip link set ib0 down")?;
        ensure!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
        bed.finish()
    }
}

scenario! {
    /// An HCA that has stopped completing anything is switched off while another thread ends an interface on it: the removal
    /// waits for that thread, which has no connection IDs left when the connection manager goes.
    #[on(lockdep, races)]
    fn an_hca_goes_while_a_connection_ends(bed) {
        let bed = bed.one_machine().up()?;
        let (a, b) = connected(&bed, &[])?;
        write(b, "faults", "hold")?;
        let end = b.spawn("ip link del ib0")?;
        b.wait_until("! ip link show ib0", Duration::from_secs(20))?;
        heal(&bed, b)?;
        end.wait(b.scaled(Duration::from_secs(20)))?.ok()?;
        set_mode(b, "connected")?;
        b.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
        connect(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Root of a host asks in ever new names, and the answers go to that host's Ethernet address, whatever it says. It gets what
    /// one host gets.
    #[on(lockdep)]
    fn one_host_has_a_part_in_whatever_names(bed) {
        let bed = bed.one_machine().up()?;
        let (a, b) = connected(&bed, &[])?;
        let (own, _) = identity(a)?;
        let index = a.ok(&format!(
            "cd /sys/class/infiniband/{}/ports/1
             for n in $(ls gids); do
                 [ $(cat gids/$n) = {} ] && grep -q v2 gid_attrs/types/$n && echo $n && break
             done",
            hca(a),
            own.parse::<Ipv6Addr>()?.segments().map(|word| format!("{word:04x}")).join(":")
        ))?;
        let (gid, qpn) = identity(b)?;
        let before = counter(b, "rc_requests_received")?;
        a.python(&format!("{UMAD}{NAMES}"), &[&hca(a), &gid, &qpn, index.trim(), "16"])?.ok()?;
        let came = format!("[ $(ethtool -S ib0 | sed -n 's/^ *rc_requests_received: //p') -ge {} ]", before + 16);
        b.wait_until(&came, Duration::from_secs(10)).with_context(|| story(b))?;
        let rows = table(b, &format!("{}/connections", directory(b, "ib0")?))?;
        let named = rows.iter().filter(|row| row["gid"].starts_with("fe80::bad:")).count();
        ensure!(named == 8, "{named}: {}", story(b));
        bed.finish()
    }
}
