// SPDX-License-Identifier: GPL-2.0

//! Time alone brings about: a frame that waits for others, and restarts of an interface whose device does nothing.

use crate::hwsim::roce;
use crate::order::{ARRIVALS, BEHIND_A_GAP, counter, set};
use crate::quiet::{hush, pin};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::{forge, scenario};
use std::time::{Duration, Instant};

scenario! {
    /// A frame behind a gap that never fills, with nothing behind it, leaves when `reorder_timeout_us` is over: no other
    /// frame brings the poll that finds it.
    ///
    /// The hosts need one clock.
    #[on(uml)]
    fn a_lone_frame_behind_a_gap_leaves_by_the_timer(bed) {
        const TIMEOUT: Duration = Duration::from_millis(100);
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        hush(&bed)?;
        set(b, "reorder_timeout_us", u32::try_from(TIMEOUT.as_micros())?)?;
        let receiver = b.spawn_python(ARRIVALS, &[])?;
        receiver.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
        let read = || -> Result<[u64; 3]> {
            Ok([counter(b, "rx_completions")?, counter(b, "rx_seq_held")?, counter(b, "rx_seq_timed_out")?])
        };
        let before = read()?;
        a.python(&forge::program(a, b, BEHIND_A_GAP)?, &[&a.ip4(), &b.ip4(), "1"])?.ok()?;
        let output = receiver.wait(b.scaled(Duration::from_secs(30)))?.ok()?;
        let after = read()?;
        let more: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        // Nothing came but these.
        ensure!(more == [101, 1, 1], "{more:?}");
        let waits = output.lines().last().unwrap_or_default();
        let [wait] = waits.split(' ').collect::<Vec<_>>()[..] else {
            anyhow::bail!("not one frame behind the gap came through: {output}");
        };
        let wait = Duration::from_secs_f64(wait.parse()?);
        // Two threads have to be scheduled behind it.
        ensure!(wait >= TIMEOUT && wait < TIMEOUT + b.scaled(Duration::from_secs(1)), "{wait:?}");
        bed.finish()
    }
}

/// Waits until the driver has restarted an interface that sends nothing for so many times; how long that took.
fn restarted(host: &Host, times: u64) -> Result<Duration> {
    let begun = Instant::now();
    let limit = Duration::from_secs(40);
    let condition = format!("[ $(ethtool -S ib0 | sed -n 's/^ *tx_timeouts: //p') -ge {times} ]");
    host.wait_until(&condition, limit).with_context(|| {
        host.ok("ethtool -S ib0 | grep -v ': 0$'")
            .unwrap_or_default()
    })?;
    ensure!(counter(host, "tx_timeouts")? == times);
    Ok(begun.elapsed())
}

scenario! {
    /// An HCA completes nothing: its interface restarts when ten seconds have passed, and for the second time when another
    /// twenty have. When the HCA goes on, so does the interface.
    #[on(races)]
    fn restarts_that_do_not_help_become_rarer(bed) {
        let bed = bed.one_machine().up()?;
        roce::up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        roce::ping(a, b)?;
        roce::write(a, "faults", "hold")?;
        // There is always something to be sent.
        let pings = a.spawn(&format!("ping -q -i 0.2 {}", b.ip4()))?;
        bed.heals(&["tx_timeouts", "self_restarts"]);
        // The byte queue limit stops the queue, of which the stack's watchdog tells.
        a.expecting(&["NETDEV WATCHDOG"], || {
            for (times, least) in [(1, 9), (2, 19)] {
                let took = restarted(a, times)?;
                // The driver looks once a second, and the clock may have run for one before it looked.
                ensure!(took >= Duration::from_secs(least), "{times}: after {took:?}");
            }
            Ok(())
        })?;
        roce::write(a, "faults", "clear")?;
        roce::ping(a, b)?;
        pings.stop()?;
        ensure!(counter(a, "restarts")? == 2 && counter(a, "tx_timeouts")? == 2);
        bed.finish()
    }
}

scenario! {
    /// The queueing discipline of the Ethernet below refuses a packet, as it does while it is being replaced. Soft-RoCE ends
    /// the queue pair for that: the interface restarts, and goes on with the next discipline.
    fn a_queue_pair_that_soft_roce_ends_is_replaced(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        bed.heals(&["self_restarts"]);
        let (a, b) = bed.pair()?;
        for _ in 0..2 {
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
            let before = [counter(a, "restarts")?, counter(a, "tx_drop_send_failed")? + counter(a, "tx_drop_flushed")?];
            // There is room for nothing.
            a.ok("tc qdisc replace dev eth0 root pfifo limit 0")?;
            a.run(&format!("ping -q -c 1 -W 1 {}", b.ip4()))?.refused()?;
            let again = format!("[ $(ethtool -S ib0 | sed -n 's/^ *restarts: //p') -gt {} ]", before[0]);
            a.wait_until(&again, Duration::from_secs(10))?;
            let lost = counter(a, "tx_drop_send_failed")? + counter(a, "tx_drop_flushed")?;
            ensure!(lost > before[1], "{}", a.ok("ethtool -S ib0")?);
            a.ok("tc qdisc replace dev eth0 root pfifo limit 1000")?;
        }
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        bed.finish()
    }
}

scenario! {
    /// A send that fails takes the queue pair of datagrams to the state SQE, from which it is recovered: nothing else is
    /// lost, nothing is received less, and the interface does not restart.
    #[on(lockdep, races)]
    fn a_failed_send_is_recovered_from(bed) {
        let bed = bed.one_machine().up()?;
        roce::up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        roce::ping(a, b)?;
        for host in [a, b] {
            pin(host)?;
        }
        bed.heals(&["qp_recoveries"]);
        for times in 1..=3 {
            roce::write(a, "faults", "send LOC_QP_OP_ERR at 1")?;
            let received = counter(a, "rx_frames")?;
            // The second one goes after the first has failed; either direction.
            a.run(&format!("ping -q -c 2 -i 0.5 -W 2 {}", b.ip4()))?;
            let answered = a.ok(&format!("ping -q -c 10 -i 0.02 -W 5 {}", b.ip4()))?;
            ensure!(answered.contains(" 0% packet loss"), "{answered}");
            ensure!(counter(a, "rx_frames")? >= received + 11);
            let counts = [counter(a, "qp_recoveries")?, counter(a, "tx_drop_send_failed")?, counter(a, "restarts")?];
            ensure!(counts == [times, times, 0], "{counts:?} after {times}");
            roce::write(a, "faults", "clear")?;
        }
        bed.finish()
    }
}
