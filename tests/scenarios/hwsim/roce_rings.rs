// SPDX-License-Identifier: GPL-2.0

//! The rings of this checkout's driver over Ethernet ports: what a device refuses of them, and other ones in use.

use super::roce::{ping, up, write};
use crate::accounts::FLOOD;
use crate::connected::{set_mode, story};
use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const BURST: &str = include_str!("../../guest/hwsim/roce_rings/burst.py");

/// Datagrams of a burst.
const BURSTS: u64 = 24;

/// Waits until a host's rings are empty, and BQL knows of that.
pub(super) fn nothing_is_under_way(host: &Host) -> Result<()> {
    let inflight = "/sys/class/net/ib0/queues/tx-0/byte_queue_limits/inflight";
    let none = format!("ethtool -S ib0 | grep -q ' tx_posted: 0$' && [ $(cat {inflight}) = 0 ]");
    host.wait_until(&none, Duration::from_secs(10))
        .with_context(|| story(host))
}

scenario! {
    /// A device refuses two chains in a row, of 16 and of 8 requests. If it has taken none of the first, nothing has
    /// happened but a loss; if it has taken some, it would not tell of them, and the interface restarts. The queue goes
    /// on either way.
    #[on(lockdep, races)]
    fn two_chains_in_a_row_are_refused(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        // Nothing else is sent, no probe of a neighbour either, and BQL does not cut chains.
        for host in [a, b] {
            host.ok("sysctl -qw net.ipv6.conf.ib0.disable_ipv6=1 net.ipv4.neigh.ib0.base_reachable_time_ms=86400000")?;
        }
        a.ok("echo 1000000 >/sys/class/net/ib0/queues/tx-0/byte_queue_limits/limit_min")?;
        bed.heals(&["tx_drop_post_failed", "self_restarts"]);
        let refused = || counter(a, "tx_drop_post_failed");
        // Behind a restart the stack has more to send, which would come in front of the first chain.
        for (first, more) in [(1, 0), (17, 0), (4, 1), (16, 1), (1, 0)] {
            ping(a, b)?;
            nothing_is_under_way(a)?;
            let (before, restarts) = (refused()?, counter(a, "restarts")?);
            write(a, "faults", &format!("post_send EIO from {first}"))?;
            a.python(BURST, &[&b.ip4()])?.ok()?;
            let lost = refused()? - before;
            // Something of the stack's may be among them.
            let expected = BURSTS + 1 - first;
            ensure!((expected..=expected + 2).contains(&lost), "from {first}: {lost} of {BURSTS}, {}", story(a));
            nothing_is_under_way(a)?;
            write(a, "faults", "clear")?;
            ping(a, b)?;
            let restarted = counter(a, "restarts")? - restarts;
            ensure!(restarted == more, "from {first}: {restarted} restarts, {}", story(a));
        }
        bed.finish()
    }
}

scenario! {
    /// Rings are replaced while the stack sends as fast as it can: the queue waits for the new ones, so that no frame is
    /// dropped for the lack of any, and goes on with them.
    #[on(lockdep, races)]
    fn rings_are_replaced_under_a_flood(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for mode in ["datagram", "connected"] {
            for host in [a, b] {
                set_mode(host, mode)?;
            }
            ping(a, b)?;
            let before = ["tx_drop_link_down", "restarts"].map(|name| counter(a, name));
            let floods = [
                a.spawn_python(FLOOD, &[&b.ip4(), &b.ip6()])?,
                a.spawn(&format!("ping -f -q {}", b.ip4()))?,
            ];
            for size in [64, 1024, 128, 2048, 64, 256, 64, 512] {
                let handed = counter(a, "tx_handed")?;
                a.ok(&format!("ethtool -G ib0 tx {size} rx {size}"))?;
                let goes_on = format!("[ $(ethtool -S ib0 | sed -n 's/^ *tx_handed: //p') -gt {} ]", handed + 200);
                a.wait_until(&goes_on, Duration::from_secs(20)).with_context(|| story(a))?;
            }
            for flood in floods {
                flood.stop()?;
            }
            for (name, before) in ["tx_drop_link_down", "restarts"].into_iter().zip(before) {
                ensure!(counter(a, name)? == before?, "{mode}: {name}: {}", story(a));
            }
            ping(b, a)?;
        }
        bed.finish()
    }
}
