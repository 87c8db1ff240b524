// SPDX-License-Identifier: GPL-2.0

//! Memory that is not to be had. Debug kernels only: they have fault injection.

use crate::connected::{connect, connected, set_mode, story, up};
use crate::inspect::{directory, table};
use crate::order::{counter, set};
use crate::ping::lossless;
use crate::transfer::{Transfer, transfer};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::thread;
use std::time::Duration;

const EACH: &str = include_str!("../guest/faults/each.py");
const NETLINK: &str = include_str!("../guest/faults/netlink.py");
const RINGS: &str = include_str!("../guest/faults/rings.py");
const MODES: &str = include_str!("../guest/faults/modes.py");
const LOAD: &str = include_str!("../guest/faults/load.py");

/// Calls `attempt` with each of its slab allocations failing; returns how many there are, and in how many
/// cases it was refused.
pub(crate) fn each(host: &Host, attempt_and_undo: &str) -> Result<(u32, u32)> {
    numbers(&faults(host, attempt_and_undo, Duration::from_secs(180))?)
}

/// Runs a program that does so; its lines, of two numbers each.
fn faults(host: &Host, program: &str, limit: Duration) -> Result<String> {
    host.ok("cd /run/debug/failslab
         echo N >task-filter; echo 0 >verbose; echo N >ignore-gfp-wait; echo 0 >probability")?;
    let task = host.spawn_python(&format!("{EACH}{program}"), &[])?;
    task.wait(host.scaled(limit))?.ok()
}

fn numbers(line: &str) -> Result<(u32, u32)> {
    let (all, refused) = line.trim().split_once(' ').context("two numbers")?;
    Ok((all.parse()?, refused.parse()?))
}

/// Does that for requests of [`NETLINK`].
fn requests(host: &Host, attempt_and_undo: &str) -> Result<(u32, u32)> {
    let device = match host.is_infiniband() {
        true => host.rdma_device(),
        false => String::new(),
    };
    each(
        host,
        &format!("device = {device:?}\n{NETLINK}{attempt_and_undo}"),
    )
}

/// Every two-hundredth atomic allocation of all the kernel.
const ATOMIC: &str =
    "echo N >task-filter; echo Y >ignore-gfp-wait; echo 100 >interval; echo 50 >probability";
/// Every other atomic allocation of many pages at once. The kernel has another way without, almost
/// everywhere; for where large messages go there is none.
const LARGE_ATOMIC: &str =
    "echo N >task-filter; echo Y >ignore-gfp-wait; echo 1 >interval; echo 50 >probability
     echo 3 >min-order";
/// One in thirty of whatever kind, of tasks that are marked.
const MARKED: &str =
    "echo Y >task-filter; echo N >ignore-gfp-wait; echo 15 >interval; echo 50 >probability";

/// Why an interface on soft-RoCE may restart then.
const NO_MEMORY: &str = "soft-RoCE ends a QP that has no memory for a packet";

/// Has allocations fail until [`stop`].
fn fail(hosts: &[&Host], kinds: &[&str], which: &str) -> Result<()> {
    for (host, kind) in hosts
        .iter()
        .flat_map(|host| kinds.iter().map(move |kind| (host, kind)))
    {
        host.ok(&format!(
            "cd /run/debug/{kind}; echo 0 >verbose; echo -1 >times
             if [ -e min-order ]; then echo 0 >min-order; fi
             {which}"
        ))?;
    }
    Ok(())
}

/// No allocation fails any more.
fn stop(hosts: &[&Host]) -> Result<()> {
    for host in hosts {
        host.ok(
            "for kind in failslab fail_page_alloc; do echo 0 >/run/debug/$kind/probability; done",
        )?;
    }
    Ok(())
}

/// Takes the module away, and then what it stands on. With lockdep, soft-RoCE stays as long as it has a
/// link: the sockets of its queue pairs hold the module.
fn unload(host: &Host) -> String {
    if host.is_infiniband() {
        return "modprobe -r ipoib_rs".to_owned();
    }
    format!(
        "modprobe -r ipoib_rs && rdma link del {} && modprobe -r rdma_rxe",
        host.rxe()
    )
}

scenario! {
    /// Whichever allocation of `ip link add` fails, nothing leaks and a new try works.
    #[on(debug, infiniband)]
    fn links_that_cannot_be_made(bed) {
        let bed = bed.leaks().hosts(1).up()?;
        bed.ports()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs")?;
        // A link may be there though its answer failed.
        let (all, refused) = requests(host, "each(lambda: call(add), lambda error: undone(error, call(delete)))")?;
        ensure!(all > 20 && refused > 5, "{refused} of {all}");
        host.ib_add("")?;
        host.ib_up()?;
        host.ok(&unload(host))?;
        bed.finish()
    }
}

/// Has each allocation of bringing up an interface in a mode fail: there are `least`, and it cannot do
/// without a quarter of them.
fn bring_up(bed: &Bed, mode: &str, least: u32) -> Result<()> {
    bed.ports()?;
    let host = &bed.hosts[0];
    host.ib_add(&format!("mode {mode}"))?;
    let (all, refused) = requests(
        host,
        "ready = up()
each(lambda: call(ready), lambda error: undone(0, call(down())))",
    )?;
    ensure!(all > least && refused > least / 4, "{refused} of {all}");
    host.ib_up()?;
    host.ok(&unload(host))?;
    Ok(())
}

scenario! {
    /// Whichever allocation of `ip link set up` fails, nothing leaks and a new try works.
    #[on(debug, infiniband)]
    fn links_that_cannot_go_up(bed) {
        let bed = bed.leaks().hosts(1).up()?;
        bring_up(&bed, "datagram", 20)?;
        bed.finish()
    }
}

scenario! {
    /// Connected mode needs more memory to go up: a shared receive queue, a ring for all connections. Nothing of it leaks.
    #[on(debug, infiniband)]
    fn connected_links_that_cannot_go_up(bed) {
        let bed = bed.leaks().hosts(1).up()?;
        bring_up(&bed, "connected", 40)?;
        bed.finish()
    }
}

scenario! {
    /// Whichever allocation of a change of the rings fails, it is refused or done, and the interface
    /// works on.
    #[on(debug, infiniband)]
    fn rings_that_cannot_be_made(bed) {
        let bed = bed.leaks().up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let (all, refused) = each(b, RINGS)?;
        // Nearly all are done: what cannot be changed in passing is made anew, and the fault has struck by then.
        ensure!(all > 20 && refused < all / 4, "{refused} of {all}");
        lossless(a, &format!("-c 3 -i 0.1 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// Whichever allocation of a change of the mode fails while the interface is up, it is in the old mode or in the
    /// new one, as its answer says, and works on. Nothing of either is left behind.
    #[on(debug, infiniband)]
    fn modes_that_cannot_be_changed(bed) {
        let bed = bed.leaks().lifetime(Duration::from_secs(400)).up()?;
        bed.ib()?;
        bed.may_heal(&["self_restarts"], "the peer replaces buffers that connections may have taken along as they ended");
        let (a, b) = bed.pair()?;
        set_mode(a, "connected")?;
        let objects = || b.ok(&format!("rdma resource show {}", b.rdma_device()));
        let before = objects()?;
        let answers = faults(b, &format!("peer = {:?}\n{MODES}", a.ip4()), Duration::from_secs(300))?;
        for line in answers.lines() {
            let (all, refused) = numbers(line)?;
            ensure!(all > 20 && refused > 0, "{refused} of {all} were refused: {answers}");
        }
        set_mode(b, "datagram")?;
        // A work item destroys what has ended.
        let as_before = format!("[ \"$(rdma resource show {})\" = '{}' ]", b.rdma_device(), before.trim_end_matches('\n'));
        b.wait_until(&as_before, Duration::from_secs(10))
            .with_context(|| format!("{before}{}", objects().unwrap_or_default()))?;
        set_mode(b, "connected")?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

scenario! {
    /// Whichever allocation of loading the module with both link types fails, the next attempt works.
    #[on(debug)]
    fn modules_that_cannot_be_loaded(bed) {
        let bed = bed.leaks().hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs && rmmod ipoib_rs")?;
        let file = host.ok("modinfo -n ipoib_rs")?;
        let load = || each(host, &format!("module = {:?}\n{LOAD}", file.trim()));
        // A kernel with tracing has a word about the module's events.
        let traces = host.run("test -e /sys/kernel/tracing/events")?.success();
        let (all, refused) = match traces {
            true => host.expecting(&["^WARNING: kernel/trace/trace_events.c:.* at event_define_fields"], load)?,
            false => load()?,
        };
        ensure!(all > 20 && refused > 5, "{refused} of {all}");
        host.ib_add("")?;
        host.ib_up()?;
        bed.finish()
    }
}

scenario! {
    /// Atomic allocations fail under traffic, all over the kernel: frames are lost, but the rings do
    /// not stall and nothing leaks.
    #[on(debug, infiniband)]
    fn frames_that_cannot_be_held(bed) {
        let bed = bed.leaks().up()?;
        bed.ib()?;
        if !bed.hosts[0].is_infiniband() {
            bed.may_heal(&["self_restarts"], NO_MEMORY);
        }
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        fail(&[a, b], &["failslab"], ATOMIC)?;
        // Lost frames are fine; a hang is not.
        a.run_for(&format!("ping -f -q -c 3000 -s 3000 -w 20 {}", b.ip4()), Duration::from_secs(30))?;
        a.run_for(&format!("ping -f -q -c 1000 -w 20 {}", b.ip6()), Duration::from_secs(30))?;
        stop(&[a, b])?;
        // ARP may have lacked memory, too.
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(15))?;
        lossless(a, &format!("-f -c 1000 {}", b.ip4()))?;
        bed.finish()
    }
}

/// Sends a datagram to a group, which takes three of the fabric's: from the address `own`.
const TO_GROUP: &str = "
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
data = bytes(10000)
attempt = lambda: s.sendto(data, ('239.9.9.9', 9)) and 0
";

scenario! {
    /// Whichever allocation of a multicast packet that is sent in fragments fails, those that went are counted, and so is the
    /// packet.
    #[on(debug)]
    fn fragments_that_cannot_be_made(bed) {
        let bed = bed.leaks().up()?;
        up(&bed)?;
        let (a, _) = bed.pair()?;
        let program = format!("own = {:?}\n{TO_GROUP}", a.ip4());
        a.python(&format!("import socket\n{program}attempt()"), &[])?.ok()?;
        let sent = "ethtool -S ib0 | grep -q 'tx_pieces: [1-9]' && ethtool -S ib0 | grep -q 'tx_waiting: 0$'";
        a.wait_until(sent, Duration::from_secs(20))?;
        let names = ["tx_cut", "tx_pieces", "tx_drop_no_memory"];
        let read = || names.map(|name| counter(a, name));
        let before = read();
        // Not each attempt strikes: the fault is for the sender's own allocations, and the stack may leave the
        // transmission to its softirq.
        for _ in 0..5 {
            let (all, _) = each(a, &format!("{program}each(attempt, lambda error: None)"))?;
            ensure!(all >= 3, "{all} allocations");
        }
        let mut more = [0; 3];
        for ((more, after), before) in more.iter_mut().zip(read()).zip(before) {
            *more = after? - before?;
        }
        let [cut, pieces, dropped] = more;
        // Each fragment is an allocation at least; without one of them, those in front of it went.
        ensure!(dropped >= 3 && cut > 0 && pieces > 3 * cut && pieces < 3 * (cut + dropped), "{more:?}");
        bed.finish()
    }
}

scenario! {
    /// Connections under failing allocations: messages are lost, but none arrives wrong, and neither credits nor
    /// rings stall. Soft-RoCE ends connections itself when it has no memory.
    #[on(debug)]
    fn messages_that_cannot_be_held(bed) {
        let bed = bed.leaks().up()?;
        bed.may_heal(&["self_restarts"], NO_MEMORY);
        bed.may_lose_gsi(NO_MEMORY);
        let (a, b) = connected(&bed)?;
        for host in [a, b] {
            // An emulated clock is fast.
            set(host, "rc_idle_s", 3600)?;
        }
        connect(a, b)?;
        let before = (counter(a, "rc_connected")?, counter(b, "rc_connected")?);
        // With -w, ping goes on until it has so many answers: one that is late is a loss to it.
        let flood = |size: u32, limit: &str| {
            let ping = format!("ping -f -q -c 250 -s {size} {limit} {}", b.ip4());
            a.run_for(&ping, Duration::from_secs(30))
        };
        let lost = || -> Result<u64> {
            Ok(counter(a, "rx_drop_no_buffer")? + counter(b, "rx_drop_no_buffer")?)
        };
        // One at a time: the host that answers has room for a few large ones only, and so has the socket of one ping
        // for all that it asks, which counts where all is slow. The first may be lost: soft-RoCE may have ended the
        // connection at the other end, which shows as something is sent by it. Then a hundred in a row are answered,
        // and nothing is dropped.
        let calm = |size: u32| -> Result<()> {
            let stories = || format!("{}{}", story(a), story(b));
            let ping = format!("ping -q -c 1 -s {size} -W 10 {}", b.ip4());
            a.wait_until(&ping, Duration::from_secs(20)).with_context(stories)?;
            let before = lost()?;
            let hundred = format!("for i in $(seq 100); do {ping} || exit 1; done");
            a.run_for(&hundred, Duration::from_secs(60))?.ok().with_context(stories)?;
            ensure!(lost()? == before, "{}", stories());
            Ok(())
        };
        // Soft-RoCE sends lost packets again a second later, and all that waits behind them at once: more than the
        // socket of ping takes.
        let settle = || {
            let ping = format!("ping -c 3 -i 0.1 -W 1 {}", b.ip4());
            a.wait_until(&ping, Duration::from_secs(15))
                .with_context(|| format!("{}{}", story(a), story(b)))
        };
        fail(&[a, b], &["fail_page_alloc"], LARGE_ATOMIC)?;
        // As long as the pools have pages, none has to be found.
        let enough = || {
            for size in [30_000, 60_000] {
                flood(size, "-l 20 -w 6")?;
            }
            Ok(lost()? >= 12)
        };
        a.until(Duration::from_secs(30), enough)
            .with_context(|| format!("next to nothing was lost: {}{}", story(a), story(b)))?;
        stop(&[a, b])?;
        settle()?;
        calm(30_000)?;
        // Messages that were lost took room for a while only. Frames of TCP say how much there is.
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        let number = |host: &Host, state: &str, name: &str| -> Result<u32> {
            let rows = table(host, &format!("{}/connections", directory(host, "ib0")?))?;
            let row = rows.iter().find(|row| row["state"] == state);
            Ok(row.with_context(|| story(host))?[name].parse()?)
        };
        let after = (counter(a, "rc_connected")?, counter(b, "rc_connected")?);
        ensure!(after == before, "made anew: {}{}", story(a), story(b));
        for (host, other) in [(a, b), (b, a)] {
            ensure!(counter(host, "rc_stuck")? == 0, "{}", story(host));
            let (room, window) = (number(host, "up", "may_send")?, number(other, "receiving", "window")?);
            // A credit limit comes once half of the window is news.
            ensure!(room + window / 2 + 4 >= window && room <= window, "room for {room} of {window}: {}{}", story(host), story(other));
        }

        let everything = || fail(&[a, b], &["failslab", "fail_page_alloc"], ATOMIC);
        everything()?;
        // In the head of a buffer, copied behind it, in its first page, copied behind that, in two and in all.
        for size in [100, 2_000, 6_000, 9_000, 30_000, 60_000] {
            flood(size, "-w 6")?;
        }
        // To bind or connect a socket takes memory that TCP does not wait for. Nor does it wait for a neighbour whose
        // last ARP request was one of those without memory.
        stop(&[a, b])?;
        settle()?;
        b.wait_until(&format!("ping -q -c 1 -W 1 {}", a.ip6()), Duration::from_secs(15))?;
        // Until they are both there and memory fails, some seconds pass where all is slow.
        let seconds = 5 + a.scaled(Duration::from_secs(3)).as_secs() as u32;
        let flows = [
            Transfer::start(a, b, &b.ip4(), 4, seconds)?,
            Transfer::start(b, a, &a.ip6(), 4, seconds)?,
        ];
        everything()?;
        // Under this, streams come to a halt more and more often, and for longer and longer.
        thread::sleep(Duration::from_secs(5));
        stop(&[a, b])?;
        for flow in flows {
            flow.finish().with_context(|| format!("{}{}", story(a), story(b)))?;
        }
        // There may be no more connections: the CM's queue pair has not survived if it lacked memory, too,
        // since the RDMA core posts nothing again of what was flushed.
        settle()?;
        transfer(a, b, &b.ip4(), 4)?;
        calm(1_000)?;
        bed.finish()
    }
}

scenario! {
    /// Allocations of the kernel's workers fail now and then, while connections are asked for, accepted
    /// and ended: some do not come about, and nothing else is lost. Those that soft-RoCE sends by are left
    /// alone: it ends a queue pair when it has no memory, and that of the CM does not come back.
    #[on(debug, infiniband)]
    fn connections_that_cannot_be_made(bed) {
        let bed = bed.leaks().up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        fail(&[a, b], &["failslab", "fail_page_alloc"], MARKED)?;
        let failed = || -> Result<u64> { Ok(counter(a, "rc_failed")? + counter(b, "rc_failed")?) };
        let (mut rounds, mut answered) = (0, 0);
        // Which allocations fail is left to chance: one in thirty.
        while rounds < 6 || (rounds < 40 && failed()? == 0) {
            let round = rounds;
            rounds += 1;
            for host in [a, b] {
                host.ok("for task in $(pgrep '^kworker/[0-9]'); do echo 1 >/proc/$task/make-it-fail; done 2>/dev/null; true")?;
            }
            // Either way it begins anew, without a delay for the failures before.
            let host = if round % 2 == 0 { a } else { b };
            set_mode(host, "datagram")?;
            set_mode(host, "connected")?;
            let (from, to) = if round % 3 == 0 { (b, a) } else { (a, b) };
            let ping = format!("ping -q -c 20 -i 0.05 -W 1 {}", to.ip4());
            let output = from.run_for(&ping, Duration::from_secs(30))?;
            answered += u32::from(output.code == Some(0));
        }
        stop(&[a, b])?;
        ensure!(2 * answered > rounds, "{answered} of {rounds}: {}{}", story(a), story(b));
        ensure!(failed()? > 0, "all went well: {}{}", story(a), story(b));
        // One that has failed for long enough waits for a minute, but takes what the other asks for.
        set_mode(a, "datagram")?;
        set_mode(a, "connected")?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 4)?;
        for host in [a, b] {
            host.ok("ip link del ib0")?;
        }
        bed.finish()
    }
}
