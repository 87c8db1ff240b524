// SPDX-License-Identifier: GPL-2.0

//! A sender never finds a receiver without a buffer, however slow that is.

use super::connect;
use crate::order::{counter, set};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Sends datagrams from several sockets as fast as they take them, each for some seconds. Prints how many.
const FLOOD: &str = r#"
import os, socket, sys, time
target, sockets, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
read, write = os.pipe()
for n in range(sockets):
    if os.fork() == 0:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect((target, 4100 + n))
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            try:
                s.send(b"x" * 1000)
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

scenario! {
    /// Buffers for 64 messages in all, so that a window has room for one, and a receive poll that takes one
    /// at a time: the sender waits for grants. No message finds the receiver without a buffer, and none is
    /// lost on the way; nor is the connection taken for stuck, though it is busy for longer than one may be.
    fn a_slow_receiver_is_not_overrun(bed) {
        let bed = bed.up()?;
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
        let before = [counter(a, "rc_tx_frames")?, counter(b, "rc_rx_frames")?];
        let sent: u64 = a.python(FLOOD, &[&b.ip4(), "8", "7"])?.ok()?.trim().parse()?;
        b.wait_until("ping -q -c 1 -W 1 10.1.0.1", Duration::from_secs(10))?;
        // Grants alone are no frames.
        let arrived = |host: &Host, name: &str, before: u64| Ok::<_, anyhow::Error>(counter(host, name)? - before);
        a.wait_until("sleep 0.3", Duration::from_secs(5))?;
        let (out, came) = (arrived(a, "rc_tx_frames", before[0])?, arrived(b, "rc_rx_frames", before[1])?);
        ensure!(out == came, "{out} sent, {came} received");
        ensure!(out > sent / 2, "{sent} datagrams, {out} by the connection");
        ensure!(counter(a, "rc_credit_stalls")? > 0, "{}", a.ok("ethtool -S ib0")?);
        for host in [a, b] {
            ensure!(not_ready(host)? == 0, "{} times a receiver had no buffer", not_ready(host)?);
            for name in ["rc_failed", "rc_stuck"] {
                let count = counter(host, name)?;
                ensure!(count == 0, "{name} {count} at {}: {}", host.ip4(), host.ok("ethtool -S ib0; rdma statistic")?);
            }
        }
        bed.finish()
    }
}
