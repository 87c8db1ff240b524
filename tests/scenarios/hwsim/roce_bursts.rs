// SPDX-License-Identifier: GPL-2.0

//! Bursts of frames to this checkout's driver over Ethernet ports: each is handed to the device at its end, whatever becomes
//! of its last frame, and what a poll takes is posted again in its middle. And frames that are no bursts, and as fast.

use super::device_failures::struck_in;
use super::roce::{file, ping, up, write};
use crate::connected::{connect, set_mode, story};
use crate::drops::{GROUP, send, send_to};
use crate::order::{counter, counters};
use crate::quiet::hush;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

/// Where the byte queue limit of a host is.
const LIMITS: &str = "/sys/class/net/ib0/queues/tx-0/byte_queue_limits";

const BURST: &str = include_str!("../../guest/hwsim/roce_bursts/burst.py");

const SINGLES: &str = include_str!("../../guest/hwsim/roce_bursts/singles.py");

/// Frames of a burst that are for the peer.
const GOOD: u64 = 4;

/// Doorbells for all of it: for the frame that is under way, for the next one, which the stack has tried to send in vain,
/// and for all others.
const DOORBELLS: u64 = 3;

/// Waits until all frames of a host have left.
fn all_sent(host: &Host) -> Result<()> {
    host.wait_until(
        "ethtool -S ib0 | grep -q ' tx_posted: 0$'",
        Duration::from_secs(10),
    )
}

/// Has nothing sent but what a scenario sends. With one byte under way, the queue waits, and the stack gathers frames.
fn prepare(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    hush(bed)?;
    a.ok(&format!(
        "echo 0 >{LIMITS}/limit_min && echo 1 >{LIMITS}/limit_max"
    ))?;
    send_to(a, b, 2, 100)?;
    a.wait_until(
        &format!("[ $(cat {LIMITS}/limit) = 1 ]"),
        Duration::from_secs(10),
    )?;
    all_sent(a)
}

/// Hands a burst over at once: some frames for the peer, and a last one for `last`. One for the peer is under way until
/// then; and before that, there is one for `first`.
fn burst(bed: &Bed, first: Option<&str>, last: &str) -> Result<()> {
    let (a, b) = bed.pair()?;
    let peer = b.ok("cat /sys/class/net/ib0/address")?;
    // Without its flags, so that no frame has a number.
    let peer = format!("00{}", &peer.trim().replace(':', "")[2..]);
    write(a, "faults", "hold")?;
    // The first frame that completes changes the limit.
    a.ok(&format!(
        "echo 1000000 >{LIMITS}/limit_max && echo 1000000 >{LIMITS}/limit_min"
    ))?;
    let first = first.unwrap_or(&peer);
    a.python(BURST, &[first, &peer, &GOOD.to_string(), last])?
        .ok()?;
    write(a, "faults", "clear")
}

scenario! {
    /// The stack says of each frame of a burst but the last that more follow. The last one is dropped: those before it go
    /// all the same, with one doorbell.
    #[on(lockdep)]
    fn a_burst_goes_though_its_last_frame_is_dropped(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        for last in [GROUP.replace("401b", "401c"), format!("000001230000{}", "0".repeat(28))] {
            prepare(&bed)?;
            let names = ["tx_drop_bad_address", "tx_doorbells", "tx_handed"];
            let (before, frames) = (counters(a, names)?, counter(b, "rx_frames")?);
            burst(&bed, None, &last)?;
            let handed = format!("[ $(ethtool -S ib0 | sed -n 's/^ *tx_handed: //p') = {} ]", before[2] + 2 + GOOD);
            a.wait_until(&handed, Duration::from_secs(10)).with_context(|| story(a))?;
            // At once: a work item that looks after paths now and then would hand them over, too.
            let after = counters(a, names)?;
            let more: [u64; 3] = std::array::from_fn(|i| after[i] - before[i]);
            ensure!(more == [1, DOORBELLS, 2 + GOOD], "{more:?}: {}", story(a));
            let came = format!("[ $(ethtool -S ib0 | sed -n 's/^ *rx_frames: //p') = {} ]", frames + 1 + GOOD);
            b.wait_until(&came, Duration::from_secs(2)).with_context(|| story(a))?;
        }
        bed.finish()
    }
}

scenario! {
    /// The last frame of a burst waits for a path, as another one does already, so that nobody is woken for it: those before
    /// it do not.
    #[on(lockdep)]
    fn a_burst_goes_though_its_last_frame_waits(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        let mut seen = 0;
        // The neighbours are asked for a second, which may be over before anybody looks.
        for number in 0..10 {
            prepare(&bed)?;
            let stranger = format!("00000123fe8000000000000000000000000100{number:02x}");
            let names = ["tx_doorbells", "tx_waiting", "tx_handed"];
            let before = counters(a, names)?;
            burst(&bed, Some(&stranger), &stranger)?;
            let handed = format!("[ $(ethtool -S ib0 | sed -n 's/^ *tx_handed: //p') = {} ]", before[2] + 3 + GOOD);
            a.wait_until(&handed, Duration::from_secs(10)).with_context(|| story(a))?;
            let [doorbells, waiting, _] = counters(a, names)?;
            if waiting == 2 {
                seen += 1;
                ensure!(doorbells == before[0] + DOORBELLS, "{before:?}, {doorbells}: {}", story(a));
            }
            a.wait_until("ethtool -S ib0 | grep -q ' tx_waiting: 0$'", Duration::from_secs(10))?;
        }
        ensure!(seen > 0, "no path was waited for long enough");
        bed.finish()
    }
}

/// How often the call was made that the one rule of a host's HCA is about.
fn called(host: &Host) -> Result<u64> {
    let rules = host
        .outside()
        .ok(&format!("cat {}", file(host, "faults")))?;
    let calls = rules.split(' ').skip_while(|word| *word != "calls").nth(1);
    let calls = calls.with_context(|| rules.clone())?;
    Ok(calls.trim_end_matches(',').parse()?)
}

scenario! {
    /// A poll that takes many messages of connections posts their buffers again as it goes, since the peer may count on
    /// them.
    #[on(lockdep)]
    fn a_long_poll_posts_in_its_middle(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        hush(&bed)?;
        write(b, "faults", "post_srq_recv EIO at 1000000")?;
        // All that comes in half a second is polled at once.
        b.ok("cd /sys/class/net/ib0 && echo 1000 >napi_defer_hard_irqs && echo 500000000 >gro_flush_timeout")?;
        let peer = b.ok("cat /sys/class/net/ib0/address")?;
        let calls = || called(b);
        let frames = |count: u64| {
            let came = format!("[ $(ethtool -S ib0 | sed -n 's/^ *rc_rx_frames: //p') = {count} ]");
            b.wait_until(&came, Duration::from_secs(10)).with_context(|| story(b))
        };
        let (mut before, first) = (counter(b, "rc_rx_frames")?, calls()?);
        send(a, peer.trim(), "0x0800", 1, 100)?;
        before += 1;
        frames(before)?;
        let lone = calls()? - first;
        send(a, peer.trim(), "0x0800", 48, 100)?;
        frames(before + 48)?;
        let posts = calls()? - first - lone;
        // Sixteen at a time; all that was polled at the end of the poll would be one, and one more if there were two polls.
        ensure!(posts >= 3, "{posts} posts: {}", story(b));
        ensure!(struck_in(&b.outside().ok(&format!("cat {}", file(b, "faults")))?, "post_srq_recv")? == 0);
        b.ok("cd /sys/class/net/ib0 && echo 0 >napi_defer_hard_irqs && echo 0 >gro_flush_timeout")?;
        set_mode(b, "datagram")?;
        bed.finish()
    }
}

scenario! {
    /// Frames that are sent one by one, and fast, share completion events: the poll that frees them rests, and asks for
    /// none meanwhile. Each would have one of its own.
    #[on(uml, base)]
    fn single_frames_share_events(bed) {
        // On one CPU, nothing is sent until all is done that comes of the frame before.
        let bed = bed.one_machine().cpus(1).up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        hush(&bed)?;
        // There is no rest while the stack's queue is stopped.
        a.ok(&format!("echo 1000000 >{LIMITS}/limit_max && echo 1000000 >{LIMITS}/limit_min"))?;
        let peer = b.ok("cat /sys/class/net/ib0/address")?;
        // Without its flags, so that no frame has a number.
        let peer = format!("00{}", &peer.trim().replace(':', "")[2..]);
        // It counts the requests for an event.
        write(a, "faults", "req_notify_cq EIO at 1000000000")?;
        let mut seen = Vec::new();
        // A hundred ticks at most. On a busy computer, frames may not be fast enough for most of them.
        a.until(Duration::from_secs(10), || {
            let before = (called(a)?, counter(a, "tx_frames")?);
            a.python(SINGLES, &[&peer, "20"])?.ok()?;
            all_sent(a)?;
            let (events, frames) = (called(a)? - before.0, counter(a, "tx_frames")? - before.1);
            seen.push((events, frames));
            ensure!(frames == 20_000, "{frames} frames: {}", story(a));
            Ok(events < frames * 9 / 10)
        })
        .with_context(|| format!("events and frames: {seen:?}"))?;
        bed.finish()
    }
}
