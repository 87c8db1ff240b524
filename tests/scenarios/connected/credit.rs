// SPDX-License-Identifier: GPL-2.0

//! Receive buffers: a sender never finds a receiver without one, however slow that is, and what waits in
//! them costs no more than it is worth.

use super::{LARGE, connect, connected, story};
use crate::order::{counter, set};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::machine::Lane;
use lab::scenario;
use std::time::Duration;

/// Sends datagrams from several sockets as fast as they take them, each for some seconds. Arguments: to whom, how
/// many sockets, seconds, octets of each. Prints how many.
const FLOOD: &str = r#"
import os, socket, sys, time
target, sockets, seconds, size = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
read, write = os.pipe()
for n in range(sockets):
    if os.fork() == 0:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect((target, 4100 + n))
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            try:
                s.send(b"x" * size)
                count += 1
            except OSError:
                pass
        os.write(write, b"%d\n" % count)
        os._exit(0)
for n in range(sockets):
    os.wait()
os.close(write)
print(sum(int(line) for line in os.read(read, 65536).split()))
"#;

/// What soft-RoCE has counted of receivers without a buffer, on either side.
fn not_ready(host: &Host) -> Result<u64> {
    let text = host.ok(&format!("rdma statistic show link {}/1", host.rxe()))?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let counts = ["send_rnr_err", "rcvd_rnr_err"].map(|name| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.parse::<u64>().ok()
    });
    let counts = counts.into_iter().sum::<Option<u64>>();
    counts.with_context(|| text.clone())
}

/// Has a socket take what it can of the datagrams of so many octets each that are sent to it while nobody
/// reads, and prints how many those were. Two arguments: the octets, and how large its buffer is.
const HOARD: &str = r#"
import socket, sys
size, room = int(sys.argv[1]), int(sys.argv[2])
s, end = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
# The kernel doubles it.
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room // 2)
s.bind(("", 4200))
end.bind(("", 4201))
print("ready", flush=True)
end.recv(1)
s.setblocking(False)
count = 0
try:
    while True:
        assert s.recv(65536) == (bytes(range(255)) * 257)[:size]
        count += 1
except BlockingIOError:
    print(count)
"#;

/// Sends datagrams, not too fast. Arguments: to whom, octets of each, how many.
const TRICKLE: &str = r#"
import socket, sys, time
target, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(count):
    s.sendto((bytes(range(255)) * 257)[:size], (target, 4200))
    if n % 8 == 7:
        time.sleep(0.005)
time.sleep(0.2)
s.sendto(b".", (target, 4201))
"#;

scenario! {
    /// A socket's buffer is filled by what it holds, and not by receive buffers of which little was used:
    /// whatever the size of the datagrams, at least a quarter of it are their octets.
    fn frames_cost_what_they_are_worth(bed) {
        const BUFFER: u32 = 200_000;
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        for size in [600, 1000, 1500, 2048, 4000, 8000, 9000, 16000, 33000, 60000] {
            let hoard = b.spawn_python(HOARD, &[&size.to_string(), &BUFFER.to_string()])?;
            hoard.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
            let count = 2 * BUFFER / size;
            a.python(TRICKLE, &[&b.ip4(), &size.to_string(), &count.to_string()])?.ok()?;
            let text = hoard.wait(b.scaled(Duration::from_secs(20)))?.ok()?;
            let kept: u32 = text.lines().last().context("no count")?.parse()?;
            ensure!(kept < count, "{size}: the buffer has no limit");
            ensure!(kept * size >= BUFFER / 4, "{kept} of {count} datagrams of {size} octets fit {BUFFER}");
        }
        bed.finish()
    }
}

/// Two hosts with buffers for 64 messages in all, so that a window has room for one, the second with a receive
/// poll that takes one at a time.
fn slow(bed: &Bed) -> Result<(&Host, &Host)> {
    for host in &bed.hosts {
        // In one kernel, the first one does it for both.
        host.outside().ok("grep -qs ^64$ /tmp/few || { modprobe -r ipoib_rs; modprobe ipoib_rs rc_recv_queue_size=64 && echo 64 >/tmp/few; }")?;
    }
    bed.rxe()?;
    let (a, b) = bed.pair()?;
    for host in [a, b] {
        host.ib_add("mode connected")?;
        host.ib_up()?;
    }
    set(b, "napi_budget", 1)?;
    connect(a, b)?;
    Ok((a, b))
}

/// Whether a receiver that is to be slow is slower than one may be: emulated, with all that a debug kernel checks.
fn crawls(bed: &Bed) -> bool {
    let builder = bed.builder();
    builder.lane() == Lane::Qemu && builder.kernel().is_checked()
}

scenario! {
    /// Large frames wait: the queue is stopped before there are too many octets of them, and none is lost.
    fn large_frames_that_wait_are_not_lost(bed) {
        let bed = bed.up()?;
        let (a, b) = slow(&bed)?;
        for host in [a, b] {
            host.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
        }
        connect(a, b)?;
        a.python(FLOOD, &[&b.ip4(), "32", "3", "30000"])?.ok()?;
        // It may take so little that it is given up.
        let excused = crawls(&bed) && counter(a, "rc_stuck")? > 0;
        let lost = counter(a, "tx_drop_queue_full")?;
        ensure!(counter(a, "tx_stops")? > 0 && (lost == 0 || excused), "{}", story(a));
        bed.finish()
    }
}

scenario! {
    /// Buffers for 64 messages in all, so that a window has room for one, and a receive poll that takes one
    /// at a time: the sender waits for grants. No message finds the receiver without a buffer, and none is
    /// lost on the way; nor is the connection taken for stuck, though it is busy for longer than one may be.
    fn a_slow_receiver_is_not_overrun(bed) {
        let bed = bed.up()?;
        let (a, b) = slow(&bed)?;
        let before = [counter(a, "rc_tx_frames")?, counter(b, "rc_rx_frames")?];
        // What eight of them have waiting may be too much for a receiver that is not to be given up.
        let sockets = if crawls(&bed) { "2" } else { "8" };
        let sent: u64 = a.python(FLOOD, &[&b.ip4(), sockets, "7", "1000"])?.ok()?.trim().parse()?;
        b.wait_until("ping -q -c 1 -W 1 10.1.0.1", Duration::from_secs(10))?;
        // Grants alone are no frames.
        let arrived = |host: &Host, name: &str, before: u64| Ok::<_, anyhow::Error>(counter(host, name)? - before);
        a.wait_until("sleep 0.3", Duration::from_secs(5))?;
        let (out, came) = (arrived(a, "rc_tx_frames", before[0])?, arrived(b, "rc_rx_frames", before[1])?);
        let failed = counter(a, "rc_failed")? + counter(b, "rc_failed")?;
        ensure!(out == came || failed > 0, "{out} sent, {came} received");
        ensure!(out > sent / 2, "{sent} datagrams, {out} by the connection");
        ensure!(counter(a, "rc_credit_stalls")? > 0, "{}", a.ok("ethtool -S ib0")?);
        for host in [a, b] {
            ensure!(not_ready(host)? == 0, "{} times a receiver had no buffer", not_ready(host)?);
            for name in ["rc_failed", "rc_stuck"] {
                let count = counter(host, name)?;
                // Where all is slow, an acknowledgement may come too late for soft-RoCE.
                let excused = name == "rc_failed" && bed.builder().kernel().is_checked();
                ensure!(count == 0 || excused, "{name} {count} at {}: {}", host.ip4(), host.ok("ethtool -S ib0; rdma statistic")?);
            }
        }
        bed.finish()
    }
}
